// SPDX-License-Identifier: GPL-2.0
// E0133
//! A queue pair that nothing destroys before its domain.

use crate::{
    fan_out::FanOut,
    rdma::{
        pd::ProtectionDomain,
        qp::TargetQp,
        xrcd::Xrcd, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) fn leave(pd: Arc<ProtectionDomain>, xrcd: &Xrcd, fan_out: Arc<FanOut>) -> Result {
    core::mem::forget(TargetQp::new(pd, xrcd, fan_out, crate::NAME)?);
    Ok(())
}
