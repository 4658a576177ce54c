// SPDX-License-Identifier: GPL-2.0

//! Functions and constants of C that leaf modules use.

#![allow(non_camel_case_types, non_upper_case_globals)]

use crate::rdma::device::Device;

/// The interface to processes, as bindgen reads it from the header.
#[rustfmt::skip]
#[path = "../../../user/xrc-rcv/src/uapi/generated.rs"]
#[expect(clippy::undocumented_unsafe_blocks)]
pub(crate) mod uapi;

pub(crate) const ib_event_type_IB_EVENT_QP_FATAL: u32 = 1;
pub(crate) const ib_event_type_IB_EVENT_QP_REQ_ERR: u32 = 2;
pub(crate) const ib_event_type_IB_EVENT_QP_ACCESS_ERR: u32 = 3;
pub(crate) const ib_event_type_IB_EVENT_COMM_EST: u32 = 4;
pub(crate) const ib_event_type_IB_EVENT_SQ_DRAINED: u32 = 5;
pub(crate) const ib_event_type_IB_EVENT_PATH_MIG: u32 = 6;
pub(crate) const ib_event_type_IB_EVENT_PATH_MIG_ERR: u32 = 7;
pub(crate) const ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED: u32 = 16;

pub(crate) type ib_xrc_rcv_action = u32;

pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_ALLOC: ib_xrc_rcv_action = 0;
pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_REG: ib_xrc_rcv_action = 1;
pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_UNREG: ib_xrc_rcv_action = 2;
pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_DESTROY: ib_xrc_rcv_action = 3;

pub(crate) unsafe fn ib_xrc_rcv_notify(
    action: ib_xrc_rcv_action,
    device: *const Device,
    domain: u32,
    qpn: u32,
    _label: u64,
    registrations: u32,
    _pid: i32,
) {
    // SAFETY: The device is valid for the length of the call.
    let device = unsafe { &*device };

    kernel::runtime::might_sleep("calling notifiers");
    device.oracle.notified(action, domain, qpn, registrations);
}

pub(crate) unsafe fn ib_xrc_rcv_notify_event(
    _device: *const Device,
    _domain: u32,
    _qpn: u32,
    _event: u32,
    _count: u32,
    _delivered: u32,
) {
}

pub(crate) unsafe fn ib_xrc_rcv_max_qps_per_domain() -> u32 {
    0
}

pub(crate) unsafe fn ib_xrc_rcv_max_qps_per_user() -> u32 {
    0
}

pub(crate) unsafe fn ib_xrc_rcv_max_registrations_per_qp() -> u32 {
    0
}

pub(crate) unsafe fn ib_xrc_rcv_may_exceed_limits() -> bool {
    false
}

pub(crate) unsafe fn ib_xrc_rcv_accounting_uid() -> u32 {
    1000
}
