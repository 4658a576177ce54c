// SPDX-License-Identifier: GPL-2.0

//! Reports changes of receive QPs to tracepoints, and to the notifiers of providers.
//!
//! The callers hold the domain's lock, so that reports are in order. After the destruction of a QP,
//! only the end of its remaining registrations is reported.

use crate::{
    bindings,
    rdma::device::Device, //
};

/// The description of a receive QP in a report.
#[derive(Clone, Copy)]
pub(crate) struct Qp<'a> {
    pub(crate) device: &'a Device,
    pub(crate) domain: u32,
    pub(crate) qpn: u32,
    pub(crate) label: u64,
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
            qp.label,
            qp.registrations,
            pid,
        )
    }
}

/// Reports that a QP was added to its domain.
pub(crate) fn allocated(qp: Qp<'_>) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_ALLOC, qp, 0);
}

/// Reports a new registration. `pid` is 0 for a kernel user.
pub(crate) fn registered(qp: Qp<'_>, pid: i32) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_REG, qp, pid);
}

/// Reports the end of a registration. `pid` is 0 for a kernel user.
pub(crate) fn unregistered(qp: Qp<'_>, pid: i32) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_UNREG, qp, pid);
}

/// Reports that a QP was removed from its domain, and is about to be destroyed.
pub(crate) fn destroyed(qp: Qp<'_>) {
    notify(bindings::ib_xrc_rcv_action_IB_XRC_RCV_DESTROY, qp, 0);
}

/// Reports an event of a QP, or `count` of the same kind, that were delivered to `delivered` of its
/// registrations. May be called in any context.
pub(crate) fn event(
    device: &Device,
    domain: u32,
    qpn: u32,
    event: u32,
    count: u32,
    delivered: u32,
) {
    // SAFETY: The device is valid as long as it is borrowed, which is longer than the call. The
    // function may be called in any context: it is a tracepoint.
    unsafe {
        bindings::ib_xrc_rcv_notify_event(device.as_ptr(), domain, qpn, event, count, delivered)
    }
}
