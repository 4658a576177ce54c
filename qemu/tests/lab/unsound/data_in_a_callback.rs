// SPDX-License-Identifier: GPL-2.0
// E0521
//! The client's data for longer than the callback.

use crate::{
    device::AttachedDevice,
    rdma::{
        client::{
            declare_client,
            ClientOperations, //
        },
        device::Device, //
    },
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

static STALE: SetOnce<Pin<&'static AttachedDevice>> = SetOnce::new();

struct Another;

declare_client!(Another, c"another");

#[vtable]
impl ClientOperations for Another {
    type Data = Pin<KBox<AttachedDevice>>;

    fn add(_device: &Device) -> Result<Self::Data> {
        Err(ENODEV)
    }

    fn added(data: Pin<&AttachedDevice>) {
        STALE.populate(data);
    }

    fn remove(_data: Pin<&AttachedDevice>) {}
}
