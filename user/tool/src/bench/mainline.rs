// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! XRC target QPs as libibverbs has them: owned by the process that creates one, and shared by
//! processes that open it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};
use xrc_rcv::ffi::{ibv_context, ibv_qp_attr};
use xrc_rcv::verbs_sys::{self, ibv_async_event, ibv_qp, verbs_context_xrc_ops};
use xrc_rcv::{Cause, Device, Domain, EventType, QpAttr};

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: i32) -> i32;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> i32;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> i32;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
}

/// A target QP that was created or opened, destroyed or closed when dropped.
pub(crate) struct TargetQp<'domain> {
    qp: NonNull<ibv_qp>,
    domain: PhantomData<&'domain ()>,
}

impl<'domain> TargetQp<'domain> {
    pub(crate) fn create(domain: &'domain Domain) -> Result<Self> {
        let mut attr = verbs_sys::ibv_qp_init_attr_ex::xrc_target(domain.as_ibv(), ptr::null_mut());
        // SAFETY: The domain is open, and its context with it; the attribute has the fields that its
        // mask names.
        let qp = unsafe {
            let context = (*domain.as_ibv()).context;
            let create = verbs_context_xrc_ops::of(context).and_then(|ops| ops.create_qp_ex);
            create.map(|create| create(context, &mut attr))
        };
        Self::made(qp).context("ibv_create_qp_ex")
    }

    pub(crate) fn open(domain: &'domain Domain, qp_num: u32) -> Result<Self> {
        let mut attr = verbs_sys::ibv_qp_open_attr {
            comp_mask: verbs_sys::IBV_QP_OPEN_ATTR_NUM
                | verbs_sys::IBV_QP_OPEN_ATTR_XRCD
                | verbs_sys::IBV_QP_OPEN_ATTR_TYPE,
            qp_num,
            xrcd: domain.as_ibv(),
            qp_context: ptr::null_mut(),
            qp_type: verbs_sys::IBV_QPT_XRC_RECV,
        };
        // SAFETY: As in `create()`.
        let qp = unsafe {
            let context = (*domain.as_ibv()).context;
            let open = verbs_context_xrc_ops::of(context).and_then(|ops| ops.open_qp);
            open.map(|open| open(context, &mut attr))
        };
        Self::made(qp).context("ibv_open_qp")
    }

    /// The result of libibverbs, `None` if it has no such function.
    fn made(qp: Option<*mut ibv_qp>) -> io::Result<Self> {
        let qp = qp.ok_or(Cause::Os(libc::EOPNOTSUPP))?;
        Ok(TargetQp {
            qp: NonNull::new(qp).ok_or_else(io::Error::last_os_error)?,
            domain: PhantomData,
        })
    }

    pub(crate) fn qp_num(&self) -> u32 {
        // SAFETY: The QP lives as long as `self`.
        unsafe { self.qp.as_ref() }.qp_num
    }

    pub(crate) fn modify(&self, attr: &QpAttr) -> Result<()> {
        // rdma-core's struct is longer by `rate_limit`, so this is followed by zeroes.
        let mut attrs = [attr.to_ibv(), ibv_qp_attr::default()];
        let mask = attr.mask().bits() as i32;
        // SAFETY: The QP lives as long as `self`, and `attrs` has all that is read.
        match unsafe { ibv_modify_qp(self.qp.as_ptr(), attrs.as_mut_ptr(), mask) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)).context("ibv_modify_qp"),
        }
    }

    /// Destroys or closes the QP.
    pub(crate) fn destroy(self) -> Result<()> {
        let qp = std::mem::ManuallyDrop::new(self);
        // SAFETY: `self` owned the QP.
        match unsafe { ibv_destroy_qp(qp.qp.as_ptr()) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)).context("ibv_destroy_qp"),
        }
    }
}

impl Drop for TargetQp<'_> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the QP, which is no longer used.
        unsafe { ibv_destroy_qp(self.qp.as_ptr()) };
    }
}

/// Where the asynchronous events of an open device arrive.
pub(crate) fn async_fd(device: &Device) -> BorrowedFd<'_> {
    // SAFETY: The context is open, and its descriptor with it, as long as the device.
    unsafe { BorrowedFd::borrow_raw((*device.as_ibv()).async_fd) }
}

/// Takes the next asynchronous event, and waits for it.
pub(crate) fn take_event(device: &Device) -> Result<EventType> {
    let mut event = ibv_async_event {
        element: ptr::null_mut(),
        event_type: 0,
    };
    // SAFETY: The context is open, and the event is to be written and then given back.
    unsafe {
        if ibv_get_async_event(device.as_ibv(), &mut event) != 0 {
            return Err(io::Error::last_os_error()).context("ibv_get_async_event");
        }
        ibv_ack_async_event(&mut event);
    }
    Ok(EventType::from_raw(event.event_type))
}
