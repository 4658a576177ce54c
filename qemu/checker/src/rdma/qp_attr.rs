// SPDX-License-Identifier: GPL-2.0

use super::device::Device;
use core::ops::BitOr;
use kernel::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpAttrMask(u32);

macro_rules! mask_bits {
    ($($name:ident = $bit:literal,)*) => {
        $(pub(crate) const $name: Self = Self(1 << $bit);)*
    };
}

impl QpAttrMask {
    pub(crate) const NONE: Self = Self(0);

    mask_bits! {
        STATE = 0,
        CUR_STATE = 1,
        EN_SQD_ASYNC_NOTIFY = 2,
        ACCESS_FLAGS = 3,
        PKEY_INDEX = 4,
        PORT = 5,
        QKEY = 6,
        AV = 7,
        PATH_MTU = 8,
        TIMEOUT = 9,
        RETRY_CNT = 10,
        RNR_RETRY = 11,
        RQ_PSN = 12,
        MAX_QP_RD_ATOMIC = 13,
        ALT_PATH = 14,
        MIN_RNR_TIMER = 15,
        SQ_PSN = 16,
        MAX_DEST_RD_ATOMIC = 17,
        PATH_MIG_STATE = 18,
        DEST_QPN = 20,
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

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

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl TryFrom<u32> for QpState {
    type Error = Error;

    fn try_from(state: u32) -> Result<Self> {
        [
            Self::Reset,
            Self::Init,
            Self::Rtr,
            Self::Rts,
            Self::Sqd,
            Self::Sqe,
            Self::Err,
        ]
        .into_iter()
        .find(|known| *known as u32 == state)
        .ok_or(EINVAL)
    }
}

/// Attributes that a process passes.
pub(crate) struct UserQpAttr {
    pub(crate) mask: QpAttrMask,
    pub(crate) state: QpState,
}

impl UserQpAttr {
    pub(crate) fn mask(&self) -> Result<QpAttrMask> {
        Ok(self.mask)
    }

    pub(crate) fn state(&self, mask: QpAttrMask) -> Result<Option<QpState>> {
        Ok(mask.has(QpAttrMask::STATE).then_some(self.state))
    }

    pub(crate) fn resolve(&self, _device: &Device, mask: QpAttrMask) -> Result<QpAttr> {
        Ok(QpAttr {
            mask,
            state: self.state,
            port: 1,
        })
    }
}

pub(crate) struct QpAttr {
    mask: QpAttrMask,
    state: QpState,
    port: u32,
}

impl QpAttr {
    pub(crate) fn new() -> Self {
        Self {
            mask: QpAttrMask::NONE,
            state: QpState::Reset,
            port: 1,
        }
    }

    pub(crate) fn with_state(state: QpState) -> Self {
        Self {
            mask: QpAttrMask::STATE,
            state,
            port: 1,
        }
    }

    pub(crate) fn towards(&mut self, state: QpState, mask: QpAttrMask) -> &mut Self {
        self.state = state;
        self.mask = mask | QpAttrMask::STATE;
        self
    }

    pub(crate) fn path_port(&self) -> u32 {
        self.port
    }

    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    pub(crate) fn set_port(&mut self, port: u32) {
        self.port = port;
    }

    pub(crate) fn destination(&self) -> u32 {
        0
    }

    pub(crate) fn mask(&self) -> QpAttrMask {
        self.mask
    }

    pub(crate) fn state(&self) -> Result<QpState> {
        Ok(self.state)
    }
}
