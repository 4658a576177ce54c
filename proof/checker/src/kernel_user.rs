// SPDX-License-Identifier: GPL-2.0

//! A user in the kernel, which has the domain open: a member whose events a handler gets.
//!
//! Calls have the order of those in `src/kernel_api.rs`. Nothing keeps them from the removal of the
//! device.

use crate::{
    event::EventMask,
    listener::EventReader,
    member::{Member, Terms},
    orders,
    qp_status::Lifetime,
    right::Right,
    uverbs::{flags, Attached, Channel},
};
use core::sync::atomic::{AtomicBool, Ordering};
use kernel::{prelude::*, runtime, sync::Arc};
use std::sync::{Arc as StdArc, OnceLock};
use xrc_rcv_spec::{Errno, Id, Membership};

pub(crate) struct KernelUser {
    /// Its number in the contract: it is a file with a channel there.
    id: Id,
    channel: StdArc<Channel>,
    has_left: StdArc<AtomicBool>,
}

struct MemberHandler {
    member: Arc<Member>,
    channel: StdArc<Channel>,
    has_left: StdArc<AtomicBool>,
}

impl EventReader for MemberHandler {
    fn handle_next(&self) -> bool {
        let mut silent = self.channel.silent();
        let Some(record) = self.member.next_record() else {
            return false;
        };

        runtime::might_sleep("a handler");
        runtime::interleave();
        self.channel.got(&record, &mut silent);
        assert_eq!(self.member.leave(), Err(EBUSY), "of the member's handler");
        assert!(
            !self.has_left.load(Ordering::SeqCst),
            "a handler runs after the member has left"
        );
        true
    }
}

impl KernelUser {
    /// Opens the domain, and becomes a member.
    pub(crate) fn open(attached: &Attached, of: Membership) -> StdArc<Self> {
        let id = attached.new_id();
        let has_left = StdArc::new(AtomicBool::new(false));
        let joined = OnceLock::new();

        let join = || {
            let terms = Terms::new(flags(of), Right::Own, EventMask::ALL)?;

            Member::join(attached.domain_or_new(), terms, |member| {
                let orders = attached.orders.clone();
                let channel = Channel::new(id, orders, member.clone(), EventMask::ALL, of);
                let handler: Box<dyn EventReader> = Box::new(MemberHandler {
                    member,
                    channel: joined.get_or_init(|| channel).clone(),
                    has_left: has_left.clone(),
                });

                Ok(handler.into())
            })
        };
        let orders = &attached.orders;
        let member = orders.open(id, Right::Own, of, || attached.get_xrcd(), join);

        let channel = member
            .ok()
            .and(joined.into_inner())
            .expect("there is memory");

        channel.begins();
        StdArc::new(Self {
            id,
            channel,
            has_left,
        })
    }

    /// `ib_xrc_rcv_alloc_qp`
    pub(crate) fn alloc(&self, attached: &Attached, lifetime: Lifetime) -> Result {
        let make = || attached.alloc_on(&self.channel, lifetime);
        let call = orders::alloc(self.id, lifetime);
        // ENODEV of a domain that was closed by the removal of the device.
        let possible = [Errno::EIO, Errno::ENODEV];
        let created = attached
            .orders
            .call(self.id, call, &possible, make, orders::allocated);

        attached.device.check_ended();
        created.map(drop)
    }

    /// `ib_xrc_rcv_reg_qp`
    pub(crate) fn register(&self, attached: &Attached, qpn: u32) -> Result {
        let register = |member: &Arc<Member>| {
            let mut info = Default::default();

            member.register(qpn, Some(&mut info)).map(|()| info)
        };
        let make = || attached.register_on(&self.channel, qpn, register);
        let call = orders::reg(self.id, &[qpn]);

        attached
            .orders
            .call(self.id, call, &[], make, orders::one_done)
    }

    /// `ib_xrc_rcv_unreg_qp`
    pub(crate) fn unregister(&self, attached: &Attached) {
        let result = attached.unregister_on(&self.channel, |member, qpn| {
            member.unregister(qpn);
            (1, Ok(()))
        });

        assert!(result.is_ok() || result == Err(ENODEV), "it does not fail");
    }

    /// `ib_xrc_rcv_destroy_qp`
    pub(crate) fn destroy(&self, attached: &Attached, qpn: u32) -> Result {
        let call = orders::destroy(qpn, false);
        let make = || attached.destroy_qp(self.channel.member().domain(), qpn, false);

        attached
            .orders
            .call(self.id, call, &[], make, orders::result)
    }

    /// `ib_xrc_rcv_leave`
    pub(crate) fn leave(&self, attached: &Attached) {
        self.channel.leave();
        self.has_left.store(true, Ordering::SeqCst);
        attached.device.check_ended();
    }

    /// Closes the domain; the member may leave later.
    pub(crate) fn close_domain(&self, attached: &Attached) {
        attached.close_domain_of(self.id);
    }

    /// Waits for the events that have happened. The QPs have ended if `have_ended`.
    pub(crate) fn wait(&self, have_ended: bool) {
        while !self.channel.is_complete(have_ended) {
            runtime::yield_now();
        }
        if have_ended {
            self.channel.check();
        }
    }
}
