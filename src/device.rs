// SPDX-License-Identifier: GPL-2.0

//! An RDMA device that the module is attached to.
//!
//! There is one for each `ib_device` with XRC domains to which the module's client is added, which
//! without hooks must be before ib_uverbs is. ib_core owns it as the data of the client, from `add`
//! to `remove`. It is dropped after the QPs of the device; kernel users may leave later.

use crate::{
    debugfs::DeviceDir,
    domain::Domains,
    rdma::{
        device::Device,
        pd::ProtectionDomain, //
    },
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
    /// Dropped first: the files list the fields below.
    _debugfs: Option<DeviceDir>,
    /// The protection domain of all receive QPs of the device.
    pd: Arc<ProtectionDomain>,
    domains: Arc<Domains>,
    device: ARef<Device>,
}

impl AttachedDevice {
    /// Creates the module's data for a device.
    pub(crate) fn new(device: &Device) -> Result<Pin<KBox<Self>>> {
        let domains = Domains::new()?;
        let debugfs = DeviceDir::new(device, &domains)
            .inspect_err(|e| pr_warn!("{}: no debugfs files: {e:?}\n", device.name()));

        Ok(KBox::pin(
            Self {
                _debugfs: debugfs.ok(),
                pd: Arc::new(ProtectionDomain::new(device, crate::NAME)?, GFP_KERNEL)?,
                domains,
                device: device.into(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the protection domain of the receive QPs.
    pub(crate) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the domains that have or had members or QPs.
    pub(crate) fn domains(&self) -> &Arc<Domains> {
        &self.domains
    }
}
