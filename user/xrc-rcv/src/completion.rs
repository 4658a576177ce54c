// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! How a request ended, for its poster and as the cause of an error.

use std::ffi::{CStr, c_char, c_uint};
use std::fmt;

use crate::ffi::IBV_WC_SUCCESS;

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_wc_status_str(status: c_uint) -> *const c_char;
}

/// The completion of a request. If one fails, so does every later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    status: c_uint,
    old_value: Option<u64>,
}

impl Completion {
    pub(crate) fn new(status: c_uint, old_value: Option<u64>) -> Completion {
        Completion { status, old_value }
    }

    /// Whether it was done.
    pub fn is_success(self) -> bool {
        self.status == IBV_WC_SUCCESS
    }

    /// The `enum ibv_wc_status`.
    pub fn status(self) -> u32 {
        self.status
    }

    /// The value of the remote word before an atomic that was done.
    pub fn old_value(self) -> Option<u64> {
        self.old_value
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: Any number has a description, which is a constant C string.
        f.write_str(&unsafe { CStr::from_ptr(ibv_wc_status_str(self.status)) }.to_string_lossy())
    }
}
