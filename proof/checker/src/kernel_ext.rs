// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/`: its tree, unchanged, and on the host what wraps functions of C.

#[rustfmt::skip]
#[path = "../../../src/kernel_ext/tree.rs"]
pub(crate) mod tree;

pub(crate) mod mutex;
pub(crate) mod process;
pub(crate) mod rwsem;
pub(crate) mod uaccess;
pub(crate) mod wait_queue;
pub(crate) mod workqueue;

use kernel::{
    bindings::{EDQUOT, EOPNOTSUPP},
    error::Error,
    runtime,
};

pub(crate) use kernel::sync::{new_spinlock_irq, SpinLockIrq};
pub(crate) use runtime::monotonic_ns;

pub(crate) struct ThisModule;

pub(crate) const fn this_module() -> &'static ThisModule {
    &ThisModule
}

pub(crate) fn not_supported() -> Error {
    Error::from_errno(-(EOPNOTSUPP as i32))
}

pub(crate) fn over_limit() -> Error {
    Error::from_errno(-(EDQUOT as i32))
}

pub(crate) fn cond_resched() {
    runtime::might_sleep("rescheduling");
    runtime::interleave();
}

pub(crate) fn in_time_namespace(ns: u64) -> u64 {
    ns
}
