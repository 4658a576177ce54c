// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/qp_attr.rs`: its masks and states, unchanged, and a few of the attributes.

#[rustfmt::skip]
#[path = "../../../../src/rdma/qp_attr/mask.rs"]
mod mask;
#[rustfmt::skip]
#[path = "../../../../src/rdma/qp_attr/state.rs"]
mod state;

pub(crate) use mask::QpAttrMask;
pub(crate) use state::QpState;

use super::device::Device;
use crate::ib_verbs::ib_qp_attr;
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
        let attr = ib_qp_attr {
            qp_state: QpState::try_from(self.state)? as u32,
            port_num: self.port,
            path_port: self.path_port,
            dest_qp_num: self.destination,
            ..Default::default()
        };

        Ok(QpAttr { attr, mask })
    }
}

/// The attributes of kernel users.
#[repr(transparent)]
pub(crate) struct KernelQpAttr(ib_qp_attr);

impl KernelQpAttr {
    /// # Safety
    ///
    /// As in the module.
    pub(crate) unsafe fn from_ptr<'a>(attr: *const ib_qp_attr) -> Option<&'a Self> {
        // SAFETY: By the requirements of this function. It is a transparent wrapper.
        unsafe { attr.cast::<Self>().as_ref() }
    }

    pub(crate) fn state(&self, mask: QpAttrMask) -> Result<Option<QpState>> {
        if !mask.has(QpAttrMask::STATE) {
            return Ok(None);
        }
        self.0.qp_state.try_into().map(Some)
    }

    /// # Safety
    ///
    /// As in the module.
    pub(crate) unsafe fn to_attributes(&self, mask: QpAttrMask) -> QpAttr {
        QpAttr { attr: self.0, mask }
    }
}

pub(crate) struct QpAttr {
    pub(crate) attr: ib_qp_attr,
    mask: QpAttrMask,
}

impl QpAttr {
    pub(crate) fn new() -> Self {
        Self {
            attr: ib_qp_attr {
                port_num: 1,
                path_port: 1,
                ..Default::default()
            },
            mask: QpAttrMask::NONE,
        }
    }

    pub(crate) fn with_state(state: QpState) -> Self {
        let mut attributes = Self::new();

        attributes.towards(state, QpAttrMask::NONE);
        attributes
    }

    /// Returns what a device answers a query with.
    pub(crate) fn of_query(attr: ib_qp_attr) -> Self {
        Self {
            attr,
            mask: QpAttrMask::STANDARD,
        }
    }

    pub(crate) fn towards(&mut self, state: QpState, mask: QpAttrMask) -> &mut Self {
        self.attr.qp_state = state as u32;
        self.mask = mask | QpAttrMask::STATE;
        self
    }

    pub(crate) fn clear(&mut self, absent: QpAttrMask) {
        if absent.has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            self.attr.max_dest_rd_atomic = 0;
        }
        if absent.has(QpAttrMask::MIN_RNR_TIMER) {
            self.attr.min_rnr_timer = 0;
        }
    }

    pub(crate) fn path_port(&self) -> u32 {
        self.attr.path_port
    }

    pub(crate) fn port(&self) -> u32 {
        self.attr.port_num
    }

    pub(crate) fn set_port(&mut self, port: u32) {
        self.attr.port_num = port;
        self.mask = self.mask | QpAttrMask::PORT;
    }

    pub(crate) fn destination(&self) -> u32 {
        match self.state() {
            Ok(QpState::Reset | QpState::Init) => 0,
            _ => self.attr.dest_qp_num,
        }
    }

    pub(crate) fn mask(&self) -> QpAttrMask {
        self.mask
    }

    /// # Safety
    ///
    /// As in the module.
    pub(crate) unsafe fn write_to(self, attr: *mut ib_qp_attr) {
        // SAFETY: By the requirements of this function.
        unsafe { attr.write(self.attr) }
    }

    pub(crate) fn to_user(&self) -> UserQpAttr {
        UserQpAttr {
            mask: self.mask.bits(),
            state: self.attr.qp_state,
            port: self.attr.port_num,
            path_port: self.attr.path_port,
            destination: self.attr.dest_qp_num,
        }
    }

    pub(crate) fn state(&self) -> Result<QpState> {
        self.attr.qp_state.try_into()
    }
}
