// SPDX-License-Identifier: GPL-2.0

//! `kernel::prelude`

pub use crate::{
    alloc::{flags::*, KBox, KVVec, KVec},
    error::{code::*, Error, Result},
    ffi::*,
    pr_warn,
};
pub use core::{ffi::CStr, pin::Pin};
pub use kernel_macros::kunit_tests;
pub use pinned_init::{pin_data, pin_init, try_pin_init, Init, PinInit};

#[macro_export]
macro_rules! pr_warn {
    ($($message:tt)*) => { eprint!($($message)*) };
}
