// SPDX-License-Identifier: GPL-2.0

//! What the module uses of the `kernel` crate, on the host.
//!
//! The same names and signatures over [`runtime`], in which threads interleave as a checker
//! chooses. It panics where the kernel would warn or deadlock: on sleeping with interrupts
//! disabled, on allocating there, on access to data that another lock guards. Objects are counted,
//! so that a test finds those that are left.

#![feature(coerce_unsized, unsize)]

pub mod alloc;
pub mod bindings;
pub mod error;
pub mod list;
pub mod prelude;
pub mod rbtree;
pub mod runtime;
pub mod str;
pub mod sync;
pub mod transmute;
pub mod types;
pub mod uaccess;
pub mod workqueue;

/// Integers of C.
pub mod ffi {
    pub use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
}
