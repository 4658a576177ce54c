// SPDX-License-Identifier: GPL-2.0

//! References to modules.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A reference that keeps a module loaded.
///
/// # Invariants
///
/// The module is valid, and `self` owns a reference to it.
#[repr(transparent)]
pub(crate) struct ModuleReference(NonNull<bindings::module>);

// SAFETY: Any thread may drop a reference to a module: the count is atomic.
unsafe impl Send for ModuleReference {}

// SAFETY: A shared reference gives access to nothing: the type has no methods that take one.
unsafe impl Sync for ModuleReference {}

impl ModuleReference {
    /// Takes a reference to this module.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        let module = NonNull::new(module.as_ptr()).ok_or(ENODEV)?;

        // SAFETY: The pointer of `ThisModule` is null for code that is built in, which was ruled
        // out, or that of this module, which is valid as long as its code runs.
        if !unsafe { bindings::try_module_get(module.as_ptr()) } {
            return Err(ENODEV);
        }
        // INVARIANT: Just taken.
        Ok(Self(module))
    }

    /// Takes a reference to ib_uverbs. `ENODEV` if it is not loaded, or is being unloaded.
    pub(crate) fn uverbs() -> Result<Self> {
        // SAFETY: The function may sleep, and so may every caller: each is a method.
        let module = NonNull::new(unsafe { bindings::ib_xrc_rcv_uverbs_get() }).ok_or(ENODEV)?;

        // INVARIANT: The function returns a module with a reference.
        Ok(Self(module))
    }
}

impl Drop for ModuleReference {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the module is valid and we own a reference to it, which
        // this drops.
        unsafe { bindings::module_put(self.0.as_ptr()) }
    }
}
