// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The calls of processes: the results that each may have, and its effect.
//!
//! The contract is total: for each call in each state [`Contract::results`] returns the set of
//! results, and [`Contract::take`] changes the [objects](Objects) by a call with one of these.
//! Calls are done one after the other. One that was made at the same time as others may have the
//! results that it has in any order of them.

use crate::call::{
    Alloc, Attributes, Breach, Call, Caller, Destroy, Id, Membership, Modify, Outcome, Results,
    Right, State,
};
use crate::objects::{Known, Objects, QP_GONE, QpId};
use crate::{Errno::*, Errnos, Lifetime, Mutant};

/// See the [module's documentation](self).
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Contract {
    /// The objects, for what changes them beside calls of the module: files and descriptors that
    /// are closed, events, reads.
    pub objects: Objects,
}

impl Contract {
    /// Returns the contract of a device without objects.
    pub fn new() -> Contract {
        Contract::default()
    }

    /// Returns the results that a call may have.
    pub fn results(&self, caller: Caller, call: &Call) -> Results {
        let mut results = Results::default();
        if self.objects.is_removed(caller.file) {
            results.refuse_if(true, EIO);
            return results;
        }
        match call {
            Call::Alloc(alloc) => self.alloc(caller, alloc, &mut results),
            Call::Modify(modify) => self.modify(caller, modify, &mut results),
            Call::Destroy(destroy) => self.destroy(caller, destroy, &mut results),
            Call::Reg { channel, numbers } => self.reg(caller, *channel, numbers, &mut results),
            Call::Unreg { channel, numbers } => {
                self.of_channel(caller, *channel, &mut results);
                let is_of_all = self.objects.is_of_all(*channel);
                results.refuse_if(numbers.is_empty() || is_of_all, EINVAL);
                if results.certain.is_empty() {
                    results.done = numbers.len();
                }
            }
            Call::Query { handle, number } => {
                self.named(caller.file, *handle, *number, &mut results);
            }
            Call::QueryDomain { handle } => {
                let domain = self.objects.domain(caller.file, *handle);
                results.refuse_if(domain.is_none(), ENOENT);
            }
            Call::EventChannelAlloc { handle, mask, of } => {
                let domain = self.objects.domain(caller.file, *handle);
                results.refuse_if(domain.is_none(), ENOENT);
                // Without events there is no end to read.
                let has_end = *mask == 0 || mask & (1 << QP_GONE) != 0;
                let takes_mask = *of == Some(Membership::Named) || has_end;
                results.refuse_if(of.is_none() || !takes_mask, EINVAL);
            }
            Call::QueryCaps => (),
        }
        results
    }

    fn alloc(&self, caller: Caller, alloc: &Alloc, results: &mut Results) {
        let domain = self.objects.domain(caller.file, alloc.handle);
        results.refuse_if(domain.is_none(), ENOENT);
        results.refuse_if(caller.right < Right::Write, EACCES);
        results.refuse_if(alloc.lifetime.is_none(), EINVAL);
        match alloc.attributes {
            Attributes::Absent | Attributes::To(State::Reset | State::Init | State::Rtr) => (),
            Attributes::To(_) | Attributes::Invalid => results.refuse_if(true, EINVAL),
            Attributes::Any => results.possible.add_if(true, EINVAL),
        }
        let Some(channel) = alloc.channel else {
            // No registration would keep it.
            results.refuse_if(alloc.lifetime != Some(Lifetime::Domain), EINVAL);
            return;
        };
        match self.objects.domain_of(caller.file, channel) {
            Some(of_channel) => {
                let is_kept =
                    alloc.lifetime == Some(Lifetime::Domain) || self.objects.keeps_new(channel);
                results.refuse_if(of_channel != domain || !is_kept, EINVAL);
            }
            None => results.refuse_if(true, EBADF),
        }
    }

    fn modify(&self, caller: Caller, modify: &Modify, results: &mut Results) {
        let Modify { handle, number, .. } = *modify;
        let Some(qp) = self.named(caller.file, handle, number, results) else {
            return;
        };
        results.refuse_if(qp.right_of(caller) < Right::Write, EACCES);
        match (modify.attributes, qp.state) {
            (Attributes::To(to), Some(state)) => {
                results.refuse_if(!state.may_go_to(to), EINVAL);
            }
            (Attributes::To(State::Reset | State::Err), None) => (),
            // The device knows whether it has the transition, or takes attributes without one.
            (Attributes::To(_), None) | (Attributes::Absent | Attributes::Any, _) => {
                results.possible.add_if(true, EINVAL);
            }
            (Attributes::Invalid, _) => results.refuse_if(true, EINVAL),
        }
    }

    fn destroy(&self, caller: Caller, destroy: &Destroy, results: &mut Results) {
        let Destroy {
            handle,
            number,
            force,
        } = *destroy;
        results.refuse_if(force.is_none(), EINVAL);
        let Some(qp) = self.named(caller.file, handle, number, results) else {
            return;
        };
        if force == Some(true) {
            let may_force = qp.right_of(caller) == Right::Own || Mutant::ForceByAnyone.is_made();
            results.refuse_if(!may_force, EACCES);
            return;
        }
        let lives_on = qp.life.lifetime == Some(Lifetime::Domain);
        results.refuse_if(qp.right_of(caller) < Right::Write, EACCES);
        results.refuse_if(!lives_on, EINVAL);
        let is_kept = qp.life.keeping != 0 && !Mutant::DestroyOfKept.is_made();
        results.refuse_if(lives_on && is_kept, EBUSY);
    }

    fn reg(&self, caller: Caller, channel: Id, numbers: &[u32], results: &mut Results) {
        let Some(domain) = self.of_channel(caller, channel, results) else {
            return;
        };
        let is_found = |number: &&u32| {
            let found = domain.and_then(|domain| self.objects.find(domain, **number));
            found.is_some() || Mutant::RegOfUnknown.is_made()
        };
        results.done = numbers.iter().take_while(is_found).count();
        results.refuse_if(results.done < numbers.len() || numbers.is_empty(), EINVAL);
    }

    /// Returns the domain of the channel that REG or UNREG names, none if that was closed; or adds
    /// the error. A channel that has ended with its file can be called by the ioctl alone.
    fn of_channel(&self, caller: Caller, channel: Id, results: &mut Results) -> Option<Option<Id>> {
        let has_ended = self.objects.has_ended(caller.file, channel);
        let domain = self.objects.domain_of(caller.file, channel);
        results.refuse_if(has_ended, EIO);
        results.refuse_if(!has_ended && domain.is_none(), EBADF);
        domain
    }

    /// Returns the QP that a call names, or adds the error of naming none.
    fn named(&self, file: Id, handle: u64, number: u32, results: &mut Results) -> Option<&Known> {
        let Some(domain) = self.objects.domain(file, handle) else {
            results.refuse_if(true, ENOENT);
            return None;
        };
        let qp = self.objects.find(domain, number);
        results.refuse_if(qp.is_none(), EINVAL);
        self.objects.qp(qp?)
    }

    /// Takes a call that was made, with its outcome. `possible` are errors that it may have for
    /// reasons that the objects do not tell.
    pub fn take(
        &mut self,
        caller: Caller,
        call: &Call,
        outcome: &Outcome,
        possible: Errnos,
    ) -> Result<(), Breach> {
        let mut results = self.results(caller, call);
        results.possible = results.possible.or(possible);
        if !results.has(outcome.result) {
            return Err(Breach::Result(results));
        }
        match call {
            Call::Modify(modify) => self.modified(caller, modify, outcome),
            Call::Reg { channel, numbers } => {
                for number in outcome.check_done(numbers, &results)? {
                    self.objects.register(caller, *channel, *number);
                }
            }
            Call::Unreg { channel, numbers } => {
                for number in outcome.check_done(numbers, &results)? {
                    self.objects.unregister_number(*channel, *number);
                }
            }
            _ if outcome.result.is_err() => (),
            Call::Alloc(alloc) => {
                if let Some(domain) = self.objects.domain(caller.file, alloc.handle) {
                    self.objects.alloc(caller, domain, alloc, outcome)?;
                }
            }
            Call::Destroy(destroy) => {
                if let Some(id) = self.id(caller.file, destroy.handle, destroy.number) {
                    let forced = destroy.force == Some(true) || Mutant::DestroyOfKept.is_made();
                    self.objects.end(id, forced, false);
                }
            }
            Call::EventChannelAlloc { handle, mask, of } => {
                let domain = self.objects.domain(caller.file, *handle);
                if let (Some(domain), Some(of)) = (domain, *of) {
                    let channel = outcome.channel;
                    self.objects
                        .create_channel(channel, caller, domain, *mask, of);
                }
            }
            Call::QueryDomain { handle } => self.check_total(caller, *handle, outcome)?,
            Call::Query { .. } | Call::QueryCaps => (),
        }
        Ok(())
    }

    fn check_total(&self, caller: Caller, handle: u64, outcome: &Outcome) -> Result<(), Breach> {
        let domain = self.objects.domain(caller.file, handle);
        let total = domain.map_or(0, |domain| self.objects.count(domain));
        match outcome.total {
            Some(reported) if reported != total => Err(Breach::Total(total)),
            _ => Ok(()),
        }
    }

    fn id(&self, file: Id, handle: u64, number: u32) -> Option<QpId> {
        let domain = self.objects.domain(file, handle)?;
        self.objects.find(domain, number)
    }

    fn modified(&mut self, caller: Caller, modify: &Modify, outcome: &Outcome) {
        let Some(id) = self.id(caller.file, modify.handle, modify.number) else {
            return;
        };
        match (modify.attributes, outcome.result) {
            (Attributes::To(state), Ok(())) => self.objects.modified(id, Some(state)),
            // A transition that is refused leaves the QP as it is. A provider that fails may not.
            (_, Err(EINVAL | EACCES)) | (Attributes::Absent, Ok(())) => (),
            _ => self.objects.modified(id, None),
        }
    }
}
