// SPDX-License-Identifier: GPL-2.0

//! XRC domains of ib_core.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::Device, //
};
use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};

/// A `struct ib_xrcd`.
///
/// It is open as long as a reference exists.
#[repr(transparent)]
pub(crate) struct Xrcd(Opaque<bindings::ib_xrcd>);

/// Identifies an open domain. May be reused when the domain is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct XrcdId(usize);

impl Xrcd {
    /// Borrows a `struct ib_xrcd`.
    ///
    /// # Safety
    ///
    /// `xrcd` must be open for `'a`.
    pub(crate) unsafe fn from_ptr<'a>(xrcd: *mut bindings::ib_xrcd) -> &'a Self {
        // SAFETY: By the requirements of this function, `xrcd` is valid for `'a`. `Xrcd` is a
        // transparent wrapper of an `Opaque`, so the reference promises nothing about the members.
        unsafe { &*xrcd.cast() }
    }

    /// Returns the C structure.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_xrcd {
        self.0.get()
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY:
        // * The domain is open as long as the reference exists, and its device registered as long
        //   as the domain is open.
        // * `device` is constant. It is read through the pointer: a reference would cover members
        //   that ib_core changes meanwhile.
        unsafe { Device::from_ptr((*self.as_ptr()).device) }
    }

    /// Fails with `EPERM` if the domain has an inode that is not a regular file's.
    pub(crate) fn check_is_private(&self) -> Result {
        // SAFETY: The domain is open as long as the reference exists. `inode` is constant, and null
        // or an inode that an open domain has a reference to.
        to_result(unsafe { bindings::ib_xrc_rcv_inode_is_private((*self.as_ptr()).inode) })
    }

    /// Whether the calling process owns the domain's inode, or the domain has none.
    pub(crate) fn caller_owns(&self) -> bool {
        // SAFETY: The domain is open as long as the reference exists. `inode` is constant, and null
        // or an inode that an open domain has a reference to.
        unsafe { bindings::ib_xrc_rcv_inode_is_callers((*self.as_ptr()).inode) }
    }

    /// Whether the calling process may write to the domain's inode, or the domain has none.
    pub(crate) fn caller_may_write(&self) -> bool {
        // SAFETY: The domain is open as long as the reference exists. `inode` is constant, and null
        // or an inode that an open domain has a reference to.
        unsafe { bindings::ib_xrc_rcv_inode_is_writable((*self.as_ptr()).inode) }
    }

    /// Returns the identity.
    pub(crate) fn id(&self) -> XrcdId {
        XrcdId(self.as_ptr() as usize)
    }
}
