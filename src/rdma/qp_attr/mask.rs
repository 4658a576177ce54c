// SPDX-License-Identifier: GPL-2.0

//! Masks of attributes of queue pairs.

use crate::bindings;
use core::ops::BitOr;

/// A mask of attributes: `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpAttrMask(u32);

macro_rules! mask_bits {
    ($($name:ident = $c_name:ident,)*) => {
        $(pub(crate) const $name: Self = Self(bindings::$c_name as u32);)*
    };
}

impl QpAttrMask {
    /// The empty mask.
    pub(crate) const NONE: Self = Self(0);

    mask_bits! {
        STATE = ib_qp_attr_mask_IB_QP_STATE,
        CUR_STATE = ib_qp_attr_mask_IB_QP_CUR_STATE,
        ACCESS_FLAGS = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
        PKEY_INDEX = ib_qp_attr_mask_IB_QP_PKEY_INDEX,
        PORT = ib_qp_attr_mask_IB_QP_PORT,
        QKEY = ib_qp_attr_mask_IB_QP_QKEY,
        AV = ib_qp_attr_mask_IB_QP_AV,
        PATH_MTU = ib_qp_attr_mask_IB_QP_PATH_MTU,
        TIMEOUT = ib_qp_attr_mask_IB_QP_TIMEOUT,
        RETRY_CNT = ib_qp_attr_mask_IB_QP_RETRY_CNT,
        RNR_RETRY = ib_qp_attr_mask_IB_QP_RNR_RETRY,
        RQ_PSN = ib_qp_attr_mask_IB_QP_RQ_PSN,
        MAX_QP_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
        ALT_PATH = ib_qp_attr_mask_IB_QP_ALT_PATH,
        MIN_RNR_TIMER = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        SQ_PSN = ib_qp_attr_mask_IB_QP_SQ_PSN,
        MAX_DEST_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
        PATH_MIG_STATE = ib_qp_attr_mask_IB_QP_PATH_MIG_STATE,
        DEST_QPN = ib_qp_attr_mask_IB_QP_DEST_QPN,
        EN_SQD_ASYNC_NOTIFY = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY,
    }

    /// All bits that the interface to processes defines.
    pub(crate) const STANDARD: Self = Self((Self::DEST_QPN.0 << 1) - 1);

    /// Creates a mask from bits of `enum ib_qp_attr_mask`, which are not checked.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits of `enum ib_qp_attr_mask`.
    pub(in crate::rdma) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the attributes in either mask; `|` for constants.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the attributes that are not in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the attributes in both masks.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the mask has all attributes of another.
    pub(crate) const fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// Whether the mask has no attribute.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for QpAttrMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}
