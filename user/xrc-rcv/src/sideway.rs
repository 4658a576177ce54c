// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Objects of the crate sideway.

use std::ptr::NonNull;
use std::sync::Arc;

use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use crate::device::Device;
use crate::pd::Pd;

/// The device keeps the context open.
impl From<Arc<DeviceContext>> for Device {
    fn from(context: Arc<DeviceContext>) -> Device {
        // SAFETY: It came from `ibv_open_device()`, which librdmacm calls as well, and it is open
        // as long as there is a reference to it, as all safe calls of sideway require.
        unsafe { Device::from_ibv(context.context().cast(), context) }
    }
}

/// The PD keeps the protection domain allocated; its device is the context that it was allocated
/// on, which stays open as long.
impl From<Arc<ProtectionDomain>> for Pd {
    fn from(pd: Arc<ProtectionDomain>) -> Pd {
        // SAFETY: It came from `ibv_alloc_pd()`, so that its context did from `ibv_open_device()`.
        // It holds the context, and is deallocated when its last reference is dropped.
        unsafe {
            let allocated = pd.pd();
            let context = NonNull::new_unchecked((*allocated.as_ptr()).context);
            let device = Device::from_ibv(context.cast(), pd.clone());
            Pd::from_ibv(&device, allocated.cast(), pd)
        }
    }
}
