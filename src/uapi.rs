// SPDX-License-Identifier: GPL-2.0

//! The interface to processes, generated from its header: structures, and numbers of objects,
//! methods and attributes.
//!
//! C header: `src/include/uapi/rdma/ib_xrc_rcv.h`

use kernel::transmute::AsBytes;

#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub
)]
mod generated {
    use kernel::{
        bindings::*,
        ffi, //
    };
    use pin_init::MaybeZeroable;

    include!(concat!(env!("XRC_RCV_OUT"), "/uapi_generated.rs"));
}

pub(crate) use generated::*;

// SAFETY: Integers without padding between or after them.
unsafe impl AsBytes for xrc_rcv_caps {}

// SAFETY: As above.
unsafe impl AsBytes for xrc_rcv_event {}

// SAFETY: As above.
unsafe impl AsBytes for xrc_rcv_qp_info {}
