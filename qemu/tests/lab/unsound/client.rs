// SPDX-License-Identifier: GPL-2.0
// E0200
//! Another client for the same operations, which would set data that are not its own.

use crate::rdma::{
    attachment::{
        Attachment,
        ClientOperations,
        HasClient, //
    },
    client::{
        Client,
        Declined, //
    },
    device::Device,
    uverbs::table::Object,
    xrcd::Xrcd, //
};
use kernel::prelude::*;

struct Another;

static FIRST: Client<Attachment<Another>> = Client::new(c"first");

impl HasClient for Another {
    type Attachment = Attachment<Self>;

    fn client() -> &'static Client<Attachment<Self>> {
        &FIRST
    }
}

impl ClientOperations for Another {
    const OBJECTS: &'static [&'static Object<Self>] = &[];

    fn add(_device: &Device) -> Result<Pin<KBox<Self>>> {
        Err(ENODEV)
    }

    fn declined(_device: &Device, _why: Declined) {}

    fn added(self: Pin<&Self>) {}

    fn remove(self: Pin<&Self>) {}

    fn domain_closed(self: Pin<&Self>, _xrcd: &Xrcd) {}
}
