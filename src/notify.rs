// SPDX-License-Identifier: GPL-2.0

//! Tells of what happens to receive QPs: to tracepoints, and to providers that asked for it.
//!
//! Called with the domain's lock held where the order matters: nobody hears of a registration after
//! the destruction.

use crate::{
    rdma::device::Device,
    receive_qp::ReceiveQp,
    subscriber::{
        Holder,
        Subscriber, //
    }, //
    subscribers::Subscribers,
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
    fn ib_xrc_rcv_notify(
        action: Action,
        device: &Device,
        domain: u32,
        qpn: u32,
        registrations: u32,
        pid: i32,
    );
    fn ib_xrc_rcv_notify_event(device: &Device, domain: u32, qpn: u32, event: u32, delivered: u32);
}

fn notify(action: Action, qp: &ReceiveQp, pid: i32) {
    let subscribers = qp.subscribers();

    // SAFETY: The device is valid, the rest are numbers.
    unsafe {
        ib_xrc_rcv_notify(
            action,
            subscribers.device(),
            subscribers.domain(),
            qp.qpn(),
            subscribers.len() as u32,
            pid,
        )
    }
}

/// The process of a registration; 0 for the kernel.
fn pid(subscriber: &Subscriber) -> i32 {
    match subscriber.holder() {
        Holder::File(_, process) => process.pid(),
        Holder::Kernel => 0,
    }
}

/// A QP can be found.
pub(crate) fn created(qp: &ReceiveQp) {
    notify(Action::Create, qp, 0);
}

/// Somebody registered.
pub(crate) fn registered(qp: &ReceiveQp, subscriber: &Subscriber) {
    notify(Action::Register, qp, pid(subscriber));
}

/// Somebody is not registered any more.
pub(crate) fn unregistered(qp: &ReceiveQp, subscriber: &Subscriber) {
    notify(Action::Unregister, qp, pid(subscriber));
}

/// A QP cannot be found any more, and is about to be destroyed.
pub(crate) fn destroyed(qp: &ReceiveQp) {
    notify(Action::Destroy, qp, 0);
}

/// An event of a QP was delivered to `delivered` registrations. Any context.
pub(crate) fn event(subscribers: &Subscribers, qpn: u32, event: u32, delivered: usize) {
    // SAFETY: The device is valid, the rest are numbers.
    unsafe {
        ib_xrc_rcv_notify_event(
            subscribers.device(),
            subscribers.domain(),
            qpn,
            event,
            delivered as u32,
        )
    }
}
