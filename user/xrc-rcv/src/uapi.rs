// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The kernel's interface: `<rdma/ib_xrc_rcv.h>`, and the parts that it uses of
//! `<rdma/rdma_user_ioctl_cmds.h>` and `<rdma/ib_user_verbs.h>`.
//!
//! bindgen reads the headers (`user/bindings/generate`); `make lint` compares the result.

// bindgen's declarations have the headers' names, and no documentation but theirs.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    unsafe_op_in_unsafe_fn
)]
#[rustfmt::skip]
mod generated;

pub use generated::*;

/// The request of every uverbs method to `ioctl(2)`.
pub const RDMA_VERBS_IOCTL: libc::c_ulong = VERBS_IOCTL as libc::c_ulong;

/// The kernel refuses a command if it does not know an attribute with this flag.
pub const UVERBS_ATTR_F_MANDATORY: u16 = ATTR_F_MANDATORY as u16;

// Calls pass the sizes of these to the kernel, and bindgen derives the layouts from the machine on
// which it runs.
const _: () = {
    const fn is_record_size(size: usize, first: u32) -> bool {
        size >= first as usize && size <= XRC_RCV_RECORD_SIZE_MAX as usize && size % 8 == 0
    }

    assert!(is_record_size(
        size_of::<xrc_rcv_qp_info>(),
        XRC_RCV_QP_INFO_SIZE_VER1
    ));
    assert!(is_record_size(
        size_of::<xrc_rcv_record>(),
        XRC_RCV_RECORD_SIZE_VER1
    ));
    assert!(is_record_size(
        size_of::<xrc_rcv_reg_info>(),
        XRC_RCV_REG_INFO_SIZE_VER1
    ));
    assert!(size_of::<ib_uverbs_attr>() == 16);
    assert!(size_of::<ib_uverbs_qp_attr>() == 144);
};
