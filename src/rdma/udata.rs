// SPDX-License-Identifier: GPL-2.0

//! `struct ib_udata`: the part of a process's request that is for the driver.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::Device, //
};

/// The `ib_udata` of a request. It carries no driver data; ib_core and the drivers take one that is
/// not null to mean that a process is behind the request.
///
/// # Invariants
///
/// `udata` is valid for `'a`, in a call on a file of `device`.
pub(crate) struct UData<'a> {
    udata: *mut bindings::ib_udata,
    device: &'a Device,
}

impl<'a> UData<'a> {
    /// # Safety
    ///
    /// `udata` must be valid for `'a`, and that of a call on a file of `device`.
    pub(super) unsafe fn from_ptr(udata: *mut bindings::ib_udata, device: &'a Device) -> Self {
        // INVARIANT: The requirements of this function.
        Self { udata, device }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_udata {
        self.udata
    }

    /// The device that the request is to.
    pub(super) fn device(&self) -> &Device {
        self.device
    }
}
