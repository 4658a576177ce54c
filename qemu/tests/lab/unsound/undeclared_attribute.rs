// SPDX-License-Identifier: GPL-2.0
// E0080
//! An attribute that the method did not declare.

use crate::{
    device::AttachedDevice,
    member::Member,
    rdma::uverbs::{attribute::*, call::*, table::*},
};
use kernel::prelude::*;

struct Wrong;

impl Wrong {
    const DECLARED: Attribute<In<u32>, 1> = Attribute::new();
    const READ: Attribute<In<u32>, 2> = Attribute::new();
}

impl Handler for Wrong {
    type Data = AttachedDevice;

    const METHOD: u32 = 1;
    const ATTRIBUTES: Declarations = &[&Self::DECLARED.mandatory()];

    fn run(call: &Call<'_, Self>) -> Result {
        call.input(Self::READ).map(drop)
    }
}

#[used]
static TABLE: Object<AttachedDevice> = Object::file::<Member>(&[&Method::new::<Wrong>()]);
