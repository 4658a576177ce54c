// SPDX-License-Identifier: GPL-2.0

//! An attachment to a device of a kernel with hooks.
//!
//! The client registers an extension of the uverbs interface of a device, which ib_uverbs offers
//! while it is added to the device, whichever of the two comes first. ib_core calls a notifier
//! before the driver deallocates an XRC domain.
//!
//! Nothing of this holds a reference to the module: the extension ends before it does.

use super::operations::{
    definitions,
    Attached,
    ClientOperations, //
};
use crate::rdma::{
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
    xrcd::Xrcd, //
};
use core::mem::{
    offset_of,
    MaybeUninit, //
};
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// A device with the uverbs objects and the data of a client.
///
/// ib_core has a reference to it, as the data of the client, from the client's `add` to its
/// `remove`, and so has each call of another part of the kernel. It takes effect from
/// [`install`](Self::install) to `remove`.
///
/// # Invariants
///
/// * `notifier` is called with [`Self::domain_ended`].
/// * `extension` is of `device`, with `_definitions`.
pub(crate) struct Extended<T> {
    notifier: Opaque<bindings::notifier_block>,
    extension: Opaque<bindings::uverbs_extension>,
    _definitions: KVec<bindings::uapi_definition>,
    data: Pin<KBox<T>>,
    device: Registered,
}

// SAFETY: The pointers, also those in the definitions, are to tables that belong to no thread, and
// ib_core and ib_uverbs use the notifier and the extension in any. The other fields are `Send` if
// `T` is.
unsafe impl<T: Send> Send for Extended<T> {}

// SAFETY: Nothing writes to the definitions, nor to the tables that the pointers are to. ib_core
// and ib_uverbs synchronise their accesses to the notifier and the extension. The other fields are
// `Sync` if `T` is.
unsafe impl<T: Sync> Sync for Extended<T> {}

impl<T: ClientOperations<Attachment = Self>> Extended<T> {
    /// Prepares to attach the client's objects.
    fn new(device: &Device) -> Result<Self, Declined> {
        if !device.has_xrc_domains() {
            return Err(Declined::NoXrcDomains);
        }
        if !T::OBJECTS.iter().all(|object| object.has_room()) {
            return Err(Declined::ObjectIdsTooLarge);
        }

        let definitions = definitions::<T>(None)?;

        // INVARIANT: The callback and the definitions are these.
        Ok(Self {
            notifier: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::domain_ended),
                // SAFETY: Zeroes are valid for the other members: a pointer and an integer.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
            }),
            extension: Opaque::new(bindings::uverbs_extension {
                definitions: definitions.as_ptr(),
                device: device.as_ptr(),
                // SAFETY: Zeroes are valid for the other members, which are private: pointers.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
            }),
            _definitions: definitions,
            data: T::add(device)?,
            device: Registered::new(device)?,
        })
    }

    /// Adds the objects to the device, and is called at the end of its domains.
    ///
    /// # Safety
    ///
    /// Must be called once, in the client's `add`, after `self` was stored as the client's data,
    /// which methods look up. `self` must not be moved.
    unsafe fn install(&self) -> Result<(), Declined> {
        // SAFETY: By the requirements of this function, the notifier is not registered yet. It
        // stays where it is until it is unregistered, below or in `remove`.
        let registered = unsafe { bindings::ib_register_xrcd_notifier(self.notifier.get()) };

        if registered != 0 {
            return Err(Error::from_errno(registered).into());
        }

        // SAFETY:
        // * By the requirements of this function, the extension is not registered yet, and stays
        //   where it is. By the type invariant, it is complete.
        // * `device` keeps the device registered, and it is being added to the client.
        let result = unsafe { bindings::uverbs_register_extension(self.extension.get()) };

        if result == 0 {
            return Ok(());
        }
        // SAFETY: It was registered above.
        unsafe { bindings::ib_unregister_xrcd_notifier(self.notifier.get()) };
        match Error::from_errno(result) {
            error if error == EEXIST => Err(Declined::ObjectIdsInUse),
            error => Err(error.into()),
        }
    }

    /// # Safety
    ///
    /// Called by ib_core only, for the notifier of an attachment, with a domain that is open until
    /// this returns.
    unsafe extern "C" fn domain_ended(
        notifier: *mut bindings::notifier_block,
        _action: c_ulong,
        domain: *mut c_void,
    ) -> c_int {
        // SAFETY: By the requirements of this function, it is the member of an attachment, in which
        // it is registered. Unregistering it waits for this call.
        let attachment = unsafe { &*notifier.byte_sub(offset_of!(Self, notifier)).cast::<Self>() };
        // SAFETY: By the requirements of this function.
        let domain = unsafe { Xrcd::from_ptr(domain.cast()) };

        if core::ptr::eq(domain.device(), &*attachment.device) {
            attachment.data().domain_closed(domain);
        }
        bindings::NOTIFY_DONE as c_int
    }
}

impl<T: ClientOperations<Attachment = Self>> Attached<T> for Extended<T> {
    fn data(&self) -> Pin<&T> {
        self.data.as_ref()
    }
}

// SAFETY: `T::client` returns the same client whenever it is called, by the requirements of
// `HasClient`.
unsafe impl<T: ClientOperations<Attachment = Self>> ClientData for Extended<T> {
    fn client() -> &'static Client<Self> {
        T::client()
    }

    unsafe fn add(device: &Device) -> Result<Self, Declined> {
        Self::new(device)
    }

    fn declined(device: &Device, why: Declined) {
        T::declined(device, why);
    }

    fn added(&self) -> Result<(), Declined> {
        // SAFETY: ib_core's callback for the device calls this once, when it has stored the data,
        // which is in an `Arc`.
        unsafe { self.install() }?;
        self.data().added();
        Ok(())
    }

    fn remove(&self) {
        // SAFETY: `added` has registered it, and this is called once after that succeeded.
        unsafe { bindings::uverbs_unregister_extension(self.extension.get()) };
        self.data().remove();
        // SAFETY: `added` has registered it, and this is called once after that succeeded. Until
        // here it is called for a domain that is closed meanwhile.
        unsafe { bindings::ib_unregister_xrcd_notifier(self.notifier.get()) };
    }
}
