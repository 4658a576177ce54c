// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate lacks, or lacks in some of the kernels that the module is for.
//!
//! Candidates for the kernel crate: nothing in here is about RDMA.

pub(crate) mod debugfs;
pub(crate) mod killable_mutex;
pub(crate) mod process;
pub(crate) mod wait_queue;
pub(crate) mod workqueue;

#[cfg(not(linux_7_3))]
pub(crate) mod spinlock_irq;
#[cfg(linux_7_3)]
use kernel::sync as spinlock_irq;

use crate::bindings;
use kernel::{
    error::Error,
    ThisModule, //
};

pub(crate) use spinlock_irq::{
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

/// `CLOCK_MONOTONIC`, in nanoseconds. Any context.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: `ktime_get()` has no requirements but that it is not called by an NMI, which nothing of
    // this module is.
    unsafe { bindings::ktime_get() as u64 }
}
