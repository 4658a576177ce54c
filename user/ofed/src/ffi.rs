// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Structs of rdma-core and of OFED, declared as `<infiniband/ofa_xrc.h>` has them.

#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::AtomicBool;

use xrc_rcv::ffi::{self as core, ibv_device, ibv_qp_cap, ibv_xrcd};
pub use xrc_rcv::verbs_sys::{ibv_cq, ibv_srq_attr, ibv_srq_init_attr_ex};
use xrc_rcv::verbs_sys::{ibv_pd, ibv_qp};

pub const IBV_QPT_XRC: c_uint = 5;
pub const IBV_QPT_XRC_SEND: c_uint = 9;
pub const IBV_EVENT_QP_FATAL: c_uint = 1;
pub const IBV_XRC_QP_EVENT_FLAG: c_uint = 0x8000_0000;

/// `struct ibv_context` up to its lock. Its own descriptor has another name, and the one that
/// programs wait for lies in padding of libibverbs' struct.
#[repr(C, align(8))]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: [*mut c_void; 32],
    pub cmd_fd: c_int,
    pub ofa_core_async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub async_fd: c_int,
}

/// `struct ibv_srq` up to its lock. `xrc_srq_num` lies in padding of libibverbs' struct.
#[repr(C, align(8))]
pub struct ibv_srq {
    pub context: *mut core::ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub xrc_srq_num: u32,
}

/// rdma-core's `struct ibv_qp_init_attr`, to which OFED adds `xrc_domain`.
///
/// The last member exists only in calls that OFED has and rdma-core has not, and if `qp_type` is
/// [`IBV_QPT_XRC`].
#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
    pub xrc_domain: *mut ibv_xrc_domain,
}

#[repr(C)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_event_element {
    pub qp: *mut ibv_qp,
    pub port_num: c_int,
    pub xrc_qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_async_event {
    pub element: ibv_async_event_element,
    pub event_type: c_uint,
}

/// OFED's domain; the members after its two public ones are ours.
#[repr(C)]
pub struct ibv_xrc_domain {
    pub context: *mut core::ibv_context,
    pub handle: u32,
    pub(crate) xrcd: *mut ibv_xrcd,
    /// Whether other processes may have it open, too.
    pub(crate) shared: bool,
    /// Whether this process created an SRQ in it.
    pub(crate) has_srq: AtomicBool,
    /// Whether this process created or registered with a receive QP of it.
    pub(crate) has_receive_qp: AtomicBool,
}
