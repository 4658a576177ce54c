// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/attachment.rs`: the module is attached to a device until this is removed.

use super::xrcd::Xrcd;
use crate::device::AttachedDevice;
use core::ops::Deref;
use kernel::prelude::*;
use std::sync::Arc as StdArc;

/// The data of the module for a device.
pub(crate) type Data = StdArc<Pin<KBox<AttachedDevice>>>;

pub(crate) trait ClientOperations: Sized {
    fn of_xrcd(xrcd: &Xrcd) -> Option<DataRef<Self>>;
}

pub(crate) struct DataRef<T>(StdArc<Pin<KBox<T>>>);

impl ClientOperations for AttachedDevice {
    fn of_xrcd(xrcd: &Xrcd) -> Option<DataRef<Self>> {
        xrcd.device().attached().map(DataRef)
    }
}

impl<T> Deref for DataRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
