// SPDX-License-Identifier: GPL-2.0

//! The calling process.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use crate::bindings;
use kernel::{
    current,
    str::BStr, //
};

/// Whether the calling process has been killed.
pub(crate) fn is_killed() -> bool {
    // SAFETY: The function reads the signals of the current task, and has no other requirement.
    unsafe { bindings::ib_xrc_rcv_is_killed() }
}

/// Identifies the calling thread until it ends. Not 0.
pub(crate) fn current_thread() -> usize {
    current!().as_ptr().addr()
}

/// A process, by pid and name.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pid: i32,
    name: [u8; bindings::TASK_COMM_LEN as usize],
}

impl Process {
    /// Returns the calling process.
    pub(crate) fn current() -> Self {
        let mut name = [0; bindings::TASK_COMM_LEN as usize];

        // SAFETY:
        // * The function writes `TASK_COMM_LEN` bytes, for which `name` has room.
        // * The leader of a thread group is released after its last other thread, so that of the
        //   current task is valid.
        unsafe { bindings::ib_xrc_rcv_task_comm(name.as_mut_ptr().cast()) };
        Self {
            pid: current!().group_leader().pid(),
            name,
        }
    }

    /// Returns the pid in the initial namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the name, as `/proc/PID/comm` shows it.
    pub(crate) fn name(&self) -> &BStr {
        let name = self.name.split(|byte| *byte == 0).next();

        BStr::from_bytes(name.unwrap_or_default())
    }
}
