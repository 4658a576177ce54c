// SPDX-License-Identifier: GPL-2.0

//! The results of calls of several threads are those of some order of the calls.
//!
//! Each call is noted with the times of its begin and its end. At the end of an execution an order
//! is looked for in which the contract of the specification allows each result, and leaves the QPs
//! that there are: a call that ended before another began comes before it.

use crate::{opened, qp_status::Lifetime, rdma::qp_attr::QpState, right::Right};
use kernel::{prelude::*, runtime};
use std::sync::{
    atomic::{AtomicU32, Ordering},
    Mutex, MutexGuard,
};
use xrc_rcv_spec::{
    Alloc, Attributes, Call, Caller, Contract, Destroy, Errno, Errnos, Id, Membership, Modify,
    Objects, Outcome, State,
};

/// The one domain that the processes share.
pub(crate) const DOMAIN: Id = 1;

/// The handle of the domain in each file.
pub(crate) const HANDLE: u64 = 1;

/// A step that a thread has done.
enum Step {
    Call(Caller, Call, Outcome, Errnos),
    /// Another end of objects, or an opening.
    Effect(Box<dyn Fn(&mut Objects) + Send>),
}

struct Done {
    begin: u64,
    end: u64,
    step: Step,
}

/// See the [module's documentation](self).
#[derive(Default)]
pub(crate) struct Orders(Mutex<Vec<Done>>);

/// Returns ALLOC of a QP in INIT, with a registration of a channel.
pub(crate) fn alloc(channel: Id, lifetime: Lifetime) -> Call {
    Call::Alloc(Alloc {
        handle: HANDLE,
        lifetime: Some(match lifetime {
            Lifetime::Registrations => xrc_rcv_spec::Lifetime::Registrations,
            Lifetime::Domain => xrc_rcv_spec::Lifetime::Domain,
        }),
        attributes: Attributes::To(State::Init),
        channel: Some(channel),
    })
}

/// Returns REG of QP numbers.
pub(crate) fn reg(channel: Id, numbers: &[u32]) -> Call {
    let numbers = numbers.into();

    Call::Reg { channel, numbers }
}

/// Returns UNREG of QP numbers.
pub(crate) fn unreg(channel: Id, numbers: &[u32]) -> Call {
    let numbers = numbers.into();

    Call::Unreg { channel, numbers }
}

/// Returns DESTROY of a QP number.
pub(crate) fn destroy(number: u32, force: bool) -> Call {
    Call::Destroy(Destroy {
        handle: HANDLE,
        number,
        force: Some(force),
    })
}

/// Returns MODIFY of a QP to a state.
pub(crate) fn modify(number: u32, state: QpState) -> Call {
    let state = match state {
        QpState::Reset => State::Reset,
        QpState::Init => State::Init,
        QpState::Rtr => State::Rtr,
        QpState::Rts => State::Rts,
        QpState::Sqd => State::Sqd,
        QpState::Err => State::Err,
        QpState::Sqe => unreachable!("of a QP that sends"),
    };

    Call::Modify(Modify {
        handle: HANDLE,
        number,
        attributes: Attributes::To(state),
    })
}

/// Returns QUERY of a QP.
pub(crate) fn query(number: u32) -> Call {
    Call::Query {
        handle: HANDLE,
        number,
    }
}

/// Returns QUERY_DOMAIN.
pub(crate) fn query_domain() -> Call {
    Call::QueryDomain { handle: HANDLE }
}

/// Returns the outcome of QUERY_DOMAIN, which answers with the number of QPs.
pub(crate) fn listed<T>(listed: &Result<(T, usize)>) -> Outcome {
    let total = listed.as_ref().ok().map(|(_, total)| *total);

    Outcome {
        total,
        ..result(&listed.as_ref().map(drop).map_err(|e| *e))
    }
}

/// Returns the outcome of a call without answers.
pub(crate) fn result(result: &Result) -> Outcome {
    Outcome {
        result: result.map_err(errno),
        number: 0,
        serial: 0,
        channel: 0,
        done: 0,
        total: None,
    }
}

/// Returns the outcome of ALLOC, which answers with a QP number and a serial number.
pub(crate) fn allocated(allocated: &Result<(u32, u64)>) -> Outcome {
    let (number, serial) = allocated.unwrap_or_default();

    Outcome {
        number,
        serial,
        ..result(&allocated.map(drop))
    }
}

/// Returns the outcome of an array of which so many numbers were processed.
pub(crate) fn done(&(done, ended): &(usize, Result)) -> Outcome {
    Outcome {
        done,
        ..result(&ended)
    }
}

/// Returns the outcome of an array of one number.
pub(crate) fn one_done(ended: &Result) -> Outcome {
    done(&(ended.is_ok().into(), *ended))
}

/// Returns the error of the contract.
fn errno(error: Error) -> Errno {
    Errno::from_number(-error.to_errno()).expect("the contract has the error")
}

/// Each call that allocates memory may fail with it.
const NO_MEMORY: Errnos = Errnos::of(&[Errno::ENOMEM]);

/// Returns the right of the contract.
fn right(right: Right) -> xrc_rcv_spec::Right {
    match right {
        Right::Use => xrc_rcv_spec::Right::Use,
        Right::Write => xrc_rcv_spec::Right::Write,
        Right::Own => xrc_rcv_spec::Right::Own,
    }
}

/// Returns a caller on a file, with a right. Each caller has a user of its own.
fn caller(file: Id, right: xrc_rcv_spec::Right) -> Caller {
    static LAST: AtomicU32 = AtomicU32::new(0);

    Caller {
        file,
        user: LAST.fetch_add(1, Ordering::Relaxed),
        right,
    }
}

impl Orders {
    fn done(&self) -> MutexGuard<'_, Vec<Done>> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn note<R>(&self, call: impl FnOnce() -> R, step: impl FnOnce(&R) -> Step) -> R {
        let begin = runtime::monotonic_ns();
        let result = call();
        let end = runtime::monotonic_ns();
        let step = step(&result);

        self.done().push(Done { begin, end, step });
        result
    }

    /// Notes a call, after which no allocation fails.
    fn note_call<R>(&self, call: impl FnOnce() -> R, step: impl FnOnce(&R) -> Step) -> R {
        let call = || {
            let result = call();

            runtime::call_has_ended();
            result
        };

        self.note(call, step)
    }

    /// Makes a call on a file, whose caller has the right of the thread. It may fail with
    /// `possible` for reasons of its own, and for want of memory.
    pub(crate) fn call<R>(
        &self,
        file: Id,
        call: Call,
        possible: &[Errno],
        make: impl FnOnce() -> R,
        outcome: impl FnOnce(&R) -> Outcome,
    ) -> R {
        let possible = Errnos::of(possible).or(NO_MEMORY);
        let caller = caller(file, right(opened::right()));

        self.note_call(make, |result| {
            Step::Call(caller, call, outcome(result), possible)
        })
    }

    /// A process, or a user in the kernel, opens the domain by a new file.
    pub(crate) fn open(&self, file: Id, open: impl FnOnce()) {
        self.effect(open, move |objects| {
            objects.open_domain(file, HANDLE, DOMAIN);
        });
    }

    /// A process with a right creates an event channel of a file, or a user in the kernel does,
    /// whose channel is its handler.
    pub(crate) fn join<T>(
        &self,
        (file, channel): (Id, Id),
        right: Right,
        of: Membership,
        join: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (handle, mask, of) = (HANDLE, !0, Some(of));
        let call = Call::EventChannelAlloc { handle, mask, of };
        let caller = caller(file, self::right(right));

        self.note_call(join, |joined| {
            let outcome = Outcome {
                channel,
                ..result(&joined.as_ref().map(drop).map_err(|e| *e))
            };

            Step::Call(caller, call, outcome, NO_MEMORY)
        })
    }

    /// Ends or opens objects.
    pub(crate) fn effect<R>(
        &self,
        make: impl FnOnce() -> R,
        effect: impl Fn(&mut Objects) + Send + 'static,
    ) -> R {
        self.note(make, |_| Step::Effect(Box::new(effect)))
    }

    /// Panics unless there is an order that leaves the QPs with these numbers.
    pub(crate) fn check(&self, numbers: &[u32]) {
        let done = self.done();
        let mut left: Vec<&Done> = done.iter().collect();

        if !Self::has_order(&Contract::new(), &mut left, numbers) {
            for done in &*done {
                let Done { begin, end, step } = done;

                match step {
                    Step::Call(caller, call, outcome, _) => {
                        eprintln!("{begin} to {end}: {}: {call:?}: {outcome:?}", caller.file)
                    }
                    Step::Effect(_) => eprintln!("{begin} to {end}: an end or an opening"),
                }
            }
            panic!("no order of the calls has their results, and leaves the QPs {numbers:?}");
        }
    }

    /// Whether the steps that are left have an order.
    fn has_order(contract: &Contract, left: &mut Vec<&Done>, numbers: &[u32]) -> bool {
        let Some(first_end) = left.iter().map(|done| done.end).min() else {
            return contract.objects.numbers(DOMAIN) == numbers;
        };

        for index in 0..left.len() {
            if left[index].begin > first_end {
                continue;
            }

            let done = left.swap_remove(index);
            let mut contract = contract.clone();
            let is_allowed = match &done.step {
                Step::Call(caller, call, outcome, possible) => {
                    contract.take(*caller, call, outcome, *possible).is_ok()
                }
                Step::Effect(effect) => {
                    effect(&mut contract.objects);
                    true
                }
            };
            let has_order = is_allowed && Self::has_order(&contract, left, numbers);

            // Back to its place.
            left.push(done);

            let last = left.len() - 1;

            left.swap(index, last);
            if has_order {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use xrc_rcv_spec::Mutant;

    /// Checks right results of calls, one after the other: the last UNREG ends the QP, and its
    /// number is unknown then.
    fn check_right_results(mutant: Option<Mutant>) {
        let check = || {
            let orders = Orders::default();
            let unknown = &(0, Err(EINVAL));
            let one = &(1, Ok(()));
            let created = Ok((0x11, 1));
            let lifetime = Lifetime::Registrations;

            orders.open(1, || ());

            let joined = orders.join((1, 1), Right::Write, Membership::Named, || Ok(()));

            assert_eq!(joined, Ok(()));
            let alloc = orders.call(1, alloc(1, lifetime), &[], || created, allocated);
            let refused = orders.call(1, destroy(0x11, false), &[], || Err(EINVAL), result);

            assert_eq!((alloc, refused), (created, Err(EINVAL)));
            orders.call(1, unreg(1, &[0x11]), &[], || one, |one| done(one));
            orders.call(1, reg(1, &[0x11]), &[], || unknown, |unknown| done(unknown));
            orders.check(&[]);
        };

        runtime::check(1, 0x18, move || Mutant::during(mutant, check));
    }

    #[test]
    fn mutants_of_the_contract_have_no_order() {
        check_right_results(None);
        for mutant in [Mutant::UnregNotCounted, Mutant::RegOfUnknown] {
            let check = || check_right_results(Some(mutant));

            assert!(catch_unwind(AssertUnwindSafe(check)).is_err(), "{mutant:?}");
        }
    }
}
