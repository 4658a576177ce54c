// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over ib_core and uverbs.
//!
//! The only part of the module that uses bindings of RDMA headers, but for the two that C is on the
//! other side of: `kernel_api` and `notify` exchange raw pointers with it. Nothing in here knows about
//! XRC receive QPs.

pub(crate) mod attachment;
pub(crate) mod cgroup;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod module;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod qp_attr;
pub(crate) mod security;
pub(crate) mod udata;
pub(crate) mod uverbs;
pub(crate) mod xrcd;

use crate::bindings;
