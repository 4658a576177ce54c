// SPDX-License-Identifier: GPL-2.0

//! Copying to a process where the copying thread must not sleep.
//!
//! C header: [`include/linux/uaccess.h`](srctree/include/linux/uaccess.h)

use core::ffi::c_void;
use kernel::{
    bindings,
    ffi::c_long,
    prelude::*,
    uaccess::UserPtr, //
};

/// A buffer of the calling process, whose pages may be missing.
pub(crate) struct UserBuffer {
    start: UserPtr,
    length: usize,
}

impl UserBuffer {
    /// Describes the `length` bytes at `start`, which need not be valid.
    pub(crate) fn new(start: UserPtr, length: usize) -> Self {
        Self { start, length }
    }

    /// Copies `bytes` to an offset. Returns whether all were copied: not if they do not fit, or a
    /// page is missing. May be called where the caller must not sleep.
    pub(crate) fn write_nofault(&self, offset: usize, bytes: &[u8]) -> bool {
        let fits = offset
            .checked_add(bytes.len())
            .is_some_and(|end| end <= self.length);

        if !fits {
            return false;
        }

        let to = self.start.wrapping_byte_add(offset).as_mut_ptr();
        let from: *const c_void = bytes.as_ptr().cast();

        // SAFETY: `from` is valid for reads of the length. The function checks the address `to`,
        // which is that of a process, and fails where a page is missing.
        let result: c_long = unsafe { bindings::copy_to_user_nofault(to, from, bytes.len()) };

        result == 0
    }

    /// Brings in the pages of the first `length` bytes, which may be swapped out or not written
    /// yet. `EFAULT` if the process may not write there. Sleeps.
    pub(crate) fn fault_in(&self, length: usize) -> Result {
        let start = self.start.as_mut_ptr().cast();

        // SAFETY: The function checks the address, which is that of a process. The caller may
        // sleep.
        let missing = unsafe { bindings::fault_in_writeable(start, length.min(self.length)) };

        match missing {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }
}
