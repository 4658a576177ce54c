// SPDX-License-Identifier: GPL-2.0

//! Attaches the module to RDMA devices: the callbacks of its ib_core client.

use crate::{
    commands,
    device::AttachedDevice,
    rdma::{
        attachment::{
            declare_client,
            ClientOperations,
            Declined,
            Registration, //
        },
        device::Device,
        uverbs::table::Object,
        xrcd::Xrcd, //
    }, //
};
use kernel::prelude::*;

declare_client!(AttachedDevice, crate::NAME);

/// Attached to all devices there are and that will come, until dropped.
pub(crate) struct Attached(#[expect(dead_code)] Registration<AttachedDevice>);

/// Attaches to all devices there are and that will come.
///
/// # Safety
///
/// What this returns must be dropped by the exit of the module only.
pub(crate) unsafe fn attach_all() -> Result<Attached> {
    // SAFETY: The registration is dropped with what this returns, which by the requirements of this
    // function is not before the exit of the module.
    Ok(Attached(unsafe { Registration::new() }?))
}

impl ClientOperations for AttachedDevice {
    const OBJECTS: &'static [&'static Object<Self>] = &commands::OBJECTS;

    fn add(device: &Device) -> Result<Pin<KBox<Self>>> {
        Self::new(device)
    }

    fn declined(device: &Device, why: Declined) {
        let name = device.name();

        match why {
            Declined::NoXrcDomains => {
                pr_info!("{name}: not attached: it has no XRC domains\n");
            }
            Declined::BehindUverbs => pr_warn!(
                "{name}: not attached: ib_uverbs was loaded before and exposes it already; \
                 to attach it, unload ib_uverbs and ib_xrc_rcv, then load ib_xrc_rcv first\n"
            ),
            Declined::ObjectIdsInUse => {
                pr_warn!("{name}: not attached: its driver uses the object ids 10 or 11\n");
            }
        }
    }

    fn added(self: Pin<&Self>) {
        pr_info!("{}: attached\n", self.device().name());
    }

    fn remove(self: Pin<&Self>) {
        // No process has a domain any more. A part of the kernel that does should have closed it.
        self.domains().close_all();
        pr_info!("{}: detached\n", self.device().name());
    }

    fn domain_closed(self: Pin<&Self>, xrcd: &Xrcd) {
        self.domains().close(xrcd);
    }
}
