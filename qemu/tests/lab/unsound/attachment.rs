// SPDX-License-Identifier: GPL-2.0
// E0624
//! A device that is attached twice, and left in the wrong order.

use crate::{
    device::AttachedDevice,
    rdma::{
        attachment::Attachment,
        client::Declined,
        device::Device, //
    },
};

pub(crate) fn twice(device: &Device) -> Result<(), Declined> {
    // SAFETY: None: it must not compile.
    let (first, second) = unsafe {
        (
            Attachment::<AttachedDevice>::new(device)?,
            Attachment::<AttachedDevice>::new(device)?,
        )
    };

    first.install();
    second.install();
    drop(first);
    drop(second);
    Ok(())
}
