// SPDX-License-Identifier: GPL-2.0
// E0521
//! The client's data for longer than the domain is open.

use crate::{
    device::AttachedDevice,
    rdma::{
        attachment::ClientOperations,
        xrcd::Xrcd, //
    },
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

static STALE: SetOnce<Pin<&'static AttachedDevice>> = SetOnce::new();

pub(crate) fn keep(xrcd: &Xrcd) {
    if let Some(data) = AttachedDevice::of_xrcd(xrcd) {
        STALE.populate(data);
    }
}
