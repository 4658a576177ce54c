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

// SAFETY: Any thread may drop a reference to a module: the count is atomic.
unsafe impl Send for ModuleReference {}

// SAFETY: A shared reference gives access to nothing: the type has no methods that take one.
unsafe impl Sync for ModuleReference {}

impl ModuleReference {
    /// Keeps the module that calls this loaded.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        let module = NonNull::new(module.as_ptr()).ok_or(ENODEV)?;

        // SAFETY: `ThisModule` has the pointer of this module, or null if it is built in, which was ruled
        // out. The module is valid as long as its code runs.
        if !unsafe { bindings::try_module_get(module.as_ptr()) } {
            return Err(ENODEV);
        }
        // INVARIANT: Just taken.
        Ok(Self(module))
    }

    /// Keeps ib_uverbs loaded, if it is there and can go away.
    pub(crate) fn uverbs() -> Option<Self> {
        // INVARIANT: The function returns a module with a reference.
        // SAFETY: The function has no requirements but that the caller may sleep, which every method may.
        NonNull::new(unsafe { bindings::ib_xrc_rcv_uverbs_get() }).map(Self)
    }
}

impl Drop for ModuleReference {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the module is valid and a reference to it is ours, which this drops.
        unsafe { bindings::module_put(self.0.as_ptr()) }
    }
}
