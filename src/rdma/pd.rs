// SPDX-License-Identifier: GPL-2.0

//! Protection domains that the kernel owns.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::{
        Device,
        Registered, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// A `struct ib_pd` that the kernel owns. No process has a handle to it.
///
/// # Invariants
///
/// `pd` is a protection domain of `device`, and owned by `self`.
pub(crate) struct ProtectionDomain {
    pd: NonNull<bindings::ib_pd>,
    abandoned: Atomic<bool>,
    device: Registered,
}

// SAFETY: Any thread may deallocate a protection domain: verbs belong to no thread.
unsafe impl Send for ProtectionDomain {}

// SAFETY: A shared reference gives access to `abandoned`, which is atomic, and to creating QPs, for
// which ib_core counts the users of a protection domain atomically.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Allocates a protection domain. `owner` is the name that `rdma resource` shows.
    pub(crate) fn new(device: &Device, owner: &'static CStr) -> Result<Self> {
        let device = Registered::new(device)?;
        // SAFETY:
        // * `device` keeps the device registered for the length of the call, and as long as the
        //   protection domain exists.
        // * ib_core keeps a pointer to `owner`, which is static.
        let pd = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_ptr(), 0, owner.as_char_ptr())
        })?;

        // INVARIANT: Newly allocated on `device`, so `self` is the owner.
        Ok(Self {
            pd: NonNull::new(pd).ok_or(ENOMEM)?,
            abandoned: Atomic::new(false),
            device,
        })
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Leaks the protection domain, because a QP in it could not be destroyed.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
    }

    /// Returns the C structure.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_pd {
        self.pd.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        if self.abandoned.load(Relaxed) {
            return;
        }

        // SAFETY:
        // * By the type invariant, we own the protection domain, and its device is registered.
        // * Each `TargetQp` of this protection domain holds a reference to `self`, so none is left.
        //   A QP that could not be destroyed would have called `abandon`.
        let result = to_result(unsafe {
            bindings::ib_dealloc_pd_user(self.as_ptr(), core::ptr::null_mut())
        });

        if let Err(e) = result {
            pr_err!("{}: failed to deallocate PD: {e:?}\n", self.device.name());
        }
    }
}
