// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/qp_attr.rs`: its masks and states, unchanged, and attributes without the structures of
//! C.

#[rustfmt::skip]
#[path = "../../../../src/rdma/qp_attr/mask.rs"]
mod mask;
#[rustfmt::skip]
#[path = "../../../../src/rdma/qp_attr/state.rs"]
mod state;

pub(crate) use mask::QpAttrMask;
pub(crate) use state::QpState;

use super::device::Device;
use kernel::{
    prelude::*,
    transmute::{AsBytes, FromBytes},
};

/// Attributes that a process passes.
#[repr(C)]
pub(crate) struct UserQpAttr {
    pub(crate) mask: u32,
    pub(crate) state: u32,
    pub(crate) port: u32,
    pub(crate) path_port: u32,
    pub(crate) destination: u32,
}

// SAFETY: It consists of integers, of which any bytes are a valid value.
unsafe impl FromBytes for UserQpAttr {}

// SAFETY: It consists of integers, without padding.
unsafe impl AsBytes for UserQpAttr {}

impl UserQpAttr {
    /// Returns attributes with the port that the device has.
    pub(crate) fn new(mask: QpAttrMask, state: QpState) -> Self {
        Self {
            mask: mask.bits(),
            state: state as u32,
            port: 1,
            path_port: 1,
            destination: 0,
        }
    }

    pub(crate) fn mask(&self) -> Result<QpAttrMask> {
        Ok(QpAttrMask::from_bits(self.mask))
    }

    pub(crate) fn state(&self, mask: QpAttrMask) -> Result<Option<QpState>> {
        if !mask.has(QpAttrMask::STATE) {
            return Ok(None);
        }
        self.state.try_into().map(Some)
    }

    pub(crate) fn resolve(&self, _device: &Device, mask: QpAttrMask) -> Result<QpAttr> {
        Ok(QpAttr {
            mask,
            state: self.state.try_into()?,
            port: self.port,
            path_port: self.path_port,
            destination: self.destination,
        })
    }
}

pub(crate) struct QpAttr {
    mask: QpAttrMask,
    state: QpState,
    port: u32,
    pub(crate) path_port: u32,
    destination: u32,
}

impl QpAttr {
    pub(crate) fn new() -> Self {
        Self {
            mask: QpAttrMask::NONE,
            state: QpState::Reset,
            port: 1,
            path_port: 1,
            destination: 0,
        }
    }

    pub(crate) fn with_state(state: QpState) -> Self {
        Self {
            mask: QpAttrMask::STATE,
            state,
            ..Self::new()
        }
    }

    /// Returns what a device answers a query with.
    pub(crate) fn of_query(state: QpState, destination: u32) -> Self {
        Self {
            mask: QpAttrMask::STANDARD,
            destination,
            ..Self::with_state(state)
        }
    }

    pub(crate) fn towards(&mut self, state: QpState, mask: QpAttrMask) -> &mut Self {
        self.state = state;
        self.mask = mask | QpAttrMask::STATE;
        self
    }

    pub(crate) fn path_port(&self) -> u32 {
        self.path_port
    }

    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    pub(crate) fn set_port(&mut self, port: u32) {
        self.port = port;
        self.mask = self.mask | QpAttrMask::PORT;
    }

    pub(crate) fn destination(&self) -> u32 {
        match self.state {
            QpState::Reset | QpState::Init => 0,
            _ => self.destination,
        }
    }

    pub(crate) fn mask(&self) -> QpAttrMask {
        self.mask
    }

    pub(crate) fn to_user(&self) -> UserQpAttr {
        UserQpAttr {
            port: self.port,
            path_port: self.path_port,
            destination: self.destination,
            ..UserQpAttr::new(self.mask, self.state)
        }
    }

    pub(crate) fn state(&self) -> Result<QpState> {
        Ok(self.state)
    }
}
