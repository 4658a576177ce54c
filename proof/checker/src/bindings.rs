// SPDX-License-Identifier: GPL-2.0

//! Functions and constants of C that the parts of the module use.

#![allow(non_camel_case_types, non_upper_case_globals)]

pub(crate) use crate::{ib_core::*, ib_verbs::*, kernel_api::*, uverbs_ioctl::*};
use core::ffi::{c_int, c_void};
use kernel::runtime::{self, Limit};
use xrc_rcv_spec::{Delivery, Holder, Lifetime, Record, Registrations, What};

pub(crate) type ib_xrc_rcv_handler =
    Option<unsafe extern "C-unwind" fn(*const uapi::xrc_rcv_record, *mut c_void)>;

pub(crate) struct ib_xrc_rcv_member;

pub(crate) struct ib_xrc_rcv_init_attr {
    pub(crate) flags: u32,
    pub(crate) attr_mask: c_int,
    pub(crate) attr: *const ib_qp_attr,
    pub(crate) label: u64,
}

pub(crate) type ib_xrc_rcv_action = u32;

pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_ALLOC: ib_xrc_rcv_action = 0;
pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_REG: ib_xrc_rcv_action = 1;
pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_UNREG: ib_xrc_rcv_action = 2;
pub(crate) const ib_xrc_rcv_action_IB_XRC_RCV_DESTROY: ib_xrc_rcv_action = 3;

pub(crate) struct ib_xrc_rcv_qp {
    pub(crate) ibdev: *mut ib_device,
    pub(crate) label: u64,
    pub(crate) serial: u64,
    pub(crate) domain: u32,
    pub(crate) qpn: u32,
    pub(crate) lifetime: u32,
    pub(crate) registrations: u32,
    pub(crate) keeping: u32,
    pub(crate) keeping_all: u32,
    pub(crate) changes: u64,
}

impl ib_xrc_rcv_qp {
    fn registrations(&self) -> Registrations {
        Registrations {
            number: self.registrations,
            keeping: self.keeping,
            keeping_all: self.keeping_all,
            changes: self.changes,
        }
    }

    fn delivery(&self, kind: u32, delivered: u32) -> Delivery {
        Delivery {
            kind,
            number: self.registrations,
            delivered,
            changes: self.changes,
        }
    }

    /// Reports what happened to the QP.
    ///
    /// # Safety
    ///
    /// The device must be valid.
    unsafe fn report(&self, what: What) {
        // SAFETY: By the requirements of this function.
        let device = unsafe { provider(self.ibdev) };

        device.reported(&Record::Qp {
            domain: self.domain,
            number: self.qpn,
            serial: self.serial,
            what,
        });
        if let What::End(..) = what {
            device.ends(self.qpn);
        }
    }
}

pub(crate) unsafe fn ib_xrc_rcv_is_reported() -> bool {
    true
}

pub(crate) unsafe fn ib_xrc_rcv_notify(
    action: ib_xrc_rcv_action,
    qp: *const ib_xrc_rcv_qp,
    _pid: i32,
    file: *const c_void,
    mask: u64,
    forced: bool,
) {
    // SAFETY: The QP is valid for the length of the call.
    let qp = unsafe { &*qp };
    let holder = Holder {
        channel: Some(file.addr() as u64),
        mask,
    };
    let lifetime = match qp.lifetime {
        uapi::XRC_RCV_LIFETIME_DOMAIN => Lifetime::Domain,
        _ => Lifetime::Registrations,
    };
    let what = match action {
        ib_xrc_rcv_action_IB_XRC_RCV_ALLOC => What::Alloc {
            lifetime,
            registers: qp.registrations().number != 0,
            keeping_all: qp.keeping_all,
        },
        ib_xrc_rcv_action_IB_XRC_RCV_REG => What::Register(holder, qp.registrations()),
        ib_xrc_rcv_action_IB_XRC_RCV_UNREG => What::Unregister(holder, qp.registrations()),
        ib_xrc_rcv_action_IB_XRC_RCV_DESTROY => What::End(qp.registrations(), forced),
        other => panic!("action {other}"),
    };

    runtime::might_sleep("calling notifiers");
    // SAFETY: The device is valid for the length of the call.
    unsafe { qp.report(what) }
}

pub(crate) unsafe fn ib_xrc_rcv_notify_event(qp: *const ib_xrc_rcv_qp, event: u32, delivered: u32) {
    // SAFETY: The QP and the device are valid for the length of the call.
    unsafe { (*qp).report(What::Event((*qp).delivery(event, delivered))) }
}

pub(crate) unsafe fn ib_xrc_rcv_notify_gone(qp: *const ib_xrc_rcv_qp, delivered: u32) {
    // SAFETY: The QP and the device are valid for the length of the call.
    unsafe {
        (*qp).report(What::Gone(
            (*qp).delivery(uapi::XRC_RCV_EVENT_QP_GONE, delivered),
        ))
    }
}

pub(crate) unsafe fn ib_xrc_rcv_notify_close(qp: *const ib_xrc_rcv_qp) {
    // SAFETY: The QP and the device are valid for the length of the call.
    let (device, domain) = unsafe { (provider((*qp).ibdev), (*qp).domain) };

    device.reported(&Record::Close { domain });
}

pub(crate) unsafe fn ib_xrc_rcv_max_qps_per_domain() -> u32 {
    runtime::limit_on(Limit::QpsPerDomain)
}

pub(crate) unsafe fn ib_xrc_rcv_max_qps_per_user() -> u32 {
    runtime::limit_on(Limit::QpsPerUser)
}

pub(crate) unsafe fn ib_xrc_rcv_max_registrations_per_qp() -> u32 {
    runtime::limit_on(Limit::RegistrationsPerQp)
}

pub(crate) unsafe fn ib_xrc_rcv_may_exceed_limits() -> bool {
    runtime::user().is_some_and(|user| user.may_exceed_limits)
}

pub(crate) unsafe fn ib_xrc_rcv_accounting_uid() -> u32 {
    runtime::user().map_or(1000, |user| user.accounting_uid)
}
