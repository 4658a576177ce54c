// SPDX-License-Identifier: GPL-2.0

//! Charges to the RDMA cgroup controller.
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

/// An `hca_object` that is charged to the cgroup of the process that created it. Uncharged on drop.
///
/// # Invariants
///
/// `cgroup` was charged with one object of `device`.
pub(crate) struct Charge {
    cgroup: *mut bindings::rdma_cgroup,
    device: Registered,
}

// SAFETY: Any thread may return a charge: the controller takes locks of its own, and the charge is
// that of a cgroup, not of a thread.
unsafe impl Send for Charge {}

// SAFETY: Its members are constant, and nothing that they point to is accessed through a shared
// reference.
unsafe impl Sync for Charge {}

impl Charge {
    /// Charges the cgroup of the current process. `EAGAIN` if its limit is reached.
    pub(crate) fn hca_object(device: &Device) -> Result<Self> {
        let device = Registered::new(device)?;
        let mut cgroup = core::ptr::null_mut();

        // SAFETY:
        // * `device` keeps the device registered; ib_core adds a device to the controller before
        //   clients see it, and takes it out after the last reference to its registration.
        // * `cgroup` is valid for writes.
        to_result(unsafe { bindings::ib_xrc_rcv_rdmacg_try_charge(&mut cgroup, device.as_ptr()) })?;
        // INVARIANT: Just charged.
        Ok(Self { cgroup, device })
    }

    /// Returns the identity of the cgroup, which no other has before the charge is dropped. 0 if
    /// the kernel has no such cgroups.
    pub(crate) fn cgroup(&self) -> usize {
        self.cgroup.addr()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, one object of `device` was charged to `cgroup`, and this
        // is the one call that returns it. The device is registered, and so it is known to the
        // controller.
        unsafe { bindings::ib_xrc_rcv_rdmacg_uncharge(self.cgroup, self.device.as_ptr()) }
    }
}
