// SPDX-License-Identifier: GPL-2.0

//! Scenarios: calls of several processes, and reports of a device, on one QP at the same time.

use crate::{
    event::EventMask,
    kernel_user::KernelUser,
    qp_status::Lifetime,
    rdma::{
        device::{Verb, REPORTED},
        qp_attr::QpState,
    },
    right::Right,
    uverbs::{Attached, File},
};
use kernel::{prelude::*, runtime};
use std::{
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::Arc as StdArc,
};
use xrc_rcv_spec::Membership;

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident,)*) => {
        /// What a thread does, with a file of its own.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Action { $($(#[$doc])* $action,)* }

        const ACTIONS: &[Action] = &[$($action),*];
    };
}

actions! {
    Alloc,
    /// The device fails to modify the new QP.
    AllocFails,
    /// The process passed a bad pointer.
    AllocFaults,
    /// An allocation fails.
    AllocNoMemory,
    Register,
    /// Two threads of one process register.
    RegisterByTwo,
    /// For one type of events only, and not for QP_GONE.
    RegisterMasked,
    /// The process may only read the domain's file.
    RegisterReader,
    /// The process was killed.
    RegisterKilled,
    /// An allocation fails.
    RegisterNoMemory,
    /// A process that has the descriptor alone registers, while the uverbs file is closed.
    RegisterAndCloseFile,
    /// A process that has the descriptor alone, which the removal of the device does not wait for.
    RegisterByIoctl,
    Unregister,
    /// By such a process.
    UnregisterAndCloseFile,
    UnregisterByIoctl,
    Destroy,
    /// The process has not registered.
    DestroyUnregistered,
    DestroyForced,
    /// To ERR.
    Modify,
    Query,
    /// Of all QPs, one in a call.
    QueryDomain,
    /// The device reports two events.
    Events,
    Read,
    /// Two processes read, one of which passed a bad pointer.
    ReadByTwo,
    /// The process passed a bad pointer, then a good one.
    ReadFaults,
    /// Until the end of the channel.
    ReadWaits,
    CloseChannel,
    /// The process has created a QP of its own, too.
    CloseFile,
    /// Each process closes its handle of the domain.
    CloseDomain,
    RemoveDevice,
    /// The process becomes a member of all QPs.
    JoinAll,
    /// An allocation fails.
    JoinNoMemory,
    /// A member of all QPs creates one.
    AllocOfAll,
    ReadOfAll,
    CloseOfAll,
    /// A member of all QPs that keeps none.
    CloseObserver,
    /// A user in the kernel.
    KernelAlloc,
    KernelRegister,
    KernelUnregister,
    KernelDestroy,
    KernelLeave,
    /// As a member of all QPs.
    KernelLeaveAll,
}

use Action::*;

/// One of the first allocations of a call fails, unless there are fewer.
fn without_memory<R>(call: impl FnOnce() -> R) -> R {
    runtime::fail_allocation(runtime::choose(10));

    let result = call();

    runtime::allocations_succeed();
    result
}

/// The process or the kernel user of a thread.
#[derive(Clone)]
enum User {
    Process(StdArc<File>),
    Kernel(StdArc<KernelUser>),
}

impl Action {
    fn is_of_kernel(self) -> bool {
        matches!(
            self,
            KernelAlloc
                | KernelRegister
                | KernelUnregister
                | KernelDestroy
                | KernelLeave
                | KernelLeaveAll
        )
    }

    /// The QPs that the user is registered with.
    fn of(self) -> Membership {
        match self {
            AllocOfAll | ReadOfAll | CloseOfAll | KernelLeaveAll => Membership::All,
            CloseObserver => Membership::Observer,
            _ => Membership::Named,
        }
    }

    /// Whether the user is registered with the QP before.
    fn is_of_registered(self) -> bool {
        matches!(
            self,
            Unregister
                | UnregisterAndCloseFile
                | UnregisterByIoctl
                | Destroy
                | Read
                | ReadByTwo
                | ReadFaults
                | ReadWaits
                | CloseChannel
                | CloseFile
                | ReadOfAll
                | CloseOfAll
                | KernelUnregister
                | KernelDestroy
                | KernelLeave
                | KernelLeaveAll
        )
    }

    /// Opens what a thread uses whose first action this is, and registers it if one needs that: a
    /// file, or another event channel of one.
    fn prepare(
        self,
        attached: &Attached,
        shared: Option<&File>,
        qpn: u32,
        registers: bool,
    ) -> User {
        if self.is_of_kernel() {
            let user = KernelUser::open(attached, self.of());

            if registers {
                user.register(attached, qpn).unwrap();
            }
            return User::Kernel(user);
        }

        let (right, mask) = match self {
            RegisterReader => (Right::Use, EventMask::ALL),
            RegisterMasked => (Right::Write, EventMask::from_raw(1 << REPORTED[0]).unwrap()),
            _ => (Right::Write, EventMask::ALL),
        };
        let file = attached.open_in(shared, self.of(), right, mask);

        if registers {
            attached.register(&file, qpn).unwrap();
        }
        if self == CloseFile {
            attached
                .alloc(&file, Lifetime::Registrations, false)
                .unwrap();
        }
        User::Process(file)
    }

    /// The contract says whether the result may be.
    fn run(self, attached: &StdArc<Attached>, user: &User, lifetime: Lifetime, qpn: u32) {
        let _ = match user {
            User::Process(file) => self.run_process(attached, file, lifetime, qpn),
            User::Kernel(user) => self.run_kernel(attached, user, lifetime, qpn),
        };
    }

    fn run_process(
        self,
        attached: &StdArc<Attached>,
        file: &StdArc<File>,
        lifetime: Lifetime,
        qpn: u32,
    ) -> Result {
        match self {
            Alloc | AllocOfAll => attached.alloc(file, lifetime, false).map(drop),
            AllocFails => {
                attached.device.fail(Verb::Modify);
                attached.alloc(file, lifetime, false).map(drop)
            }
            AllocFaults => attached.alloc(file, lifetime, true).map(drop),
            AllocNoMemory => without_memory(|| attached.alloc(file, lifetime, false)).map(drop),
            Register | RegisterMasked | RegisterReader => attached.register(file, qpn),
            RegisterByTwo => {
                let (other, of_other) = (file.clone(), attached.clone());
                let other = runtime::spawn(move || of_other.register(&other, qpn));
                let results = [attached.register(file, qpn), other.join().unwrap()];

                results[0].and(results[1])
            }
            RegisterKilled => {
                runtime::kill();
                attached.register(file, qpn)
            }
            RegisterNoMemory => without_memory(|| attached.register(file, qpn)),
            JoinNoMemory => {
                let join = || attached.try_open(Membership::All, Right::Write, EventMask::ALL);

                without_memory(join).map(drop)
            }
            Unregister => attached.unregister(file),
            Destroy | DestroyUnregistered => attached.destroy(file, qpn, false),
            DestroyForced => attached.destroy(file, qpn, true),
            Modify => attached.modify(file, qpn, QpState::Err),
            Query => attached.query(file, qpn).map(drop),
            QueryDomain => attached.query_domain(file, 1).map(drop),
            Events | JoinAll | CloseFile | CloseDomain | RemoveDevice => {
                self.run_certain(attached, file, qpn);
                Ok(())
            }
            Read | ReadOfAll => file.channel().read(2, 2, true).map(drop),
            ReadByTwo => {
                let other = file.clone();
                let other = runtime::spawn(move || other.channel().read(1, 0, true).map(drop));
                let result = file.channel().read(2, 2, true).map(drop);

                result.and(other.join().unwrap())
            }
            ReadFaults => {
                let _ = file.channel().read(2, 1, true);

                file.channel().read(1, 0, true).map(drop)
            }
            ReadWaits => loop {
                if let Err(e) = file.channel().read(4, 4, false) {
                    assert_eq!(e, EIO, "the end of a channel");
                    break Ok(());
                }
            },
            CloseChannel | CloseOfAll | CloseObserver => {
                file.channel().close();
                Ok(())
            }
            _ if self.is_of_kernel() => unreachable!("of a kernel user"),
            _ => self.run_ioctl(attached, file, qpn),
        }
    }

    /// Actions that cannot fail.
    fn run_certain(self, attached: &StdArc<Attached>, file: &StdArc<File>, qpn: u32) {
        match self {
            Events => attached.report(qpn),
            JoinAll => drop(attached.open_all(Right::Write)),
            CloseFile => attached.close(file),
            CloseDomain => {
                for file in attached.files() {
                    attached.close_domain(&file);
                }
            }
            RemoveDevice => attached.remove(),
            _ => unreachable!("it can fail"),
        }
    }

    /// By a process that has the descriptor of the channel alone.
    fn run_ioctl(self, attached: &StdArc<Attached>, file: &StdArc<File>, qpn: u32) -> Result {
        let closes = matches!(self, RegisterAndCloseFile | UnregisterAndCloseFile);
        let (closed, of_closed) = (file.clone(), attached.clone());
        let closing = closes.then(|| runtime::spawn(move || of_closed.close(&closed)));
        let result = match self {
            RegisterByIoctl | RegisterAndCloseFile => attached.register_by_ioctl(file, qpn),
            _ => attached.unregister_by_ioctl(file),
        };

        if let Some(closing) = closing {
            closing.join().unwrap();
        }
        result
    }

    fn run_kernel(
        self,
        attached: &Attached,
        user: &KernelUser,
        lifetime: Lifetime,
        qpn: u32,
    ) -> Result {
        match self {
            KernelAlloc => user.alloc(attached, lifetime),
            KernelRegister => user.register(attached, qpn),
            KernelUnregister => {
                user.unregister(attached);
                Ok(())
            }
            KernelDestroy => user.destroy(attached, qpn, false),
            KernelLeave | KernelLeaveAll => {
                user.leave(attached);
                Ok(())
            }
            _ => unreachable!("of a process"),
        }
    }
}

/// A QP, and the threads that use it.
#[derive(Clone)]
struct Scenario {
    lifetime: Lifetime,
    /// The number of files that are registered with the QP, do nothing and stay.
    bystanders: usize,
    /// The threads have one file, and each an event channel of it.
    one_file: bool,
    /// What each thread does, in turn.
    threads: Vec<Vec<Action>>,
}

impl Scenario {
    fn execute(&self) {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = attached.alloc(&creator, self.lifetime, false).unwrap();

        for _ in 0..self.bystanders {
            attached.register(&attached.open(), qpn).unwrap();
        }

        let registers =
            |actions: &Vec<Action>| actions.iter().any(|action| action.is_of_registered());
        let mut users: Vec<(_, User)> = Vec::new();

        for of in &self.threads {
            let shared = match users.first() {
                Some((_, User::Process(file))) if self.one_file => Some(&**file),
                _ => None,
            };

            users.push((of, of[0].prepare(&attached, shared, qpn, registers(of))));
        }

        // One of the threads may be the last holder.
        if self.bystanders == 0 && self.threads.iter().any(registers) {
            attached.unregister(&creator).unwrap();
        }
        drop(creator);

        let mut threads = Vec::new();
        let mut rest = Rest::default();

        for (actions, user) in users {
            let thread = self.start(actions, &attached, &user, qpn);

            match user {
                User::Process(file) if actions.contains(&ReadWaits) => {
                    rest.readers.push((file, thread));
                }
                User::Process(_) => threads.push(thread),
                User::Kernel(user) => {
                    rest.kernel_users.push(user);
                    threads.push(thread);
                }
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        rest.finish(attached, self.bystanders != 0);
    }

    /// Starts a thread that does some actions.
    fn start(
        &self,
        actions: &[Action],
        attached: &StdArc<Attached>,
        user: &User,
        qpn: u32,
    ) -> runtime::JoinHandle<()> {
        let (attached, user, actions) = (attached.clone(), user.clone(), actions.to_vec());
        let lifetime = self.lifetime;

        runtime::spawn(move || {
            for action in actions {
                action.run(&attached, &user, lifetime, qpn);
            }
        })
    }

    /// Executes it in many interleavings.
    fn check(&self, executions: usize) {
        let scenario = self.clone();
        let check = || runtime::check(executions, 0x18, move || scenario.execute());

        if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
            eprintln!(
                "lifetime {}, {} bystanders, {:?}{}",
                self.lifetime.name(),
                self.bystanders,
                self.threads,
                if self.one_file { " of one file" } else { "" }
            );
            resume_unwind(panic);
        }
    }
}

/// The users that are left when the threads have ended, but for files.
#[derive(Default)]
pub(crate) struct Rest {
    /// Files whose channels are read until their end.
    readers: Vec<(StdArc<File>, runtime::JoinHandle<()>)>,
    kernel_users: Vec<StdArc<KernelUser>>,
}

impl Rest {
    /// Users read their events, close their handles of the domain if `domain_first`, and their
    /// files; the device is removed.
    pub(crate) fn finish(mut self, attached: StdArc<Attached>, domain_first: bool) {
        let files = attached.files();

        attached.orders.check(&attached.device.oracle.numbers());
        attached.device.check_destroyed();
        self.read_all(&files, false);
        for user in &self.kernel_users {
            user.wait(false);
        }
        if domain_first {
            for file in &files {
                attached.close_domain(file);
            }
            self.close_kernel_domains(&attached);
            self.read_all(&files, true);
            for user in &self.kernel_users {
                user.wait(true);
            }
        }
        for file in &files {
            attached.close(file);
            attached.device.check_destroyed();
        }
        for (_, thread) in self.readers.drain(..) {
            thread.join().unwrap();
        }
        for file in &files {
            file.channel().close();
        }
        for user in &self.kernel_users {
            user.leave(&attached);
        }
        if !domain_first {
            self.close_kernel_domains(&attached);
        }
        drop(self);
        drop(files);
        attached.check_is_idle();
        attached.remove();

        let device = attached.device.clone();

        drop(StdArc::into_inner(attached).expect("no thread uses it"));
        device.check_is_idle();
        assert_eq!(runtime::objects(), 0, "an object is left");
    }

    fn close_kernel_domains(&self, attached: &Attached) {
        for user in &self.kernel_users {
            user.close_domain(attached);
        }
    }

    /// Reads the events of all files. The QPs have ended if `have_ended`.
    fn read_all(&self, files: &[StdArc<File>], have_ended: bool) {
        for file in files {
            let channel = file.channel();
            let is_read = self
                .readers
                .iter()
                .any(|(read, _)| StdArc::ptr_eq(read, file));

            if !is_read {
                channel.read_all(have_ended);
                continue;
            }
            while !channel.is_complete(have_ended) {
                runtime::yield_now();
            }
            if have_ended {
                channel.check();
            }
        }
    }
}

/// Checks the actions together, for both lifetimes, with other registrations or without.
fn check_all(together: impl Iterator<Item = Vec<Action>>, executions: usize) {
    // The registrations of a file end one after the other. A member of all QPs that joins
    // meanwhile keeps those of two QPs that have not ended, as in no order of the two calls, and a
    // list can have one of the two. uverbs makes no event channel while the device is removed.
    let has_order = |actions: &Vec<_>| {
        let has = |some: &[_]| some.iter().any(|action| actions.contains(action));

        !(has(&[JoinAll, JoinNoMemory, QueryDomain]) && has(&[CloseFile, RemoveDevice]))
    };

    let scenarios = together
        .filter(has_order)
        .flat_map(|actions| of_all_kinds(actions.into_iter().map(|action| vec![action]), false));

    check_scenarios(scenarios, executions);
}

/// Returns a scenario for each kind of QP.
fn of_all_kinds(threads: impl Iterator<Item = Vec<Action>>, one_file: bool) -> [Scenario; 4] {
    let threads: Vec<_> = threads.collect();

    KINDS.map(|(lifetime, bystanders)| Scenario {
        lifetime,
        bystanders,
        one_file,
        threads: threads.clone(),
    })
}

/// The lifetimes of the QP, with other registrations or without.
const KINDS: [(Lifetime, usize); 4] = [
    (Lifetime::Registrations, 0),
    (Lifetime::Registrations, 2),
    (Lifetime::Domain, 0),
    (Lifetime::Domain, 2),
];

/// Checks scenarios, with so many executions of each unless the environment says another number.
fn check_scenarios(scenarios: impl Iterator<Item = Scenario>, executions: usize) {
    let executions = match std::env::var("CHECKER_EXECUTIONS") {
        Ok(number) => number
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .unwrap_or_else(|| panic!("CHECKER_EXECUTIONS={number} is not a positive number")),
        Err(_) => executions,
    };
    let number = scenarios
        .inspect(|scenario| scenario.check(executions))
        .count();

    println!("{number} scenarios, {executions} executions of each");
}

#[test]
fn one_thread() {
    check_all(ACTIONS.iter().map(|action| vec![*action]), 20);
}

/// All pairs, of the same action as well.
#[test]
fn pairs_of_threads() {
    let pairs = ACTIONS.iter().enumerate().flat_map(|(index, one)| {
        let others = ACTIONS[index..].iter();

        others.map(|other| vec![*one, *other])
    });

    check_all(pairs, 20);
}

/// Actions with a channel of a file, while another thread uses the file or another channel of it.
const OF_A_CHANNEL: [Action; 10] = [
    RegisterByIoctl,
    UnregisterByIoctl,
    Events,
    ReadWaits,
    ReadOfAll,
    CloseChannel,
    CloseOfAll,
    CloseDomain,
    RemoveDevice,
    CloseFile,
];

/// Methods, during which the process has the file open.
const METHODS: [Action; 5] = [Alloc, AllocOfAll, Register, Unregister, DestroyForced];

/// Two threads of a process, each with an event channel of its own of one file.
#[test]
fn pairs_of_threads_with_one_file() {
    let is_of_open_file =
        |(one, other): &(Action, Action)| *other != CloseFile || !METHODS.contains(one);
    let pairs = OF_A_CHANNEL.iter().enumerate().flat_map(|(index, other)| {
        let ones = [&METHODS[..], &OF_A_CHANNEL[..=index]].concat();

        ones.into_iter().map(|one| (one, *other))
    });
    let scenarios = pairs
        .filter(is_of_open_file)
        .flat_map(|(one, other)| of_all_kinds([vec![one], vec![other]].into_iter(), true));

    check_scenarios(scenarios, 20);
}

/// Actions that end a QP, a registration or what they are made with.
const ENDING: [Action; 12] = [
    Unregister,
    Destroy,
    DestroyForced,
    CloseChannel,
    CloseFile,
    CloseDomain,
    RemoveDevice,
    KernelUnregister,
    KernelDestroy,
    KernelLeave,
    CloseOfAll,
    KernelLeaveAll,
];

/// Actions beside which none of these ends anything.
const OTHERS: [[Action; 3]; 5] = [
    [Register, Events, ReadWaits],
    [RegisterByTwo, Events, ReadByTwo],
    [RegisterMasked, Events, ReadFaults],
    [KernelRegister, Events, Read],
    [JoinAll, Events, ReadOfAll],
];

/// Few of the 5,984 triples, and many executions of each: all pairs that end something, with each
/// other action in turn, because most faults of three threads are of two ends and their witness.
#[test]
fn triples_of_threads() {
    let mut witnesses = ACTIONS
        .iter()
        .filter(|action| !ENDING.contains(*action))
        .cycle();
    let endings = ENDING.iter().enumerate().flat_map(|(index, one)| {
        let others = ENDING[index + 1..].iter();

        others.map(|other| (*one, *other))
    });
    let mut triples: Vec<_> = endings
        .map(|(one, other)| vec![one, other, *witnesses.next().unwrap()])
        .collect();

    triples.extend(OTHERS.map(Vec::from));
    assert_eq!(triples.len(), 71);
    check_all(triples.into_iter(), 100);
}

/// Actions that look a QP up by its number, and take a lock after that.
const BY_NUMBER: [Action; 5] = [
    Register,
    RegisterByIoctl,
    KernelRegister,
    Modify,
    DestroyForced,
];

/// Actions that end the QP: of some, the number is free when they return.
const FREEING: [Action; 4] = [Unregister, CloseFile, KernelLeave, CloseOfAll];

/// A QP is looked up, ends, and another gets its number, before the first is used: the threads have
/// to run in one order, which few executions have. Nothing else keeps the QP.
#[test]
fn triples_of_threads_on_a_number() {
    let scenarios = BY_NUMBER.into_iter().flat_map(|by_number| {
        FREEING.map(|freeing| Scenario {
            lifetime: Lifetime::Registrations,
            bystanders: 0,
            one_file: false,
            threads: vec![vec![Alloc], vec![by_number], vec![freeing]],
        })
    });

    check_scenarios(scenarios, 400);
}

/// The actions that a thread does one after the other, with one file.
const IN_TURN: [Action; 10] = [
    Alloc,
    Register,
    RegisterByIoctl,
    Unregister,
    DestroyForced,
    Modify,
    Query,
    Events,
    Read,
    CloseChannel,
];

/// Every so many of the pairs of threads that do two of these: a prime, so that each action comes
/// as the first and as the second of either thread.
const STEP: usize = 53;

/// Two threads that do two actions each, which are few of all such pairs.
#[test]
fn two_actions_in_a_thread() {
    // A channel that registers anew with a QP is in a case.
    let is_anew = |one, other| one == Unregister && [Register, RegisterByIoctl].contains(&other);
    let turns: Vec<_> = IN_TURN
        .into_iter()
        .flat_map(|one| IN_TURN.map(|other| (one, other)))
        .filter(|(one, other)| !is_anew(*one, *other))
        .map(|(one, other)| vec![one, other])
        .collect();
    let pairs = turns.iter().enumerate().flat_map(|(index, one)| {
        let others = turns[index..].iter();

        others.map(|other| vec![one.clone(), other.clone()])
    });
    let number = turns.len() * (turns.len() + 1) / 2;
    let chosen: Vec<_> = pairs.step_by(STEP).collect();

    println!("{} pairs of {number}", chosen.len());

    let scenarios = chosen
        .into_iter()
        .flat_map(|threads| of_all_kinds(threads.into_iter(), false));

    check_scenarios(scenarios, 20);
}
