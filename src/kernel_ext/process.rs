// SPDX-License-Identifier: GPL-2.0

//! The calling process.
//!
//! C headers: [`include/linux/sched.h`](srctree/include/linux/sched.h),
//! [`include/linux/cred.h`](srctree/include/linux/cred.h),
//! [`include/linux/cgroup.h`](srctree/include/linux/cgroup.h)

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

/// Returns the effective uid of the calling process, in the initial user namespace.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: The function reads the credentials of the current task, and has no other requirement.
    unsafe { bindings::ib_xrc_rcv_effective_uid() }
}

/// Converts a uid of the initial user namespace to the namespace of the calling process. The
/// overflow uid if it has none there.
pub(crate) fn uid_here(uid: u32) -> u32 {
    // SAFETY: The function reads the user namespace of the current task, which has it until it
    // exits.
    unsafe { bindings::ib_xrc_rcv_uid_here(uid) }
}

/// A process, as it was at some time: it may have ended since.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pid: i32,
    uid: u32,
    cgroup: u64,
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
            uid: effective_uid(),
            // SAFETY: The function reads the control groups of the current task, and has no other
            // requirement.
            cgroup: unsafe { bindings::ib_xrc_rcv_cgroup_id() },
            name,
        }
    }

    /// Returns the pid in the initial namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the effective uid in the initial user namespace.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the id of the control group in the hierarchy of version 2, which no other gets; 0 if
    /// the kernel has none.
    pub(crate) fn cgroup(&self) -> u64 {
        self.cgroup
    }

    /// Returns the name, as `/proc/PID/comm` shows it.
    pub(crate) fn name(&self) -> &BStr {
        let name = self.name.split(|byte| *byte == 0).next();

        BStr::from_bytes(name.unwrap_or_default())
    }
}
