// SPDX-License-Identifier: GPL-2.0

//! A user in the kernel, which has the domain open and calls the functions of `src/kernel_api.rs`
//! as C does: a member whose events a handler gets.
//!
//! Nothing keeps the calls from the removal of the device.

use crate::{
    bindings,
    event::EventMask,
    ib_verbs::*,
    kernel_api::*,
    methods::LABEL,
    orders,
    qp_status::Lifetime,
    rdma::qp_attr::QpState,
    right::Right,
    uapi::{
        xrc_rcv_record, xrc_rcv_reg_info, XRC_RCV_ALLOC_LIFETIME_DOMAIN, XRC_RCV_DESTROY_FORCE,
    },
    uverbs::{flags, Attached, Channel, UverbsFile},
};
use core::{
    ptr::{null, null_mut},
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};
use kernel::{prelude::*, runtime};
use std::sync::Arc as StdArc;
use xrc_rcv_spec::{Errno, Id, Membership};

/// The argument of the handler.
struct Context {
    channel: StdArc<Channel>,
    /// The member, once it is known.
    member: AtomicPtr<bindings::ib_xrc_rcv_member>,
    has_left: AtomicBool,
}

pub(crate) struct KernelUser {
    /// Its number in the contract: it is a file with a channel there.
    id: Id,
    context: StdArc<Context>,
}

/// The attributes of a QP in INIT.
pub(crate) const INIT: u32 = ib_qp_attr_mask_IB_QP_STATE
    | ib_qp_attr_mask_IB_QP_PKEY_INDEX
    | ib_qp_attr_mask_IB_QP_PORT
    | ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;

/// An `ib_xrc_rcv_handler`.
unsafe extern "C-unwind" fn handle(record: *const xrc_rcv_record, context: *mut c_void) {
    // A worker takes the lock of the handler, and then a record.
    let called = runtime::mutex_time();
    // SAFETY: Both are valid for the length of the call: the user leaves before it is dropped.
    let (record, context) = unsafe { (&*record, &*context.cast::<Context>()) };
    let member = context.member.load(Ordering::SeqCst);
    let mut silent = context.channel.silent_at(called);

    runtime::might_sleep("a handler");
    runtime::interleave();
    context.channel.got(record, &mut silent);
    if !member.is_null() {
        // SAFETY: The member has not left, as its handler is called.
        let left = unsafe { ib_xrc_rcv_leave(member) };

        assert_eq!(returned(left), Err(EBUSY), "of the member's handler");
    }
    assert!(
        !context.has_left.load(Ordering::SeqCst),
        "a handler runs after the member has left"
    );
}

/// Returns what a function has returned.
fn returned(errno: c_int) -> Result {
    match errno {
        0 => Ok(()),
        errno => Err(Error::from_errno(errno)),
    }
}

/// `ib_xrc_rcv_join` of the domain, with no handler if there is no channel.
fn join(
    attached: &Attached,
    (flags, events): (u32, u64),
    handler: bindings::ib_xrc_rcv_handler,
    context: *const Context,
) -> Result<*mut bindings::ib_xrc_rcv_member> {
    let context = context.cast_mut().cast();
    // SAFETY: The domain is open, and the handler may be called with the context.
    let member = unsafe { ib_xrc_rcv_join(attached.xrcd_ptr(), flags, events, handler, context) };
    let errno = member.addr() as isize;

    match errno {
        -4095..0 => Err(Error::from_errno(errno as i32)),
        _ => Ok(member),
    }
}

/// `ib_xrc_rcv_join` that fails: it has no handler if so asked.
pub(crate) fn try_join(attached: &Attached, flags: u32, events: u64, has_handler: bool) -> Result {
    let handler: bindings::ib_xrc_rcv_handler = has_handler.then_some(handle);

    // There is no event.
    let member = join(attached, (flags, events), handler, null())?;

    // SAFETY: It comes from the call above, and is not used any more.
    returned(unsafe { ib_xrc_rcv_leave(member) })
}

impl KernelUser {
    /// Opens the domain, and becomes a member.
    pub(crate) fn open(attached: &Attached, of: Membership) -> StdArc<Self> {
        Self::open_with(attached, of, EventMask::ALL)
    }

    /// Does so for the events of a mask.
    pub(crate) fn open_with(attached: &Attached, of: Membership, mask: EventMask) -> StdArc<Self> {
        let orders = &attached.orders;
        let id = attached.new_id();
        let events = match mask {
            EventMask::ALL => 0,
            mask => mask.as_raw(),
        };
        let context = StdArc::new(Context {
            channel: Channel::new(id, UverbsFile::new(id), orders.clone(), None, mask, of),
            member: AtomicPtr::default(),
            has_left: AtomicBool::new(false),
        });
        let join = || join(attached, (flags(of), events), Some(handle), &*context);

        orders.open(id, || attached.get_xrcd());

        let member = orders
            .join((id, id), Right::Own, of, join)
            .expect("there is memory");

        context.member.store(member, Ordering::SeqCst);
        context.channel.begins(&attached.domain_or_new());
        StdArc::new(Self { id, context })
    }

    fn channel(&self) -> &Channel {
        &self.context.channel
    }

    fn member(&self) -> *mut bindings::ib_xrc_rcv_member {
        self.context.member.load(Ordering::SeqCst)
    }

    /// `ib_xrc_rcv_alloc_qp`, in INIT.
    pub(crate) fn alloc(&self, attached: &Attached, lifetime: Lifetime) -> Result {
        let attr = bindings::ib_qp_attr {
            qp_state: QpState::Init as u32,
            port_num: 1,
            ..Default::default()
        };
        let init = bindings::ib_xrc_rcv_init_attr {
            flags: match lifetime {
                Lifetime::Registrations => 0,
                Lifetime::Domain => XRC_RCV_ALLOC_LIFETIME_DOMAIN,
            },
            attr_mask: INIT as c_int,
            attr: &attr,
            label: LABEL,
        };
        let make = || {
            let (qpn, serial) = self.alloc_with(&init)?;

            attached.creates(self.channel(), qpn, serial);
            Ok((qpn, serial))
        };
        let call = orders::alloc(self.id, lifetime);
        // ENODEV and EOPNOTSUPP of a domain that was closed by the removal of the device.
        let possible = [Errno::EIO, Errno::ENODEV, Errno::EOPNOTSUPP];
        let created = attached
            .orders
            .call(self.id, call, &possible, make, orders::allocated);

        attached.device.check_ended();
        created.map(drop)
    }

    /// `ib_xrc_rcv_alloc_qp` of a QP that the contract does not know.
    pub(crate) fn alloc_with(&self, init: &bindings::ib_xrc_rcv_init_attr) -> Result<(u32, u64)> {
        let (mut qpn, mut serial) = (0, 0);
        // SAFETY: The member has not left, the domain is open, and the pointers are valid.
        let errno = unsafe { ib_xrc_rcv_alloc_qp(self.member(), init, &mut qpn, &mut serial) };

        returned(errno).map(|()| (qpn, serial))
    }

    /// `ib_xrc_rcv_reg_qp`
    pub(crate) fn register(&self, attached: &Attached, qpn: u32) -> Result {
        let register = || {
            let mut info = xrc_rcv_reg_info {
                serial: 0,
                counts: [0; 17],
            };

            // SAFETY: The member has not left, and the pointer is valid.
            returned(unsafe { ib_xrc_rcv_reg_qp(self.member(), qpn, &mut info) })?;
            Ok(info)
        };
        let make = || attached.register_as(self.channel(), qpn, register);
        let call = orders::reg(self.id, &[qpn]);

        attached
            .orders
            .call(self.id, call, &[], make, orders::one_done)
    }

    /// `ib_xrc_rcv_reg_qp` and `ib_xrc_rcv_unreg_qp` of a member of all QPs.
    pub(crate) fn register_without_effect(&self, qpn: u32) {
        // SAFETY: The member has not left, and the pointer is null.
        unsafe {
            assert_eq!(
                returned(ib_xrc_rcv_reg_qp(self.member(), qpn, null_mut())),
                Ok(())
            );
            ib_xrc_rcv_unreg_qp(self.member(), qpn);
        }
    }

    /// `ib_xrc_rcv_alloc_qp` without the serial number, and `ib_xrc_rcv_reg_qp` without the totals.
    /// Returns the number of the QP.
    pub(crate) fn ignore_results(&self) -> Result<u32> {
        let init = bindings::ib_xrc_rcv_init_attr {
            flags: XRC_RCV_ALLOC_LIFETIME_DOMAIN,
            attr_mask: 0,
            attr: null(),
            label: LABEL,
        };
        let mut qpn = 0;

        // SAFETY: The member has not left, the domain is open, and the pointers are null or valid.
        unsafe {
            returned(ib_xrc_rcv_alloc_qp(
                self.member(),
                &init,
                &mut qpn,
                null_mut(),
            ))?;
            returned(ib_xrc_rcv_reg_qp(self.member(), qpn, null_mut()))?;
        }
        Ok(qpn)
    }

    /// `ib_xrc_rcv_unreg_qp`
    pub(crate) fn unregister(&self, attached: &Attached) {
        let result = attached.unregister_as(self.channel(), |qpn| {
            // SAFETY: The member has not left.
            unsafe { ib_xrc_rcv_unreg_qp(self.member(), qpn) };
            (1, Ok(()))
        });

        assert!(result.is_ok() || result == Err(ENODEV), "it does not fail");
    }

    /// `ib_xrc_rcv_modify_qp` to a state.
    pub(crate) fn modify(&self, attached: &Attached, qpn: u32, state: QpState) -> Result {
        let call = orders::modify(qpn, state);
        let attr = bindings::ib_qp_attr {
            qp_state: state as u32,
            ..Default::default()
        };
        let make = || self.modify_with(qpn, &attr, ib_qp_attr_mask_IB_QP_STATE);

        attached
            .orders
            .call(self.id, call, &[Errno::EIO], make, orders::result)
    }

    /// `ib_xrc_rcv_modify_qp` with any attributes, of a QP that the contract does not know.
    pub(crate) fn modify_with(
        &self,
        qpn: u32,
        attr: *const bindings::ib_qp_attr,
        mask: u32,
    ) -> Result {
        let mask = mask as c_int;

        // SAFETY: The member has not left, and the pointer is null or valid.
        returned(unsafe { ib_xrc_rcv_modify_qp(self.member(), qpn, attr, mask) })
    }

    /// `ib_xrc_rcv_query_qp`
    pub(crate) fn query(&self, attached: &Attached, qpn: u32) -> Result<bindings::ib_qp_attr> {
        let make = || self.query_with(qpn);
        let outcome = |attr: &Result<_>| orders::result(&attr.map(drop));
        let call = orders::query(qpn);

        attached
            .orders
            .call(self.id, call, &[Errno::EIO], make, outcome)
    }

    /// `ib_xrc_rcv_query_qp`, of a QP that the contract does not know.
    pub(crate) fn query_with(&self, qpn: u32) -> Result<bindings::ib_qp_attr> {
        let mut attr = bindings::ib_qp_attr::default();

        // SAFETY: The member has not left, and the pointer is valid.
        returned(unsafe { ib_xrc_rcv_query_qp(self.member(), qpn, &mut attr) })?;
        Ok(attr)
    }

    /// `ib_xrc_rcv_destroy_qp`
    pub(crate) fn destroy(&self, attached: &Attached, qpn: u32, force: bool) -> Result {
        let call = orders::destroy(qpn, force);
        let flags = if force { XRC_RCV_DESTROY_FORCE } else { 0 };
        let make = || {
            let result = runtime::for_others(|| self.destroy_with(qpn, flags));

            attached.device.check_ended();
            result
        };

        attached
            .orders
            .call(self.id, call, &[], make, orders::result)
    }

    /// `ib_xrc_rcv_destroy_qp` with any flags, of a QP that the contract does not know.
    pub(crate) fn destroy_with(&self, qpn: u32, flags: u32) -> Result {
        // SAFETY: The member has not left.
        returned(unsafe { ib_xrc_rcv_destroy_qp(self.member(), qpn, flags) })
    }

    /// `ib_xrc_rcv_leave`
    pub(crate) fn leave(&self, attached: &Attached) {
        // SAFETY: The member has not left: this is called once. No other call uses it.
        let leave = || returned(unsafe { ib_xrc_rcv_leave(self.member()) });

        self.channel().leave(leave);
        self.context.has_left.store(true, Ordering::SeqCst);
        attached.device.check_ended();
    }

    /// Closes the domain; the member may leave later.
    pub(crate) fn close_domain(&self, attached: &Attached) {
        attached.close_domain_of(self.id);
    }

    /// Waits for the events that have happened. The QPs have ended if `have_ended`.
    pub(crate) fn wait(&self, have_ended: bool) {
        while !self.channel().is_complete(have_ended) {
            runtime::yield_now();
        }
        if have_ended {
            self.channel().check();
        }
    }
}
