// SPDX-License-Identifier: GPL-2.0

//! An RDMA device that the module is attached to.
//!
//! One per `ib_device` with XRC domains that appears after the module and before ib_uverbs sees it.
//! Made by ib_core's client callbacks, which own it; it goes with the device, last of all that this
//! module keeps of it.

use crate::{
    commands,
    debugfs::DeviceDir,
    domain::Domains,
    rdma::{
        client::{
            declare_client,
            ClientOperations,
            Declined,
            Registration, //
        },
        device::Device,
        pd::ProtectionDomain,
        uverbs::table::Object,
        xrcd::Xrcd, //
    }, //
    ufile,
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// See the [module's documentation](self).
pub(crate) struct AttachedDevice {
    /// First, so that nobody reads of what goes.
    _files: Option<DeviceDir>,
    /// The kernel's own protection domain, which all receive QPs of the device belong to.
    pd: Arc<ProtectionDomain>,
    domains: Arc<Domains>,
    ufiles: Arc<ufile::UFiles>,
    device: ARef<Device>,
}

impl AttachedDevice {
    /// The kernel's own protection domain.
    pub(crate) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The uverbs files with registrations.
    pub(crate) fn ufiles(&self) -> &Arc<ufile::UFiles> {
        &self.ufiles
    }

    /// Its domains with receive QPs.
    pub(crate) fn domains(&self) -> &Arc<Domains> {
        &self.domains
    }
}

declare_client!(AttachedDevice, crate::NAME);

/// Attached to all devices there are and that will come, until dropped.
pub(crate) struct Attached(#[expect(dead_code)] Registration<AttachedDevice>);

/// Attaches to all devices there are and that will come.
///
/// # Safety
///
/// What this returns must be dropped by the exit of the module only.
pub(crate) unsafe fn attach_all() -> Result<Attached> {
    // SAFETY: The caller's promise.
    Ok(Attached(unsafe { Registration::new() }?))
}

impl ClientOperations for AttachedDevice {
    const OBJECTS: &'static [&'static Object<Self>] = &commands::OBJECTS;

    fn add(device: &Device) -> Result<Pin<KBox<Self>>> {
        let domains = Domains::new()?;
        let files = Files::new(device, &domains)
            .inspect_err(|e| pr_warn!("{}: no files in debugfs: {e:?}\n", device.name()));

        Ok(KBox::pin(
            Self {
                _files: files.ok(),
                pd: Arc::new(ProtectionDomain::new(device, crate::NAME)?, GFP_KERNEL)?,
                domains,
                ufiles: ufile::UFiles::new()?,
                device: device.into(),
            },
            GFP_KERNEL,
        )?)
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
        pr_info!("{}: attached\n", self.device.name());
    }

    fn remove(self: Pin<&Self>) {
        // No process has a domain any more. A part of the kernel that does should have closed it.
        self.domains.close_all();
        pr_info!("{}: detached\n", self.device.name());
    }

    fn domain_closed(self: Pin<&Self>, xrcd: &Xrcd) {
        self.domains.close(xrcd);
    }
}
