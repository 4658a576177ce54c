// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/process.rs`: a process by its number and its user alone.

use core::{
    cell::Cell,
    sync::atomic::{AtomicU32, Ordering},
};
use kernel::runtime;

pub(crate) use kernel::runtime::{current_thread, is_killed};

/// Each thread is another user, unless a test has said which, so that the right of a member
/// decides.
pub(crate) fn effective_uid() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(1000);

    match runtime::user() {
        Some(user) => user.uid,
        None => LAST.fetch_add(1, Ordering::Relaxed),
    }
}

runtime::thread_local! {
    /// The process that the thread is of.
    static PID: Cell<i32> = const { Cell::new(0) };
}

/// Calls a function as a thread of the process that has a file, by the number of this.
pub(crate) fn as_process<R>(file: u64, call: impl FnOnce() -> R) -> R {
    let before = PID.with(|pid| pid.replace(file as i32));
    let result = call();

    PID.with(|pid| pid.set(before));
    result
}

#[derive(Clone, Copy)]
pub(crate) struct Process {
    pid: i32,
    uid: u32,
}

impl Process {
    pub(crate) fn current() -> Self {
        Self {
            pid: PID.with(Cell::get),
            uid: effective_uid(),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}
