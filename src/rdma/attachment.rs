// SPDX-License-Identifier: GPL-2.0

//! How a client makes its own uverbs objects and methods part of a device.
//!
//! ib_uverbs merges the definitions in `ib_device.driver_def` into the interface of a device when
//! it adds the device. A client that is there first ([`super::client`]) puts its objects behind
//! what the driver brings, and learns of the last close of an XRC domain by standing before
//! the driver's `dealloc_xrcd`, which ib_core calls when nothing refers to the domain any more.
//!
//! Nothing in ib_uverbs holds the client's module while its handlers are in use, so the
//! attachment does.

use super::{
    bindings,
    client::ClientOperations,
    device::{
        Device,
        Registered, //
    },
    module::ModuleReference,
    uverbs::table::Object,
    xrcd::Xrcd, //
};
use core::{
    marker::PhantomData,
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    }, //
};
use kernel::{
    prelude::*,
    types::ForeignOwnable, //
};

/// A client that attaches to devices.
pub(crate) trait Attach: ClientOperations {
    /// The attachment that the client made in [`ClientOperations::add`] and keeps in its data.
    fn attachment<'a>(
        data: &'a <Self::Data as ForeignOwnable>::Borrowed<'_>,
    ) -> &'a Attachment<Self>;

    /// A domain is closed for the last time. What uses it must be gone when this returns.
    fn domain_closed(data: <Self::Data as ForeignOwnable>::Borrowed<'_>, xrcd: &Xrcd);
}

type DeallocXrcd =
    unsafe extern "C" fn(xrcd: *mut bindings::ib_xrcd, udata: *mut bindings::ib_udata) -> c_int;

/// The module's hold on a device.
///
/// Made in the client's `add`, in effect between [`install`](Self::install) in its `added` and its
/// drop with the data of the client, after `remove`. No lock: uverbs reads the definitions after
/// `add` and is done with the device before `remove`, and whoever has an XRC domain keeps the
/// device.
pub(crate) struct Attachment<T> {
    device: Registered,
    definitions: KVec<bindings::uapi_definition>,
    driver_definitions: *const bindings::uapi_definition,
    driver_dealloc_xrcd: DeallocXrcd,
    _module: ModuleReference,
    _client: PhantomData<fn() -> T>,
}

// SAFETY: The pointers are to constant tables; the rest is `Send`.
unsafe impl<T> Send for Attachment<T> {}

// SAFETY: As above.
unsafe impl<T> Sync for Attachment<T> {}

impl<T: Attach> Attachment<T> {
    /// Prepares to attach `objects`. `EOPNOTSUPP` if the device has no XRC domains, `EEXIST` if the
    /// driver has an object with the id of one of them: ib_uverbs would not expose the device at all.
    pub(crate) fn new(
        device: &Device,
        objects: &'static [&'static Object],
        module: &'static ThisModule,
    ) -> Result<Self> {
        // SAFETY: The device is being added; these members are set before it is registered.
        let (driver_definitions, dealloc_xrcd) = unsafe {
            (
                (*device.as_ptr()).driver_def,
                (*device.as_ptr()).ops.dealloc_xrcd,
            )
        };

        for object in objects {
            // SAFETY: The driver's table is constant, and ends as tables do.
            if unsafe { defines(driver_definitions, object.id()) } {
                return Err(EEXIST);
            }
        }

        let mut definitions = KVec::with_capacity(objects.len() + 2, GFP_KERNEL)?;

        if !driver_definitions.is_null() {
            definitions.push(chain(driver_definitions), GFP_KERNEL)?;
        }
        for object in objects {
            definitions.push(object.definition(), GFP_KERNEL)?;
        }
        definitions.push(END, GFP_KERNEL)?;

        Ok(Self {
            device: Registered::new(device)?,
            definitions,
            driver_definitions,
            driver_dealloc_xrcd: dealloc_xrcd.ok_or_else(super::not_supported)?,
            _module: ModuleReference::new(module)?,
            _client: PhantomData,
        })
    }

    /// Lets the device have the objects, and the client hear of domains that are closed.
    ///
    /// Dropping the attachment leaves the device as it was.
    pub(crate) fn install(&self) {
        let device = self.device.as_ptr();

        // SAFETY: The device is valid. Nobody reads the members meanwhile, see the type.
        unsafe {
            (*device).driver_def = self.definitions.as_ptr();
            (*device).ops.dealloc_xrcd = Some(dealloc_xrcd::<T>);
        }
    }
}

impl<T> Drop for Attachment<T> {
    fn drop(&mut self) {
        let device = self.device.as_ptr();

        // SAFETY:
        // * `device` keeps the device registered.
        // * Nobody reads the members meanwhile, see the type.
        unsafe {
            (*device).driver_def = self.driver_definitions;
            (*device).ops.dealloc_xrcd = Some(self.driver_dealloc_xrcd);
        }
    }
}

/// Stands before the driver's `dealloc_xrcd`.
///
/// # Safety
///
/// Called by ib_core only, as the operation of a device that `T` is attached to.
unsafe extern "C" fn dealloc_xrcd<T: Attach>(
    xrcd: *mut bindings::ib_xrcd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: ib_core passes a valid domain, which keeps its device.
    let domain = unsafe { Xrcd::from_ptr(xrcd) };
    let Some(data) = domain.client_data::<T>() else {
        // The operation is installed while there is data only.
        return ENODEV.to_errno();
    };
    let attachment = T::attachment(&data);

    if !core::ptr::eq(&*attachment.device, domain.device()) {
        // The client keeps that of another device.
        return ENODEV.to_errno();
    }

    let driver_dealloc_xrcd = attachment.driver_dealloc_xrcd;

    T::domain_closed(data, domain);
    // SAFETY: What ib_core would have called.
    unsafe { driver_dealloc_xrcd(xrcd, udata) }
}

/// The end of a table of definitions.
const END: bindings::uapi_definition = bindings::uapi_definition {
    kind: bindings::uapi_definition_kind_UAPI_DEF_END as u8,
    // SAFETY: Zeroes are valid for all members, and mean the end.
    ..unsafe { MaybeUninit::zeroed().assume_init() }
};

/// Whether a table of definitions, or one that it includes, has an object.
///
/// # Safety
///
/// `definitions` must be null or a table as ib_uverbs expects it.
unsafe fn defines(definitions: *const bindings::uapi_definition, object: u16) -> bool {
    let mut next = definitions;

    if next.is_null() {
        return false;
    }
    loop {
        // SAFETY: The caller's promise; this is not behind the end.
        let definition = unsafe { &*next };

        match u32::from(definition.kind) {
            bindings::uapi_definition_kind_UAPI_DEF_END => return false,
            bindings::uapi_definition_kind_UAPI_DEF_CHAIN => {
                // SAFETY: The kind says which member is set, and that it is a table.
                if unsafe { defines(*definition.__bindgen_anon_2.chain, object) } {
                    return true;
                }
            }
            bindings::uapi_definition_kind_UAPI_DEF_CHAIN_OBJ_TREE
            | bindings::uapi_definition_kind_UAPI_DEF_OBJECT_START => {
                // SAFETY: The kind says which member is set.
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

/// The entry that includes another table.
fn chain(definitions: *const bindings::uapi_definition) -> bindings::uapi_definition {
    bindings::uapi_definition {
        kind: bindings::uapi_definition_kind_UAPI_DEF_CHAIN as u8,
        __bindgen_anon_2: bindings::uapi_definition__bindgen_ty_2 {
            chain: ManuallyDrop::new(definitions),
        },
        ..END
    }
}
