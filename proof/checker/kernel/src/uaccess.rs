// SPDX-License-Identifier: GPL-2.0

//! `kernel::uaccess`

use crate::{error::code::EFAULT, error::Result, runtime};

/// A buffer of a process.
pub struct UserBuffer {
    pub bytes: Vec<u8>,
    /// Copying beyond this faults.
    pub valid: usize,
}

/// The address of a [`UserBuffer`], which must outlive the call that it is passed to.
#[derive(Clone, Copy)]
pub struct UserPtr(*mut UserBuffer);

impl UserPtr {
    pub fn new(buffer: &mut UserBuffer) -> Self {
        Self(buffer)
    }
}

pub struct UserSlice {
    pointer: UserPtr,
    length: usize,
}

pub struct UserSliceWriter {
    pointer: UserPtr,
    offset: usize,
    length: usize,
}

impl UserSlice {
    pub fn new(pointer: UserPtr, length: usize) -> Self {
        Self { pointer, length }
    }

    pub fn writer(self) -> UserSliceWriter {
        UserSliceWriter {
            pointer: self.pointer,
            offset: 0,
            length: self.length,
        }
    }
}

impl UserSliceWriter {
    pub fn write_slice(&mut self, bytes: &[u8]) -> Result {
        runtime::might_sleep("copying to a process");
        runtime::interleave();

        let end = self.offset + bytes.len();

        assert!(end <= self.length);
        // SAFETY: By the requirements of `UserPtr`, the buffer is valid; one thread uses it.
        let buffer = unsafe { &mut *self.pointer.0 };

        if end > buffer.valid.min(buffer.bytes.len()) {
            return Err(EFAULT);
        }
        buffer.bytes[self.offset..end].copy_from_slice(bytes);
        self.offset = end;
        Ok(())
    }
}
