// SPDX-License-Identifier: GPL-2.0
// E0624
//! The client's data of a device, borrowed and not referenced, for longer than until `remove`.

use crate::{
    device::AttachedDevice,
    rdma::{
        attachment::HasClient,
        device::Device, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        SetOnce, //
    },
};

static STALE: SetOnce<Pin<&'static AttachedDevice>> = SetOnce::new();

pub(crate) fn keep(device: &Device) -> Result {
    let kept: &'static ARef<Device> =
        KBox::leak(KBox::new(ARef::<Device>::from(device), GFP_KERNEL)?);

    if let Some(attached) = AttachedDevice::client().data(kept) {
        STALE.populate(attached.data());
    }
    Ok(())
}
