// SPDX-License-Identifier: GPL-2.0

//! XRC receive QPs that the kernel owns.
//!
//! With XRC, one connection per remote node feeds the shared receive queues of all local processes.
//! Its receiving end has to live somewhere; here it lives in the kernel, belongs to an XRC domain
//! instead of a process, and goes when nobody needs it.
//!
//! From top to bottom; each group uses those below it only, which `make lint` checks:

mod attach;

// What processes and other parts of the kernel can ask for.
mod commands;
mod kernel_api;

// Devices have domains, domains have receive QPs, whose subscribers get their events and pass them
// to event channels. Devices also know the uverbs files that have registrations.
mod device;

mod debugfs;

mod domain;

mod ufile;

mod receive_qp;

mod subscribers;

mod subscriber;

mod event_channel;
mod event_queue;

// What all of these use.
mod attributes;
mod event;
mod limits;
mod notify;
mod uapi;

// ib_core and uverbs, safely.
mod rdma;

// What the kernel crate lacks.
mod kernel_ext;

mod bindings;

use kernel::prelude::*;

/// The name of the module, and of the owner that tools show for what it creates.
const NAME: &CStr = c"ib_xrc_rcv";

module! {
    type: XrcReceive,
    name: "ib_xrc_rcv",
    authors: ["The ib_xrc_rcv authors"],
    description: "XRC receive QPs owned by the kernel",
    license: "GPL",
}

/// What exists while the module is loaded. Goes in this order: no device is left when the directory
/// goes.
struct XrcReceive {
    _client: attach::Attached,
    _debugfs: debugfs::Root,
}

impl kernel::Module for XrcReceive {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: This function runs once. Without a device, nothing counts a QP yet.
        unsafe { limits::init() };

        // SAFETY: This function runs once. Without a device, nothing uses the directory yet.
        let debugfs = unsafe { debugfs::Root::new() }?;

        Ok(Self {
            // SAFETY: Nothing after this fails, so the module has the result from now on, and drops it
            // at its exit.
            _client: unsafe { attach::attach_all() }?,
            _debugfs: debugfs,
        })
    }
}
