// SPDX-License-Identifier: GPL-2.0

//! An RDMA device that the module is attached to.
//!
//! One per `ib_device` with XRC domains that appears after the module and before ib_uverbs sees it.
//! Made by ib_core's client callbacks, which own it; it goes with the device, last of all that this
//! module keeps of it.

use crate::{
    debugfs::DeviceDir,
    domain::Domains,
    rdma::{
        device::Device,
        pd::ProtectionDomain, //
    },
    ufile::UFiles, //
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
    /// First: nothing is printed of what is dropped after it.
    _debugfs: Option<DeviceDir>,
    /// The kernel's own protection domain, which all receive QPs of the device belong to.
    pd: Arc<ProtectionDomain>,
    domains: Arc<Domains>,
    ufiles: Arc<UFiles>,
    device: ARef<Device>,
}

impl AttachedDevice {
    /// Creates what the module keeps of a device.
    pub(crate) fn new(device: &Device) -> Result<Pin<KBox<Self>>> {
        let domains = Domains::new()?;
        let debugfs = DeviceDir::new(device, &domains)
            .inspect_err(|e| pr_warn!("{}: no files in debugfs: {e:?}\n", device.name()));

        Ok(KBox::pin(
            Self {
                _debugfs: debugfs.ok(),
                pd: Arc::new(ProtectionDomain::new(device, crate::NAME)?, GFP_KERNEL)?,
                domains,
                ufiles: UFiles::new()?,
                device: device.into(),
            },
            GFP_KERNEL,
        )?)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel's own protection domain.
    pub(crate) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The uverbs files with registrations.
    pub(crate) fn ufiles(&self) -> &Arc<UFiles> {
        &self.ufiles
    }

    /// Its domains with receive QPs.
    pub(crate) fn domains(&self) -> &Arc<Domains> {
        &self.domains
    }
}
