// SPDX-License-Identifier: GPL-2.0

//! The ioctl interface of ib_uverbs: objects, and methods on them.
//!
//! [`table`] declares objects and methods, [`attribute`] declares the attributes of methods, and
//! [`call`] is a running method. [`event_file`] is an object with file descriptors.
//!
//! A uverbs *file* is an open file of `/dev/infiniband/uverbsN`. It owns objects, which are
//! destroyed when the file is closed or the device removed.
//!
//! C headers: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h),
//! [`include/rdma/uverbs_types.h`](srctree/include/rdma/uverbs_types.h)

pub(crate) mod attribute;
pub(crate) mod call;
pub(crate) mod event_file;
pub(crate) mod table;

use super::device::Device;
use crate::bindings;
use core::pin::Pin;

/// The data of a device, for the methods that are called on it.
pub(crate) trait DeviceData: Sized + 'static {
    /// Returns the data of a device, or `None` if it has none.
    ///
    /// # Safety
    ///
    /// A method that has the data must be running on the device until the reference ends. With
    /// hooks it may run while [`ClientData::remove`](super::client::ClientData::remove) does, which
    /// waits for it.
    unsafe fn of_device(device: &Device) -> Option<Pin<&Self>>;
}

/// Whether ib_uverbs may have been added to a device before the client that is being added.
#[cfg(not(hooked))]
pub(super) fn came_first() -> bool {
    // SAFETY: The function has no requirements but that the caller may sleep, which the `add` of a
    // client may.
    unsafe { bindings::ib_xrc_rcv_uverbs_came_first() }
}

/// The reason why an object is destroyed: `enum rdma_remove_reason`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoveReason {
    /// It was destroyed.
    Destroyed,
    /// Its descriptor, or the uverbs file, was closed.
    FileClosed,
    /// The device was removed under a file that is still open.
    DeviceRemoved,
}

/// `enum rdma_remove_reason`, as C passes it to a callback.
///
/// kCFI compares the types of functions, in which clang encodes an enumeration by its name. bindgen
/// declares it as an integer, which is encoded differently. rustc encodes a `repr(C)` type by its
/// name, and a structure of one integer is passed like the integer and may have any value.
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
