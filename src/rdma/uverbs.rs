// SPDX-License-Identifier: GPL-2.0

//! The ioctl interface that ib_uverbs offers to processes: own objects, and methods on them.
//!
//! [`table`] declares them, their attributes are in [`attribute`], [`call`] is what a method sees
//! while it runs, [`handle`] and
//! [`event_file`] are the two kinds of objects.
//!
//! A uverbs *file* is one open of a device's `/dev/infiniband/uverbsN`. It owns objects; all of
//! them go when it is closed, or when the device is removed.
//!
//! C headers: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h),
//! [`include/rdma/uverbs_types.h`](srctree/include/rdma/uverbs_types.h)

pub(crate) mod attribute;
pub(crate) mod call;
pub(crate) mod event_file;
pub(crate) mod handle;
pub(crate) mod table;

use super::bindings;
use kernel::{
    current,
    str::BStr, //
};

/// Whether the calling process is killed, so that it needs no answer.
pub(crate) fn is_killed() -> bool {
    // SAFETY: Can be called by any task.
    unsafe { bindings::ib_xrc_rcv_is_killed() }
}

/// Whether ib_uverbs may see a device before the client that the device is being added to.
pub(super) fn came_first() -> bool {
    // SAFETY: May be called from any context that may sleep.
    unsafe { bindings::ib_xrc_rcv_uverbs_came_first() }
}

/// Tells one uverbs file from another while both are open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(usize);

/// Why an object goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoveReason {
    /// Its handle was destroyed.
    Destroyed,
    /// Its file was closed.
    FileClosed,
    /// The device was removed under a file that is still open.
    DeviceRemoved,
}

/// `enum rdma_remove_reason`, as a callback gets it from C.
///
/// clang gives an enumeration its name in the type of a function that kCFI compares; bindgen makes
/// an integer of it, which has another. rustc encodes a `repr(C)` type as clang does, by its name.
/// A structure of one integer is passed like the integer, and may have any value.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
struct rdma_remove_reason(bindings::rdma_remove_reason);

impl From<rdma_remove_reason> for RemoveReason {
    fn from(why: rdma_remove_reason) -> Self {
        match why.0 {
            bindings::rdma_remove_reason_RDMA_REMOVE_DRIVER_REMOVE => Self::DeviceRemoved,
            bindings::rdma_remove_reason_RDMA_REMOVE_CLOSE => Self::FileClosed,
            _ => Self::Destroyed,
        }
    }
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

        // SAFETY: `name` has room for a name.
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
