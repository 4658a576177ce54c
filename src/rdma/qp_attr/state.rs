// SPDX-License-Identifier: GPL-2.0

//! States of queue pairs.

use crate::bindings;
use kernel::prelude::*;

/// The state of a queue pair: `enum ib_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpState {
    Reset = bindings::ib_qp_state_IB_QPS_RESET,
    Init = bindings::ib_qp_state_IB_QPS_INIT,
    Rtr = bindings::ib_qp_state_IB_QPS_RTR,
    Rts = bindings::ib_qp_state_IB_QPS_RTS,
    Sqd = bindings::ib_qp_state_IB_QPS_SQD,
    Sqe = bindings::ib_qp_state_IB_QPS_SQE,
    Err = bindings::ib_qp_state_IB_QPS_ERR,
}

impl QpState {
    /// Returns the abbreviation that the specification uses.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        }
    }
}

impl TryFrom<u32> for QpState {
    type Error = Error;

    fn try_from(state: u32) -> Result<Self> {
        Ok(match state {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Err,
            _ => return Err(EINVAL),
        })
    }
}
