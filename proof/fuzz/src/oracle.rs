// SPDX-License-Identifier: GPL-2.0

//! The results of a program as the contract of the specification has them, if one step was done
//! after the other, for the objects that the calls named.

use std::collections::{BTreeMap, BTreeSet};

use crate::errno::result_name;
use crate::program::*;
use crate::records::{Read, Records};
use crate::shared::{Fact, NONE};
use crate::uapi::{
    XRC_RCV_ALLOC_LIFETIME_DOMAIN, XRC_RCV_DESTROY_FORCE, XRC_RCV_EVENT_CHANNEL_ALL,
    XRC_RCV_EVENT_CHANNEL_OBSERVE, xrc_rcv_record,
};
use xrc_rcv_spec::{
    Alloc, Attributes, Call as Contracted, Caller, Contract, Destroy, Errno, Errnos, Id, Lifetime,
    Membership, Modify, Outcome, Right, State,
};

/// The number of no object.
const NO_OBJECT: u64 = u64::MAX;

#[derive(Default)]
struct Oracle {
    contract: Contract,
    /// The files that processes have.
    held: [Option<u64>; PROCESSES],
    /// The channels that processes have.
    held_channels: [[Option<u64>; SLOTS]; PROCESSES],
    /// The domains of the files, by numbers that no other domain has.
    shared: [u64; PRIVATE as usize],
    domains: u64,
    /// The files that channels were created through.
    files: BTreeMap<u64, u64>,
    records: Records,
}

/// Compares results with the contract, up to a step of which the oracle does not know the effect.
/// Returns the number of steps. `own_qps` is the number of the device's QPs that are not the
/// module's.
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
        oracle.begin(&step, *result, &fact).map_err(wrong)?;
        // Without its channel, the step's own call was not made.
        if !is_other && fact.failed_channel.is_none() {
            oracle.step(&step, *result, &fact).map_err(wrong)?;
        }
        oracle.end(&step, &fact);
        if let Some(counted) = fact.device_qps {
            let expected = own_qps + oracle.contract.objects.len() as u64;
            let what = &format!("the device has {counted} QPs, not {expected}");
            must(counted == expected, what).map_err(wrong)?;
        }
        compared += 1;
    }
    Ok(compared)
}

/// Whether the call may have been about other objects than those of its arguments.
fn is_other(step: &Step) -> bool {
    if let Call::IoctlReg { pointer, .. } | Call::IoctlUnreg { pointer, .. } = step.call {
        return pointer.is_some();
    }
    // Two QP numbers in an attribute may be taken for an address, see `spare_program()`.
    let has_array = matches!(step.call, Call::Reg { .. } | Call::Unreg { .. });
    step.spoils.iter().any(|spoil| {
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

/// Whether a step that was spoiled may have changed which objects there are, or the state of a QP.
fn changes_objects(step: &Step) -> bool {
    let is_change = matches!(
        step.call,
        Call::Alloc { .. }
            | Call::Reg { .. }
            | Call::Unreg { .. }
            | Call::IoctlReg { .. }
            | Call::IoctlUnreg { .. }
            | Call::Destroy { .. }
            | Call::Modify { .. }
            | Call::Channel { .. }
    );
    is_change || step.spoils.make_another()
}

fn must(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.into()) }
}

/// Returns the caller on a file: all processes are of one user, who owns all files.
fn caller(file: u64) -> Caller {
    Caller {
        file,
        user: 0,
        right: Right::Own,
    }
}

/// Returns the attributes of a call, which are not known if it was spoiled.
fn attributes(step: &Step, attr: Arg) -> Attributes {
    let is_spoiled = !step.spoils.is_empty();
    let is_alloc = matches!(step.call, Call::Alloc { .. });
    match attr.map(Transition::of) {
        Some(_) if is_spoiled => Attributes::Any,
        None => Attributes::Absent,
        Some(Transition::ToReset) => Attributes::To(State::Reset),
        Some(Transition::ToInit) => Attributes::To(State::Init),
        Some(Transition::ToRtr) if !is_alloc => Attributes::To(State::Rtr),
        Some(Transition::ToError) if !is_alloc => Attributes::To(State::Err),
        Some(Transition::ToInitAndRtr) if is_alloc => Attributes::To(State::Rtr),
        // RTS needs more, and is needed for SQD.
        Some(_) => Attributes::Invalid,
    }
}

/// Returns the label that ALLOC gives a QP. `None` if it is not known.
fn label(step: &Step) -> Option<u64> {
    match step.call {
        Call::Alloc { label, .. } if step.spoils.is_empty() => Some(label.unwrap_or(0)),
        _ => None,
    }
}

/// Returns the arguments of ALLOC.
fn alloc(step: &Step, fact: &Fact) -> Option<Alloc> {
    let Call::Alloc {
        flags,
        attr,
        channel,
        ..
    } = step.call
    else {
        return None;
    };
    // The attribute has four bytes.
    let lifetime = match flags.unwrap_or(0) as u32 {
        0 => Some(Lifetime::Registrations),
        XRC_RCV_ALLOC_LIFETIME_DOMAIN => Some(Lifetime::Domain),
        _ => None,
    };
    Some(Alloc {
        handle: fact.domain.unwrap_or(NO_OBJECT),
        lifetime,
        attributes: attributes(step, attr),
        channel: channel.map(|_| fact.channel.unwrap_or(NO_OBJECT)),
    })
}

/// Returns EVENT_CHANNEL_ALLOC with an event mask and flags, and the errors of arguments that the
/// contract does not have.
fn create_channel(handle: u64, size: Arg, events: Arg, flags: Arg) -> (Contracted, Errnos) {
    const ALL: u32 = XRC_RCV_EVENT_CHANNEL_ALL;
    const OBSERVES: u32 = ALL | XRC_RCV_EVENT_CHANNEL_OBSERVE;
    let of = match flags.unwrap_or(0) as u32 {
        0 => Some(Membership::Named),
        ALL => Some(Membership::All),
        OBSERVES => Some(Membership::Observer),
        _ => None,
    };
    let mask = events.unwrap_or(EVENTS);
    let is_wrong = size.is_some() || mask & !EVENTS != 0;
    let mut possible = Errnos::NONE;
    if is_wrong {
        possible = Errnos::of(&[Errno::EINVAL]);
    }
    (Contracted::EventChannelAlloc { handle, mask, of }, possible)
}

/// Returns DESTROY with flags.
fn destroy(handle: u64, number: u32, flags: Arg) -> Contracted {
    let force = match flags.unwrap_or(0) as u32 {
        0 => Some(false),
        XRC_RCV_DESTROY_FORCE => Some(true),
        _ => None,
    };
    Contracted::Destroy(Destroy {
        handle,
        number,
        force,
    })
}

/// Returns REG or UNREG, of uverbs or of the channel, and the errors of arguments that the contract
/// does not have.
fn registration(call: &Call, fact: &Fact) -> Option<(Contracted, Errnos)> {
    let (registers, again, has_more) = match *call {
        Call::Reg {
            again, info, size, ..
        } => (true, again, (info, size) != (None, None)),
        Call::Unreg { again, .. } => (false, again, false),
        Call::IoctlReg {
            again,
            info,
            size,
            flags,
            ..
        } => (true, again, (info, size, flags) != (None, None, None)),
        Call::IoctlUnreg {
            again,
            info,
            size,
            flags,
            ..
        } => (false, again, (info, size, flags) != (None, None, None)),
        _ => return None,
    };
    let channel = fact.channel.unwrap_or(NO_OBJECT);
    let numbers = vec![fact.qp as u32; array_len(again)];
    let mut possible = Errnos::NONE;
    if has_more {
        possible = Errnos::of(&[Errno::EINVAL]);
    }
    if registers {
        Some((Contracted::Reg { channel, numbers }, possible))
    } else {
        Some((Contracted::Unreg { channel, numbers }, possible))
    }
}

/// Returns the call of a step, as the contract has it, with the errors that it may have for other
/// reasons than its objects. `None` for steps that are no calls of methods.
fn contracted(step: &Step, fact: &Fact) -> Option<(Contracted, Errnos)> {
    let handle = fact.domain.unwrap_or(NO_OBJECT);
    let number = fact.qp as u32;
    let sizes = Errnos::of(&[Errno::EINVAL]);
    let address = Errnos::of(&[Errno::ETIMEDOUT]);
    let (call, possible) = match step.call {
        Call::Alloc { .. } => (Contracted::Alloc(alloc(step, fact)?), address),
        Call::Modify { attr, .. } => {
            let attributes = attributes(step, attr);
            let modify = Modify {
                handle,
                number,
                attributes,
            };
            (Contracted::Modify(modify), address)
        }
        Call::Channel {
            size,
            events,
            flags,
            ..
        } => create_channel(handle, size, events, flags),
        Call::Destroy { flags, .. } => (destroy(handle, number, flags), Errnos::NONE),
        Call::Query { .. } => (Contracted::Query { handle, number }, sizes),
        Call::List { .. } => (Contracted::QueryDomain { handle }, sizes),
        Call::Caps { .. } => (Contracted::QueryCaps, sizes),
        _ => registration(&step.call, fact)?,
    };
    let possible = if !step.spoils.is_empty() {
        call.method().errors().or(address)
    } else if i32::try_from(handle).is_err() {
        // A handle that is negative, or too large, is EINVAL.
        possible.or(sizes)
    } else {
        possible
    };
    Some((call, possible))
}

/// Returns the outcome of a call with a result. An array that fails has one number, many times.
fn outcome(call: &Contracted, result: i32, fact: &Fact) -> Result<Outcome, String> {
    let errno = Errno::from_number(-result);
    must(
        result >= 0 || errno.is_some(),
        "the contract has no such error",
    )?;
    let numbers = match call {
        Contracted::Reg { numbers, .. } | Contracted::Unreg { numbers, .. } => numbers.len(),
        _ => 0,
    };
    Ok(Outcome {
        result: errno.filter(|_| result < 0).map_or(Ok(()), Err),
        number: fact.new_qp as u32,
        serial: fact.new_serial,
        channel: fact.new_channel.map_or(NO_OBJECT, |new| new.number),
        done: match fact.done {
            Some(done) => done as usize,
            None if result < 0 => 0,
            None => numbers,
        },
        total: fact.total.map(|total| total as usize),
    })
}

impl Oracle {
    /// Replaces the file of a process.
    fn holds(&mut self, process: usize, file: Option<u64>) {
        let before = std::mem::replace(&mut self.held[process], file);
        if let Some(file) = file {
            self.contract.objects.open_file(file);
        }
        if let Some(before) = before.filter(|before| !self.held.contains(&Some(*before))) {
            self.contract.objects.close_file(before);
        }
    }

    /// Before a call: the process has opened what it had not, and creates the channel that the
    /// step names, unless that is what the step itself does. The result is that of the creation if
    /// it fails.
    fn begin(&mut self, step: &Step, result: i32, fact: &Fact) -> Result<(), String> {
        self.holds(step.process(), fact.file);
        let Some(file) = fact.file else {
            return Ok(());
        };
        for (which, opened) in fact.opened.iter().enumerate() {
            if let Some(handle) = *opened {
                let domain = self.opened(which);
                self.contract.objects.open_domain(file, handle, domain);
            }
        }
        if let Some(new) = fact.new_channel {
            self.files.insert(new.number, file);
        }
        if let Call::Channel { .. } = step.call {
            return Ok(());
        }
        let created = fact.new_channel.map(|new| (new.domain, 0));
        let failed = fact.failed_channel.map(|handle| (handle, result));
        match created.or(failed) {
            Some((handle, result)) => {
                let (call, possible) = create_channel(handle, None, None, None);
                self.take(file, &call, result, fact, possible)
            }
            None => Ok(()),
        }
    }

    fn take(
        &mut self,
        file: u64,
        call: &Contracted,
        result: i32,
        fact: &Fact,
        possible: Errnos,
    ) -> Result<(), String> {
        let outcome = outcome(call, result, fact)?;
        let taken = self.contract.take(caller(file), call, &outcome, possible);
        taken.map_err(|breach| breach.to_string())
    }

    /// Returns the domain that a process opens. After its last close it is another than before.
    fn opened(&mut self, which: usize) -> Id {
        let shared = self.shared.get_mut(which);
        if let Some(domain) = shared.as_deref().copied() {
            if self.contract.objects.is_open(domain) {
                return domain;
            }
        }
        self.domains += 1;
        if let Some(shared) = shared {
            *shared = self.domains;
        }
        self.domains
    }

    /// After a call: the process has these channels.
    fn end(&mut self, step: &Step, fact: &Fact) {
        let before: BTreeSet<u64> = self.channels();
        self.held_channels[step.process()] = fact.channels;
        if let Call::Kill { worker } = step.call {
            self.held_channels[process_of(worker)] = [None; SLOTS];
        }
        let held = self.channels();
        for closed in before.difference(&held) {
            self.contract.objects.close_channel(*closed);
        }
        self.records.step_ends(&self.contract.objects);
        self.records.retain(|channel| held.contains(&channel));
    }

    fn channels(&self) -> BTreeSet<u64> {
        let held = self.held_channels.iter().flatten();
        held.flatten().copied().collect()
    }

    fn step(&mut self, step: &Step, result: i32, fact: &Fact) -> Result<(), String> {
        if let Call::Kill { worker } = step.call {
            self.holds(process_of(worker), None);
        }
        let of_channel = fact.channel.filter(|_| step.call.is_of_channel());
        let file = of_channel.map_or(fact.file, |channel| self.files.get(&channel).copied());
        let Some(file) = file else {
            return Ok(());
        };
        match step.call {
            Call::CloseDomain { .. } => return self.close_domain(file, result, fact),
            Call::Read { .. } => return self.read(&step.call, result, fact),
            _ => (),
        }
        let needs_channel = matches!(step.call, Call::Reg { .. } | Call::Unreg { .. });
        if needs_channel && step.call.channel().is_none() {
            return must(result < 0, "a mandatory attribute is missing");
        }
        let Some((call, possible)) = contracted(step, fact) else {
            return Ok(());
        };
        // A domain is opened by write(2) first, which is EACCES on the file of another process.
        if result == -libc::EACCES {
            return Ok(());
        }
        self.take(file, &call, result, fact, possible)?;
        if let (Contracted::Alloc(alloc), true) = (&call, result >= 0) {
            if let Some(domain) = self.contract.objects.domain(file, alloc.handle) {
                self.records.create((domain, fact.new_serial), label(step));
            }
        }
        Ok(())
    }

    fn read(&mut self, call: &Call, result: i32, fact: &Fact) -> Result<(), String> {
        let Some(channel) = fact.channel else {
            return Ok(());
        };
        let Call::Read { room, pointer, .. } = *call else {
            return Ok(());
        };
        let Some(size) = fact.record_size else {
            if result > 0 {
                self.records.lose_track(channel);
            }
            return Ok(());
        };
        let places = (room.unwrap_or(256) % 0x1_0000) / size;
        let read = Read {
            places: places as usize,
            may_fault: pointer.is_some(),
            has_labels: size >= size_of::<xrc_rcv_record>() as u64,
            result: match result {
                0.. => Ok(result as usize / size as usize),
                _ => Err(-result),
            },
        };
        let objects = &mut self.contract.objects;
        self.records.read(objects, channel, read, &fact.records)
    }

    fn close_domain(&mut self, file: u64, result: i32, fact: &Fact) -> Result<(), String> {
        let Some(handle) = fact.domain else {
            return Ok(());
        };
        // write(2) to the file of another process is EACCES.
        if result == -libc::EACCES {
            return Ok(());
        }
        let existed = self.contract.objects.close_handle(file, handle);
        must((result >= 0) == existed, "a handle is closed once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrc_rcv_spec::Mutant;

    /// Facts of process 0, which has a file with a handle of domain 0, and a channel.
    fn fact() -> Fact {
        let mut fact = Fact {
            file: Some(1),
            domain: Some(5),
            channel: Some(2),
            qp: 17,
            new_qp: 17,
            new_serial: 1,
            ..Fact::default()
        };
        fact.channels[0] = Some(2);
        fact
    }

    fn first() -> Fact {
        let mut first = fact();
        first.opened[0] = Some(5);
        first.new_channel = Some(crate::shared::NewChannel {
            number: 2,
            domain: 5,
        });
        first
    }

    /// Checks a program of lines, the facts of whose first step are [`first`].
    fn check_with(text: &str, others: Fact) -> Result<u64, String> {
        let mut programs = Program::parse_all(text).expect("a program");
        let (program, results) = programs.pop().expect("a program");
        let results: Vec<_> = results
            .into_iter()
            .map(|result| result.expect("a result"))
            .collect();
        let facts = |index| if index == 0 { first() } else { others };
        check(&program, &results, facts, 0)
    }

    const ALLOC: &str = "0 alloc qp=0 domain=0 channel=0 -> 0\n";

    fn after_alloc(line: &str) -> Result<u64, String> {
        check_with(&format!("{ALLOC}{line}\n"), fact())
    }

    #[test]
    fn results_of_the_contract() {
        for line in [
            "0 reg qp=0 channel=0 -> 0",
            "0 modify qp=0 domain=0 attr=1 -> 0",
            "0 modify qp=0 domain=0 attr=2 -> EINVAL",
            "0 modify qp=0 domain=0 attr=3 -> EINVAL",
            "0 destroy qp=0 domain=0 -> EINVAL",
            "0 destroy qp=0 domain=0 flags=1 -> 0",
            "0 alloc qp=0 domain=0 flags=2 channel=0 -> EINVAL",
        ] {
            assert_eq!(after_alloc(line), Ok(2), "{line}");
        }
    }

    /// REG by a process that has no channel, and cannot create one through a domain's handle.
    fn without_channel(handle: Option<u64>, errno: &str) -> Result<u64, String> {
        let mut fact = fact();
        fact.channel = None;
        fact.failed_channel = handle;
        check_with(&format!("{ALLOC}0 reg qp=0 channel=3 -> {errno}\n"), fact)
    }

    #[test]
    fn results_of_the_creation_of_a_channel() {
        assert_eq!(without_channel(Some(6), "ENOENT"), Ok(2), "no such handle");
        assert!(without_channel(Some(6), "EINVAL").is_err());
        assert!(without_channel(Some(6), "EBADF").is_err());
        assert!(
            without_channel(Some(5), "ENOENT").is_err(),
            "the handle of a domain"
        );
        assert!(without_channel(None, "ENOENT").is_err(), "that of REG");
    }

    #[test]
    fn other_results() {
        for line in [
            "0 reg qp=0 channel=0 -> EINVAL",
            "0 reg qp=0 channel=0 -> EBADF",
            "0 modify qp=0 domain=0 attr=0 -> EINVAL",
            "0 modify qp=0 domain=0 attr=1 -> EINVAL",
            "0 modify qp=0 domain=0 attr=2 -> 0",
            "0 modify qp=0 domain=0 attr=3 -> 0",
            "0 destroy qp=0 domain=0 -> 0",
            "0 destroy qp=0 domain=0 -> EBUSY",
            "0 query qp=0 domain=0 -> EIO",
            "0 alloc qp=0 domain=0 channel=0 -> 0",
        ] {
            assert!(after_alloc(line).is_err(), "{line}");
        }
    }

    /// Right results, and numbers of QPs after them, which a mutant of the contract refuses.
    /// Programs have no process of another user; those of records are in `records.rs`.
    const MUTANTS: [(Mutant, &str, u64); 4] = [
        (
            Mutant::UnregNotCounted,
            "0 alloc qp=0 domain=0 channel=0 -> 0\n0 unreg qp=0 channel=0 -> 0",
            0,
        ),
        (
            Mutant::RegOfUnknown,
            "0 alloc qp=0 domain=0 channel=0 -> 0\n\
             0 destroy qp=0 domain=0 flags=1 -> 0\n\
             0 reg qp=0 channel=0 -> EINVAL",
            0,
        ),
        (
            Mutant::DestroyOfKept,
            "0 alloc qp=0 domain=0 flags=1 channel=0 -> 0\n0 destroy qp=0 domain=0 -> EBUSY",
            1,
        ),
        (
            Mutant::CloseLeavesQps,
            "0 alloc qp=0 domain=0 channel=0 -> 0\n0 close-domain domain=0 -> 0",
            0,
        ),
    ];

    #[test]
    fn mutants_of_the_contract() {
        for (mutant, text, qps) in MUTANTS {
            let mut fact = fact();
            fact.device_qps = Some(qps);
            let result = check_with(text, fact);
            assert!(result.is_ok(), "{text}: {result:?}");
            let result = Mutant::during(Some(mutant), || check_with(text, fact));
            assert!(result.is_err(), "{mutant:?}");
        }
    }

    const ADDED: u32 = xrc_rcv_spec::QP_ADDED;
    const GONE: u32 = xrc_rcv_spec::QP_GONE;

    /// Records, each of a type, of the QP with this number less 16 as its serial number.
    fn records(of: &[(u32, u32)]) -> Fact {
        let mut fact = fact();
        fact.record_size = Some(32);
        for (at, (type_, number)) in of.iter().enumerate() {
            fact.records[at] = xrc_rcv_record {
                last_ns: 5,
                serial: u64::from(number - 16),
                count: 1,
                qp_num: *number,
                type_: *type_,
                label: 0,
            };
        }
        fact
    }

    fn created(number: u64) -> Fact {
        Fact {
            new_qp: number,
            new_serial: number - 16,
            ..fact()
        }
    }

    /// Steps with their results and facts, and mutants of the contract that refuse these.
    type Reads = (Vec<(&'static str, Fact)>, &'static [Mutant]);

    /// The process has one channel, which reads what happens to its QPs, or to all; of some it gets
    /// the ends alone.
    fn reads() -> [Reads; 4] {
        let end = ("0 destroy qp=0 domain=0 flags=1 -> 0", fact());
        let empty = ("0 read channel=0 -> EAGAIN", records(&[]));
        let create = |of: &'static str| (of, first());
        let two = [
            ("0 alloc qp=0 domain=0 flags=1 -> 0", created(17)),
            ("0 alloc qp=1 domain=0 flags=1 -> 0", created(18)),
            end,
        ];
        let [one, other, end_of_one] = two;
        let gone = ("0 read channel=0 room=64 -> 32", records(&[(GONE, 17)]));
        let rest = (
            "0 read channel=0 room=96 -> 64",
            records(&[(ADDED, 18), (GONE, 17)]),
        );
        let first_added = ("0 read channel=0 room=40 -> 32", records(&[(ADDED, 17)]));
        let of_all = create("0 channel channel=0 flags=1 -> 0");
        let of_ends = create("0 channel channel=0 events=9223372036854775808 flags=1 -> 0");
        [
            (
                vec![(ALLOC.trim(), first()), end, gone, empty],
                &[
                    Mutant::GoneMissing,
                    Mutant::ReadAgain,
                    Mutant::AddedToCreator,
                ],
            ),
            (
                vec![
                    (ALLOC.trim(), first()),
                    end,
                    ("0 unreg qp=0 channel=0 -> 0", fact()),
                    empty,
                ],
                &[Mutant::UnregLeavesRecords],
            ),
            (
                vec![of_all, one, other, end_of_one, first_added, rest, empty],
                &[Mutant::Unordered, Mutant::ReadSkips, Mutant::AllMissNew],
            ),
            (
                vec![of_ends, one, other, end_of_one, gone, empty],
                &[Mutant::MaskIgnored],
            ),
        ]
    }

    fn check_steps(steps: &[(&str, Fact)]) -> Result<u64, String> {
        let text: Vec<_> = steps.iter().map(|(line, _)| *line).collect();
        let mut programs = Program::parse_all(&text.join("\n")).expect("a program");
        let (program, results) = programs.pop().expect("a program");
        let results: Vec<_> = results.into_iter().flatten().collect();
        check(&program, &results, |index| steps[index].1, 0)
    }

    #[test]
    fn records_of_the_contract() {
        for (steps, mutants) in reads() {
            assert_eq!(check_steps(&steps), Ok(steps.len() as u64));
            for mutant in mutants {
                let result = Mutant::during(Some(*mutant), || check_steps(&steps));
                assert!(result.is_err(), "{mutant:?}");
            }
        }
    }

    #[test]
    fn other_records() {
        type Change = fn(&mut Fact);
        const CHANGES: [Change; 9] = [
            |fact| fact.records[0].count = 2,
            |fact| fact.records[0].serial = 2,
            |fact| fact.records[0].qp_num = 18,
            |fact| fact.records[1].type_ = 3,
            |fact| fact.records[1].type_ = 16,
            |fact| fact.records[0].last_ns = 0,
            |fact| fact.records[1].last_ns = 4,
            |fact| fact.records.swap(0, 1),
            |fact| fact.records[1] = fact.records[0],
        ];
        let added = "0 channel channel=0 flags=1 -> 0";
        let alloc = "0 alloc qp=0 domain=0 flags=1 -> 0";
        let read = "0 read channel=0 room=96 -> 64";
        let end = ("0 destroy qp=0 domain=0 flags=1 -> 0", fact());
        for change in CHANGES {
            let mut both = records(&[(ADDED, 17), (GONE, 17)]);
            let steps = |both| [(added, first()), (alloc, created(17)), end, (read, both)];
            assert!(check_steps(&steps(both)).is_ok());
            change(&mut both);
            assert!(check_steps(&steps(both)).is_err());
        }
        // A label, where records are long enough for it, and fewer records than there are.
        let labelled = "0 alloc qp=0 domain=0 flags=1 label=7 -> 0";
        let longer = "0 read channel=0 room=96 -> 40";
        let fewer = "0 read channel=0 room=96 -> 32";
        let ended = vec![(added, first()), (labelled, created(17))];
        for (line, size, label, is_right) in [
            (longer, 40, 7, true),
            (longer, 40, 8, false),
            (fewer, 32, 8, true),
        ] {
            let mut fact = records(&[(ADDED, 17)]);
            fact.record_size = Some(size);
            fact.records[0].label = label;
            let mut steps = ended.clone();
            steps.push((line, fact));
            assert_eq!(check_steps(&steps).is_ok(), is_right, "{line}: {label}");
        }
        let mut steps = vec![(added, first()), (alloc, created(17)), end];
        steps.push((fewer, records(&[(ADDED, 17)])));
        assert!(check_steps(&steps).is_err());
    }

    /// The QPs that end with a channel are destroyed in any order.
    #[test]
    fn ends_of_one_step() {
        let all = Fact {
            new_channel: Some(crate::shared::NewChannel {
                number: 3,
                domain: 5,
            }),
            ..fact()
        };
        let with_all = |mut fact: Fact| {
            fact.channels[1] = Some(3);
            fact
        };
        let read = |of: &[(u32, u32)]| {
            let mut fact = with_all(records(of));
            fact.channels[0] = None;
            fact.channel = Some(3);
            fact
        };
        let mut closed = with_all(fact());
        closed.channels[0] = None;
        for (of, is_right) in [
            ([(GONE, 17), (GONE, 18)], true),
            ([(GONE, 18), (GONE, 17)], true),
            ([(GONE, 18), (GONE, 18)], false),
        ] {
            let steps = [
                ("0 alloc qp=0 domain=0 channel=0 -> 0", first()),
                ("0 alloc qp=1 domain=0 channel=0 -> 0", created(18)),
                ("0 channel channel=1 flags=3 -> 0", with_all(all)),
                ("0 close-channel channel=0 -> 0", closed),
                ("0 read channel=1 room=96 -> 64", read(&of)),
            ];
            let result = check_steps(&steps);
            assert_eq!(result.is_ok(), is_right, "{of:?}: {result:?}");
        }
    }
}
