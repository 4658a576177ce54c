// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over ib_core and uverbs.
//!
//! The only part of the module that uses bindings of RDMA headers; none of their raw pointers
//! leaves it. Nothing in here knows about XRC receive QPs.

mod attachment;
mod bindings;
pub(crate) mod cgroup;
pub(crate) mod client;
pub(crate) mod debugfs;
pub(crate) mod device;
#[cfg(not(linux_7_3))]
mod irq_lock;
pub(crate) mod killable_mutex;
pub(crate) mod module;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod qp_attr;
pub(crate) mod security;
pub(crate) mod udata;
pub(crate) mod uverbs;
pub(crate) mod wait_queue;
pub(crate) mod workqueue;
pub(crate) mod xrcd;

use kernel::{
    error::Error,
    ThisModule, //
};

#[cfg(not(linux_7_3))]
pub(crate) use irq_lock::{
    new_spinlock_irq,
    SpinLockIrq, //
};
#[cfg(linux_7_3)]
pub(crate) use kernel::sync::{
    new_spinlock_irq,
    SpinLockIrq, //
};

/// What holds the text of the functions that others call.
pub(crate) const fn this_module() -> &'static ThisModule {
    #[cfg(linux_7_3)]
    return kernel::module::this_module::<crate::LocalModule>();
    #[cfg(not(linux_7_3))]
    return &crate::THIS_MODULE;
}

/// `EOPNOTSUPP`, which the kernel crate has no name for.
pub(crate) fn not_supported() -> Error {
    Error::from_errno(-(kernel::bindings::EOPNOTSUPP as i32))
}

/// `EDQUOT`, which the kernel crate has no name for.
pub(crate) fn over_limit() -> Error {
    Error::from_errno(-(kernel::bindings::EDQUOT as i32))
}
