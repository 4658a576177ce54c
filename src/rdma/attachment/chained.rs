// SPDX-License-Identifier: GPL-2.0

//! An attachment to a device of a kernel without hooks.
//!
//! When ib_uverbs is added to a device, it merges the definitions in `ib_device.driver_def` into
//! the interface of the device. A client that is added earlier (see
//! [`client`](crate::rdma::client)) appends its
//! objects to the definitions of the driver. It also replaces the driver's `dealloc_xrcd`, which
//! ib_core calls after the last close of an XRC domain, by a wrapper that informs the client.
//!
//! ib_uverbs holds no reference to the module of the handlers that it calls. The attachment holds
//! one.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::operations::{
    attached,
    definitions,
    Attached,
    ClientOperations,
    END, //
};
use crate::{
    kernel_ext::this_module,
    rdma::{
        bindings,
        client::{
            Client,
            ClientData,
            Declined, //
        },
        device::{
            Device,
            Registered, //
        },
        module::ModuleReference,
        uverbs,
        xrcd::Xrcd, //
    }, //
};
use core::mem::ManuallyDrop;
use kernel::prelude::*;

type DeallocXrcd =
    unsafe extern "C" fn(xrcd: *mut bindings::ib_xrcd, udata: *mut bindings::ib_udata) -> c_int;

/// A device with the uverbs objects and the data of a client.
///
/// ib_core has a reference to it, as the data of the client, from the client's `add` to its
/// `remove`, and so has each call of another part of the kernel. It takes effect in
/// [`install`](Self::install), and [`uninstall`](Self::uninstall) restores the device.
///
/// There is no lock: ib_uverbs reads the definitions after the `add` of this client and has
/// released the device before its `remove`. Other parts of the kernel may close a domain in the
/// middle of [`uninstall`](Self::uninstall), and then call either `dealloc_xrcd`.
///
/// # Invariants
///
/// * It was created while the client of `T` was being added to the device, before ib_uverbs is.
/// * `driver_definitions` and `driver_dealloc_xrcd` are the members of the device when it was
///   created.
pub(crate) struct Attachment<T> {
    device: Registered,
    definitions: KVec<bindings::uapi_definition>,
    driver_definitions: *const bindings::uapi_definition,
    driver_dealloc_xrcd: DeallocXrcd,
    data: Pin<KBox<T>>,
    _module: ModuleReference,
}

// SAFETY: The pointers, also those in `definitions`, are to tables that belong to no thread. The
// other fields are `Send` if `T` is.
unsafe impl<T: Send> Send for Attachment<T> {}

// SAFETY: Nothing writes to the definitions, nor to the tables that the pointers are to. The other
// fields are `Sync` if `T` is.
unsafe impl<T: Sync> Sync for Attachment<T> {}

impl<T: ClientOperations<Attachment = Self>> Attachment<T> {
    /// Prepares to attach the client's objects.
    ///
    /// # Safety
    ///
    /// The client of `T` must be being added to the device.
    unsafe fn new(device: &Device) -> Result<Self, Declined> {
        // SAFETY: The device is valid as long as it is borrowed. The driver sets both members
        // before it registers the device. Other clients of this type change them in their own
        // `add`, and ib_core adds clients to a device one after the other.
        let (driver_definitions, dealloc_xrcd) = unsafe {
            (
                (*device.as_ptr()).driver_def,
                (*device.as_ptr()).ops.dealloc_xrcd,
            )
        };
        let Some(driver_dealloc_xrcd) = dealloc_xrcd.filter(|_| device.has_xrc_domains()) else {
            return Err(Declined::NoXrcDomains);
        };

        if uverbs::came_first() {
            return Err(Declined::BehindUverbs);
        }
        for object in T::OBJECTS {
            if !object.has_room() {
                return Err(Declined::ObjectIdsTooLarge);
            }
            // SAFETY: `driver_definitions` is null, or a table that the driver, or another client
            // of this type, made for ib_uverbs: it has an end, and is valid until this client is
            // removed.
            if unsafe { defines(driver_definitions, object.id()) } {
                return Err(Declined::ObjectIdsInUse);
            }
        }

        // INVARIANT: By the requirements of this function; the members were just read.
        Ok(Self {
            device: Registered::new(device)?,
            definitions: definitions::<T>(chain(driver_definitions))?,
            driver_definitions,
            driver_dealloc_xrcd,
            data: T::add(device)?,
            _module: ModuleReference::new(this_module())?,
        })
    }

    /// Adds the objects to the device, and the wrapper of `dealloc_xrcd`.
    ///
    /// Must be called after `self` was stored as the client's data, which the wrapper looks up.
    fn install(&self) {
        let device = self.device.as_ptr();

        // SAFETY:
        // * `device` keeps the device registered, so it is valid.
        // * By the type invariant, ib_uverbs does not read `driver_def` yet. A part of the kernel
        //   that was a client before may close a domain: it reads either `dealloc_xrcd`, as a
        //   whole, since the write is volatile.
        // * `definitions` is valid, and `self` is the client's data, until `uninstall` has
        //   returned.
        unsafe {
            (*device).driver_def = self.definitions.as_ptr();
            (&raw mut (*device).ops.dealloc_xrcd).write_volatile(Some(dealloc_xrcd::<T>));
        }
    }

    /// Restores the device.
    ///
    /// Must be called before `self` is no longer the client's data, when no QP is left.
    fn uninstall(&self) {
        let device = self.device.as_ptr();

        // SAFETY:
        // * `device` keeps the device registered, so it is valid.
        // * Other clients of this type that were added later have restored these members.
        // * ib_uverbs reads `driver_def` only when it is added to the device, which it was later
        //   and is not any more.
        // * A part of the kernel that closes a domain at the same time reads either `dealloc_xrcd`,
        //   as a whole, since the write is volatile. No QP is left, so it may call the driver's;
        //   the wrapper does that.
        unsafe {
            (*device).driver_def = self.driver_definitions;
            (&raw mut (*device).ops.dealloc_xrcd).write_volatile(Some(self.driver_dealloc_xrcd));
        }
    }
}

impl<T: ClientOperations<Attachment = Self>> Attached<T> for Attachment<T> {
    fn data(&self) -> Pin<&T> {
        self.data.as_ref()
    }
}

// SAFETY: `T::client` returns the same client whenever it is called, by the requirements of
// `HasClient`.
unsafe impl<T: ClientOperations<Attachment = Self>> ClientData for Attachment<T> {
    fn client() -> &'static Client<Self> {
        T::client()
    }

    unsafe fn add(device: &Device) -> Result<Self, Declined> {
        // SAFETY: By the requirements of this function, the client of `T` is being added to the
        // device.
        unsafe { Self::new(device) }
    }

    fn declined(device: &Device, why: Declined) {
        T::declined(device, why);
    }

    fn added(&self) -> Result<(), Declined> {
        self.install();
        self.data().added();
        Ok(())
    }

    fn remove(&self) {
        self.data().remove();
        self.uninstall();
    }
}

/// The wrapper of the driver's `dealloc_xrcd`.
///
/// # Safety
///
/// Called by ib_core only, as the operation of a device that is attached to the client of `T`.
unsafe extern "C" fn dealloc_xrcd<T: ClientOperations<Attachment = Attachment<T>>>(
    xrcd: *mut bindings::ib_xrcd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function, ib_core passes a domain that is open until the
    // driver's `dealloc_xrcd` is called below.
    let domain = unsafe { Xrcd::from_ptr(xrcd) };
    let attached = attached::<T>(domain);
    let driver_dealloc_xrcd = match &attached {
        Some(attached) => {
            attached.data().domain_closed(domain);
            Some(attached.driver_dealloc_xrcd)
        }
        // SAFETY: The domain keeps the device registered. The client was removed from the device
        // after ib_core has read the operation, and restored it before the data was not found any
        // more; nothing else writes to it.
        None => unsafe { (*domain.device().as_ptr()).ops.dealloc_xrcd },
    };
    let Some(driver_dealloc_xrcd) = driver_dealloc_xrcd else {
        // Not reached: devices without the operation are not attached.
        return ENODEV.to_errno();
    };

    // SAFETY: It is the operation of the driver, by the invariant of `Attachment`, or because
    // it was restored before the data was not found any more. ib_core would have called it with
    // these arguments.
    unsafe { driver_dealloc_xrcd(xrcd, udata) }
}

/// Whether a table of definitions, or a table that it includes, has an object.
///
/// # Safety
///
/// `definitions` must be null or a valid table of definitions with an end.
unsafe fn defines(definitions: *const bindings::uapi_definition, object: u16) -> bool {
    let mut next = definitions;

    if next.is_null() {
        return false;
    }
    loop {
        // SAFETY: By the requirements of this function, `definitions` is a table up to its end,
        // which the loop has not passed. Nothing writes to a table once it is in use.
        let definition = unsafe { &*next };

        match u32::from(definition.kind) {
            bindings::uapi_definition_kind_UAPI_DEF_END => return false,
            bindings::uapi_definition_kind_UAPI_DEF_CHAIN => {
                // SAFETY: An entry of this kind has `chain` set, to a valid table.
                if unsafe { defines(*definition.__bindgen_anon_2.chain, object) } {
                    return true;
                }
            }
            bindings::uapi_definition_kind_UAPI_DEF_CHAIN_OBJ_TREE
            | bindings::uapi_definition_kind_UAPI_DEF_OBJECT_START => {
                // SAFETY: An entry of these kinds has `object_start` set; in both the id is its
                // first member.
                let start = unsafe { &definition.__bindgen_anon_1.object_start };

                if start.object_id == object {
                    return true;
                }
            }
            _ => (),
        }
        next = next.wrapping_add(1);
    }
}

/// Returns an entry that includes another table, or `None` if that is null.
fn chain(definitions: *const bindings::uapi_definition) -> Option<bindings::uapi_definition> {
    (!definitions.is_null()).then_some(bindings::uapi_definition {
        kind: bindings::uapi_definition_kind_UAPI_DEF_CHAIN as u8,
        __bindgen_anon_2: bindings::uapi_definition__bindgen_ty_2 {
            chain: ManuallyDrop::new(definitions),
        },
        ..END
    })
}
