// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! More structs of rdma-core, for this crate, the OFED layer and the benchmark. Not part of the
//! API: they may change in every version.
//!
//! All are part of libibverbs' stable ABI except [`verbs_xrcd`], which is private to it;
//! [`borrowed::Domain::from_ibv`](crate::borrowed::Domain::from_ibv) checks its contents. A test of
//! the workspace compares sizes and offsets with the installed headers.

#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use crate::error::Cause;
pub use crate::ffi::{IBV_WC_SUCCESS, ibv_pd};
use crate::ffi::{ibv_context, ibv_qp_cap, ibv_xrcd};

/// rdma-core's private extension of [`ibv_xrcd`], the only place where the handle is.
#[repr(C)]
pub struct verbs_xrcd {
    pub xrcd: ibv_xrcd,
    pub comp_mask: u32,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_xrcd_init_attr {
    pub comp_mask: u32,
    pub fd: c_int,
    pub oflags: c_int,
}

/// `struct ibv_qp` up to its lock.
#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut c_void,
    pub recv_cq: *mut c_void,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
}

/// `struct ibv_qp_init_attr_ex` up to its XRC part, with room for the rest.
#[repr(C)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut c_void,
    pub recv_cq: *mut c_void,
    pub srq: *mut c_void,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut ibv_xrcd,
    pub _rest: [u64; 16],
}

impl ibv_qp_init_attr_ex {
    /// The attributes of an XRC target QP of a process's own.
    pub fn xrc_target(xrcd: *mut ibv_xrcd, qp_context: *mut c_void) -> ibv_qp_init_attr_ex {
        ibv_qp_init_attr_ex {
            qp_context,
            send_cq: std::ptr::null_mut(),
            recv_cq: std::ptr::null_mut(),
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap::default(),
            qp_type: IBV_QPT_XRC_RECV,
            sq_sig_all: 0,
            comp_mask: IBV_QP_INIT_ATTR_XRCD,
            pd: std::ptr::null_mut(),
            xrcd,
            _rest: [0; 16],
        }
    }

    /// The attributes of an RC QP.
    pub fn rc(
        pd: *mut ibv_pd,
        send_cq: *mut c_void,
        recv_cq: *mut c_void,
        cap: ibv_qp_cap,
    ) -> ibv_qp_init_attr_ex {
        ibv_qp_init_attr_ex {
            recv_cq,
            qp_type: IBV_QPT_RC,
            ..Self::xrc_initiator(pd, send_cq, cap)
        }
    }

    /// The attributes of an XRC initiator QP.
    pub fn xrc_initiator(
        pd: *mut ibv_pd,
        send_cq: *mut c_void,
        cap: ibv_qp_cap,
    ) -> ibv_qp_init_attr_ex {
        ibv_qp_init_attr_ex {
            send_cq,
            cap,
            qp_type: IBV_QPT_XRC_SEND,
            comp_mask: IBV_QP_INIT_ATTR_PD,
            pd,
            ..Self::xrc_target(std::ptr::null_mut(), std::ptr::null_mut())
        }
    }
}

#[repr(C)]
pub struct ibv_qp_open_attr {
    pub comp_mask: u32,
    pub qp_num: u32,
    pub xrcd: *mut ibv_xrcd,
    pub qp_context: *mut c_void,
    pub qp_type: c_uint,
}

/// The member for QPs of the union of objects that an event can be about.
#[repr(C)]
pub struct ibv_async_event {
    pub element: *mut ibv_qp,
    pub event_type: c_uint,
}

#[repr(C)]
pub struct ibv_cq {
    _private: [u8; 0],
}

/// `struct ibv_srq` up to its lock.
#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `struct ibv_srq_init_attr_ex` up to its XRC part, with room for the rest.
#[repr(C)]
pub struct ibv_srq_init_attr_ex {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
    pub comp_mask: u32,
    pub srq_type: c_uint,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut ibv_xrcd,
    pub cq: *mut ibv_cq,
    pub _rest: [u64; 4],
}

impl ibv_srq_init_attr_ex {
    /// The attributes of an SRQ in an XRC domain; its size is 0 until it is set.
    pub fn xrc(pd: *mut ibv_pd, xrcd: *mut ibv_xrcd, cq: *mut ibv_cq) -> ibv_srq_init_attr_ex {
        ibv_srq_init_attr_ex {
            srq_context: std::ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr: 0,
                max_sge: 0,
                srq_limit: 0,
            },
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE
                | IBV_SRQ_INIT_ATTR_PD
                | IBV_SRQ_INIT_ATTR_XRCD
                | IBV_SRQ_INIT_ATTR_CQ,
            srq_type: IBV_SRQT_XRC,
            pd,
            xrcd,
            cq,
            _rest: [0; 4],
        }
    }
}

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
}

/// `struct ibv_mr` up to its keys.
#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// The member for RDMA of the union in `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// The member for atomics.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// That union; its longest member is the one for atomics.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_wr {
    pub rdma: ibv_wr_rdma,
    pub atomic: ibv_wr_atomic,
}

/// `struct ibv_send_wr`
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: ibv_wr,
    pub remote_srqn: u32,
    pub _rest: [u64; 6],
}

impl Default for ibv_send_wr {
    fn default() -> ibv_send_wr {
        ibv_send_wr {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            wr: ibv_wr {
                atomic: ibv_wr_atomic {
                    remote_addr: 0,
                    compare_add: 0,
                    swap: 0,
                    rkey: 0,
                },
            },
            remote_srqn: 0,
            _rest: [0; 6],
        }
    }
}

/// `struct ibv_port_attr`, of which the function that libibverbs exports writes what is up to
/// `flags`.
#[repr(C)]
#[derive(Default)]
pub struct ibv_port_attr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub _rest: [u32; 7],
}

#[repr(C)]
#[derive(Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// The places in `ibv_context.ops` of the functions that libibverbs calls inline.
pub const IBV_OPS_POLL_CQ: usize = 11;
pub const IBV_OPS_REQ_NOTIFY_CQ: usize = 12;
pub const IBV_OPS_POST_SRQ_RECV: usize = 20;
pub const IBV_OPS_POST_SEND: usize = 25;
pub const IBV_OPS_POST_RECV: usize = 26;

pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_WR_RDMA_WRITE: c_uint = 0;
pub const IBV_WR_SEND: c_uint = 2;
pub const IBV_WR_RDMA_READ: c_uint = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_uint = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_uint = 6;
pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub const IBV_SRQT_XRC: c_uint = 1;
pub const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1 << 0;
pub const IBV_SRQ_INIT_ATTR_PD: u32 = 1 << 1;
pub const IBV_SRQ_INIT_ATTR_XRCD: u32 = 1 << 2;
pub const IBV_SRQ_INIT_ATTR_CQ: u32 = 1 << 3;
pub const IBV_QPT_RC: c_uint = 2;
pub const IBV_QPT_XRC_SEND: c_uint = 9;
pub const IBV_QPT_XRC_RECV: c_uint = 10;
pub const IBV_QP_INIT_ATTR_PD: u32 = 1 << 0;
pub const IBV_QP_INIT_ATTR_XRCD: u32 = 1 << 1;
pub const IBV_QP_OPEN_ATTR_NUM: u32 = 1 << 0;
pub const IBV_QP_OPEN_ATTR_XRCD: u32 = 1 << 1;
pub const IBV_QP_OPEN_ATTR_TYPE: u32 = 1 << 3;
pub const IBV_XRCD_INIT_ATTR_FD: u32 = 1 << 0;
pub const IBV_XRCD_INIT_ATTR_OFLAGS: u32 = 1 << 1;

/// The XRC part of `struct verbs_context`, which ends where the `ibv_context` it extends begins.
///
/// Libraries call these through inline functions of `<infiniband/verbs.h>`, so there are no symbols
/// for them.
#[repr(C)]
pub struct verbs_context_xrc_ops {
    pub open_qp:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int>,
    pub create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> *mut c_void>,
    pub open_xrcd:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    pub close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
    pub _abi_placeholder3: u64,
    /// The size of the whole `verbs_context` as libibverbs was built.
    pub sz: usize,
}

impl verbs_context_xrc_ops {
    /// The provider's XRC functions, if libibverbs is new enough to have them.
    ///
    /// # Safety
    ///
    /// `context` is an open context of libibverbs, and stays open for `'a`.
    pub unsafe fn of<'a>(context: *mut ibv_context) -> Option<&'a verbs_context_xrc_ops> {
        // SAFETY: Every libibverbs since 1.1.7 (2013), the only ABI of libibverbs.so.1 that
        // programs of today can load, embeds the context at the end of a larger struct that grows
        // at its front; `sz` before the context is that struct's size.
        let ops = unsafe { &*context.cast::<verbs_context_xrc_ops>().sub(1) };
        (ops.sz >= size_of::<verbs_context_xrc_ops>() + size_of::<ibv_context>()).then_some(ops)
    }
}

/// `ibv_open_xrcd()`, an inline function, of a descriptor and flags.
///
/// # Safety
///
/// `context` is an open context of libibverbs.
pub unsafe fn open_xrcd(
    context: *mut ibv_context,
    fd: c_int,
    oflags: c_int,
) -> Result<NonNull<ibv_xrcd>, Cause> {
    let mut init_attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd,
        oflags,
    };
    // SAFETY: The caller's context is open.
    let open_xrcd = unsafe { verbs_context_xrc_ops::of(context) }.and_then(|ops| ops.open_xrcd);
    let open_xrcd = open_xrcd.ok_or(Cause::Os(libc::EOPNOTSUPP))?;
    // SAFETY: The provider's function is given its own context and a valid attribute.
    NonNull::new(unsafe { open_xrcd(context, &mut init_attr) }).ok_or_else(Cause::last)
}

/// `ibv_close_xrcd()`, likewise. Returns 0 or an errno.
///
/// # Safety
///
/// `xrcd` is an open domain of libibverbs; it is not used any more if 0 is returned.
pub unsafe fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: The caller's domain is open, and its context.
    match unsafe { verbs_context_xrc_ops::of((*xrcd).context) }.and_then(|ops| ops.close_xrcd) {
        // SAFETY: The provider's function is given its own domain.
        Some(close_xrcd) => unsafe { close_xrcd(xrcd) },
        None => libc::EOPNOTSUPP,
    }
}
