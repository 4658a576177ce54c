// SPDX-License-Identifier: GPL-2.0

//! A client that attaches objects to devices: its callbacks, and its data for a device.

use crate::rdma::{
    bindings,
    client::{
        Client,
        ClientData,
        Declined, //
    },
    device::Device,
    uverbs::{
        table::Object,
        DeviceData, //
    },
    xrcd::Xrcd, //
};
use core::{
    mem::MaybeUninit,
    ops::Deref, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A type whose client attaches its objects to devices.
///
/// Implement it with [`declare_client`](super::declare_client).
///
/// # Safety
///
/// [`Self::client`] returns the same client whenever it is called.
pub(crate) unsafe trait HasClient: Sized + 'static {
    /// The device with the objects and the data.
    type Attachment: Attached<Self>;

    /// Returns the client.
    fn client() -> &'static Client<Self::Attachment>;
}

/// A device that data is attached to.
pub(crate) trait Attached<T>: ClientData {
    /// Returns the data.
    fn data(&self) -> Pin<&T>;
}

/// The data of a client for a device, and the callbacks of the client.
///
/// The attachment owns the data, from [`Self::add`] until after [`Self::remove`], as long as
/// there is a [`DataRef`]. The device has XRC domains.
pub(crate) trait ClientOperations: HasClient + Send + Sync {
    /// The objects to add to the uverbs interface.
    const OBJECTS: &'static [&'static Object<Self>];

    /// Creates the data for a device. The client is not added to the device if this fails.
    fn add(device: &Device) -> Result<Pin<KBox<Self>>>;

    /// Called for a device that the client is not added to.
    fn declined(device: &Device, why: Declined);

    /// Called when the device is attached, before later clients are added to it.
    fn added(self: Pin<&Self>);

    /// Called when the device is removed, after the last method has returned and the objects of
    /// processes were destroyed. There may still be domains. The QPs of all domains must be
    /// destroyed when this returns, and no other must be created.
    fn remove(self: Pin<&Self>);

    /// Called when a domain is closed for the last time, possibly while [`Self::remove`] runs. Its
    /// QPs must be destroyed when this returns.
    fn domain_closed(self: Pin<&Self>, xrcd: &Xrcd);

    /// Returns the data for the device of a domain, or `None` if the device is not attached.
    fn of_xrcd(xrcd: &Xrcd) -> Option<DataRef<Self>> {
        attached::<Self>(xrcd).map(DataRef)
    }
}

/// A reference to the data of a client for a device, which stays registered as long as this exists.
pub(crate) struct DataRef<T: HasClient>(Arc<T::Attachment>);

impl<T: HasClient> Deref for DataRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.data().get_ref()
    }
}

impl<T: ClientOperations> DeviceData for T {
    unsafe fn of_device(device: &Device) -> Option<Pin<&Self>> {
        // SAFETY: By the requirements of this function, the reference ends with a method.
        // * Without hooks, ib_uverbs has the methods after it was added to the device, which it is
        //   after the client's `added`, which does not fail, and its `remove` waits for them, which
        //   is before the client's.
        // * With hooks, the device has them from the last step of `added` that may fail, and
        //   `remove` waits for them before it returns.
        unsafe { T::client().data(device) }.map(Attached::data)
    }
}

/// Returns the attached device of a domain, or `None` if the device is not attached.
pub(super) fn attached<T: ClientOperations>(xrcd: &Xrcd) -> Option<Arc<T::Attachment>> {
    T::client().get(xrcd.device())
}

/// Creates a table with the definitions of the objects of a client, after `first` if that is given.
pub(super) fn definitions<T: ClientOperations>(
    first: Option<bindings::uapi_definition>,
) -> Result<KVec<bindings::uapi_definition>> {
    let mut definitions = KVec::with_capacity(T::OBJECTS.len() + 2, GFP_KERNEL)?;

    if let Some(first) = first {
        definitions.push(first, GFP_KERNEL)?;
    }
    for object in T::OBJECTS {
        definitions.push(object.definition(), GFP_KERNEL)?;
    }
    definitions.push(END, GFP_KERNEL)?;
    Ok(definitions)
}

/// The end of a table of definitions.
pub(super) const END: bindings::uapi_definition = bindings::uapi_definition {
    kind: bindings::uapi_definition_kind_UAPI_DEF_END as u8,
    // SAFETY: Zeroes are valid for all members: integers, and unions of integers, pointers and
    // optional functions.
    ..unsafe { MaybeUninit::zeroed().assume_init() }
};
