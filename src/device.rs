// SPDX-License-Identifier: GPL-2.0

//! An RDMA device that the module is attached to.
//!
//! One per `ib_device` with XRC domains that appears after the module and before ib_uverbs sees it.
//! Made by ib_core's client callbacks, which own it; it goes with the device, last of all that this
//! module keeps of it.

use crate::{
    commands,
    debugfs::Files,
    domain::Domains,
    file,
    rdma::{
        attachment::{
            Attach,
            Attachment, //
        },
        client::{
            declare_client,
            ClientOperations,
            Registration, //
        },
        device::Device,
        pd::ProtectionDomain,
        this_module,
        uverbs,
        xrcd::Xrcd, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct AttachedDevice {
    /// First, so that nobody reads of what goes.
    #[pin]
    files: Mutex<Option<Files>>,
    attachment: Attachment<Self>,
    /// The kernel's own protection domain, which all receive QPs of the device belong to.
    pd: Arc<ProtectionDomain>,
    domains: Arc<Domains>,
    uverbs_files: Arc<file::Files>,
    device: ARef<Device>,
}

impl AttachedDevice {
    /// The kernel's own protection domain.
    pub(crate) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Makes the files for tools, under the name that the device has now.
    fn show(&self) {
        let mut files = self.files.lock();

        // The old ones first: a device can get a name back.
        *files = None;
        match Files::new(&self.device, &self.domains) {
            Ok(new) => *files = Some(new),
            Err(e) => pr_warn!("{}: no files in debugfs: {e:?}\n", self.device.name()),
        }
    }

    /// The uverbs files with registrations.
    pub(crate) fn uverbs_files(&self) -> &Arc<file::Files> {
        &self.uverbs_files
    }

    /// Its domains with receive QPs.
    pub(crate) fn domains(&self) -> &Arc<Domains> {
        &self.domains
    }
}

declare_client!(AttachedDevice, crate::NAME);

/// Attached to all devices there are and that will come, until dropped.
pub(crate) struct Attached {
    _registration: Registration<AttachedDevice>,
    _watch: uverbs::Watch,
}

/// Attaches to all devices there are and that will come.
pub(crate) fn attach_all() -> Result<Attached> {
    let (registration, watch) = uverbs::Watch::new(Registration::new)?;

    Ok(Attached {
        _registration: registration,
        _watch: watch,
    })
}

#[vtable]
impl ClientOperations for AttachedDevice {
    type Data = Pin<KBox<Self>>;

    fn add(device: &Device) -> Result<Self::Data> {
        if !device.has_xrc_domains() {
            pr_info!("{}: not attached: it has no XRC domains\n", device.name());
            return Err(crate::rdma::not_supported());
        }
        if uverbs::came_first() {
            pr_warn!(
                "{}: not attached: ib_uverbs was loaded before and exposes it already; \
                 to attach it, unload ib_uverbs and ib_xrc_rcv, then load ib_xrc_rcv first\n",
                device.name(),
            );
            return Err(EBUSY);
        }
        let attachment =
            Attachment::new(device, &commands::OBJECTS, this_module()).inspect_err(|e| {
                if *e == EEXIST {
                    pr_warn!(
                        "{}: not attached: its driver uses the object ids 10 or 11\n",
                        device.name(),
                    );
                }
            })?;
        let device = KBox::try_pin_init(
            try_pin_init!(Self {
                files <- new_mutex!(None, "AttachedDevice::files"),
                attachment,
                pd: Arc::new(ProtectionDomain::new(device, crate::NAME)?, GFP_KERNEL)?,
                domains: Domains::new()?,
                uverbs_files: file::Files::new()?,
                device: device.into(),
            }),
            GFP_KERNEL,
        )?;
        Ok(device)
    }

    fn added(device: Pin<&Self>) {
        device.attachment.install();
        device.show();
        pr_info!("{}: attached\n", device.device.name());
    }

    fn remove(device: Pin<&Self>) {
        // No process has a domain any more. A part of the kernel that does should have closed it.
        device.domains.close_all();
        pr_info!("{}: detached\n", device.device.name());
    }

    fn rename(device: Pin<&Self>) {
        device.show();
    }
}

impl Attach for AttachedDevice {
    fn attachment<'a>(device: &'a Pin<&Self>) -> &'a Attachment<Self> {
        &device.get_ref().attachment
    }

    fn domain_closed(device: Pin<&Self>, xrcd: &Xrcd) {
        device.domains.close(xrcd);
    }
}
