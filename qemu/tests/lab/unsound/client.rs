// SPDX-License-Identifier: GPL-2.0
// E0200
//! Another client for the same operations, which would set data that are not its own.

use crate::rdma::{
    client::{
        Client,
        ClientOperations,
        HasClient, //
    },
    device::Device, //
};
use kernel::prelude::*;

struct Another;

static FIRST: Client<Another> = Client::new(c"first");

impl HasClient for Another {
    fn client() -> &'static Client<Self> {
        &FIRST
    }
}

#[vtable]
impl ClientOperations for Another {
    type Data = KBox<u32>;

    fn add(_device: &Device) -> Result<Self::Data> {
        Err(ENODEV)
    }

    fn added(_data: &u32) {}

    fn remove(_data: &u32) {}
}
