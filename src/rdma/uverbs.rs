// SPDX-License-Identifier: GPL-2.0

//! The ioctl interface that ib_uverbs offers to processes: own objects, and methods on them.
//!
//! [`table`] declares them, their attributes are in [`attribute`], [`call`] is what a method sees
//! while it runs, [`handle`] and [`event_file`] are the two kinds of objects.
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

use super::device::Device;
use crate::bindings;
use core::pin::Pin;

/// What methods find of the device that they are called for.
pub(crate) trait DeviceData: Sized + 'static {
    /// Returns the data of a device, `None` if it has none.
    ///
    /// # Safety
    ///
    /// ib_uverbs must not have been removed from the device before the reference has ended.
    unsafe fn of_device(device: &Device) -> Option<Pin<&Self>>;
}

/// Whether ib_uverbs may see a device before the client that the device is being added to.
pub(super) fn came_first() -> bool {
    // SAFETY: The function has no requirements but that the caller may sleep, which the `add` of a client
    // may.
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
