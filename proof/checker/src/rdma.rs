// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/`: the files that call ib_core, unchanged, over `ib_core.rs`; and in place of the
//! others an RDMA device and the objects of uverbs.

#[rustfmt::skip]
#[path = "../../../src/rdma/cgroup.rs"]
pub(crate) mod cgroup;
#[rustfmt::skip]
#[path = "../../../src/rdma/pd.rs"]
pub(crate) mod pd;
#[rustfmt::skip]
#[path = "../../../src/rdma/security.rs"]
pub(crate) mod security;
#[rustfmt::skip]
#[path = "../../../src/rdma/udata.rs"]
pub(crate) mod udata;
#[rustfmt::skip]
#[path = "../../../src/rdma/xrcd.rs"]
pub(crate) mod xrcd;

// `src/rdma/qp.rs`, and `src/rdma/qp_attr.rs` with its parts: see the build script.
include!(concat!(env!("OUT_DIR"), "/rdma.rs"));

pub(crate) mod attachment;
pub(crate) mod device;
pub(crate) mod passed;
pub(crate) mod uverbs;

/// Those of ib_core, and how a test makes a device.
mod bindings {
    #[cfg(test)]
    pub(crate) use super::device::{_ib_alloc_device, ib_dealloc_device, init_net};
    pub(crate) use crate::bindings::*;
}
