// SPDX-License-Identifier: GPL-2.0

//! Limits: a call that was refused counts for nothing, nor does an object that has ended.

use super::{alloc, LIFETIME};
use crate::{
    domain::Domain,
    event::EventMask,
    kernel_ext::{over_limit, process::Process},
    listener::EventReader,
    member::{Member, Terms},
    rdma::{
        device::Verb,
        uverbs::{event_file::EventFile, RemoveReason},
    },
    right::Right,
    scenarios::Rest,
    uapi::RecordSize,
    uverbs::{flags, Attached, File},
};
use kernel::{
    prelude::*,
    runtime::{self, Credentials, Limit},
    sync::Arc,
};
use xrc_rcv_spec::Membership;

/// A QP is created or not, whatever its number is.
fn try_alloc(attached: &Attached, file: &File) -> Result {
    attached.alloc(file, LIFETIME, false).map(drop)
}

/// Each way of ALLOC to fail, but for limits.
fn fail_in_all_ways(attached: &Attached, file: &File) {
    for verb in [Verb::Charge, Verb::Create, Verb::Modify] {
        attached.device.fail(verb);
        assert_eq!(try_alloc(attached, file), Err(EIO));
    }
    assert_eq!(attached.alloc(file, LIFETIME, true), Err(EFAULT));
}

#[test]
fn a_domain_has_so_many_qps() {
    runtime::check(20, 0x18, || {
        runtime::set_limit(2);

        let attached = Attached::new();
        let file = attached.open();
        let first = alloc(&attached, &file);

        fail_in_all_ways(&attached, &file);
        alloc(&attached, &file);
        for _ in 0..3 {
            assert_eq!(try_alloc(&attached, &file), Err(over_limit()));
        }
        attached.destroy(&file, first, true).unwrap();
        alloc(&attached, &file);
        assert_eq!(try_alloc(&attached, &file), Err(over_limit()));
        runtime::run_as(Credentials {
            uid: 1,
            accounting_uid: 1,
            cgroup: 0,
            may_exceed_limits: true,
        });
        alloc(&attached, &file);

        runtime::set_limit(0);
        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// Of users, and of user namespaces of theirs. QPs of root count for its control group.
#[test]
fn a_user_has_so_many_qps() {
    runtime::check(20, 0x18, || {
        runtime::set_limit_on(Limit::QpsPerUser, 2);

        let attached = Attached::new();
        let file = attached.open();
        let run_as = |uid, accounting_uid, cgroup| {
            runtime::run_as(Credentials {
                uid,
                accounting_uid,
                cgroup,
                may_exceed_limits: false,
            });
        };

        for (accounting_uid, cgroup) in [(1000, 1), (1001, 1), (0, 1), (0, 2)] {
            let mut numbers = Vec::new();

            // Another user of the same quota, which may be another user's namespace.
            for uid in [accounting_uid, 100_000] {
                run_as(uid, accounting_uid, cgroup);
                fail_in_all_ways(&attached, &file);
                numbers.push(alloc(&attached, &file));
            }
            for _ in 0..3 {
                assert_eq!(try_alloc(&attached, &file), Err(over_limit()));
            }
            // Another user destroys it.
            run_as(7, 7, 7);
            attached.destroy(&file, numbers[0], true).unwrap();
            run_as(accounting_uid, accounting_uid, cgroup);
            alloc(&attached, &file);
            assert_eq!(try_alloc(&attached, &file), Err(over_limit()));
        }

        runtime::set_limit_on(Limit::QpsPerUser, 0);
        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// Half of them by those that do not keep it.
#[test]
fn a_qp_has_so_many_registrations() {
    runtime::check(20, 0x18, || {
        runtime::set_limit_on(Limit::RegistrationsPerQp, 4);

        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let qp = attached.find(qpn).unwrap();
        let readers = [(); 3].map(|()| attached.open_with(Right::Use, EventMask::ALL));
        let writers = [(); 3].map(|()| attached.open());
        let register = |file: &File| attached.register(file, qpn);
        let numbers = || {
            let registrations = qp.registrations();

            (registrations.len(), registrations.keeping())
        };

        assert_eq!(register(&readers[0]), Ok(()));
        assert_eq!(register(&readers[1]), Ok(()));
        assert_eq!(register(&readers[2]), Err(over_limit()));
        assert_eq!(numbers(), (3, 1));
        assert_eq!(register(&writers[0]), Ok(()));
        assert_eq!(register(&writers[1]), Err(over_limit()));
        assert_eq!(numbers(), (4, 2));
        for registered in [&creator, &readers[1], &writers[0]] {
            assert_eq!(register(registered), Ok(()), "it is registered");
        }
        attached.unregister(&readers[0]).unwrap();
        assert_eq!(register(&writers[1]), Ok(()));
        assert_eq!(numbers(), (4, 3));
        attached.unregister(&writers[0]).unwrap();
        assert_eq!(register(&readers[2]), Ok(()));
        assert_eq!(numbers(), (4, 2));

        runtime::set_limit_on(Limit::RegistrationsPerQp, 0);
        drop((qp, creator, readers, writers));
        Rest::default().finish(attached, false);
    });
}

/// As many as a QP, which do not count there.
#[test]
fn a_domain_has_so_many_members_of_all() {
    runtime::check(20, 0x18, || {
        runtime::set_limit_on(Limit::RegistrationsPerQp, 4);

        let attached = Attached::new();
        let creator = attached.open();
        let domain = attached.domain_or_new();
        let numbers = || {
            let of_all = domain.of_all();

            (of_all.number, of_all.keeping, of_all.following)
        };
        let join = |of: Membership| {
            let terms = Terms::new(flags(of), Right::Write, EventMask::ALL)?;
            let size = RecordSize::new(None)?;
            let member = Member::new(domain.clone(), terms, size, Some(Process::current()))?;
            let result = member.register_with_all();

            if result.is_err() {
                leave(member.clone());
            }
            result.map(|()| member)
        };
        let observer = || join(Membership::Observer);
        let keeper = || join(Membership::All);
        let refused = |joined: Result<Arc<Member>>| joined.err() == Some(over_limit());
        let observers = [observer().unwrap(), observer().unwrap()];

        assert!(refused(observer()));
        assert_eq!(numbers(), (2, 0, 2));

        let keepers = [keeper().unwrap(), keeper().unwrap()];

        assert!(refused(keeper()) && refused(observer()));
        assert_eq!(numbers(), (4, 2, 4));
        // A user in the kernel, which is not left half a member.
        assert!(refused(join_from_kernel(&domain)));
        assert_eq!(numbers(), (4, 2, 4));

        let qpn = alloc(&attached, &creator);
        let qp = attached.find(qpn).unwrap();

        assert_eq!(qp.registrations().registered(), 5);
        observers.into_iter().for_each(leave);
        assert_eq!(numbers(), (2, 2, 2));
        assert!(keeper().map(leave).is_ok());
        keepers.into_iter().for_each(leave);
        assert_eq!(numbers(), (0, 0, 0));

        runtime::set_limit_on(Limit::RegistrationsPerQp, 0);
        drop((domain, qp, creator));
        Rest::default().finish(attached, false);
    });
}

/// The descriptor of a member is closed.
fn leave(member: Arc<Member>) {
    Member::closed(member.clone(), RemoveReason::FileClosed);
    member.released();
}

/// Refers to its member, as handlers do.
struct NoHandler(Arc<Member>);

impl EventReader for NoHandler {
    fn handle_next(&self) -> bool {
        self.0.next_record().is_some()
    }
}

fn join_from_kernel(domain: &Arc<Domain>) -> Result<Arc<Member>> {
    let terms = Terms::new(flags(Membership::All), Right::Own, EventMask::ALL)?;

    Member::join(domain.clone(), terms, |member| {
        let handler: Box<dyn EventReader> = Box::new(NoHandler(member));

        Ok(handler.into())
    })
}
