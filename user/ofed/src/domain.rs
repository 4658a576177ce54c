// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! XRC domains and their shared receive queues, which rdma-core has under other names.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use xrc_rcv::borrowed::{Domain, Result};
use xrc_rcv::ffi::ibv_context;
use xrc_rcv::verbs_sys::{self, ibv_pd, ibv_xrcd_init_attr, verbs_context_xrc_ops};

use crate::context;
use crate::device::Device;
use crate::ffi::*;
use crate::{errno, qp, set_errno};

impl ibv_xrc_domain {
    /// The domain as the calls of `xrc-rcv` take it.
    ///
    /// # Safety
    ///
    /// The domain is open, and stays so for `'a`.
    pub(crate) unsafe fn as_domain<'a>(&self) -> Result<Domain<'a>> {
        // SAFETY: An open domain has an open `ibv_xrcd`.
        unsafe { Domain::from_ibv(self.xrcd) }
    }

    /// Whether a QP of type `IBV_QPT_XRC` of this process is to receive for the domain's SRQs:
    /// there may be any, and messages for them do not come through receive QPs.
    pub(crate) fn needs_targets(&self) -> bool {
        let has_srq = self.shared || self.has_srq.load(Ordering::Relaxed);
        has_srq && !self.has_receive_qp.load(Ordering::Relaxed)
    }

    /// Whether nothing else can receive for them, as no other process has the domain open.
    pub(crate) fn needs_every_target(&self) -> bool {
        !self.shared && self.needs_targets()
    }

    /// Takes note of a receive QP, through which messages come from now on.
    pub(crate) fn receives(&self) {
        if !self.has_receive_qp.swap(true, Ordering::Relaxed) {
            qp::hide_targets(self);
        }
    }
}

/// Opens the domain of a file, or a private one if `fd` is -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_xrc_domain(
    context: *mut ibv_context,
    fd: c_int,
    oflag: c_int,
) -> *mut ibv_xrc_domain {
    let mut init_attr = ibv_xrcd_init_attr {
        comp_mask: verbs_sys::IBV_XRCD_INIT_ATTR_FD | verbs_sys::IBV_XRCD_INIT_ATTR_OFLAGS,
        fd,
        oflags: oflag,
    };
    // SAFETY: The caller's context is open.
    let ops = unsafe { verbs_context_xrc_ops::of(context) };
    let Some(open_xrcd) = ops.and_then(|ops| ops.open_xrcd) else {
        set_errno(libc::ENOSYS);
        return ptr::null_mut();
    };
    // The device may have been opened past this library.
    // SAFETY: The caller's context is open.
    unsafe { context::prepare(context) };
    // SAFETY: The provider's function is given its own context.
    let xrcd = unsafe { open_xrcd(context, &mut init_attr) };
    if xrcd.is_null() {
        if errno() == libc::EOPNOTSUPP {
            set_errno(libc::ENOSYS);
        }
        return ptr::null_mut();
    }
    // SAFETY: Providers allocate a `verbs_xrcd`. The handle is for the program's eyes only.
    let handle = unsafe { (*xrcd.cast::<verbs_sys::verbs_xrcd>()).handle };
    Box::into_raw(Box::new(ibv_xrc_domain {
        context,
        handle,
        xrcd,
        shared: fd != -1,
        has_srq: AtomicBool::new(false),
        has_receive_qp: AtomicBool::new(false),
    }))
}

/// Closes a domain; `EBUSY` while this process has a QP, an SRQ or a registration in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_xrc_domain(domain: *mut ibv_xrc_domain) -> c_int {
    // SAFETY: The caller's domain is open.
    let (context, xrcd) = unsafe { ((*domain).context, (*domain).xrcd) };
    if Device::find(context).is_some_and(|device| device.uses(domain.addr())) {
        return libc::EBUSY;
    }
    // The kernel knows only those with a target.
    if qp::any_in(domain) {
        return libc::EBUSY;
    }
    // SAFETY: The context of an open domain is open.
    let ops = unsafe { verbs_context_xrc_ops::of(context) };
    let Some(close_xrcd) = ops.and_then(|ops| ops.close_xrcd) else {
        return libc::ENOSYS;
    };
    // SAFETY: The provider's function is given its own domain.
    let result = unsafe { close_xrcd(xrcd) };
    if result == 0 {
        if let Some(device) = Device::find(context) {
            device.close_channel(domain.addr());
        }
        // SAFETY: `domain` was allocated by `ibv_open_xrc_domain()`, and is closed now.
        drop(unsafe { Box::from_raw(domain) });
    }
    result
}

/// Creates an SRQ in a domain, with its number in `xrc_srq_num`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_xrc_srq(
    pd: *mut ibv_pd,
    domain: *mut ibv_xrc_domain,
    cq: *mut ibv_cq,
    init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: The caller's objects are open.
    let (context, xrcd, init) = unsafe { ((*pd).context, (*domain).xrcd, &mut *init_attr) };
    let mut attr = ibv_srq_init_attr_ex {
        srq_context: init.srq_context,
        attr: init.attr,
        ..ibv_srq_init_attr_ex::xrc(pd, xrcd, cq)
    };
    // SAFETY: The context of the caller's PD is open.
    let ops = unsafe { verbs_context_xrc_ops::of(context) };
    let (Some(create_srq_ex), Some(get_srq_num)) = (
        ops.and_then(|ops| ops.create_srq_ex),
        ops.and_then(|ops| ops.get_srq_num),
    ) else {
        set_errno(libc::ENOSYS);
        return ptr::null_mut();
    };
    // SAFETY: The provider's function is given its own context, and an attribute with everything
    // its mask names.
    let srq = unsafe { create_srq_ex(context, ptr::from_mut(&mut attr).cast()) }.cast::<ibv_srq>();
    if srq.is_null() {
        return srq;
    }
    init.attr = attr.attr;
    let mut number = 0;
    // SAFETY: The provider's function is given its own SRQ, to which the number is padding.
    unsafe {
        get_srq_num(srq.cast::<c_void>(), &mut number);
        (*srq).xrc_srq_num = number;
        (*domain).has_srq.store(true, Ordering::Relaxed);
    }
    srq
}
