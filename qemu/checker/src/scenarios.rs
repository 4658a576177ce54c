// SPDX-License-Identifier: GPL-2.0

//! What several processes and a device do with one QP at the same time.

use crate::{
    rdma::device::Verb,
    receive_qp::Lifetime,
    uverbs::{Attached, File},
};
use kernel::{prelude::*, runtime};
use std::{
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::Arc as StdArc,
};

/// What a thread does, with a file of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Alloc,
    /// The device fails to modify the new QP.
    AllocFails,
    /// The process passed a bad pointer.
    AllocFaults,
    Register,
    /// The process was killed.
    RegisterKilled,
    Unregister,
    Destroy,
    /// The device reports two events.
    Events,
    Read,
    /// The process passed a bad pointer, then a good one.
    ReadFaults,
    CloseChannel,
    CloseFile,
    /// Each process closes its handle of the domain.
    CloseDomain,
    RemoveDevice,
}

use Action::*;

const ACTIONS: [Action; 14] = [
    Alloc,
    AllocFails,
    AllocFaults,
    Register,
    RegisterKilled,
    Unregister,
    Destroy,
    Events,
    Read,
    ReadFaults,
    CloseChannel,
    CloseFile,
    CloseDomain,
    RemoveDevice,
];

impl Action {
    /// Whether the file is registered with the QP before.
    fn is_of_registered(self) -> bool {
        matches!(
            self,
            Unregister | Destroy | Read | ReadFaults | CloseChannel | CloseFile
        )
    }

    fn run(self, attached: &Attached, file: &File, lifetime: Lifetime, qpn: u32) {
        let result = match self {
            Alloc => attached.alloc(file, lifetime, false).map(drop),
            AllocFails => {
                attached.device.fail(Verb::Modify);
                attached.alloc(file, lifetime, false).map(drop)
            }
            AllocFaults => attached.alloc(file, lifetime, true).map(drop),
            Register => attached.register(file, qpn),
            RegisterKilled => {
                runtime::kill();
                attached.register(file, qpn)
            }
            Unregister => attached.unregister(file),
            Destroy => attached.destroy(file, qpn),
            Events => {
                attached.report(qpn);
                Ok(())
            }
            Read => file.channel().read(2, 2, true).map(drop),
            ReadFaults => {
                let _ = file.channel().read(2, 1, true);

                file.channel().read(1, 0, true).map(drop)
            }
            CloseChannel => {
                file.channel().close();
                Ok(())
            }
            CloseFile => {
                attached.close(file);
                Ok(())
            }
            CloseDomain => {
                for file in attached.files() {
                    attached.close_domain(&file);
                }
                Ok(())
            }
            RemoveDevice => {
                attached.remove();
                Ok(())
            }
        };

        if let Err(e) = result {
            assert!(self.may_fail_with(e), "{self:?} fails with {e:?}");
        }
    }

    /// Whether the documentation has an error of the call. EIO is that of a device that was removed,
    /// ENODEV that of a handle that was closed.
    fn may_fail_with(self, e: Error) -> bool {
        let expected: &[Error] = match self {
            Alloc => &[EIO, ENODEV],
            AllocFails => &[EIO, ENODEV],
            AllocFaults => &[EIO, ENODEV, EFAULT],
            Register => &[EIO, ENODEV, EINVAL],
            RegisterKilled => &[EIO, ENODEV, EINVAL, EINTR],
            Unregister => &[],
            Destroy => &[EIO, ENODEV, EINVAL, EBUSY],
            Read | ReadFaults => &[EIO, EAGAIN, EFAULT],
            Events | CloseChannel | CloseFile | CloseDomain | RemoveDevice => &[],
        };

        expected.contains(&e)
    }
}

/// A QP, and the threads that use it.
#[derive(Clone)]
struct Scenario {
    lifetime: Lifetime,
    /// The number of files that are registered with the QP, do nothing and stay.
    bystanders: usize,
    actions: Vec<Action>,
}

impl Scenario {
    fn execute(&self) {
        let attached = Attached::new();
        let creator = attached.open();
        let lifetime = self.lifetime;
        let qpn = attached.alloc(&creator, lifetime, false).unwrap();

        for _ in 0..self.bystanders {
            attached.register(&attached.open(), qpn).unwrap();
        }

        let mut threads = Vec::new();

        for action in &self.actions {
            let file = attached.open();

            if action.is_of_registered() {
                attached.register(&file, qpn).unwrap();
            }
            threads.push((*action, file));
        }
        // One of the threads may be the last holder.
        if self.bystanders == 0 && threads.iter().any(|(action, _)| action.is_of_registered()) {
            attached.unregister(&creator).unwrap();
        }

        let threads = threads.into_iter().map(|(action, file)| {
            let attached = attached.clone();

            runtime::spawn(move || action.run(&attached, &file, lifetime, qpn))
        });

        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
        drop(creator);
        finish(attached, self.bystanders != 0);
    }

    /// Executes it in many interleavings.
    fn check(&self, executions: usize) {
        let scenario = self.clone();
        let check = || runtime::check(executions, 0x18, move || scenario.execute());

        if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
            eprintln!(
                "lifetime {}, {} bystanders, {:?}",
                self.lifetime.name(),
                self.bystanders,
                self.actions
            );
            resume_unwind(panic);
        }
    }
}

/// Processes read their events, close their handles of the domain if `domain_first`, and their files; the
/// device is removed.
fn finish(attached: StdArc<Attached>, domain_first: bool) {
    let files = attached.files();

    attached.device.check_destroyed();
    for file in &files {
        file.channel().read_all(false);
    }
    if domain_first {
        for file in &files {
            attached.close_domain(file);
        }
        for file in &files {
            file.channel().read_all(true);
        }
    }
    for file in &files {
        attached.close(file);
        attached.device.check_destroyed();
        file.channel().close();
    }
    drop(files);
    attached.check_is_idle();
    attached.remove();

    let device = attached.device.clone();

    drop(StdArc::into_inner(attached).expect("no thread uses it"));
    device.check_is_idle();
    assert_eq!(runtime::objects(), 0, "an object is left");
}

/// Checks all multisets of `number` actions, for both lifetimes, with an event to each registration at
/// once or by the workqueue.
fn check_all(number: u32, executions: usize) {
    let executions = std::env::var("CHECKER_EXECUTIONS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(executions);
    let mut scenarios = 0;

    for index in 0..ACTIONS.len().pow(number) {
        let actions: Vec<_> = (0..number)
            .map(|digit| index / ACTIONS.len().pow(digit) % ACTIONS.len())
            .collect();

        if !actions.is_sorted() {
            continue;
        }
        for lifetime in [Lifetime::Registrations, Lifetime::Domain] {
            for bystanders in [0, 2] {
                Scenario {
                    lifetime,
                    bystanders,
                    actions: actions.iter().map(|action| ACTIONS[*action]).collect(),
                }
                .check(executions);
                scenarios += 1;
            }
        }
    }
    println!("{scenarios} scenarios, {executions} executions of each");
}

#[test]
fn one_thread() {
    check_all(1, 20);
}

#[test]
fn pairs_of_threads() {
    check_all(2, 40);
}

#[test]
fn triples_of_threads() {
    check_all(3, 20);
}
