// SPDX-License-Identifier: GPL-2.0

//! The module's own source on the host, under a checker of interleavings.
//!
//! The leaf modules are the files of `src/`, unchanged, and formatted for the kernel. They use the
//! [`kernel`] crate beside this one, and below, in place of `src/rdma/`, a device and an ib_uverbs
//! of Rust. `Documentation/proof.rst` says how to run it and how to add a scenario.

#![feature(arbitrary_self_types)]
// The rest of the module, which is not compiled here, uses the rest of each file.
#![allow(dead_code)]

#[rustfmt::skip]
#[path = "../../../src/attributes.rs"]
mod attributes;
#[rustfmt::skip]
#[path = "../../../src/commands.rs"]
mod commands;
#[rustfmt::skip]
#[path = "../../../src/creator.rs"]
mod creator;
#[rustfmt::skip]
#[path = "../../../src/device.rs"]
mod device;
#[rustfmt::skip]
#[path = "../../../src/domain.rs"]
mod domain;
#[rustfmt::skip]
#[path = "../../../src/event.rs"]
mod event;
#[rustfmt::skip]
#[path = "../../../src/event_channel.rs"]
mod event_channel;
#[rustfmt::skip]
#[path = "../../../src/known_state.rs"]
mod known_state;
#[rustfmt::skip]
#[path = "../../../src/limits.rs"]
mod limits;
#[rustfmt::skip]
#[path = "../../../src/listener.rs"]
mod listener;
#[rustfmt::skip]
#[path = "../../../src/log.rs"]
mod log;
#[rustfmt::skip]
#[path = "../../../src/member.rs"]
mod member;
#[rustfmt::skip]
#[path = "../../../src/member_set.rs"]
mod member_set;
#[rustfmt::skip]
#[path = "../../../src/members.rs"]
mod members;
#[rustfmt::skip]
#[path = "../../../src/notify.rs"]
mod notify;
#[rustfmt::skip]
#[path = "../../../src/qp_status.rs"]
mod qp_status;
#[rustfmt::skip]
#[path = "../../../src/receive_qp.rs"]
mod receive_qp;
#[rustfmt::skip]
#[path = "../../../src/registrations.rs"]
mod registrations;
#[rustfmt::skip]
#[path = "../../../src/right.rs"]
mod right;
#[rustfmt::skip]
#[path = "../../../src/uapi.rs"]
mod uapi;
#[rustfmt::skip]
#[path = "../../../src/workers.rs"]
mod workers;

// `src/kernel_api.rs`, in which panics unwind: see the build script.
include!(concat!(env!("OUT_DIR"), "/module.rs"));

mod channel_ioctl;
mod debugfs;

mod rdma;

mod bindings;
mod ib_core;
mod ib_verbs;
mod kernel_ext;
mod oracle;
mod uverbs_ioctl;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod kernel_user;
#[cfg(test)]
mod methods;
#[cfg(test)]
mod opened;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod uverbs;
#[cfg(test)]
mod watch;

use core::ffi::CStr;

const NAME: &CStr = c"ib_xrc_rcv";
