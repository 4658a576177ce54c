// SPDX-License-Identifier: GPL-2.0

//! XRC domains that processes have open, and the rights of a process by their inodes.

use crate::{
    ib_core::{rights, with_rights},
    ib_verbs::ib_xrcd,
    rdma::{device::Device, xrcd::Xrcd},
    right::Right,
};
use core::ops::Deref;
use kernel::sync::aref::ARef;

/// Calls a function as a process with a right by the inodes of domains. Else it owns them.
pub(crate) fn with_right<R>(right: Right, call: impl FnOnce() -> R) -> R {
    with_rights((right >= Right::Own, right >= Right::Write), call)
}

/// Returns that right.
pub(crate) fn right() -> Right {
    match rights() {
        (true, _) => Right::Own,
        (false, true) => Right::Write,
        (false, false) => Right::Use,
    }
}

/// An XRC domain with an inode, which is open as long as this exists.
pub(crate) struct OpenXrcd {
    xrcd: Box<ib_xrcd>,
    _device: ARef<Device>,
}

// SAFETY: Its members do not change.
unsafe impl Send for OpenXrcd {}

// SAFETY: Its members do not change.
unsafe impl Sync for OpenXrcd {}

impl OpenXrcd {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            xrcd: Box::new(ib_xrcd {
                device: device.as_ptr(),
                // Something that is not null, by which the device is found.
                inode: device.as_ptr().cast(),
            }),
            _device: device.into(),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut ib_xrcd {
        core::ptr::from_ref(&*self.xrcd).cast_mut()
    }
}

impl Deref for OpenXrcd {
    type Target = Xrcd;

    fn deref(&self) -> &Xrcd {
        // SAFETY: It is open as long as `self` exists.
        unsafe { Xrcd::from_ptr(self.as_ptr()) }
    }
}
