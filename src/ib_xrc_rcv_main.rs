// SPDX-License-Identifier: GPL-2.0

//! XRC receive QPs that the kernel owns.
//!
//! With XRC, one connection per remote node feeds the shared receive queues of all local processes.
//! The module owns the receiving end of such a connection, a *receive QP*. It belongs to an XRC
//! domain instead of a process, and is destroyed with its last registration or with the domain.
//!
//! The modules below are in the order of their layers: each uses only modules of the groups after
//! its own, which `make lint` checks.

// Nothing that a process writes may end the kernel. The exceptions give their reasons.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::todo,
    clippy::unimplemented,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod attach;

// The interfaces to processes and to kernel users.
mod commands;
mod kernel_api;

// A device has domains, a domain has members and receive QPs, and the events of a QP are delivered
// to the event channels of the members that are registered with it.
mod device;

mod debugfs;

mod member;

mod channel_ioctl;
mod event_channel;

mod domain;

mod receive_qp;

#[expect(
    clippy::indexing_slicing,
    reason = "indices of events are less than the number of their kinds"
)]
mod registrations;

mod log;

#[expect(
    clippy::indexing_slicing,
    reason = "indices of events are less than the number of their kinds"
)]
mod members;

mod listener;

// Used by all of the above.
mod attributes;
mod limits;
mod qp_status;
mod right;

mod creator;
#[expect(
    clippy::indexing_slicing,
    reason = "indices of events are less than the number of their kinds"
)]
mod event;
mod known_state;
mod member_set;
mod notify;
mod uapi;
mod workers;

// Safe abstractions over ib_core and uverbs.
mod rdma;

// Candidates for the kernel crate.
mod kernel_ext;

mod bindings;

use kernel::prelude::*;

/// The name of the module, which `rdma resource` shows as the owner of its QPs.
const NAME: &CStr = c"ib_xrc_rcv";

module! {
    type: XrcReceive,
    name: "ib_xrc_rcv",
    authors: ["The ib_xrc_rcv authors"],
    description: "XRC receive QPs owned by the kernel",
    license: "GPL",
}

/// The state of the module. Fields are dropped in this order: all devices are detached before the
/// queues that serve readers are destroyed, and the debugfs directory removed.
struct XrcReceive {
    _client: attach::ModuleClient,
    _readers: listener::ReaderQueues,
    _debugfs: debugfs::Root,
}

impl kernel::Module for XrcReceive {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: This function runs once. Without a device, nothing counts a QP yet.
        unsafe { limits::init() };

        // SAFETY: This function runs once. Without a device, nothing uses the directory yet.
        let debugfs = unsafe { debugfs::Root::new() }?;

        // SAFETY: This function runs once, and members are created on devices only. Open channels
        // and the modules of kernel users have a reference to the module, so that no member is left
        // at its exit.
        let readers = unsafe { listener::init() }?;

        Ok(Self {
            // SAFETY: No step after this can fail, so the result is stored in the module, which
            // drops it at its exit.
            _client: unsafe { attach::ModuleClient::new() }?,
            _readers: readers,
            _debugfs: debugfs,
        })
    }
}
