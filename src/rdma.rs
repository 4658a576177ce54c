// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over ib_core and uverbs.
//!
//! Only this directory calls functions of RDMA headers. Raw pointers leave it for `kernel_api` and
//! `notify` only, which call C code of the module or are called by it. Nothing in this directory
//! depends on XRC receive QPs.

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
