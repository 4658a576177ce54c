// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The structs of libibverbs that calls of this crate take, as `<infiniband/verbs.h>` declares
//! them, and that of an event, as `<infiniband/xrc_rcv.h>` does.
//!
//! All of libibverbs' are part of its stable ABI. Pointers of other bindings to the same C structs
//! are cast to these.

#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The status of a request that was done.
pub const IBV_WC_SUCCESS: c_uint = 0;

/// `struct ibv_device` up to its names.
#[repr(C)]
pub struct ibv_device {
    pub _ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
}

/// `struct ibv_context` up to the descriptors; the lock that follows is libibverbs' own.
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: [*mut c_void; 32],
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// `struct xrc_rcv_event`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct xrc_rcv_event {
    pub cookie: u64,
    pub last_ns: u64,
    pub qp_num: u32,
    pub type_: u32,
    pub count: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_xrcd {
    pub context: *mut ibv_context,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_gid {
    pub raw: ibv_gid_raw,
}

/// The union of 16 bytes and two big-endian words: as aligned as the latter.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct ibv_gid_raw(pub [u8; 16]);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_attr` without its last member `rate_limit`, which XRC target QPs do not have and
/// programs built before it existed have no room for.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_qp_attr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
}
