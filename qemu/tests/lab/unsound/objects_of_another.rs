// SPDX-License-Identifier: GPL-2.0
// E0308
//! Objects for the devices of a client whose methods are those of another, which may not have them.

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
use kernel::prelude::*;

struct Another;

declare_client!(Another, c"another");

impl ClientOperations for Another {
    const OBJECTS: &'static [&'static Object<Self>] = &crate::commands::OBJECTS;

    fn add(_device: &Device) -> Result<Pin<KBox<Self>>> {
        Err(ENODEV)
    }

    fn declined(_device: &Device, _why: Declined) {}

    fn added(self: Pin<&Self>) {}

    fn remove(self: Pin<&Self>) {}

    fn domain_closed(self: Pin<&Self>, _xrcd: &Xrcd) {}
}
