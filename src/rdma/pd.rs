// SPDX-License-Identifier: GPL-2.0

//! Protection domains of the kernel.

use super::{
    bindings,
    device::Device, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};

/// A protection domain that the kernel owns, and that no process has a key to.
///
/// # Invariants
///
/// The pointer is that of a protection domain which `self` owns.
pub(crate) struct ProtectionDomain(NonNull<bindings::ib_pd>);

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for ProtectionDomain {}

// SAFETY: A shared reference gives access to creating QPs only, which ib_core synchronises.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Allocates one; `owner` is the name that `rdma resource` shows.
    pub(crate) fn new(device: &Device, owner: &'static CStr) -> Result<Self> {
        // SAFETY: The device is registered, as its clients see it; ib_core keeps `owner`, which is
        // static.
        let pd = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_ptr(), 0, owner.as_char_ptr())
        })?;

        // INVARIANT: Newly allocated.
        NonNull::new(pd).map(Self).ok_or(ENOMEM)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_pd {
        self.0.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. QPs of this domain hold a reference to `self`, so there is
        // none left.
        let result = to_result(unsafe {
            bindings::ib_dealloc_pd_user(self.as_ptr(), core::ptr::null_mut())
        });

        if let Err(e) = result {
            pr_err!("protection domain was not freed: {e:?}\n");
        }
    }
}
