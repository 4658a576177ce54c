// SPDX-License-Identifier: GPL-2.0

//! References that keep modules loaded.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A reference that keeps a module loaded.
///
/// # Invariants
///
/// The module is valid, and one of its references belongs to this.
#[repr(transparent)]
pub(crate) struct ModuleReference(NonNull<bindings::module>);

// SAFETY: A reference can be given up by any thread.
unsafe impl Send for ModuleReference {}

// SAFETY: A shared reference to it gives no access to anything.
unsafe impl Sync for ModuleReference {}

impl ModuleReference {
    /// Keeps the module that calls this loaded.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        let module = NonNull::new(module.as_ptr()).ok_or(ENODEV)?;

        // SAFETY: The module is valid: it is the one that runs this.
        if !unsafe { bindings::try_module_get(module.as_ptr()) } {
            return Err(ENODEV);
        }
        // INVARIANT: Just taken.
        Ok(Self(module))
    }

    /// Keeps ib_uverbs loaded, if it is there and can go away.
    pub(crate) fn uverbs() -> Option<Self> {
        // INVARIANT: The function returns a module with a reference.
        // SAFETY: May be called from any context that may sleep.
        NonNull::new(unsafe { bindings::ib_xrc_rcv_uverbs_get() }).map(Self)
    }
}

impl Drop for ModuleReference {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::module_put(self.0.as_ptr()) }
    }
}
