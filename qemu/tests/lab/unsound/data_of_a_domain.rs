// SPDX-License-Identifier: GPL-2.0
// E0597
//! The client's data for longer than it is kept.

use crate::{
    device::AttachedDevice,
    rdma::{
        attachment::ClientOperations,
        xrcd::Xrcd, //
    },
};
use kernel::sync::SetOnce;

static STALE: SetOnce<&'static AttachedDevice> = SetOnce::new();

pub(crate) fn keep(xrcd: &Xrcd) {
    if let Some(data) = AttachedDevice::of_xrcd(xrcd) {
        STALE.populate(&data);
    }
}
