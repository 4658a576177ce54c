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
    client::{
        self,
        Client,
        ClientData, //
    },
    device::{
        Device,
        Registered, //
    },
    module::ModuleReference,
    uverbs::{
        self,
        table::Object,
        DeviceData, //
    },
    xrcd::Xrcd, //
};
use crate::kernel_ext::{
    not_supported,
    this_module, //
};
use core::mem::{
    ManuallyDrop,
    MaybeUninit, //
};
use kernel::prelude::*;

/// The client that attaches what a type declares.
///
/// To be implemented with [`declare_client`].
///
/// # Safety
///
/// [`Self::client`] returns the same client whenever it is called.
pub(crate) unsafe trait HasClient: Sized + 'static {
    /// The client.
    fn client() -> &'static Client<Attached<Self>>;
}

/// Declares the client of a type that implements [`ClientOperations`].
macro_rules! declare_client {
    ($operations:ty, $name:expr) => {
        // SAFETY: The function returns a reference to its one static.
        unsafe impl $crate::rdma::attachment::HasClient for $operations {
            fn client(
            ) -> &'static $crate::rdma::client::Client<$crate::rdma::attachment::Attached<Self>>
            {
                static CLIENT: $crate::rdma::client::Client<
                    $crate::rdma::attachment::Attached<$operations>,
                > = $crate::rdma::client::Client::new($name);

                &CLIENT
            }
        }
    };
}
pub(crate) use declare_client;

/// Why a client does not get a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declined {
    /// The provider has no XRC domains.
    NoXrcDomains,
    /// ib_uverbs may see the device before the client does.
    BehindUverbs,
    /// The driver has an object with the id of one of the client's.
    ObjectIdsInUse,
}

/// What a client keeps of a device, and does when devices come and go.
///
/// It is owned by the [`Attached`] device, from [`Self::add`] until after [`Self::remove`]. All devices
/// that it gets have XRC domains, and are not seen by ib_uverbs before.
pub(crate) trait ClientOperations: HasClient + Send + Sync {
    /// What the devices get in their uverbs interface.
    const OBJECTS: &'static [&'static Object<Self>];

    /// A device appeared. An error means that the client does not want it.
    fn add(device: &Device) -> Result<Pin<KBox<Self>>>;

    /// A device appeared that the client does not get.
    fn declined(device: &Device, why: Declined);

    /// Calls on behalf of later clients find what [`Self::add`] returned from now on.
    fn added(self: Pin<&Self>);

    /// The device disappears. Calls on behalf of later clients have ended.
    fn remove(self: Pin<&Self>);

    /// A domain is closed for the last time. What uses it must be gone when this returns.
    fn domain_closed(self: Pin<&Self>, xrcd: &Xrcd);

    /// What the client keeps of the device of a domain, `None` if it did not get the device.
    fn of_xrcd(xrcd: &Xrcd) -> Option<Pin<&Self>> {
        attached::<Self>(xrcd).map(Attached::data)
    }
}

/// The registered client of a type that implements [`ClientOperations`].
pub(crate) type Registration<T> = client::Registration<Attached<T>>;

type DeallocXrcd =
    unsafe extern "C" fn(xrcd: *mut bindings::ib_xrcd, udata: *mut bindings::ib_udata) -> c_int;

/// A device with the objects of the client `T`, and what the client keeps of it.
///
/// Owned by ib_core, as the data of the client, from the client's `add` to its `remove`. In effect
/// from [`install`](Self::install) in the former until it is dropped in the latter, which leaves the
/// device as it was. No lock: uverbs reads the definitions after `add` and is done with the device
/// before `remove`, and who has an XRC domain keeps the device.
///
/// # Invariants
///
/// * It was made while the device was being added to the client of `T`, before ib_uverbs sees the
///   device, and is dropped while the device is being removed from the client.
/// * `driver_definitions` and `driver_dealloc_xrcd` are what the device had when it was made.
pub(crate) struct Attached<T> {
    device: Registered,
    definitions: KVec<bindings::uapi_definition>,
    driver_definitions: *const bindings::uapi_definition,
    driver_dealloc_xrcd: DeallocXrcd,
    data: Pin<KBox<T>>,
    _module: ModuleReference,
}

// SAFETY: The pointers, also those in `definitions`, are to tables that belong to no thread. The
// other fields are `Send` if `T` is.
unsafe impl<T: Send> Send for Attached<T> {}

// SAFETY: Nothing writes to the definitions, nor to the tables that the pointers are to. The other
// fields are `Sync` if `T` is.
unsafe impl<T: Sync> Sync for Attached<T> {}

impl<T: ClientOperations> Attached<T> {
    /// Prepares to attach the client's objects. `EOPNOTSUPP` if the device has no XRC domains, `EBUSY` if
    /// ib_uverbs may see it before, `EEXIST` if the driver has an object with the id of one of them:
    /// ib_uverbs would not expose the device at all.
    ///
    /// # Safety
    ///
    /// The device must be being added to the client of `T`, and what this returns must be dropped
    /// while it is being removed from that, or before this addition ends.
    unsafe fn new(device: &Device) -> Result<Self> {
        let declined = |why, error| {
            T::declined(device, why);
            Err(error)
        };
        // SAFETY: The device is valid. The driver sets both members before it registers the device, and
        // clients as this one change them in turn: ib_core adds a device to one after the other.
        let (driver_definitions, dealloc_xrcd) = unsafe {
            (
                (*device.as_ptr()).driver_def,
                (*device.as_ptr()).ops.dealloc_xrcd,
            )
        };
        let Some(driver_dealloc_xrcd) = dealloc_xrcd.filter(|_| device.has_xrc_domains()) else {
            return declined(Declined::NoXrcDomains, not_supported());
        };

        if uverbs::came_first() {
            return declined(Declined::BehindUverbs, EBUSY);
        }
        for object in T::OBJECTS {
            // SAFETY: `driver_definitions` is null or what the driver, or a client as this one, wants
            // ib_uverbs to read later: a table that ends as tables do, and stays until the device is
            // removed from this client.
            if unsafe { defines(driver_definitions, object.id()) } {
                return declined(Declined::ObjectIdsInUse, EEXIST);
            }
        }

        // INVARIANT: By the requirements of this function; the members were just read.
        Ok(Self {
            device: Registered::new(device)?,
            definitions: definitions(driver_definitions, T::OBJECTS)?,
            driver_definitions,
            driver_dealloc_xrcd,
            data: T::add(device)?,
            _module: ModuleReference::new(this_module())?,
        })
    }

    /// Lets the device have the objects, and the client know of domains that are closed.
    ///
    /// To be called when it is the client's data, which the wrapper of `dealloc_xrcd` looks for.
    fn install(&self) {
        let device = self.device.as_ptr();

        // SAFETY:
        // * `device` keeps the device registered, so it is valid.
        // * By the type invariant, ib_uverbs does not read `driver_def` yet, and nobody has a domain,
        //   whose end would read `dealloc_xrcd`.
        // * `definitions` stays, and the client's data is there, until `self` is dropped.
        unsafe {
            (*device).driver_def = self.definitions.as_ptr();
            (*device).ops.dealloc_xrcd = Some(dealloc_xrcd::<T>);
        }
    }
}

impl<T> Attached<T> {
    /// What the client keeps of the device.
    fn data(&self) -> Pin<&T> {
        self.data.as_ref()
    }
}

// SAFETY: `T::client` returns the same client whenever it is called, by the requirements of `HasClient`.
unsafe impl<T: ClientOperations> ClientData for Attached<T> {
    fn client() -> &'static Client<Self> {
        T::client()
    }

    unsafe fn add(device: &Device) -> Result<KBox<Self>> {
        // SAFETY: By the requirements of this function, the device is being added to the client of `T`.
        // ib_core gets what this returns, and it is dropped in `remove`, or at once if there is no memory.
        let attached = unsafe { Self::new(device) }?;

        Ok(KBox::new(attached, GFP_KERNEL)?)
    }

    fn added(&self) {
        self.install();
        self.data().added();
    }

    fn remove(self: KBox<Self>) {
        self.data().remove();
    }
}

impl<T: ClientOperations> DeviceData for T {
    unsafe fn of_device(device: &Device) -> Option<Pin<&Self>> {
        // SAFETY: The client gets devices only that ib_uverbs is added to later, so ib_uverbs is removed
        // before it. By the requirements of this function, the reference has ended by then.
        unsafe { T::client().data(device) }.map(Attached::data)
    }
}

/// The device of a domain, if it is attached.
fn attached<T: ClientOperations>(xrcd: &Xrcd) -> Option<&Attached<T>> {
    // SAFETY:
    // * The domain is open as long as the reference to it exists, on behalf of a later client:
    //   ib_uverbs or another.
    // * That client closes it before its `remove` for the device returns, which is before the one of
    //   the client of `T` begins.
    unsafe { T::client().data(xrcd.device()) }
}

impl<T> Drop for Attached<T> {
    fn drop(&mut self) {
        let device = self.device.as_ptr();

        // SAFETY:
        // * `device` keeps the device registered, so it is valid.
        // * By the type invariant, the device is being removed from the client: later clients, of which
        //   ib_uverbs is one, are done with it, and have undone what they did to these members. Or it
        //   is still being added, and no later client has seen it.
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
/// Called by ib_core only, as the operation of a device that is attached to the client of `T`.
unsafe extern "C" fn dealloc_xrcd<T: ClientOperations>(
    xrcd: *mut bindings::ib_xrcd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function, ib_core passes a domain that is valid until the
    // driver's `dealloc_xrcd` is called below. It was open on behalf of ib_uverbs or of another client that
    // registered later, which has not returned from closing it.
    let domain = unsafe { Xrcd::from_ptr(xrcd) };
    let Some(attached) = attached::<T>(domain) else {
        // The operation is installed while there is data only.
        return ENODEV.to_errno();
    };

    attached.data().domain_closed(domain);
    // SAFETY: `driver_dealloc_xrcd` is the operation of the driver, by the invariant of `Attached`. ib_core
    // would have called it with these arguments.
    unsafe { (attached.driver_dealloc_xrcd)(xrcd, udata) }
}

/// A table with the driver's definitions and those of a client's objects.
fn definitions<T: ClientOperations>(
    driver_definitions: *const bindings::uapi_definition,
    objects: &'static [&'static Object<T>],
) -> Result<KVec<bindings::uapi_definition>> {
    let mut definitions = KVec::with_capacity(objects.len() + 2, GFP_KERNEL)?;

    if !driver_definitions.is_null() {
        definitions.push(chain(driver_definitions), GFP_KERNEL)?;
    }
    for object in objects {
        definitions.push(object.definition(), GFP_KERNEL)?;
    }
    definitions.push(END, GFP_KERNEL)?;
    Ok(definitions)
}

/// The end of a table of definitions.
const END: bindings::uapi_definition = bindings::uapi_definition {
    kind: bindings::uapi_definition_kind_UAPI_DEF_END as u8,
    // SAFETY: Zeroes are valid for all members: integers, and unions of integers, pointers and optional
    // functions.
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
        // SAFETY: By the requirements of this function, `definitions` is a table up to its end, which the
        // loop has not passed. Nothing writes to a table once it is in use.
        let definition = unsafe { &*next };

        match u32::from(definition.kind) {
            bindings::uapi_definition_kind_UAPI_DEF_END => return false,
            bindings::uapi_definition_kind_UAPI_DEF_CHAIN => {
                // SAFETY: An entry of this kind has `chain` set, to a table as ib_uverbs expects it.
                if unsafe { defines(*definition.__bindgen_anon_2.chain, object) } {
                    return true;
                }
            }
            bindings::uapi_definition_kind_UAPI_DEF_CHAIN_OBJ_TREE
            | bindings::uapi_definition_kind_UAPI_DEF_OBJECT_START => {
                // SAFETY: An entry of these kinds has `object_start` set; in both the id is its first member.
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
