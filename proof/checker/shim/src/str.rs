// SPDX-License-Identifier: GPL-2.0

//! `kernel::str`

use core::ffi::{c_char, CStr};

pub trait CStrExt {
    fn as_char_ptr(&self) -> *const c_char;
}

impl CStrExt for CStr {
    fn as_char_ptr(&self) -> *const c_char {
        self.as_ptr()
    }
}
