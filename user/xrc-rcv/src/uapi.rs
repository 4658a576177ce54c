// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The kernel's interface: `<rdma/ib_xrc_rcv.h>`, and what it uses of
//! `<rdma/rdma_user_ioctl_cmds.h>` and `<rdma/ib_user_verbs.h>`.
//!
//! Names and layouts are the headers'; a test of the workspace compares them with the C compiler's.

#![allow(non_camel_case_types, missing_docs)]

pub const UVERBS_ID_NS_SHIFT: u32 = 12;
const DRIVER: u16 = 1 << UVERBS_ID_NS_SHIFT;

pub const XRC_RCV_VERSION: u32 = 1;

pub const XRC_RCV_QP_INFO_SIZE_VER1: u32 = 16;
pub const XRC_RCV_EVENT_SIZE_VER1: u32 = 32;
pub const XRC_RCV_RECORD_SIZE_MAX: u32 = 256;

pub const XRC_RCV_OBJECT_REGISTRATION: u16 = DRIVER + 10;
pub const XRC_RCV_OBJECT_EVENT_CHANNEL: u16 = DRIVER + 11;

pub const XRC_RCV_METHOD_QP_ALLOC: u16 = DRIVER;
pub const XRC_RCV_METHOD_QP_REG: u16 = DRIVER + 1;
pub const XRC_RCV_METHOD_QP_UNREG: u16 = DRIVER + 2;
pub const XRC_RCV_METHOD_QP_MODIFY: u16 = DRIVER + 3;
pub const XRC_RCV_METHOD_QP_QUERY: u16 = DRIVER + 4;
pub const XRC_RCV_METHOD_QP_DESTROY: u16 = DRIVER + 5;
pub const XRC_RCV_METHOD_QUERY_DOMAIN: u16 = DRIVER + 6;
pub const XRC_RCV_METHOD_QUERY_CAPS: u16 = DRIVER + 7;

pub const XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC: u16 = DRIVER;

pub const XRC_RCV_LIFETIME_REGISTRATIONS: u32 = 0;
pub const XRC_RCV_LIFETIME_DOMAIN: u32 = 1;

pub const XRC_RCV_ALLOC_LIFETIME_DOMAIN: u32 = 1;

pub const XRC_RCV_ATTR_QP_ALLOC_HANDLE: u16 = DRIVER;
pub const XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE: u16 = DRIVER + 1;
pub const XRC_RCV_ATTR_QP_ALLOC_FLAGS: u16 = DRIVER + 2;
pub const XRC_RCV_ATTR_QP_ALLOC_ATTR: u16 = DRIVER + 3;
pub const XRC_RCV_ATTR_QP_ALLOC_CHANNEL: u16 = DRIVER + 4;
pub const XRC_RCV_ATTR_QP_ALLOC_COOKIE: u16 = DRIVER + 5;
pub const XRC_RCV_ATTR_QP_ALLOC_RESP_QPN: u16 = DRIVER + 6;

pub const XRC_RCV_ATTR_QP_REG_HANDLE: u16 = DRIVER;
pub const XRC_RCV_ATTR_QP_REG_XRCD_HANDLE: u16 = DRIVER + 1;
pub const XRC_RCV_ATTR_QP_REG_QPN: u16 = DRIVER + 2;
pub const XRC_RCV_ATTR_QP_REG_CHANNEL: u16 = DRIVER + 3;
pub const XRC_RCV_ATTR_QP_REG_COOKIE: u16 = DRIVER + 4;

pub const XRC_RCV_ATTR_QP_UNREG_HANDLE: u16 = DRIVER;

pub const XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE: u16 = DRIVER;
pub const XRC_RCV_ATTR_QP_MODIFY_QPN: u16 = DRIVER + 1;
pub const XRC_RCV_ATTR_QP_MODIFY_ATTR: u16 = DRIVER + 2;

pub const XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE: u16 = DRIVER;
pub const XRC_RCV_ATTR_QP_QUERY_QPN: u16 = DRIVER + 1;
pub const XRC_RCV_ATTR_QP_QUERY_RESP_ATTR: u16 = DRIVER + 2;
pub const XRC_RCV_ATTR_QP_QUERY_RESP_INFO: u16 = DRIVER + 3;

pub const XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE: u16 = DRIVER;
pub const XRC_RCV_ATTR_QP_DESTROY_QPN: u16 = DRIVER + 1;

pub const XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE: u16 = DRIVER;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN: u16 = DRIVER + 1;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO: u16 = DRIVER + 2;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT: u16 = DRIVER + 3;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL: u16 = DRIVER + 4;
pub const XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE: u16 = DRIVER + 5;

pub const XRC_RCV_ATTR_QUERY_CAPS_RESP: u16 = DRIVER;

pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD: u16 = DRIVER;
pub const XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE: u16 = DRIVER + 1;

pub const XRC_RCV_EVENT_QP_GONE: u32 = 63;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct xrc_rcv_qp_info {
    pub qp_num: u32,
    pub state: u32,
    pub lifetime: u32,
    pub registrations: u32,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct xrc_rcv_caps {
    pub version: u32,
    pub alloc_flags: u32,
    pub event_types: u64,
    pub max_qps_per_domain: u32,
    pub max_qps_per_user: u32,
    pub event_size: u32,
    pub max_registrations_per_qp: u32,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct xrc_rcv_event {
    pub cookie: u64,
    pub first_ns: u64,
    pub qp_num: u32,
    pub r#type: u32,
    pub count: u32,
    pub reserved: u32,
}

/// `ioctl()` request of every uverbs method: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub const RDMA_VERBS_IOCTL: libc::c_ulong = 0xc018_1b01;

/// The kernel refuses the command if it does not know an attribute so flagged.
pub const UVERBS_ATTR_F_MANDATORY: u16 = 1;

#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ib_uverbs_attr {
    pub attr_id: u16,
    pub len: u16,
    pub flags: u16,
    pub reserved: u16,
    pub data: u64,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ib_uverbs_ioctl_hdr {
    pub length: u16,
    pub object_id: u16,
    pub method_id: u16,
    pub num_attrs: u16,
    pub reserved1: u64,
    pub driver_id: u32,
    pub reserved2: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ib_uverbs_global_route {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ib_uverbs_ah_attr {
    pub grh: ib_uverbs_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
    pub reserved: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ib_uverbs_qp_attr {
    pub qp_attr_mask: u32,
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub ah_attr: ib_uverbs_ah_attr,
    pub alt_ah_attr: ib_uverbs_ah_attr,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
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
    pub reserved: [u8; 5],
}
