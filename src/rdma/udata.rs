// SPDX-License-Identifier: GPL-2.0

//! `struct ib_udata`: the driver's part of a request.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::Device, //
};

/// The `struct ib_udata` of a request of a process. It carries no driver data. ib_core and the
/// drivers take a request without one for a request of the kernel.
///
/// # Invariants
///
/// `udata` is valid for `'a`, and that of a call on a file of `device`.
pub(crate) struct UData<'a> {
    udata: *mut bindings::ib_udata,
    device: &'a Device,
}

impl<'a> UData<'a> {
    /// Wraps the `struct ib_udata` of a call.
    ///
    /// # Safety
    ///
    /// `udata` must be valid for `'a`, and that of a call on a file of `device`.
    pub(super) unsafe fn from_ptr(udata: *mut bindings::ib_udata, device: &'a Device) -> Self {
        // INVARIANT: The requirements of this function.
        Self { udata, device }
    }

    /// Returns the C structure.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_udata {
        self.udata
    }

    /// Returns the device of the request.
    pub(super) fn device(&self) -> &Device {
        self.device
    }
}
