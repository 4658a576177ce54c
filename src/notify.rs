// SPDX-License-Identifier: GPL-2.0

//! Reports what happens to receive QPs: to tracepoints, and to the notifiers of providers.
//!
//! Called with the domain's lock held where the order matters: nothing is reported of a QP after its
//! destruction but the end of registrations that outlived it.

use crate::{
    bindings,
    rdma::device::Device, //
};

/// A receive QP, as it is reported.
#[derive(Clone, Copy)]
pub(crate) struct Qp<'a> {
    pub(crate) device: &'a Device,
    pub(crate) domain: u32,
    pub(crate) qpn: u32,
    pub(crate) registrations: u32,
}

fn notify(action: bindings::ib_xrc_rcv_action, qp: Qp<'_>, pid: i32) {
    // SAFETY:
    // * The device is valid as long as it is borrowed, which is longer than the call.
    // * The function may sleep, and so may the callers of the functions below: they hold a mutex.
    unsafe {
        bindings::ib_xrc_rcv_notify(
            action,
            qp.device.as_ptr(),
            qp.domain,
            qp.qpn,
            qp.registrations,
            pid,
        )
    }
}

/// The QP can be found from now on.
pub(crate) fn allocated(qp: Qp<'_>) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_ALLOC, qp, 0);
}

/// A process, or the kernel as 0, has registered with the QP.
pub(crate) fn registered(qp: Qp<'_>, pid: i32) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_REG, qp, pid);
}

/// A registration of a process, or of the kernel as 0, has ended.
pub(crate) fn unregistered(qp: Qp<'_>, pid: i32) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_UNREG, qp, pid);
}

/// The QP cannot be found any more, and is about to be destroyed.
pub(crate) fn destroyed(qp: Qp<'_>) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_DESTROY, qp, 0);
}

/// An event of the QP was delivered to `delivered` of its registrations. Any context.
pub(crate) fn event(device: &Device, domain: u32, qpn: u32, event: u32, delivered: usize) {
    // SAFETY: The device is valid as long as it is borrowed, which is longer than the call. The function
    // may be called in any context: it is a tracepoint.
    unsafe {
        bindings::ib_xrc_rcv_notify_event(device.as_ptr(), domain, qpn, event, delivered as u32)
    }
}
