// SPDX-License-Identifier: GPL-2.0
// E0133
//! A queue pair that nothing destroys before its domain.

use crate::{
    rdma::{
        pd::ProtectionDomain,
        qp::TargetQp,
        xrcd::Xrcd, //
    },
    subscribers::Subscribers,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) fn leave(
    pd: Arc<ProtectionDomain>,
    xrcd: &Xrcd,
    subscribers: Arc<Subscribers>,
) -> Result {
    core::mem::forget(TargetQp::new(pd, xrcd, subscribers, crate::NAME)?);
    Ok(())
}
