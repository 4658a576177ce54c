// SPDX-License-Identifier: GPL-2.0

//! Reports changes of receive QPs to tracepoints, and to the notifiers of providers.
//!
//! The callers hold the domain's lock, so that reports are in order. After the destruction of a QP,
//! only the end of its remaining registrations is reported. Events are reported with the lock of
//! the domain's log held instead, so that QP_GONE is the last.

use crate::{
    bindings,
    rdma::device::Device, //
};
use core::{
    ffi::c_void,
    ptr::{
        from_ref,
        null,
        without_provenance, //
    }, //
};

/// Identifies a member. May be reused when it has left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(usize);

impl FileId {
    /// Returns the identity of a member.
    pub(crate) fn of<M>(member: &M) -> Self {
        Self(from_ref(member).addr())
    }

    fn as_ptr(self) -> *const c_void {
        without_provenance(self.0)
    }
}

/// The description of a receive QP in a report.
#[derive(Clone, Copy)]
pub(crate) struct Qp<'a> {
    pub(crate) device: &'a Device,
    pub(crate) domain: u32,
    pub(crate) qpn: u32,
    /// Distinguishes the QPs of the domain, which may have the same number one after the other.
    pub(crate) serial: u64,
    /// 0 in a report of an event.
    pub(crate) label: u64,
    /// `XRC_RCV_LIFETIME_*`; 0 in a report of an event.
    pub(crate) lifetime: u32,
    /// For an event, the number of registrations that it was for.
    pub(crate) registrations: u32,
    /// The number of registrations that keep the QP; 0 in a report of an event.
    pub(crate) keeping: u32,
    /// The number of members that keep all QPs of the domain, which are not counted among the
    /// registrations; 0 in a report of an event.
    pub(crate) keeping_all: u32,
    /// The number of registrations that were added or ended so far. An event may be reported before
    /// the last of these, which happened before it: each has a lock of its own.
    pub(crate) changes: u64,
}

impl Qp<'_> {
    fn to_c(self) -> bindings::ib_xrc_rcv_qp {
        bindings::ib_xrc_rcv_qp {
            ibdev: self.device.as_ptr(),
            label: self.label,
            serial: self.serial,
            domain: self.domain,
            qpn: self.qpn,
            lifetime: self.lifetime,
            registrations: self.registrations,
            keeping: self.keeping,
            keeping_all: self.keeping_all,
            changes: self.changes,
        }
    }
}

/// The holder of a registration.
#[derive(Clone, Copy)]
pub(crate) struct HolderReport {
    /// 0 for a kernel user.
    pub(crate) pid: i32,
    pub(crate) file: FileId,
    /// The event mask of the member in the interface.
    pub(crate) mask: u64,
}

/// Whether anyone gets reports of registrations and events, which take some time to make.
pub(crate) fn is_reported() -> bool {
    // SAFETY: The function has no requirements: it reads variables.
    unsafe { bindings::ib_xrc_rcv_is_reported() }
}

fn notify(
    action: bindings::ib_xrc_rcv_action,
    qp: Qp<'_>,
    holder: Option<HolderReport>,
    forced: bool,
) {
    let pid = holder.map_or(0, |holder| holder.pid);
    let file = holder.map_or(null(), |holder| holder.file.as_ptr());
    let mask = holder.map_or(0, |holder| holder.mask);

    // SAFETY:
    // * The device is valid as long as it is borrowed, which is longer than the call. The address
    //   of the member is not dereferenced.
    // * The function may sleep, and so may the callers of the functions below: they hold a mutex.
    unsafe { bindings::ib_xrc_rcv_notify(action, &qp.to_c(), pid, file, mask, forced) }
}

/// Reports that a QP was added to its domain.
pub(crate) fn allocated(qp: Qp<'_>) {
    notify(
        bindings::ib_xrc_rcv_action_IB_XRC_RCV_ALLOC,
        qp,
        None,
        false,
    );
}

/// Reports a new registration.
pub(crate) fn registered(qp: Qp<'_>, holder: HolderReport) {
    notify(
        bindings::ib_xrc_rcv_action_IB_XRC_RCV_REG,
        qp,
        Some(holder),
        false,
    );
}

/// Reports the end of a registration.
pub(crate) fn unregistered(qp: Qp<'_>, holder: HolderReport) {
    notify(
        bindings::ib_xrc_rcv_action_IB_XRC_RCV_UNREG,
        qp,
        Some(holder),
        false,
    );
}

/// Reports that a QP was removed from its domain, and is about to be destroyed: by DESTROY with
/// FORCE if `forced`.
pub(crate) fn destroyed(qp: Qp<'_>, forced: bool) {
    notify(
        bindings::ib_xrc_rcv_action_IB_XRC_RCV_DESTROY,
        qp,
        None,
        forced,
    );
}

/// Reports that the QPs of a domain, of which `qp` is one, are destroyed with it.
pub(crate) fn closed(qp: Qp<'_>) {
    // SAFETY: The device is valid as long as it is borrowed, which is longer than the call. The
    // function may be called in any context: it is a tracepoint.
    unsafe { bindings::ib_xrc_rcv_notify_close(&qp.to_c()) }
}

/// Reports an event of a QP, and the number of registrations that it is delivered to. May be called
/// in any context.
pub(crate) fn event(qp: Qp<'_>, event: u32, delivered: u32) {
    // SAFETY: The device is valid as long as it is borrowed, which is longer than the call. The
    // function may be called in any context: it is a tracepoint.
    unsafe { bindings::ib_xrc_rcv_notify_event(&qp.to_c(), event, delivered) }
}

/// Reports that a QP was destroyed, and the number of registrations that QP_GONE is delivered to.
/// May be called in any context.
pub(crate) fn gone(qp: Qp<'_>, delivered: u32) {
    // SAFETY: The device is valid as long as it is borrowed, which is longer than the call. The
    // function may be called in any context: it is a tracepoint.
    unsafe { bindings::ib_xrc_rcv_notify_gone(&qp.to_c(), delivered) }
}
