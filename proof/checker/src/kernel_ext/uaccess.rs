// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/uaccess.rs`

use crate::uapi::xrc_rcv_record;
use kernel::{
    prelude::*,
    runtime,
    uaccess::{UserBuffer as Memory, UserPtr},
};

pub(crate) struct UserBuffer {
    start: UserPtr,
    length: usize,
}

impl UserBuffer {
    pub(crate) fn new(start: UserPtr, length: usize) -> Self {
        Self { start, length }
    }

    #[allow(clippy::mut_from_ref)]
    fn memory(&self) -> &mut Memory {
        // SAFETY: The buffer outlives the call that its address was passed to, and one thread uses
        // it. That of no byte is not used.
        unsafe { &mut *self.start.as_mut_ptr() }
    }

    pub(crate) fn write_nofault(&self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset + bytes.len();

        // The memory can be that of a device, to which each store takes long.
        assert!(
            bytes.len() <= size_of::<xrc_rcv_record>() || !runtime::is_atomic(),
            "copying more than a record, in atomic context"
        );

        if end > self.length {
            return false;
        }

        let memory = self.memory();

        // The first record finds no page: that of the zeroes after it was swapped out since.
        if runtime::is_atomic() && !core::mem::replace(&mut memory.was_swapped_out, true) {
            memory.present = 0;
        }
        if end > memory.present {
            return false;
        }
        memory.bytes[offset..end].copy_from_slice(bytes);
        true
    }

    pub(crate) fn fault_in(&self, length: usize) -> Result {
        runtime::might_sleep("bringing in a page");
        runtime::interleave();

        let memory = self.memory();

        if length > memory.valid {
            return Err(EFAULT);
        }
        // All pages that are valid may be one page.
        memory.present = memory.valid;
        Ok(())
    }
}
