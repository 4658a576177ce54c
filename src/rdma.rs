// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over ib_core and uverbs.
//!
//! The only part of the module that uses bindings of RDMA headers; none of their raw pointers
//! leaves it. Nothing in here knows about XRC receive QPs.

pub(crate) mod attachment;
mod bindings;
pub(crate) mod cgroup;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod irq_lock;
pub(crate) mod killable_mutex;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod qp_attributes;
pub(crate) mod security;
pub(crate) mod uverbs;
pub(crate) mod workqueue;
pub(crate) mod xrcd;

use kernel::error::Error;

/// `EOPNOTSUPP`, which the kernel crate has no name for.
pub(crate) fn not_supported() -> Error {
    Error::from_errno(-(kernel::bindings::EOPNOTSUPP as i32))
}

/// `EDQUOT`, which the kernel crate has no name for.
pub(crate) fn over_limit() -> Error {
    Error::from_errno(-(kernel::bindings::EDQUOT as i32))
}
