// SPDX-License-Identifier: GPL-2.0

//! Attributes and constants of `<rdma/ib_verbs.h>`.

#![allow(non_camel_case_types, non_upper_case_globals)]

/// Some of the attributes of a QP.
#[derive(Clone, Copy, Default)]
pub(crate) struct ib_qp_attr {
    pub(crate) qp_state: u32,
    pub(crate) port_num: u32,
    /// The port of the address vector.
    pub(crate) path_port: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
}

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
