// SPDX-License-Identifier: GPL-2.0

//! Candidates for the kernel crate, or backports from it.
//!
//! Nothing in this directory depends on RDMA.

pub(crate) mod debugfs;
pub(crate) mod mutex;
pub(crate) mod process;
pub(crate) mod rwsem;
pub(crate) mod tree;
pub(crate) mod uaccess;
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

/// Returns this module, which owns the text of callbacks.
pub(crate) const fn this_module() -> &'static ThisModule {
    #[cfg(linux_7_3)]
    return kernel::module::this_module::<crate::LocalModule>();
    #[cfg(not(linux_7_3))]
    return &crate::THIS_MODULE;
}

/// Returns `EOPNOTSUPP`, for which the kernel crate has a constant only since Linux 7.3.
pub(crate) fn not_supported() -> Error {
    Error::from_errno(-(kernel::bindings::EOPNOTSUPP as i32))
}

/// Returns `EDQUOT`, for which the kernel crate has a constant only since Linux 7.3.
pub(crate) fn over_limit() -> Error {
    Error::from_errno(-(kernel::bindings::EDQUOT as i32))
}

/// Reschedules if another task waits for the CPU. The caller must be able to sleep.
pub(crate) fn cond_resched() {
    // SAFETY: The caller may sleep, as the documentation of this function requires.
    unsafe { bindings::ib_xrc_rcv_cond_resched() }
}

/// Returns the time of `CLOCK_MONOTONIC` in nanoseconds. May be called in any context.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: `ktime_get()` must not be called in an NMI. This module has no NMI handler.
    unsafe { bindings::ktime_get() as u64 }
}

/// Converts a time of `CLOCK_MONOTONIC`, in nanoseconds, to the time namespace of the calling
/// process.
pub(crate) fn in_time_namespace(ns: u64) -> u64 {
    // SAFETY: The function reads the namespaces of the current task, which has them until it exits.
    unsafe { bindings::ib_xrc_rcv_in_time_namespace(ns) }
}
