// SPDX-License-Identifier: GPL-2.0

//! Users in the kernel: the functions of C with all their arguments, and events beside calls.

use super::{alloc, LIFETIME};
use crate::{
    bindings::{ib_qp_attr, ib_xrc_rcv_init_attr},
    event::{EventMask, EventType},
    ib_verbs::*,
    kernel_user::{try_join, KernelUser, INIT},
    methods::LABEL,
    rdma::{
        device::{Verb, REPORTED},
        qp_attr::QpState,
    },
    scenarios::Rest,
    uapi::{
        XRC_RCV_ALLOC_LIFETIME_DOMAIN, XRC_RCV_DESTROY_FORCE, XRC_RCV_EVENT_CHANNEL_ALL,
        XRC_RCV_EVENT_CHANNEL_OBSERVE,
    },
    uverbs::Attached,
};
use core::ptr::null;
use kernel::{prelude::*, runtime};
use std::sync::Arc as StdArc;
use xrc_rcv_spec::Membership;

const STATE: u32 = ib_qp_attr_mask_IB_QP_STATE;

/// The attributes of a QP in RTR that each creator passes.
const RTR: u32 = INIT
    | ib_qp_attr_mask_IB_QP_AV
    | ib_qp_attr_mask_IB_QP_PATH_MTU
    | ib_qp_attr_mask_IB_QP_DEST_QPN
    | ib_qp_attr_mask_IB_QP_RQ_PSN;

fn not_attached() -> Result {
    Err(crate::kernel_ext::not_supported())
}

/// Each argument is wrong once: the error is that of the header, and nothing is left.
#[test]
fn errors_of_kernel_users() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let user = KernelUser::open(&attached, Membership::Named);
        let (all, observe) = (XRC_RCV_EVENT_CHANNEL_ALL, XRC_RCV_EVENT_CHANNEL_OBSERVE);
        let init = |flags| ib_xrc_rcv_init_attr {
            flags,
            attr_mask: 0,
            attr: null(),
            label: LABEL,
        };
        let try_alloc = |flags| user.alloc_with(&init(flags)).map(drop);
        let attr = ib_qp_attr::default();

        assert_eq!(try_join(&attached, 0, 0, true), Ok(()));
        assert_eq!(try_join(&attached, all | observe, 0, true), Ok(()));
        assert_eq!(try_join(&attached, 0, 0, false), Err(EINVAL));
        assert_eq!(try_join(&attached, observe, 0, true), Err(EINVAL));
        assert_eq!(try_join(&attached, 1 << 31, 0, true), Err(EINVAL));
        assert_eq!(try_join(&attached, 0, 1 << 30, true), Err(EINVAL));
        // A mask of a member of all has QP_GONE, unless it has no event.
        assert_eq!(try_join(&attached, 0, 1 << REPORTED[0], true), Ok(()));
        assert_eq!(
            try_join(&attached, all, 1 << REPORTED[0], true),
            Err(EINVAL)
        );
        assert_eq!(try_alloc(XRC_RCV_ALLOC_LIFETIME_DOMAIN << 1), Err(EINVAL));
        attached.device.fail(Verb::Create);
        assert_eq!(try_alloc(0), Err(EIO));

        user.alloc(&attached, LIFETIME).unwrap();
        assert_eq!(user.modify_with(1, null(), STATE), Err(EINVAL));
        assert_eq!(user.modify_with(2, &attr, STATE), Err(EINVAL));
        assert_eq!(user.query(&attached, 2).err(), Some(EINVAL));
        assert_eq!(user.register(&attached, 2), Err(EINVAL));
        let unknown = XRC_RCV_DESTROY_FORCE | (1 << 1);

        assert_eq!(user.destroy_with(1, unknown), Err(EINVAL));
        attached.device.fail(Verb::Modify);
        assert_eq!(user.modify_with(1, &attr, STATE), Err(EIO));
        assert_eq!(user.destroy(&attached, 2, true), Err(EINVAL));
        assert_eq!(user.destroy(&attached, 1, false), Err(EINVAL));
        assert_eq!(attached.domain_or_new().list(None, 9).unwrap().1, 1);
        user.destroy(&attached, 1, true).unwrap();

        attached.remove();
        assert_eq!(try_join(&attached, 0, 0, true), not_attached());
        assert_eq!(try_alloc(0), not_attached());
        assert_eq!(user.register(&attached, 1), Err(EINVAL));
        user.leave(&attached);
        user.close_domain(&attached);

        drop(user);
        Rest::default().finish(attached, false);
    });
}

/// The state and the attributes of a QP are those that its creator passes; those that it does not
/// pass are 0, whatever the structure has.
#[test]
fn attributes_of_kernel_users() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let user = KernelUser::open(&attached, Membership::Named);
        let mut attr = ib_qp_attr {
            qp_state: QpState::Rtr as u32,
            port_num: 1,
            dest_qp_num: 0xab_cdef,
            max_dest_rd_atomic: 5,
            min_rnr_timer: 7,
            ..Default::default()
        };

        attr.ah_attr.port_num = 1;

        let try_alloc = |attr_mask: u32, attr: *const ib_qp_attr| {
            let attr_mask = attr_mask as c_int;

            user.alloc_with(&ib_xrc_rcv_init_attr {
                flags: XRC_RCV_ALLOC_LIFETIME_DOMAIN,
                attr_mask,
                attr,
                label: LABEL,
            })
        };
        let query = |(qpn, serial): (u32, u64)| {
            let qp = attached.find(qpn).unwrap();
            let ib_qp_attr {
                qp_state,
                dest_qp_num,
                max_dest_rd_atomic: number,
                min_rnr_timer: timer,
                ..
            } = user.query_with(qpn).unwrap();

            assert_eq!((qp.status().serial(), qp.status().label()), (serial, LABEL));
            drop(qp);
            user.destroy_with(qpn, XRC_RCV_DESTROY_FORCE).unwrap();
            (qp_state, dest_qp_num, number, timer)
        };
        let number = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
        let timer = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
        let (reset, rtr) = (QpState::Reset as u32, QpState::Rtr as u32);

        // A structure that is not there has no attributes, whatever the mask says.
        assert_eq!(query(try_alloc(RTR, null()).unwrap()), (reset, 0, 0, 0));
        assert_eq!(
            query(try_alloc(RTR, &attr).unwrap()),
            (rtr, 0xab_cdef, 0, 0)
        );
        assert_eq!(
            query(try_alloc(RTR | timer, &attr).unwrap()),
            (rtr, 0xab_cdef, 0, 7)
        );
        assert_eq!(
            query(try_alloc(RTR | number, &attr).unwrap()),
            (rtr, 0xab_cdef, 5, 0)
        );
        // The state is not that of the attributes, or an attribute is missing.
        assert_eq!(try_alloc(INIT, &attr).err(), Some(EINVAL));
        assert_eq!(
            try_alloc(RTR & !ib_qp_attr_mask_IB_QP_AV, &attr).err(),
            Some(EINVAL)
        );
        assert_eq!(try_alloc(STATE, &attr).err(), Some(EINVAL));

        // As for a process, attributes of a sender are ignored.
        let qpn = try_alloc(RTR, &attr).unwrap().0;
        let sender = ib_qp_attr_mask_IB_QP_RETRY_CNT | ib_qp_attr_mask_IB_QP_RNR_RETRY;
        let rts = ib_qp_attr {
            qp_state: QpState::Rts as u32,
            ..attr
        };

        user.modify_with(qpn, &rts, STATE | sender | timer).unwrap();
        assert_eq!(user.query_with(qpn).unwrap().qp_state, rts.qp_state);
        assert_eq!(user.query_with(qpn).unwrap().min_rnr_timer, 7);

        user.destroy_with(qpn, XRC_RCV_DESTROY_FORCE).unwrap();
        attached.device.check_ended();
        user.leave(&attached);
        user.close_domain(&attached);
        drop(user);
        Rest::default().finish(attached, false);
    });
}

/// A caller need not want the serial number and the totals.
#[test]
fn kernel_users_pass_null() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let user = KernelUser::open(&attached, Membership::Named);
        let qpn = user.ignore_results().unwrap();

        assert_eq!(attached.find(qpn).unwrap().registrations().len(), 1);

        user.destroy_with(qpn, XRC_RCV_DESTROY_FORCE).unwrap();
        attached.device.check_ended();
        user.leave(&attached);
        user.close_domain(&attached);
        drop(user);
        Rest::default().finish(attached, false);
    });
}

/// Each allocation of a function fails once: it leaves nothing.
#[test]
fn allocations_of_kernel_users_fail() {
    runtime::check(20, 0x18, || {
        let attached = Attached::new();
        let user = KernelUser::open(&attached, Membership::Named);
        let init = ib_xrc_rcv_init_attr {
            flags: XRC_RCV_ALLOC_LIFETIME_DOMAIN,
            attr_mask: 0,
            attr: null(),
            label: LABEL,
        };
        let failures = |call: &dyn Fn() -> Result| {
            let fails = |index: &usize| {
                let objects = runtime::objects();

                runtime::fail_allocation(*index);

                let result = call();

                if runtime::allocations_succeed() {
                    assert_eq!(result, Err(ENOMEM));
                    assert_eq!(runtime::objects(), objects);
                    return true;
                }
                assert_eq!(result, Ok(()));
                false
            };

            (0..).take_while(fails).count()
        };

        for flags in [0, XRC_RCV_EVENT_CHANNEL_ALL] {
            assert_ne!(failures(&|| try_join(&attached, flags, 0, true)), 0);
        }

        let create = || {
            let (qpn, _) = user.alloc_with(&init)?;

            user.destroy_with(qpn, XRC_RCV_DESTROY_FORCE)
        };

        assert_ne!(failures(&create), 0);
        attached.device.check_ended();

        user.leave(&attached);
        user.close_domain(&attached);
        drop(user);
        Rest::default().finish(attached, false);
    });
}

/// A handler is called for the events of its mask, and for each once.
#[test]
fn events_that_a_kernel_user_asks_for() {
    runtime::check(50, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let first = EventType::from_ib_event(REPORTED[0]).unwrap();
        let first = EventMask::from_raw(1 << first.as_raw()).unwrap();
        let users = [first, EventMask::ALL].map(|events| {
            let user = KernelUser::open_with(&attached, Membership::Named, events);

            user.register(&attached, qpn).unwrap();
            user
        });

        attached.report(qpn);
        for user in &users {
            user.wait(false);
        }
        attached.destroy(&creator, qpn, true).unwrap();
        for user in &users {
            user.wait(true);
            user.leave(&attached);
            user.close_domain(&attached);
        }

        drop((users, creator));
        Rest::default().finish(attached, false);
    });
}

/// A kernel user unregisters while an event is delivered, beside a process and a kernel user that
/// stay, and one of all QPs, to whom REG and UNREG do nothing.
#[test]
fn a_kernel_user_unregisters_beside_others() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let (creator, file) = (attached.open(), attached.open());
        let qpn = alloc(&attached, &creator);
        let open = |of| KernelUser::open(&attached, of);
        let [leaver, stays] = [(); 2].map(|()| open(Membership::Named));
        let all = open(Membership::All);
        let qp = attached.find(qpn).unwrap();

        attached.register(&file, qpn).unwrap();
        for user in [&leaver, &stays] {
            user.register(&attached, qpn).unwrap();
        }

        let registered = qp.registrations().len();

        all.register_without_effect(qpn);
        assert_eq!(qp.registrations().len(), registered);

        let reports = {
            let attached = attached.clone();

            runtime::spawn(move || attached.report(qpn))
        };
        let modifies = {
            let (attached, user) = (attached.clone(), StdArc::clone(&stays));

            runtime::spawn(move || {
                user.modify(&attached, qpn, QpState::Err).unwrap();
                user.query(&attached, qpn).unwrap();
            })
        };

        leaver.unregister(&attached);
        attached.report(qpn);
        for thread in [reports, modifies] {
            thread.join().unwrap();
        }
        assert_eq!(qp.registrations().len(), registered - 1);
        for user in [&stays, &all] {
            user.wait(false);
        }
        while file.channel().read(4, 4, true).is_ok() {}
        stays.unregister(&attached);
        attached.unregister(&creator).unwrap();
        attached.unregister(&file).unwrap();
        assert!(attached.has_qps(), "the member of all keeps it");
        all.leave(&attached);
        assert!(!attached.has_qps(), "nothing keeps it");
        for user in [&leaver, &stays, &all] {
            user.close_domain(&attached);
        }
        for user in [&leaver, &stays] {
            user.leave(&attached);
        }

        drop((qp, creator, file, leaver, stays, all));
        Rest::default().finish(attached, false);
    });
}

/// A kernel user of all joins while a process creates a QP: it finds that in a list, or its handler
/// gets QP_ADDED, maybe before the function returns.
#[test]
fn a_kernel_user_of_all_joins_beside_alloc() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let joins = {
            let attached = attached.clone();

            runtime::spawn(move || KernelUser::open(&attached, Membership::All))
        };
        let qpn = alloc(&attached, &creator);
        let user = joins.join().unwrap();

        attached.report(qpn);
        user.wait(false);
        attached.unregister(&creator).unwrap();
        assert!(attached.has_qps(), "the kernel user keeps it");
        user.destroy(&attached, qpn, true).unwrap();
        user.wait(true);
        user.leave(&attached);
        user.close_domain(&attached);

        drop((user, creator));
        Rest::default().finish(attached, false);
    });
}
