// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/uverbs.rs`: its attributes, unchanged, and objects and calls without C.

#[rustfmt::skip]
#[path = "../../../../src/rdma/uverbs/attribute.rs"]
pub(crate) mod attribute;
pub(crate) mod call;
pub(crate) mod event_file;
pub(crate) mod table;

use crate::device::AttachedDevice;

/// The data of a device, for the methods that are called on it.
pub(crate) trait DeviceData: Sized + 'static {}

impl DeviceData for AttachedDevice {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoveReason {
    Destroyed,
    FileClosed,
    DeviceRemoved,
}
