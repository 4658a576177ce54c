// SPDX-License-Identifier: GPL-2.0
// compiles
//! The code of the others without the mistake.

use crate::{
    device::AttachedDevice,
    rdma::{
        attachment::{
            ClientOperations,
            DataRef, //
        },
        device::Device,
        pd::ProtectionDomain,
        qp::EventHandler,
        xrcd::Xrcd, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

struct Owned(u32);

impl EventHandler for Owned {
    fn event(self: ArcBorrow<'_, Self>, _qpn: u32, event: u32) {
        let _ = self.0 == event;
    }
}

pub(crate) fn data(xrcd: &Xrcd) -> Option<DataRef<AttachedDevice>> {
    AttachedDevice::of_xrcd(xrcd)
}

pub(crate) fn pd(device: &Device) -> Result<Arc<ProtectionDomain>> {
    Ok(Arc::new(
        ProtectionDomain::new(device, c"fine")?,
        GFP_KERNEL,
    )?)
}

pub(crate) fn handler() -> Result<Arc<impl EventHandler>> {
    Ok(Arc::new(Owned(0), GFP_KERNEL)?)
}
