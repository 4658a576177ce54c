// SPDX-License-Identifier: GPL-2.0

//! The results of a program as semantics.rst has them, if one step was done after the other, for
//! the objects that the calls named.

use std::collections::{BTreeMap, BTreeSet};

use crate::errno::result_name;
use crate::program::*;
use crate::shared::{Fact, NONE};
use crate::totals::Totals;
use crate::uapi::{XRC_RCV_ALLOC_LIFETIME_DOMAIN, XRC_RCV_DESTROY_FORCE};

/// A domain. One without a file is that of a uverbs file and its handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Domain {
    OfInode(u64),
    OfFile(u64, u64),
}

struct Qp {
    number: u64,
    /// The kernel's serial number.
    serial: u64,
    domain: Domain,
    /// Whether it has the lifetime of its domain.
    lives_on: bool,
    /// The channels that are registered.
    channels: BTreeSet<u64>,
}

#[derive(Default)]
struct File {
    /// By handle.
    domains: BTreeMap<u64, Domain>,
}

/// An event channel, until it or its file is closed.
struct Channel {
    file: u64,
    /// `None` after that was closed for the last time.
    domain: Option<Domain>,
}

#[derive(Default)]
struct Oracle {
    files: BTreeMap<u64, File>,
    /// The files that processes have.
    held: [Option<u64>; PROCESSES],
    channels: BTreeMap<u64, Channel>,
    /// The channels that processes have.
    held_channels: [[Option<u64>; SLOTS]; PROCESSES],
    /// In the order of creation.
    qps: BTreeMap<u64, Qp>,
    created: u64,
    /// The last serial number of each domain.
    serials: BTreeMap<Domain, u64>,
    totals: Totals,
}

/// A call with its result, and the objects that it named.
struct Seen<'a> {
    call: &'a Call,
    result: i32,
    fact: &'a Fact,
    /// The call was as a correct caller makes it.
    is_whole: bool,
    domain: Option<Domain>,
    /// Whether the channel is one of the file.
    is_member: bool,
    /// The domain of the channel.
    of_channel: Option<Domain>,
    /// The QP, by its number in the order of creation.
    qp: Option<u64>,
}

/// Compares results with the specification, up to a step of which the oracle does not know the
/// effect. Returns the number of steps. `own_qps` is the number of the device's QPs that are not
/// the module's.
pub fn check(
    program: &Program,
    results: &[i32],
    facts: impl Fn(usize) -> Fact,
    own_qps: u64,
) -> Result<u64, String> {
    let mut oracle = Oracle::default();
    let ends = (0..PROCESSES).map(Step::end);
    let steps = program.steps.iter().copied().chain(ends);
    let mut compared = 0;
    for (index, (step, result)) in steps.zip(results).enumerate() {
        if *result == NONE || step.call == (Call::Remove {}) {
            break;
        }
        let is_other = is_other(&step) || names_another(&step.call);
        // REG has registered if it cannot write RESP_INFO.
        let succeeded = *result >= 0 || *result == -libc::EFAULT;
        if is_other && succeeded && changes_objects(&step) {
            break;
        }
        let fact = facts(index);
        let wrong = |what: String| {
            let result = result_name(*result);
            format!("step {}: {step}: {result}: {what}", index + 1)
        };
        oracle.begin(&step, &fact);
        if !is_other {
            oracle.step(&step, *result, &fact).map_err(wrong)?;
        }
        oracle.end(&step, &fact);
        if let Some(counted) = fact.device_qps {
            let expected = own_qps + oracle.qps.len() as u64;
            let what = &format!("the device has {counted} QPs, not {expected}");
            must(counted == expected, what).map_err(wrong)?;
        }
        compared += 1;
    }
    Ok(compared)
}

/// Whether the call may have been about other objects than those of its arguments.
fn is_other(step: &Step) -> bool {
    // Two QP numbers in an attribute may be taken for an address, see `spare_program()`.
    let has_array = matches!(step.call, Call::Reg { .. } | Call::Unreg { .. });
    step.spoil.is_some_and(|spoil| {
        let may_only_fail = matches!(
            spoil.how,
            How::Attr | How::Length | How::Flags | How::Reserved
        );
        has_array || !may_only_fail
    })
}

/// Whether a call passes another number than that of a channel of its process.
fn names_another(call: &Call) -> bool {
    call.channel().is_some_and(|value| value >= SLOTS as u64)
}

/// Whether a step that was spoiled may have changed which QPs and registrations there are.
fn changes_objects(step: &Step) -> bool {
    let is_change = matches!(
        step.call,
        Call::Alloc { .. } | Call::Reg { .. } | Call::Unreg { .. } | Call::Destroy { .. }
    );
    is_change || step.spoil.is_some_and(|spoil| spoil.makes_another())
}

fn must(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.into()) }
}

/// A call may fail if something is wrong with it.
fn may_fail(is_wrong: bool) -> Result<(), String> {
    must(is_wrong, "nothing is wrong with it")
}

impl Oracle {
    /// Replaces the file of a process.
    fn holds(&mut self, process: usize, file: Option<u64>) {
        let before = std::mem::replace(&mut self.held[process], file);
        if let Some(file) = file {
            self.files.entry(file).or_default();
        }
        let Some(before) = before.filter(|before| !self.held.contains(&Some(*before))) else {
            return;
        };
        let Some(closed) = self.files.remove(&before) else {
            return;
        };
        self.end_channels(|_, channel| channel.file == before);
        for domain in closed.domains.into_values() {
            self.domain_closed(domain);
        }
    }

    /// Ends the registrations of channels, and these.
    fn end_channels(&mut self, ends: impl Fn(u64, &Channel) -> bool) {
        let ended: Vec<u64> = self
            .channels
            .iter()
            .filter(|(number, channel)| ends(**number, channel))
            .map(|(number, _)| *number)
            .collect();
        for number in ended {
            self.channels.remove(&number);
            self.unregister(number, |_| true);
        }
    }

    /// Ends the registrations of a channel with QPs.
    fn unregister(&mut self, channel: u64, of: impl Fn(&Qp) -> bool) {
        self.qps.retain(|_, qp| {
            let ends = of(qp) && qp.channels.remove(&channel);
            !ends || qp.lives_on || !qp.channels.is_empty()
        });
    }

    /// A file closes its handle of a domain.
    fn domain_closed(&mut self, domain: Domain) {
        let mut open = self.files.values().flat_map(|file| file.domains.values());
        if open.any(|other| *other == domain) {
            return;
        }
        self.qps.retain(|_, qp| qp.domain != domain);
        self.serials.remove(&domain);
        // A domain that is opened by the same name is another one.
        for channel in self.channels.values_mut() {
            channel.domain.take_if(|of| *of == domain);
        }
    }

    fn find(&self, domain: Option<Domain>, number: u64) -> Option<u64> {
        let mut qps = self.qps.iter();
        qps.find(|(_, qp)| Some(qp.domain) == domain && qp.number == number)
            .map(|(serial, _)| *serial)
    }

    /// Before a call: the process has opened what it had not.
    fn begin(&mut self, step: &Step, fact: &Fact) {
        self.holds(step.process(), fact.file);
        let Some((number, file)) = fact.file.and_then(|number| {
            let file = self.files.get_mut(&number)?;
            Some((number, file))
        }) else {
            return;
        };
        for (which, opened) in fact.opened.iter().enumerate() {
            if let Some(handle) = *opened {
                let domain = if which as u64 == PRIVATE {
                    Domain::OfFile(number, handle)
                } else {
                    Domain::OfInode(which as u64)
                };
                file.domains.insert(handle, domain);
            }
        }
        if let Some(new) = fact.new_channel {
            if let Some(domain) = file.domains.get(&new.domain) {
                let channel = Channel {
                    file: number,
                    domain: Some(*domain),
                };
                self.channels.insert(new.number, channel);
            }
        }
    }

    /// After a call: the process has these channels.
    fn end(&mut self, step: &Step, fact: &Fact) {
        self.held_channels[step.process()] = fact.channels;
        if let Call::Kill { worker } = step.call {
            self.held_channels[process_of(worker)] = [None; SLOTS];
        }
        let held: BTreeSet<u64> = self
            .held_channels
            .iter()
            .flatten()
            .flatten()
            .copied()
            .collect();
        self.end_channels(|number, _| !held.contains(&number));
        self.totals.retain(|channel| held.contains(&channel));
    }

    fn step(&mut self, step: &Step, result: i32, fact: &Fact) -> Result<(), String> {
        if let Call::Kill { worker } = step.call {
            self.holds(process_of(worker), None);
        }
        let Some(file) = fact.file.and_then(|file| self.files.get(&file)) else {
            return Ok(());
        };
        let domain = fact
            .domain
            .and_then(|handle| file.domains.get(&handle).copied());
        let channel = fact
            .channel
            .and_then(|number| self.channels.get(&number))
            .filter(|channel| Some(channel.file) == fact.file);
        let of_channel = channel.and_then(|channel| channel.domain);
        let qp = match step.call {
            Call::Reg { .. } | Call::Unreg { .. } => self.find(of_channel, fact.qp),
            _ => self.find(domain, fact.qp),
        };
        let seen = Seen {
            call: &step.call,
            result,
            fact,
            is_whole: step.spoil.is_none(),
            domain,
            is_member: channel.is_some(),
            of_channel,
            qp,
        };
        match step.call {
            Call::Alloc { .. } => self.alloc(&seen),
            Call::Reg { info, size, .. } => self.register(&seen, info.is_some() || size.is_some()),
            Call::Unreg { again, .. } => self.unregisters(&seen, array_len(again)),
            Call::Read { .. } => self.read(&seen),
            Call::Modify { attr, .. } => seen.modify(attr),
            Call::Query { .. } if result >= 0 => must(qp.is_some(), "the domain has no such QP"),
            Call::Destroy { flags, .. } => self.destroy(&seen, flags),
            Call::List { .. } if result >= 0 => self.list(&seen),
            Call::CloseDomain { .. } => self.close_domain(&seen),
            _ => Ok(()),
        }
    }

    fn alloc(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let Call::Alloc {
            flags,
            attr,
            channel,
            ..
        } = *seen.call
        else {
            return Ok(());
        };
        let lives_on = flags == Some(XRC_RCV_ALLOC_LIFETIME_DOMAIN.into());
        let is_member = seen.of_channel == seen.domain;
        if seen.result < 0 {
            let is_kept = if channel.is_some() {
                is_member
            } else {
                lives_on
            };
            let is_known = lives_on || flags.unwrap_or(0) == 0;
            let is_simple = is_kept && is_known && attr.is_none();
            return may_fail(seen.domain.is_none() || !is_simple || !seen.is_whole);
        }
        let domain = seen.domain.ok_or("the file has no such domain")?;
        let number = seen.fact.new_qp;
        must(
            self.find(Some(domain), number).is_none(),
            "there is a QP with this number",
        )?;
        must(
            channel.is_none() || is_member,
            "the channel is not of the domain",
        )?;
        must(channel.is_some() || lives_on, "no registration keeps it")?;
        self.add(Qp {
            number,
            serial: seen.fact.new_serial,
            domain,
            lives_on,
            channels: channel.and(seen.fact.channel).into_iter().collect(),
        })
    }

    fn add(&mut self, qp: Qp) -> Result<(), String> {
        let last = self.serials.insert(qp.domain, qp.serial).unwrap_or(0);
        must(qp.serial > last, "the domain had this serial number")?;
        self.created += 1;
        for channel in &qp.channels {
            let key = (*channel, qp.number as u32, qp.serial);
            self.totals.register(key, self.created);
        }
        self.qps.insert(self.created, qp);
        Ok(())
    }

    fn register(&mut self, seen: &Seen<'_>, has_info: bool) -> Result<(), String> {
        let has_channel = seen.call.channel().is_some();
        if seen.result < 0 {
            let is_simple = !has_info && has_channel;
            return may_fail(seen.qp.is_none() || !is_simple || !seen.is_whole);
        }
        let created = seen.qp.ok_or("the channel's domain has no such QP")?;
        if let (Some(qp), Some(channel)) = (self.qps.get_mut(&created), seen.fact.channel) {
            qp.channels.insert(channel);
            let key = (channel, qp.number as u32, qp.serial);
            self.totals.register(key, created);
        }
        Ok(())
    }

    fn unregisters(&mut self, seen: &Seen<'_>, count: usize) -> Result<(), String> {
        let has_channel = seen.call.channel().is_some();
        if seen.result < 0 {
            return may_fail(!seen.is_member || !has_channel || !seen.is_whole);
        }
        must(seen.is_member, "the file has no such channel")?;
        if let Some(channel) = seen.fact.channel {
            self.unregister(channel, |qp| qp.number == seen.fact.qp);
            let number = seen.fact.qp as u32;
            self.totals.unregister(channel, number, count);
        }
        Ok(())
    }

    fn read(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let Some(channel) = seen.fact.channel else {
            return Ok(());
        };
        let records = seen.fact.records.iter();
        for record in records.take_while(|record| record.serial != 0) {
            self.totals.read(channel, record)?;
        }
        Ok(())
    }

    fn destroy(&mut self, seen: &Seen<'_>, flags: Arg) -> Result<(), String> {
        let qp = seen.qp.and_then(|serial| self.qps.get(&serial));
        let is_kept = qp.is_some_and(|qp| !qp.channels.is_empty());
        let lives_on = qp.is_some_and(|qp| qp.lives_on);
        let flags = flags.unwrap_or(0) as u32;
        let forced = flags == XRC_RCV_DESTROY_FORCE;
        if seen.result == -libc::EBUSY {
            return must(lives_on && is_kept && !forced, "no channel is registered");
        }
        if seen.result < 0 {
            let is_refused = if forced {
                qp.is_none()
            } else {
                !lives_on || is_kept
            };
            return may_fail(is_refused || flags > XRC_RCV_DESTROY_FORCE || !seen.is_whole);
        }
        must(
            forced || lives_on,
            "the domain has no such QP with its lifetime",
        )?;
        must(forced || !is_kept, "a channel is registered")?;
        let serial = seen.qp.ok_or("the domain has no such QP")?;
        self.qps.remove(&serial);
        Ok(())
    }

    fn list(&self, seen: &Seen<'_>) -> Result<(), String> {
        must(seen.domain.is_some(), "the file has no such domain")?;
        let qps = self.qps.values();
        let count = qps.filter(|qp| Some(qp.domain) == seen.domain).count() as u64;
        match seen.fact.total {
            Some(total) => must(total == count, &format!("{total} QPs, not {count}")),
            None => Ok(()),
        }
    }

    fn close_domain(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let (Some(file), Some(handle)) = (seen.fact.file, seen.fact.domain) else {
            return Ok(());
        };
        // write(2) to the file of another process is EACCES.
        if seen.result == -libc::EACCES {
            return Ok(());
        }
        must(
            (seen.result >= 0) == seen.domain.is_some(),
            "a handle is closed once",
        )?;
        if let Some(domain) = seen.domain {
            self.files.entry(file).or_default().domains.remove(&handle);
            self.domain_closed(domain);
        }
        Ok(())
    }
}

impl Seen<'_> {
    fn modify(&self, attr: Arg) -> Result<(), String> {
        let is_reset = attr.map(Transition::of) == Some(Transition::ToReset);
        if self.result >= 0 {
            must(self.qp.is_some(), "the domain has no such QP")
        } else if is_reset && self.is_whole {
            must(self.qp.is_none(), "each state may be left for RESET")
        } else {
            Ok(())
        }
    }
}
