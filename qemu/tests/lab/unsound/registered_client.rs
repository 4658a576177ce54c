// SPDX-License-Identifier: GPL-2.0
// E0133
//! A client that is unregistered while ib_uverbs has its devices.

use crate::{
    device::AttachedDevice,
    rdma::attachment::AttachmentClient, //
};
use kernel::prelude::*;

pub(crate) fn come_and_go() -> Result {
    drop(AttachmentClient::<AttachedDevice>::new()?);
    Ok(())
}
