// SPDX-License-Identifier: GPL-2.0

//! Tells of what happens to receive QPs: to tracepoints, and to providers that asked for it.
//!
//! Called with the domain's lock held where the order matters: nobody hears of a registration after
//! the destruction.

use crate::{
    fan_out::FanOut,
    rdma::device::Device,
    receive_qp::ReceiveQp,
    registration::{
        Holder,
        Registration, //
    }, //
};

#[repr(C)]
#[derive(Clone, Copy)]
enum Action {
    Create,
    Register,
    Unregister,
    Destroy,
}

#[expect(
    improper_ctypes,
    reason = "C takes the address of the device; nobody looks inside"
)]
unsafe extern "C" {
    fn xrc_rcv_announce(
        action: Action,
        device: &Device,
        domain: u32,
        qpn: u32,
        registrations: u32,
        pid: i32,
    );
    fn xrc_rcv_announce_event(device: &Device, domain: u32, qpn: u32, event: u32, delivered: u32);
}

fn announce(action: Action, qp: &ReceiveQp, pid: i32) {
    let fan_out = qp.fan_out();

    // SAFETY: The device is valid, the rest are numbers.
    unsafe {
        xrc_rcv_announce(
            action,
            fan_out.device(),
            fan_out.domain(),
            qp.number(),
            fan_out.len() as u32,
            pid,
        )
    }
}

/// The process of a registration; 0 for the kernel.
fn pid(registration: &Registration) -> i32 {
    match registration.holder() {
        Holder::File(_, process) => process.pid(),
        Holder::Kernel => 0,
    }
}

/// A QP can be found.
pub(crate) fn created(qp: &ReceiveQp) {
    announce(Action::Create, qp, 0);
}

/// Somebody registered.
pub(crate) fn registered(qp: &ReceiveQp, registration: &Registration) {
    announce(Action::Register, qp, pid(registration));
}

/// Somebody is not registered any more.
pub(crate) fn unregistered(qp: &ReceiveQp, registration: &Registration) {
    announce(Action::Unregister, qp, pid(registration));
}

/// A QP cannot be found any more, and is about to be destroyed.
pub(crate) fn destroyed(qp: &ReceiveQp) {
    announce(Action::Destroy, qp, 0);
}

/// An event of a QP was delivered to `delivered` registrations. Any context.
pub(crate) fn event(fan_out: &FanOut, qpn: u32, event: u32, delivered: usize) {
    // SAFETY: The device is valid, the rest are numbers.
    unsafe {
        xrc_rcv_announce_event(
            fan_out.device(),
            fan_out.domain(),
            qpn,
            event,
            delivered as u32,
        )
    }
}
