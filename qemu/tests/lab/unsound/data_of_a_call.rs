// SPDX-License-Identifier: GPL-2.0
// E0521
//! The client's data for longer than the call.

use crate::{
    device::AttachedDevice,
    rdma::uverbs::call::{
        Call,
        Handler, //
    },
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

static STALE: SetOnce<Pin<&'static AttachedDevice>> = SetOnce::new();

pub(crate) fn keep<H: Handler<Data = AttachedDevice>>(call: &Call<'_, H>) {
    STALE.populate(call.data());
}
