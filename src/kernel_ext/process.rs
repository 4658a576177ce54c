// SPDX-License-Identifier: GPL-2.0

//! The calling process.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use crate::bindings;
use kernel::{
    current,
    str::BStr, //
};

/// Whether the calling process is killed, so that it needs no answer.
pub(crate) fn is_killed() -> bool {
    // SAFETY: The function looks at the signals of the current task, which may be any.
    unsafe { bindings::ib_xrc_rcv_is_killed() }
}

/// A process as tools name it.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pid: i32,
    name: [u8; bindings::TASK_COMM_LEN as usize],
}

impl Process {
    /// The calling process.
    pub(crate) fn current() -> Self {
        let mut name = [0; bindings::TASK_COMM_LEN as usize];

        // SAFETY:
        // * `name` is valid for writes of `TASK_COMM_LEN` bytes, which is what the function writes.
        // * The leader of a thread group is released after its last other thread, so that of the current
        //   task is valid.
        unsafe { bindings::ib_xrc_rcv_task_comm(name.as_mut_ptr().cast()) };
        Self {
            pid: current!().group_leader().pid(),
            name,
        }
    }

    /// Its number, in the initial namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Its name.
    pub(crate) fn name(&self) -> &BStr {
        let end = self.name.iter().position(|byte| *byte == 0);

        BStr::from_bytes(&self.name[..end.unwrap_or(self.name.len())])
    }
}
