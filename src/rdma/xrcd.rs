// SPDX-License-Identifier: GPL-2.0

//! XRC domains, as ib_core has them.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::Device, //
};
use kernel::types::Opaque;

/// A `struct ib_xrcd` that somebody keeps open while the reference exists.
#[repr(transparent)]
pub(crate) struct Xrcd(Opaque<bindings::ib_xrcd>);

/// Tells one open domain from another. Used again once the domain is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct XrcdId(usize);

impl Xrcd {
    /// # Safety
    ///
    /// `xrcd` must be valid for `'a`.
    pub(super) unsafe fn from_ptr<'a>(xrcd: *mut bindings::ib_xrcd) -> &'a Self {
        // SAFETY: `Xrcd` is a transparent wrapper; validity is the caller's promise.
        unsafe { &*xrcd.cast() }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_xrcd {
        self.0.get()
    }

    /// The device that it is a domain of.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: A domain keeps its device registered, and `device` is constant.
        unsafe { Device::from_ptr((*self.as_ptr()).device) }
    }

    /// Its identity.
    pub(crate) fn id(&self) -> XrcdId {
        XrcdId(self.as_ptr() as usize)
    }
}
