// SPDX-License-Identifier: GPL-2.0
// E0133
//! A queue pair that nothing destroys before its domain.

use crate::{
    rdma::{
        pd::ProtectionDomain,
        qp::TargetQp,
        xrcd::Xrcd, //
    },
    registrations::Registrations,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) fn leave(
    pd: Arc<ProtectionDomain>,
    xrcd: &Xrcd,
    registrations: Arc<Registrations>,
) -> Result {
    core::mem::forget(TargetQp::new(pd, xrcd, registrations, crate::NAME)?);
    Ok(())
}
