// SPDX-License-Identifier: GPL-2.0

//! An RDMA device.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::bindings;
use core::ptr::NonNull;
use kernel::{
    fmt,
    str::BStr,
    sync::aref::AlwaysRefCounted,
    types::Opaque, //
};

/// A `struct ib_device`.
///
/// A reference keeps its memory, not its registration: verbs may be called only between the
/// client's `add` and `remove` (see [`super::client`]), which the objects of this module that
/// call verbs see to.
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::ib_device>);

// SAFETY: A device can be released from any thread.
unsafe impl Send for Device {}

// SAFETY: What is reachable through a shared reference is constant while the device is registered.
unsafe impl Sync for Device {}

// SAFETY: `struct ib_device` embeds a `struct device`, which is reference counted.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        // SAFETY: The reference shows that the count is not zero.
        unsafe { bindings::xrc_rcv_ibdev_get(self.as_ptr()) }
    }

    unsafe fn dec_ref(device: NonNull<Self>) {
        // SAFETY: The caller gives up a count.
        unsafe { bindings::xrc_rcv_ibdev_put(device.cast().as_ptr()) }
    }
}

impl Device {
    /// # Safety
    ///
    /// `device` must be valid for `'a`.
    pub(super) unsafe fn from_ptr<'a>(device: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: `Device` is a transparent wrapper; validity is the caller's promise.
        unsafe { &*device.cast() }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// The name, such as `mlx4_0`, that it has now.
    pub(crate) fn name(&self) -> Name {
        let mut name = Name([0; bindings::IB_DEVICE_NAME_MAX as usize]);

        // SAFETY: The device is valid; there is room for a name.
        unsafe { bindings::xrc_rcv_ibdev_name(self.as_ptr(), name.0.as_mut_ptr()) };
        name
    }

    /// Whether the provider offers XRC domains.
    pub(crate) fn has_xrc_domains(&self) -> bool {
        // SAFETY: The device is valid, and its operations are set before it is registered.
        let ops = unsafe { &(*self.as_ptr()).ops };

        ops.alloc_xrcd.is_some() && ops.dealloc_xrcd.is_some()
    }

    /// Whether the provider modifies XRC target QPs for processes only.
    ///
    /// qedr takes a request without `udata` for one of a kernel user, whose QPs have doorbells, and
    /// rings that of the receive queue on the way to RTR. An XRC target QP has none.
    pub(super) fn modifies_for_processes_only(&self) -> bool {
        // SAFETY: The device is valid; the member is set before it is registered.
        let driver = unsafe { (*self.as_ptr()).ops.driver_id };

        driver == bindings::rdma_driver_id_RDMA_DRIVER_QEDR
    }

    /// Whether the device has a port of that number.
    pub(crate) fn has_port(&self, port: u32) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::xrc_rcv_port_is_valid(self.as_ptr(), port) }
    }

    /// Reports the event of a QP in the kernel log, unless that was done too often of late.
    pub(crate) fn log_qp_event(&self, qpn: u32, event: u32) {
        // SAFETY: The device is valid; any event number has a name.
        unsafe { bindings::xrc_rcv_log_qp_event(self.as_ptr(), qpn, event) }
    }
}

/// The name of a device.
pub(crate) struct Name([u8; bindings::IB_DEVICE_NAME_MAX as usize]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0);

        BStr::from_bytes(&self.0[..end.unwrap_or(self.0.len())]).fmt(f)
    }
}

/// Whether ib_uverbs is loaded.
pub(crate) fn uverbs_is_loaded() -> bool {
    // SAFETY: Can be called from any context that may sleep.
    unsafe { bindings::xrc_rcv_uverbs_is_loaded() }
}
