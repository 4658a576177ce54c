// SPDX-License-Identifier: GPL-2.0

//! Charges to the RDMA controller of cgroups.
//!
//! C header: [`include/linux/cgroup_rdma.h`](srctree/include/linux/cgroup_rdma.h)

use super::{
    bindings,
    device::{
        Device,
        Registered, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// One `hca_object` charged to the cgroup of the process that asked for it, until dropped.
///
/// # Invariants
///
/// `cgroup` was charged with one object of `device`.
pub(crate) struct Charge {
    cgroup: *mut bindings::rdma_cgroup,
    device: Registered,
}

// SAFETY: A charge can be given back by any thread.
unsafe impl Send for Charge {}

// SAFETY: A shared reference gives access to nothing.
unsafe impl Sync for Charge {}

impl Charge {
    /// Charges the current process. Fails with `EAGAIN` over the limit of its cgroup.
    pub(crate) fn hca_object(device: &Device) -> Result<Self> {
        let device = Registered::new(device)?;
        let mut cgroup = core::ptr::null_mut();

        // SAFETY: `device` keeps the device registered, hence known to the controller.
        to_result(unsafe { bindings::ib_xrc_rcv_rdmacg_try_charge(&mut cgroup, device.as_ptr()) })?;
        // INVARIANT: Just charged.
        Ok(Self { cgroup, device })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, this gives back what was charged; the device is registered,
        // hence still known to the controller.
        unsafe { bindings::ib_xrc_rcv_rdmacg_uncharge(self.cgroup, self.device.as_ptr()) }
    }
}
