// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over ib_core and uverbs.
//!
//! No other part of the module calls functions of RDMA headers. `kernel_api` and `notify`, which have C
//! on their other side, exchange raw pointers with it, and `event` lists numbers of theirs. Nothing in
//! here knows about XRC receive QPs.

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
