// SPDX-License-Identifier: GPL-2.0

//! `kernel::uaccess`

/// A buffer of a process.
pub struct UserBuffer {
    pub bytes: Vec<u8>,
    /// The number of bytes, from the first on, whose pages are there.
    pub present: usize,
    /// The number of bytes whose pages can be brought in.
    pub valid: usize,
    /// The pages were swapped out once, after they were brought in.
    pub was_swapped_out: bool,
}

impl UserBuffer {
    /// Creates a buffer, none of whose pages is there.
    pub fn new(length: usize, valid: usize) -> Self {
        Self {
            bytes: vec![0xee; length],
            present: 0,
            valid: valid.min(length),
            was_swapped_out: false,
        }
    }
}

/// The address of a [`UserBuffer`], which must outlive the call that it is passed to.
#[derive(Clone, Copy)]
pub struct UserPtr(*mut UserBuffer);

impl UserPtr {
    pub fn new(buffer: &mut UserBuffer) -> Self {
        Self(buffer)
    }

    pub fn as_mut_ptr(self) -> *mut UserBuffer {
        self.0
    }
}
