// SPDX-License-Identifier: GPL-2.0

//! Bindings of the RDMA headers and of the module's own, generated at build time (see
//! `src/Kbuild`).
//!
//! Types of other headers are taken from [`kernel::bindings`], so that no casts are needed between
//! the two. [`crate::rdma`] and [`crate::kernel_ext`] have safe wrappers.

#![allow(
    clippy::all,
    clippy::as_ptr_cast_mut,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::indexing_slicing,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unknown_lints,
    unnecessary_transmutes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;
use pin_init::MaybeZeroable;

pub(crate) use kernel::bindings::*;

/// The interface to processes.
pub(crate) mod uapi {
    use kernel::{
        bindings::*,
        ffi, //
    };
    use pin_init::MaybeZeroable;

    include!(concat!(env!("XRC_RCV_OUT"), "/bindings/uapi.rs"));
}

// The header for kernel users refers to these structs.
use uapi::{
    xrc_rcv_record,
    xrc_rcv_reg_info, //
};

include!(concat!(env!("XRC_RCV_OUT"), "/bindings/generated.rs"));
include!(concat!(env!("XRC_RCV_OUT"), "/bindings/leaves.rs"));

// bindgen asserts the layouts of generated types, and so those of the kernel crate's that they
// embed.
const _: () = {
    use core::mem::offset_of;

    assert!(
        offset_of!(file, private_data) == xrc_rcv_layout_OFFSET_OF_FILE_PRIVATE_DATA as usize,
        "struct file of the kernel crate has another layout"
    );
    assert!(
        offset_of!(inode, i_private) == xrc_rcv_layout_OFFSET_OF_INODE_I_PRIVATE as usize,
        "struct inode of the kernel crate has another layout"
    );
    assert!(
        size_of::<file_operations>() == xrc_rcv_layout_SIZE_OF_FILE_OPERATIONS as usize,
        "struct file_operations of the kernel crate has another layout"
    );
};
