// SPDX-License-Identifier: GPL-2.0
// E0521
//! A client's data, used for longer than the callback.

use crate::rdma::{
    attachment::{
        declare_client,
        ClientOperations, //
    },
    client::Declined,
    device::Device,
    uverbs::table::Object,
    xrcd::Xrcd, //
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

static STALE: SetOnce<Pin<&'static Another>> = SetOnce::new();

struct Another;

declare_client!(Another, c"another");

impl ClientOperations for Another {
    const OBJECTS: &'static [&'static Object<Self>] = &[];

    fn add(_device: &Device) -> Result<Pin<KBox<Self>>> {
        Err(ENODEV)
    }

    fn declined(_device: &Device, _why: Declined) {}

    fn added(self: Pin<&Self>) {
        STALE.populate(self);
    }

    fn remove(self: Pin<&Self>) {}

    fn domain_closed(self: Pin<&Self>, _xrcd: &Xrcd) {}
}
