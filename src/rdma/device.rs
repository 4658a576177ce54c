// SPDX-License-Identifier: GPL-2.0

//! An RDMA device.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::bindings;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    fmt,
    prelude::*,
    str::BStr,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    types::Opaque, //
};

/// A `struct ib_device`.
///
/// A reference keeps the memory of the device, not its registration. Verbs need a [`Registered`].
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::ib_device>);

// SAFETY: Any thread may drop the last reference to a device.
unsafe impl Send for Device {}

// SAFETY: A shared reference gives access to members that are constant while the device exists, to
// its name and its operations, which are read by themselves, and to functions that take locks of
// ib_core.
unsafe impl Sync for Device {}

// SAFETY: `struct ib_device` embeds a `struct device`, whose reference count `inc_ref` and
// `dec_ref` change. The memory is freed when the last reference is dropped.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        // SAFETY: The device is valid as long as it is borrowed, so its count is not zero.
        unsafe { bindings::ib_xrc_rcv_ibdev_get(self.as_ptr()) }
    }

    unsafe fn dec_ref(device: NonNull<Self>) {
        // SAFETY: By the requirements of this function, the caller owns a reference, which this
        // drops.
        unsafe { bindings::ib_xrc_rcv_ibdev_put(device.cast().as_ptr()) }
    }
}

impl Device {
    /// Borrows a `struct ib_device`.
    ///
    /// # Safety
    ///
    /// `device` must be valid for `'a`.
    pub(super) unsafe fn from_ptr<'a>(device: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the requirements of this function, `device` is valid for `'a`. `Device` is a
        // transparent wrapper of an `Opaque`, so the reference promises nothing about the members.
        unsafe { &*device.cast() }
    }

    /// Returns the C structure.
    pub(crate) fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// Returns the index, which identifies the device as long as it is registered. The name is
    /// unique only in a network namespace, and both name and namespace can change.
    pub(crate) fn index(&self) -> u32 {
        // SAFETY: The device is valid as long as it is borrowed. `index` is constant since before
        // clients see the device; it is read through the pointer.
        unsafe { (*self.as_ptr()).index }
    }

    /// Returns the present name, such as `mlx4_0`.
    pub(crate) fn name(&self) -> Name {
        let mut name = Name([0; bindings::IB_DEVICE_NAME_MAX as usize]);

        // SAFETY: The device is valid as long as it is borrowed. The function writes
        // `IB_DEVICE_NAME_MAX` bytes, for which `name` has room.
        unsafe { bindings::ib_xrc_rcv_ibdev_name(self.as_ptr(), name.0.as_mut_ptr()) };
        name
    }

    /// Whether the provider offers XRC domains.
    pub(crate) fn has_xrc_domains(&self) -> bool {
        // SAFETY: The device is valid as long as it is borrowed. Each member is read by itself: a
        // reference to the operations would cover `dealloc_xrcd`, which an attachment changes.
        unsafe {
            (*self.as_ptr()).ops.alloc_xrcd.is_some() && (*self.as_ptr()).ops.dealloc_xrcd.is_some()
        }
    }

    /// Whether the provider modifies XRC target QPs for processes only.
    ///
    /// qedr takes a request without `udata` for a request of a kernel user, whose QPs have
    /// doorbells, and rings the doorbell of the receive queue in the transition to RTR. An XRC
    /// target QP has none.
    pub(super) fn modifies_for_processes_only(&self) -> bool {
        self.driver() == bindings::rdma_driver_id_RDMA_DRIVER_QEDR
    }

    /// Whether the provider lets XRC target QPs use the reserved `L_Key` when the kernel modifies
    /// them to INIT.
    ///
    /// mlx4 does so if a request has no `udata`. The QP context enables the key, not that of the
    /// SRQ.
    pub(super) fn gives_kernel_reserved_key(&self) -> bool {
        self.driver() == bindings::rdma_driver_id_RDMA_DRIVER_MLX4
    }

    fn driver(&self) -> bindings::rdma_driver_id {
        // SAFETY: The device is valid as long as it is borrowed. `driver_id` is constant since
        // before it was registered; it is read through the pointer.
        unsafe { (*self.as_ptr()).ops.driver_id }
    }

    /// Whether the device has a port of that number.
    pub(crate) fn has_port(&self, port: u32) -> bool {
        // SAFETY: The device is valid as long as it is borrowed. Its number of ports is constant
        // since before it was registered.
        unsafe { bindings::ib_xrc_rcv_port_is_valid(self.as_ptr(), port) }
    }

    /// Reports the event of a QP of a user in the kernel log, rate-limited by user.
    pub(crate) fn log_qp_event(&self, user: u32, qpn: u32, event: u32) {
        // SAFETY: The device is valid as long as it is borrowed. The function may be called in any
        // context, and ib_core has a name for every number.
        unsafe { bindings::ib_xrc_rcv_log_qp_event(self.as_ptr(), user, qpn, event) }
    }
}

/// A reference that keeps a device registered, as `ib_device_try_get()` takes it.
///
/// It does not keep the device from being removed from its clients, but the removal of the device
/// waits until the reference is dropped. A client must drop it in its `remove`.
///
/// # Invariants
///
/// `self` counts as one in the device's `refcount`.
pub(crate) struct Registered(ARef<Device>);

impl Registered {
    /// Takes a reference. `ENODEV` if the device is being unregistered.
    pub(crate) fn new(device: &Device) -> Result<Self> {
        // SAFETY: The device is valid as long as it is borrowed; the function fails if it is not
        // registered.
        if !unsafe { bindings::ib_xrc_rcv_ibdev_try_get(device.as_ptr()) } {
            return Err(ENODEV);
        }
        // INVARIANT: Just counted.
        Ok(Self(device.into()))
    }
}

impl Deref for Registered {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, `self` counts as one in `refcount`; this is the one call
        // that takes it off.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) }
    }
}

/// The name of a device.
pub(crate) struct Name([u8; bindings::IB_DEVICE_NAME_MAX as usize]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next();

        BStr::from_bytes(name.unwrap_or_default()).fmt(f)
    }
}
