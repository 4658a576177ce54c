// SPDX-License-Identifier: GPL-2.0

//! Structures and constants of `<rdma/ib_verbs.h>`, with the members that the module uses.
//!
//! `ib_core/address.h` has the first ones for C.

#![allow(non_camel_case_types, non_upper_case_globals)]

pub(crate) use self::uapi::{ib_uverbs_ah_attr, ib_uverbs_qp_attr};
use core::{
    ffi::{c_int, c_void},
    mem::ManuallyDrop,
};
use kernel::{
    prelude::{pin_init::Zeroable, Result},
    sync::Mutex,
};
use xrc_rcv_spec::Record;

/// The interface to processes, as bindgen reads it from the header.
#[rustfmt::skip]
#[path = "../../../user/xrc-rcv/src/uapi/generated.rs"]
#[expect(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]
pub(crate) mod uapi;

#[repr(C)]
pub(crate) struct refcount_t {
    pub(crate) refs: atomic_t,
}

#[repr(C)]
pub(crate) struct atomic_t {
    pub(crate) counter: c_int,
}

/// The owner of QPs, as far as ib_core and the module's reports know it.
pub(crate) trait Provider {
    /// Lets a call fail if that was chosen.
    fn check(&self, verb: Verb) -> Result;

    /// Creates a QP with the lowest number that is free. Its events are for a handler.
    fn create_qp(&self, xrcd: usize, handler: Box<dyn Fn(u32, u32) + Send + Sync>) -> Result<u32>;

    /// Calls a verb on a QP.
    fn call(&self, verb: Verb, qpn: u32) -> Result;

    /// Destroys a QP. No event is reported after this.
    fn destroy_qp(&self, qpn: u32);

    /// Whether a user may use an entry of the P_Key table of a port.
    fn may_use(&self, uid: u32, port: u32, index: u16) -> Result;

    /// Whether a process alone modifies QPs.
    fn is_of_processes(&self) -> bool;

    /// The number of charges to the RDMA cgroup changes.
    fn charges(&self, number: isize);

    /// Something is lent, or taken back.
    fn lends(&self, number: isize);

    /// The number of users of its registration changes. Returns how many there were.
    fn users(&self, number: c_int) -> c_int;

    /// The module reports what happened to a QP.
    fn reported(&self, record: &Record);

    /// The calling thread ends a QP.
    fn ends(&self, qpn: u32);
}

/// A call of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Create,
    Modify,
    Query,
    /// The RDMA cgroup's, before the QP is created.
    Charge,
    /// Of ib_core, which looks for the address of a path.
    Resolve,
    /// Whether all processes share the inode of the domain.
    Share,
}

/// The number of ports of each device.
pub(crate) const PORTS: u32 = 2;

/// Returns the provider of a device.
///
/// # Safety
///
/// The device must be valid for `'a`.
pub(crate) unsafe fn provider<'a>(device: *mut ib_device) -> &'a dyn Provider {
    // SAFETY: By the requirements of this function. The provider has the structure.
    unsafe { &*(*device).provider }
}

/// The first member of a `Device`.
#[repr(C)]
pub(crate) struct ib_device {
    /// The number of references to its registration, and one.
    pub(crate) refcount: refcount_t,
    /// The ports of RoCE, as bits.
    pub(crate) ports_of_roce: u32,
    pub(crate) provider: *const dyn Provider,
}

pub(crate) struct net;

#[repr(C)]
pub(crate) struct ib_gid_attr {
    pub(crate) device: *mut ib_device,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ib_global_route {
    pub(crate) sgid_attr: *const ib_gid_attr,
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_ah_attr {
    pub(crate) grh: ib_global_route,
    pub(crate) sl: u8,
    pub(crate) static_rate: u8,
    pub(crate) port_num: u32,
    pub(crate) ah_flags: u8,
    pub(crate) type_: u32,
    pub(crate) dlid: u16,
    pub(crate) src_path_bits: u8,
    pub(crate) dmac: [u8; 6],
}

pub(crate) const rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE: u32 = 2;

/// `enum ib_ah_flags`
pub(crate) const IB_AH_GRH: u8 = 1;

#[derive(Clone, Copy)]
pub(crate) struct ib_qp_attr {
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_int,
    pub(crate) ah_attr: rdma_ah_attr,
    pub(crate) alt_ah_attr: rdma_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u32,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u32,
    pub(crate) alt_timeout: u8,
}

impl Default for ib_qp_attr {
    fn default() -> Self {
        kernel::prelude::pin_init::zeroed()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ib_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_send_sge: u32,
}

pub(crate) struct ib_event {
    pub(crate) element: ib_event__bindgen_ty_1,
    pub(crate) event: u32,
}

pub(crate) union ib_event__bindgen_ty_1 {
    pub(crate) qp: ManuallyDrop<*mut ib_qp>,
}

pub(crate) type ib_event_handler = unsafe extern "C-unwind" fn(*mut ib_event, *mut c_void);

#[derive(Clone, Copy)]
pub(crate) struct ib_qp_init_attr {
    pub(crate) event_handler: Option<ib_event_handler>,
    pub(crate) qp_context: *mut c_void,
    pub(crate) xrcd: *mut ib_xrcd,
    pub(crate) cap: ib_qp_cap,
    pub(crate) qp_type: u32,
}

pub(crate) const ib_qp_type_IB_QPT_XRC_TGT: u32 = 10;

pub(crate) struct ib_pd {
    pub(crate) device: *mut ib_device,
}

pub(crate) struct ib_qp {
    pub(crate) device: *mut ib_device,
    pub(crate) pd: *mut ib_pd,
    pub(crate) xrcd: *mut ib_xrcd,
    pub(crate) qp_num: u32,
    /// The attributes that it was modified to last.
    pub(crate) attr: Mutex<ib_qp_attr>,
}

pub(crate) struct ib_xrcd {
    pub(crate) device: *mut ib_device,
    pub(crate) inode: *mut c_void,
}

pub(crate) struct ib_udata;

pub(crate) struct rdma_cgroup;

// SAFETY: Zeroes are integers, arrays of these and null pointers.
unsafe impl Zeroable for ib_qp_attr {}

// SAFETY: Zeroes are integers, null pointers and no function.
unsafe impl Zeroable for ib_qp_init_attr {}

// SAFETY: Zeroes are integers and arrays of these.
unsafe impl Zeroable for ib_uverbs_qp_attr {}

pub(crate) const ib_access_flags_IB_ACCESS_SUPPORTED: u32 = 0x3ff0_03ff;

pub(crate) const ib_mtu_IB_MTU_256: u32 = 1;
pub(crate) const ib_mtu_IB_MTU_4096: u32 = 5;

pub(crate) const ib_mig_state_IB_MIG_MIGRATED: u32 = 0;
pub(crate) const ib_mig_state_IB_MIG_ARMED: u32 = 2;

pub(crate) type rdma_driver_id = u32;

pub(crate) const rdma_driver_id_RDMA_DRIVER_UNKNOWN: rdma_driver_id = 0;
pub(crate) const rdma_driver_id_RDMA_DRIVER_MLX4: rdma_driver_id = 2;
pub(crate) const rdma_driver_id_RDMA_DRIVER_QEDR: rdma_driver_id = 11;

pub(crate) const ib_event_type_IB_EVENT_QP_FATAL: u32 = 1;
pub(crate) const ib_event_type_IB_EVENT_QP_REQ_ERR: u32 = 2;
pub(crate) const ib_event_type_IB_EVENT_QP_ACCESS_ERR: u32 = 3;
pub(crate) const ib_event_type_IB_EVENT_COMM_EST: u32 = 4;
pub(crate) const ib_event_type_IB_EVENT_SQ_DRAINED: u32 = 5;
pub(crate) const ib_event_type_IB_EVENT_PATH_MIG: u32 = 6;
pub(crate) const ib_event_type_IB_EVENT_PATH_MIG_ERR: u32 = 7;
pub(crate) const ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED: u32 = 16;

pub(crate) const ib_qp_attr_mask_IB_QP_STATE: u32 = 1 << 0;
pub(crate) const ib_qp_attr_mask_IB_QP_CUR_STATE: u32 = 1 << 1;
pub(crate) const ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
pub(crate) const ib_qp_attr_mask_IB_QP_ACCESS_FLAGS: u32 = 1 << 3;
pub(crate) const ib_qp_attr_mask_IB_QP_PKEY_INDEX: u32 = 1 << 4;
pub(crate) const ib_qp_attr_mask_IB_QP_PORT: u32 = 1 << 5;
pub(crate) const ib_qp_attr_mask_IB_QP_QKEY: u32 = 1 << 6;
pub(crate) const ib_qp_attr_mask_IB_QP_AV: u32 = 1 << 7;
pub(crate) const ib_qp_attr_mask_IB_QP_PATH_MTU: u32 = 1 << 8;
pub(crate) const ib_qp_attr_mask_IB_QP_TIMEOUT: u32 = 1 << 9;
pub(crate) const ib_qp_attr_mask_IB_QP_RETRY_CNT: u32 = 1 << 10;
pub(crate) const ib_qp_attr_mask_IB_QP_RNR_RETRY: u32 = 1 << 11;
pub(crate) const ib_qp_attr_mask_IB_QP_RQ_PSN: u32 = 1 << 12;
pub(crate) const ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
pub(crate) const ib_qp_attr_mask_IB_QP_ALT_PATH: u32 = 1 << 14;
pub(crate) const ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER: u32 = 1 << 15;
pub(crate) const ib_qp_attr_mask_IB_QP_SQ_PSN: u32 = 1 << 16;
pub(crate) const ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
pub(crate) const ib_qp_attr_mask_IB_QP_PATH_MIG_STATE: u32 = 1 << 18;
pub(crate) const ib_qp_attr_mask_IB_QP_DEST_QPN: u32 = 1 << 20;

pub(crate) const ib_qp_state_IB_QPS_RESET: u32 = 0;
pub(crate) const ib_qp_state_IB_QPS_INIT: u32 = 1;
pub(crate) const ib_qp_state_IB_QPS_RTR: u32 = 2;
pub(crate) const ib_qp_state_IB_QPS_RTS: u32 = 3;
pub(crate) const ib_qp_state_IB_QPS_SQD: u32 = 4;
pub(crate) const ib_qp_state_IB_QPS_SQE: u32 = 5;
pub(crate) const ib_qp_state_IB_QPS_ERR: u32 = 6;
