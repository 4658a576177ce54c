// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The contract of calls: it is total, keeps its own promises, and has the effects that
//! `semantics.rst` describes.

use std::collections::{BTreeMap, BTreeSet};

use xrc_rcv_spec::{
    Alloc, Attributes, Breach, Call, Caller, Contract, Destroy, Errno, Errno::*, Errnos, Event, Id,
    Lifetime, Membership, Method, Modify, OVERRUN, Outcome, QP_ADDED, QP_GONE, Right, State,
};

const ALL: u64 = !0;
const SHARED: Id = 1;
/// The handle of the shared domain in each file.
const HANDLE: u64 = 7;
const FATAL: u32 = 1;
const LAST_WQE: u32 = 16;

fn caller(file: u64, right: Right) -> Caller {
    Caller {
        file,
        user: file as u32,
        right,
    }
}

const DONE: Outcome = Outcome {
    result: Ok(()),
    number: 0,
    serial: 0,
    channel: 0,
    done: 0,
    total: None,
};

fn fails(errno: Errno, done: usize) -> Outcome {
    Outcome {
        result: Err(errno),
        done,
        ..DONE
    }
}

fn channel_alloc(mask: u64, of: Option<Membership>) -> Call {
    let handle = HANDLE;
    Call::EventChannelAlloc { handle, mask, of }
}

/// Files 1 and 2 of users who may write, and 3 of one who may only read, each with an event channel
/// by its number.
struct Node(Contract);

impl Node {
    fn new() -> Node {
        let mut node = Node(Contract::new());
        for file in 1..=3 {
            node.0.objects.open_file(file);
            node.0.objects.open_domain(file, HANDLE, SHARED);
            node.join(file, file, ALL, Membership::Named);
        }
        node
    }

    /// A file creates an event channel.
    #[track_caller]
    fn join(&mut self, file: u64, channel: u64, mask: u64, of: Membership) {
        let made = Outcome { channel, ..DONE };
        self.call(file, channel_alloc(mask, Some(of)), made);
    }

    fn caller(file: u64) -> Caller {
        let right = if file == 3 { Right::Use } else { Right::Write };
        caller(file, right)
    }

    fn try_call(&mut self, file: u64, call: Call, outcome: Outcome) -> Result<(), Breach> {
        self.0
            .take(Node::caller(file), &call, &outcome, Errnos::NONE)
    }

    #[track_caller]
    fn call(&mut self, file: u64, call: Call, outcome: Outcome) {
        let result = self.try_call(file, call.clone(), outcome);
        assert_eq!(result, Ok(()), "{call:?} with {outcome:?}");
    }

    #[track_caller]
    fn refuses(&mut self, file: u64, call: Call, errnos: &[Errno]) {
        let results = self.0.results(Node::caller(file), &call);
        assert_eq!(results.certain, Errnos::of(errnos), "{call:?}");
        for errno in errnos {
            self.call(file, call.clone(), fails(*errno, results.done));
        }
        assert!(self.try_call(file, call, DONE).is_err());
    }

    #[track_caller]
    fn alloc(&mut self, file: u64, lifetime: Lifetime, channel: Option<u64>, qp: (u32, u64)) {
        let call = alloc(lifetime, channel);
        let (number, serial) = qp;
        let created = Outcome {
            number,
            serial,
            ..DONE
        };
        self.call(file, call, created);
    }

    #[track_caller]
    fn reg(&mut self, file: u64, number: u32) {
        let one = Outcome { done: 1, ..DONE };
        self.call(file, reg(file, &[number]), one);
    }

    #[track_caller]
    fn unreg(&mut self, file: u64, number: u32) {
        let one = Outcome { done: 1, ..DONE };
        self.call(file, unreg(file, &[number]), one);
    }

    fn kinds(&self, channel: u64) -> Vec<(u32, u32, u64)> {
        let unread = self.0.objects.unread(channel);
        let kinds = unread
            .iter()
            .map(|event| (event.number, event.kind, event.total));
        kinds.collect()
    }
}

fn alloc(lifetime: Lifetime, channel: Option<u64>) -> Call {
    Call::Alloc(Alloc {
        handle: HANDLE,
        lifetime: Some(lifetime),
        attributes: Attributes::Absent,
        channel,
    })
}

fn reg(channel: u64, numbers: &[u32]) -> Call {
    Call::Reg {
        channel,
        numbers: numbers.into(),
    }
}

fn unreg(channel: u64, numbers: &[u32]) -> Call {
    Call::Unreg {
        channel,
        numbers: numbers.into(),
    }
}

fn destroy(number: u32, force: bool) -> Call {
    Call::Destroy(Destroy {
        handle: HANDLE,
        number,
        force: Some(force),
    })
}

fn modify(number: u32, to: State) -> Call {
    Call::Modify(Modify {
        handle: HANDLE,
        number,
        attributes: Attributes::To(to),
    })
}

#[test]
fn the_last_registration_that_keeps_a_qp_ends_it() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 1));
    node.reg(2, 5);
    node.reg(3, 5);
    node.unreg(1, 5);
    assert_eq!(node.0.objects.len(), 1, "file 2 keeps it");
    node.unreg(2, 5);
    assert!(node.0.objects.is_empty(), "file 3 may only read");
    assert_eq!(node.kinds(3), [(5, QP_GONE, 1)]);
    assert_eq!(node.kinds(2), [], "its registration has ended");
    node.refuses(2, reg(2, &[5]), &[EINVAL]);
}

#[test]
fn a_qp_of_lifetime_domain_stays_until_the_last_close() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Domain, None, (5, 1));
    node.reg(2, 5);
    node.unreg(2, 5);
    node.0.objects.close_file(1);
    node.0.objects.close_file(2);
    node.reg(3, 5);
    assert_eq!(node.0.objects.len(), 1, "file 3 has the domain open");
    assert!(node.0.objects.close_handle(3, HANDLE));
    assert!(node.0.objects.is_empty());
    assert_eq!(node.kinds(3), [(5, QP_GONE, 1)]);
    assert!(!node.0.objects.close_handle(3, HANDLE), "it is closed once");
}

#[test]
fn rights() {
    let mut node = Node::new();
    node.refuses(3, alloc(Lifetime::Domain, None), &[EACCES]);
    node.alloc(1, Lifetime::Domain, Some(1), (5, 1));
    node.refuses(3, modify(5, State::Reset), &[EACCES]);
    node.refuses(3, destroy(5, true), &[EACCES]);
    node.refuses(2, destroy(5, true), &[EACCES]);
    node.refuses(2, destroy(5, false), &[EBUSY]);
    // The creator.
    node.call(1, destroy(5, true), DONE);
    assert_eq!(node.kinds(1), [(5, QP_GONE, 1)]);
}

#[test]
fn what_a_call_names() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 1));
    node.0.objects.open_domain(1, 8, 2);
    let other = |number| Call::Query { handle: 8, number };
    node.refuses(1, other(5), &[EINVAL]);
    let unknown = Call::QueryDomain { handle: 9 };
    node.refuses(1, unknown, &[ENOENT]);
    node.refuses(1, reg(2, &[5]), &[EBADF]);
    node.refuses(1, alloc(Lifetime::Registrations, None), &[EINVAL]);
    node.refuses(1, destroy(5, false), &[EINVAL]);
    let of_other_domain = Call::Alloc(Alloc {
        handle: 8,
        lifetime: Some(Lifetime::Registrations),
        attributes: Attributes::Absent,
        channel: Some(1),
    });
    node.refuses(1, of_other_domain, &[EINVAL]);
    let same_number = Outcome {
        number: 5,
        serial: 2,
        ..DONE
    };
    let call = alloc(Lifetime::Domain, None);
    assert_eq!(node.try_call(1, call, same_number), Err(Breach::Number));
    let listed = Outcome {
        total: Some(2),
        ..DONE
    };
    let list = Call::QueryDomain { handle: HANDLE };
    assert_eq!(node.try_call(1, list, listed), Err(Breach::Total(1)));
}

/// A process can have the descriptor of a channel whose file was closed.
#[test]
fn a_channel_without_its_file() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Domain, Some(1), (5, 1));
    node.reg(2, 5);
    node.0.objects.close_file(2);
    node.refuses(2, reg(2, &[5]), &[EIO]);
    node.refuses(2, reg(2, &[9]), &[EIO]);
    node.refuses(2, unreg(2, &[5]), &[EIO]);
    node.0.objects.close_channel(2);
    node.refuses(2, unreg(2, &[5]), &[EBADF]);
}

/// A call between the ends of two channels of a file finds the other, but not the QP that the first
/// kept.
#[test]
fn channels_of_a_file_end_one_after_the_other() {
    let one = Outcome { done: 1, ..DONE };
    for is_removed in [false, true] {
        let mut node = Node::new();
        node.join(1, 9, ALL, Membership::Named);
        node.alloc(1, Lifetime::Registrations, Some(1), (5, 1));
        node.alloc(1, Lifetime::Registrations, Some(9), (6, 2));
        if is_removed {
            node.0.objects.release_channel(1);
        } else {
            node.0.objects.end_channel(1);
        }
        let gone = [(5, QP_GONE, 1)];
        assert_eq!(node.kinds(1), if is_removed { &gone[..] } else { &[] });
        node.refuses(1, reg(1, &[6]), &[EIO]);
        node.refuses(1, reg(9, &[5]), &[EINVAL]);
        node.call(1, reg(9, &[6]), one);
        if is_removed {
            node.0.objects.remove_device_of(1);
        } else {
            node.0.objects.close_file(1);
        }
        let gone = [(6, QP_GONE, 1)];
        assert_eq!(node.kinds(9), if is_removed { &gone[..] } else { &[] });
        node.refuses(1, reg(9, &[6]), &[EIO]);
        assert!(node.0.objects.is_empty());
    }
}

#[test]
fn an_array_is_done_until_one_fails() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Domain, None, (5, 1));
    node.alloc(1, Lifetime::Domain, None, (6, 2));
    let call = reg(2, &[5, 6, 4, 5]);
    let result = node.try_call(2, call.clone(), fails(EINVAL, 1));
    assert_eq!(result, Err(Breach::Done(2)));
    node.call(2, call, fails(EINVAL, 2));
    node.refuses(2, destroy(6, false), &[EBUSY]);
    let both = Outcome { done: 3, ..DONE };
    node.call(2, unreg(2, &[6, 9, 5]), both);
    node.call(2, destroy(6, false), DONE);
}

#[test]
fn events_are_for_those_who_were_registered() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 1));
    node.alloc(1, Lifetime::Registrations, Some(1), (6, 2));
    node.0.objects.event(SHARED, 1, LAST_WQE);
    node.reg(2, 5);
    node.0.objects.event(SHARED, 1, FATAL);
    node.0.objects.event(SHARED, 2, FATAL);
    node.0.objects.event(SHARED, 1, LAST_WQE);
    let of_5 = [(5, FATAL, 1), (5, LAST_WQE, 2)];
    // In the order of the last events that they are for.
    assert_eq!(node.kinds(1), [of_5[0], (6, FATAL, 1), of_5[1]]);
    assert_eq!(node.kinds(2), of_5);
    node.0.objects.read(2, 1);
    assert_eq!(node.kinds(2), of_5[1..]);
    node.call(1, destroy(5, true), DONE);
    // It has none any more.
    node.0.objects.event(SHARED, 1, FATAL);
    assert_eq!(node.kinds(2), [(5, LAST_WQE, 2), (5, QP_GONE, 1)]);
    // A new QP with the number, whose events differ in the serial number.
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 3));
    node.reg(2, 5);
    node.0.objects.event(SHARED, 3, FATAL);
    let serials = |node: &Node| {
        let unread = node.0.objects.unread(2);
        unread.iter().map(|event| event.serial).collect::<Vec<_>>()
    };
    assert_eq!(serials(&node), [1, 1, 3]);
    node.0.objects.read(2, 2);
    assert_eq!(serials(&node), [3]);
    // UNREG ends the registrations with both.
    node.call(1, destroy(5, true), DONE);
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 4));
    node.reg(2, 5);
    node.0.objects.event(SHARED, 4, FATAL);
    assert_eq!(serials(&node), [3, 3, 4]);
    node.unreg(2, 5);
    assert_eq!(serials(&node), []);
}

#[test]
fn records_of_qps_that_are_gone_are_lost_beyond_a_number() {
    let mut node = Node::new();
    node.0.objects.keep_gone(2);
    for serial in 1..=4 {
        node.alloc(1, Lifetime::Registrations, Some(1), (5, serial));
        node.reg(2, 5);
        if serial == 1 {
            node.reg(3, 5);
            node.0.objects.event(SHARED, 1, FATAL);
        }
        node.call(1, destroy(5, true), DONE);
        // The creator reads its records, and loses none.
        assert!(node.kinds(1).iter().all(|(_, kind, _)| *kind != OVERRUN));
        node.0.objects.read(1, usize::MAX);
        assert_eq!(node.kinds(1), []);
    }
    let gone = (5, QP_GONE, 1);
    let overrun = (0, OVERRUN, 1);
    assert_eq!(node.kinds(2), [overrun, gone, gone]);
    assert_eq!(node.kinds(3), [overrun]);
    for channel in [2, 3] {
        node.0.objects.read(channel, 1);
    }
    assert_eq!(node.kinds(2), [gone, gone]);
    assert_eq!(node.kinds(3), []);
    // It comes again when more is lost.
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 5));
    node.reg(2, 5);
    node.call(1, destroy(5, true), DONE);
    assert_eq!(node.kinds(2), [overrun, gone, gone]);
    node.unreg(2, 5);
    assert_eq!(node.kinds(2), [overrun]);
}

#[test]
fn a_channel_whose_file_was_closed_has_nothing_to_read() {
    let mut node = Node::new();
    node.0.objects.keep_gone(1);
    for serial in 1..=2 {
        node.alloc(1, Lifetime::Registrations, Some(1), (5, serial));
        node.reg(2, 5);
        node.call(1, destroy(5, true), DONE);
    }
    assert_eq!(node.kinds(2), [(0, OVERRUN, 1), (5, QP_GONE, 1)]);
    node.0.objects.close_file(2);
    assert_eq!(node.kinds(2), []);
}

#[test]
fn a_channel_reports_what_its_mask_has() {
    let mut node = Node::new();
    node.join(1, 9, 1 << FATAL, Membership::Named);
    node.alloc(1, Lifetime::Registrations, Some(9), (5, 1));
    node.0.objects.event(SHARED, 1, LAST_WQE);
    node.0.objects.event(SHARED, 1, FATAL);
    node.call(1, destroy(5, true), DONE);
    assert_eq!(node.kinds(9), [(5, FATAL, 1)]);
}

#[test]
fn transitions() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Domain, None, (5, 1));
    node.refuses(2, modify(5, State::Rtr), &[EINVAL]);
    node.call(2, modify(5, State::Init), DONE);
    node.call(2, modify(5, State::Rtr), DONE);
    node.refuses(2, modify(5, State::Init), &[EINVAL]);
    // The state after an event is the device's.
    node.0.objects.event(SHARED, 1, FATAL);
    node.call(2, modify(5, State::Rts), fails(EINVAL, 0));
    node.call(2, modify(5, State::Reset), DONE);
    node.refuses(2, modify(5, State::Rts), &[EINVAL]);
}

#[test]
fn the_end_of_a_device() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Domain, Some(1), (5, 1));
    node.0.objects.event(SHARED, 1, FATAL);
    node.reg(2, 5);
    node.0.objects.remove_device_of(1);
    assert_eq!(node.0.objects.len(), 1, "file 2 has the domain open");
    assert_eq!(node.kinds(1), [(5, FATAL, 1), (5, QP_GONE, 1)]);
    (2..=3).for_each(|file| node.0.objects.remove_device_of(file));
    assert!(node.0.objects.is_empty());
    assert_eq!(node.kinds(2), [(5, QP_GONE, 1)]);
    assert_eq!(node.kinds(1), [(5, FATAL, 1), (5, QP_GONE, 1)]);
    for call in [Call::QueryCaps, unreg(1, &[5]), destroy(5, true)] {
        node.refuses(1, call, &[EIO]);
    }
    node.0.objects.close_channel(1);
    assert_eq!(node.kinds(1), []);
}

#[test]
fn nothing_is_left() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 1));
    node.reg(2, 5);
    node.call(1, destroy(5, true), DONE);
    node.0.objects.read(2, 1);
    for file in 1..=3 {
        node.0.objects.close_file(file);
        assert!(!node.0.objects.is_unused(), "channel {file} is open");
        node.0.objects.close_channel(file);
    }
    assert!(node.0.objects.is_unused());
}

/// A generator of numbers, the same ones each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn call(&mut self) -> Call {
        let handle = self.of(&[HANDLE, HANDLE, HANDLE, 8, 9]);
        let number = self.below(3) as u32;
        let channel = 1 + self.below(6);
        let attributes = match self.below(8) {
            0 => Attributes::Absent,
            1 => Attributes::Invalid,
            _ => Attributes::To(self.of(&State::ALL)),
        };
        let numbers = (0..self.below(3)).map(|_| self.below(3) as u32).collect();
        match self.below(10) {
            9 => Call::EventChannelAlloc {
                handle,
                mask: self.of(&[0, ALL, 1 << FATAL]),
                of: self.of(&[
                    None,
                    Some(Membership::Named),
                    Some(Membership::All),
                    Some(Membership::Observer),
                ]),
            },
            0 => Call::QueryCaps,
            1 => Call::QueryDomain { handle },
            2 => Call::Query { handle, number },
            3 => Call::Modify(Modify {
                handle,
                number,
                attributes,
            }),
            4 => Call::Destroy(Destroy {
                handle,
                number,
                force: self.of(&[None, Some(false), Some(true)]),
            }),
            5 => Call::Reg { channel, numbers },
            6 => Call::Unreg { channel, numbers },
            _ => Call::Alloc(Alloc {
                handle,
                lifetime: self.of(&[
                    None,
                    Some(Lifetime::Domain),
                    Some(Lifetime::Registrations),
                    Some(Lifetime::Registrations),
                ]),
                attributes,
                channel: self.of(&[None, Some(channel)]),
            }),
        }
    }
}

/// The results of each method that its objects decide: success, and the errors that are certain.
const CERTAIN: [(Method, &[Errno]); 9] = [
    (Method::Alloc, &[EIO, ENOENT, EACCES, EINVAL, EBADF]),
    (Method::Modify, &[EIO, ENOENT, EACCES, EINVAL]),
    (Method::Query, &[EIO, ENOENT, EINVAL]),
    (Method::Reg, &[EIO, EBADF, EINVAL]),
    (Method::Unreg, &[EIO, EBADF, EINVAL]),
    (Method::Destroy, &[EIO, ENOENT, EACCES, EINVAL, EBUSY]),
    (Method::QueryDomain, &[EIO, ENOENT]),
    (Method::QueryCaps, &[EIO]),
    (Method::EventChannelAlloc, &[EIO, ENOENT, EINVAL]),
];

/// Objects that random calls have led to, and the results that calls had.
struct Walk {
    node: Node,
    serial: u64,
    channels: u64,
    /// The methods that have succeeded, and the errors of each.
    succeeded: BTreeSet<Method>,
    failed: BTreeMap<Method, Errnos>,
}

impl Walk {
    fn begin(&mut self, random: &mut Random) {
        self.node = Node::new();
        (1..=2).for_each(|file| self.node.0.objects.open_domain(file, 8, 2));
        if random.below(2) == 0 {
            self.node.0.objects.keep_gone(1);
        }
        self.serial = 0;
        self.channels = 3;
    }

    /// Ends an object, reports an event, or reads, if at all.
    fn change(&mut self, random: &mut Random, file: u64) {
        let objects = &mut self.node.0.objects;
        match random.below(45) {
            40 => objects.remove_device_of(file),
            0 => drop(objects.close_handle(file, HANDLE)),
            1 => objects.close_channel(file),
            2 => objects.close_file(file),
            3 => objects.event(SHARED, 1 + random.below(self.serial + 1), FATAL),
            4 => {
                let unread = objects.unread(file).len() as u64;
                objects.read(file, random.below(unread + 1) as usize);
            }
            _ => (),
        }
    }

    /// Makes a call with each result that it may have, the last of which stays.
    fn call(&mut self, caller: Caller, call: &Call) {
        let results = self.node.0.results(caller, call);
        let errors = results.certain.or(results.possible);
        let undocumented = errors.without(call.method().errors());
        assert!(undocumented.is_empty(), "{call:?}");
        let failed = self.failed.entry(call.method()).or_default();
        *failed = failed.or(results.certain);
        for errno in Errno::ALL.iter().filter(|errno| errors.has(**errno)) {
            let mut node = self.node.0.clone();
            let failed = node.take(caller, call, &fails(*errno, results.done), Errnos::NONE);
            assert_eq!(failed, Ok(()), "{call:?}");
        }
        if !results.certain.is_empty() {
            assert!(self.node.0.take(caller, call, &DONE, Errnos::NONE).is_err());
            return;
        }
        self.serial += 1;
        self.channels += 1;
        let outcome = Outcome {
            number: self.serial as u32 % 3,
            serial: self.serial,
            channel: self.channels,
            done: results.done,
            ..DONE
        };
        match self.node.0.take(caller, call, &outcome, Errnos::NONE) {
            Ok(()) => drop(self.succeeded.insert(call.method())),
            Err(Breach::Number) => (),
            Err(breach) => panic!("{call:?}: {breach}"),
        }
    }

    fn end(&mut self) {
        let objects = &mut self.node.0.objects;
        (1..=4).for_each(|file| objects.close_file(file));
        (1..=self.channels).for_each(|channel| objects.close_channel(channel));
        assert!(objects.is_unused(), "something is left");
    }
}

/// In every state that is reached, every call has results, which its method documents, and each of
/// them can be taken. Each method succeeds, and fails with each of its errors. Nothing is left when
/// all files are closed.
#[test]
fn the_contract_is_total() {
    let mut random = Random(1);
    let mut walk = Walk {
        node: Node::new(),
        serial: 0,
        channels: 0,
        succeeded: BTreeSet::new(),
        failed: BTreeMap::new(),
    };
    for _ in 0..500 {
        walk.begin(&mut random);
        for _ in 0..60 {
            let file = 1 + random.below(4);
            walk.change(&mut random, file);
            let caller = Caller {
                user: random.below(4) as u32,
                right: random.of(&[Right::Use, Right::Write, Right::Own]),
                file,
            };
            let call = random.call();
            walk.call(caller, &call);
        }
        walk.end();
    }
    for (method, errors) in CERTAIN {
        assert!(walk.succeeded.contains(&method), "{method:?} succeeds");
        assert_eq!(
            walk.failed.get(&method),
            Some(&Errnos::of(errors)),
            "{method:?}"
        );
    }
}

#[test]
fn an_event_names_its_qp() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 4));
    node.0.objects.event(SHARED, 4, FATAL);
    let event = Event {
        number: 5,
        serial: 4,
        kind: FATAL,
        total: 1,
    };
    assert_eq!(node.0.objects.unread(1), [event]);
}

#[test]
fn a_member_of_all_is_told_of_each_qp() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Domain, None, (4, 1));
    node.join(2, 9, ALL, Membership::All);
    node.join(3, 8, ALL, Membership::Observer);
    node.join(3, 7, 0, Membership::All);
    assert_eq!(node.kinds(9), []);
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 2));
    node.0.objects.event(SHARED, 1, FATAL);
    node.0.objects.event(SHARED, 2, FATAL);
    node.call(2, reg(9, &[5]), Outcome { done: 1, ..DONE });
    let records = [(5, QP_ADDED, 1), (4, FATAL, 1), (5, FATAL, 1)];
    for channel in [9, 8] {
        assert_eq!(node.kinds(channel), records);
    }
    assert_eq!(node.kinds(1), [(5, FATAL, 1)]);
    assert_eq!(node.kinds(7), []);
    node.0.objects.read(9, 3);
    node.call(1, destroy(5, true), DONE);
    assert_eq!(node.kinds(9), [(5, QP_GONE, 1)]);
    assert_eq!(node.kinds(8).last(), Some(&(5, QP_GONE, 1)));
}

#[test]
fn a_member_of_all_keeps_each_qp_unless_it_observes_or_reads() {
    let mut node = Node::new();
    node.alloc(1, Lifetime::Registrations, Some(1), (4, 1));
    node.alloc(1, Lifetime::Domain, None, (6, 2));
    node.join(2, 9, ALL, Membership::All);
    node.join(2, 8, ALL, Membership::Observer);
    node.join(3, 7, ALL, Membership::All);
    node.alloc(1, Lifetime::Registrations, Some(1), (5, 3));
    node.alloc(2, Lifetime::Registrations, Some(9), (7, 4));
    node.refuses(2, alloc(Lifetime::Registrations, Some(8)), &[EINVAL]);
    node.unreg(1, 4);
    node.unreg(1, 5);
    assert_eq!(node.0.objects.numbers(SHARED), [4, 5, 6, 7]);
    node.refuses(1, destroy(6, false), &[EBUSY]);
    node.0.objects.close_channel(9);
    assert_eq!(node.0.objects.numbers(SHARED), [6]);
    node.call(1, destroy(6, false), DONE);
    assert_eq!(node.kinds(7).last(), Some(&(6, QP_GONE, 1)));
}

#[test]
fn a_member_of_all_has_no_registration_of_its_own_to_end() {
    let mut node = Node::new();
    node.join(2, 9, ALL, Membership::All);
    node.alloc(1, Lifetime::Registrations, Some(1), (4, 1));
    let (channel, numbers) = (9, vec![4]);
    node.refuses(2, Call::Unreg { channel, numbers }, &[EINVAL]);
    for of in [Membership::All, Membership::Observer] {
        node.refuses(2, channel_alloc(1 << FATAL, Some(of)), &[EINVAL]);
    }
    node.refuses(2, channel_alloc(ALL, None), &[EINVAL]);
}

/// Each fault of the contract fails one of the tests above.
#[cfg(feature = "mutants")]
#[test]
fn mutants() {
    use xrc_rcv_spec::Mutant;

    let tests: &[fn()] = &[
        the_last_registration_that_keeps_a_qp_ends_it,
        a_qp_of_lifetime_domain_stays_until_the_last_close,
        rights,
        what_a_call_names,
        a_channel_without_its_file,
        an_array_is_done_until_one_fails,
        events_are_for_those_who_were_registered,
        records_of_qps_that_are_gone_are_lost_beyond_a_number,
        a_channel_whose_file_was_closed_has_nothing_to_read,
        a_channel_reports_what_its_mask_has,
        transitions,
        the_end_of_a_device,
        an_event_names_its_qp,
        nothing_is_left,
        a_member_of_all_is_told_of_each_qp,
        a_member_of_all_keeps_each_qp_unless_it_observes_or_reads,
        a_member_of_all_has_no_registration_of_its_own_to_end,
    ];
    let mut unnoticed = Vec::new();
    for mutant in Mutant::ALL {
        let fails = |test: &fn()| {
            let test = || Mutant::during(Some(*mutant), test);
            std::panic::catch_unwind(test).is_err()
        };
        if !tests.iter().any(fails) {
            unnoticed.push(*mutant);
        }
    }
    // It changes the tables of errors alone: documents.rs compares these.
    assert_eq!(unnoticed, [Mutant::BusyUndocumented]);
}
