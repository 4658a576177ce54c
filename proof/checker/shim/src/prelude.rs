// SPDX-License-Identifier: GPL-2.0

//! `kernel::prelude`

pub use crate::{
    alloc::{flags::*, KBox, KVVec, KVec},
    error::{code::*, Error, Result},
    ffi::*,
    pr_err, pr_warn,
    str::CStrExt,
};
pub use core::{ffi::CStr, pin::Pin};
pub use kernel_macros::kunit_tests;
pub use pinned_init::{pin_data, pin_init, try_pin_init, Init, PinInit};

/// `pin_init`, of which the macros are elsewhere.
pub mod pin_init {
    /// A type of which zeroes are a valid value.
    ///
    /// # Safety
    ///
    /// As the description.
    pub unsafe trait Zeroable {}

    pub fn zeroed<T: Zeroable>() -> T {
        // SAFETY: By the requirements of the trait.
        unsafe { core::mem::zeroed() }
    }
}

#[macro_export]
macro_rules! pr_err {
    ($($message:tt)*) => { eprint!($($message)*) };
}

#[macro_export]
macro_rules! pr_warn {
    ($($message:tt)*) => { eprint!($($message)*) };
}
