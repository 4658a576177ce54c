// SPDX-License-Identifier: GPL-2.0

//! Attaches the module to RDMA devices: the callbacks of its ib_core client.

use crate::{
    commands,
    device::AttachedDevice,
    rdma::{
        attachment::{
            declare_client,
            AttachmentClient, //
            ClientOperations,
        },
        client::Declined,
        device::Device,
        uverbs::table::Object,
        xrcd::Xrcd, //
    }, //
};
use kernel::prelude::*;

declare_client!(AttachedDevice, crate::NAME);

/// The registered client of ib_core, through which the module attaches to the present devices, and
/// to each device that is registered later.
pub(crate) type ModuleClient = AttachmentClient<AttachedDevice>;

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
            Declined::ObjectIdsTooLarge => pr_warn!(
                "{name}: not attached: this kernel has no object ids 10 and 11 for drivers\n"
            ),
            Declined::Failed(error) => pr_warn!("{name}: not attached: {error:?}\n"),
        }
    }

    fn added(self: Pin<&Self>) {
        pr_info!("{}: attached\n", self.device().name());
    }

    fn remove(self: Pin<&Self>) {
        // Without hooks, ib_uverbs has closed the domains of processes, and kernel users must have
        // closed theirs. With hooks, any may be open still, and is closed later without a QP.
        self.domains().close_all();
        pr_info!("{}: detached\n", self.device().name());
    }

    fn domain_closed(self: Pin<&Self>, xrcd: &Xrcd) {
        self.domains().close(xrcd);
    }
}
