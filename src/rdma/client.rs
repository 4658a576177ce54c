// SPDX-License-Identifier: GPL-2.0

//! Clients of ib_core: who wants to know of every RDMA device.
//!
//! ib_core calls the clients' `add` for each device in the order in which the clients registered,
//! and their `remove` in reverse. Hence, of two clients, the one that registered first sees a
//! device before the other does, and sees it longer: when its `remove` runs, the other is done
//! with the device. A client that registers before ib_uverbs may rely on it: its data is there
//! whenever a uverbs method runs, and as long as anybody has an XRC domain open.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::Device, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    str::as_char_ptr_in_const_context,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    }, //
};

/// The one client that has operations `Self`.
///
/// To be implemented with [`declare_client`].
///
/// # Safety
///
/// [`Self::client`] returns the same client whenever it is called.
pub(crate) unsafe trait HasClient: Sized + 'static {
    /// The client.
    fn client() -> &'static Client<Self>;
}

/// Declares the client of a type that implements [`ClientOperations`].
macro_rules! declare_client {
    ($operations:ty, $name:expr) => {
        // SAFETY: There is one static behind this implementation.
        unsafe impl $crate::rdma::client::HasClient for $operations {
            fn client() -> &'static $crate::rdma::client::Client<Self> {
                static CLIENT: $crate::rdma::client::Client<$operations> =
                    $crate::rdma::client::Client::new($name);

                &CLIENT
            }
        }
    };
}
pub(crate) use declare_client;

/// What a client does when devices come and go.
#[vtable]
pub(crate) trait ClientOperations: HasClient {
    /// What the client keeps for a device.
    type Data: ForeignOwnable + Send + Sync;

    /// A device appeared. An error means that the client does not want it.
    fn add(device: &Device) -> Result<Self::Data>;

    /// Calls on behalf of later clients find the data that [`Self::add`] returned from now on.
    fn added(data: <Self::Data as ForeignOwnable>::Borrowed<'_>);

    /// The device disappears. Calls on behalf of later clients have ended.
    fn remove(data: <Self::Data as ForeignOwnable>::Borrowed<'_>);

    /// The device got another name.
    fn rename(_data: <Self::Data as ForeignOwnable>::Borrowed<'_>) {
        kernel::build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }
}

/// A `struct ib_client`, see [`declare_client`].
pub(crate) struct Client<T> {
    raw: Opaque<bindings::ib_client>,
    registered: Atomic<bool>,
    _operations: PhantomData<fn() -> T>,
}

// SAFETY: ib_core synchronises its accesses to the structure; nobody else writes to it.
unsafe impl<T> Sync for Client<T> {}

impl<T: ClientOperations> Client<T> {
    /// Describes a client.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            raw: Opaque::new(bindings::ib_client {
                name: as_char_ptr_in_const_context(name),
                add: Some(Self::add_callback),
                remove: Some(Self::remove_callback),
                rename: if T::HAS_RENAME {
                    Some(Self::rename_callback)
                } else {
                    None
                },
                // SAFETY: Zeroes are valid for every other member: callbacks that are not there,
                // and what ib_core sets up itself.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
            }),
            registered: Atomic::new(false),
            _operations: PhantomData,
        }
    }

    /// The client's data of a device, or `None` if the client does not want the device.
    ///
    /// # Safety
    ///
    /// `'a` must end before the client's `remove` for the device begins. All that runs on behalf of
    /// a client that registered later does.
    pub(super) unsafe fn data<'a>(
        &self,
        device: &'a Device,
    ) -> Option<<T::Data as ForeignOwnable>::Borrowed<'a>> {
        // SAFETY: The device and the client are valid.
        let data = unsafe { bindings::xrc_rcv_client_data(device.as_ptr(), self.raw.get()) };

        // SAFETY:
        // * Only `add_callback` sets the pointer, to that of an owned `T::Data`.
        // * `remove_callback` takes it back, which does not run before `'a` has ended by the
        //   requirements of this function.
        (!data.is_null()).then(|| unsafe { T::Data::borrow(data) })
    }

    /// # Safety
    ///
    /// Called by ib_core only, for a device that the client is being added to.
    unsafe extern "C" fn add_callback(device: *mut bindings::ib_device) -> c_int {
        // SAFETY: ib_core passes a valid device.
        let device = unsafe { Device::from_ptr(device) };

        from_result(|| {
            let data = T::add(device)?.into_foreign();

            // SAFETY:
            // * By the requirements of this function, the client is being added to the device.
            // * It is `T::client()`: no other client with these callbacks can be registered.
            unsafe { bindings::ib_set_client_data(device.as_ptr(), T::client().raw.get(), data) };
            // SAFETY: `data` comes from `into_foreign`, and is taken back in `remove_callback` only,
            // which ib_core does not run before this callback has returned.
            T::added(unsafe { T::Data::borrow(data) });
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by ib_core only, once for each `add_callback` that succeeded, with what it stored.
    unsafe extern "C" fn remove_callback(_device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: `data` is what `add_callback` stored, from `into_foreign`.
        T::remove(unsafe { T::Data::borrow(data) });
        // SAFETY:
        // * As above, and this is called once for what was stored.
        // * Nobody borrows it any more: `T::remove` has returned, and by the requirements of
        //   `Client::data` all other borrows ended before it began.
        drop(unsafe { T::Data::from_foreign(data) });
    }

    /// # Safety
    ///
    /// Called by ib_core only, between `add_callback` and `remove_callback`, with what the former stored.
    unsafe extern "C" fn rename_callback(_device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: `data` is what `add_callback` stored; ib_core does not run this with `remove`.
        T::rename(unsafe { T::Data::borrow(data) });
    }
}

/// A registered client. Dropping it removes all devices and unregisters.
///
/// # Invariants
///
/// The client is that of `T`, and registered.
pub(crate) struct Registration<T: ClientOperations>(&'static Client<T>);

impl<T: ClientOperations> Registration<T> {
    /// Registers the client and adds all devices there are. `EBUSY` if it is registered.
    pub(crate) fn new() -> Result<Self> {
        let client = T::client();

        if client.registered.xchg(true, Full) {
            return Err(EBUSY);
        }

        // SAFETY:
        // * The client is static, and not registered.
        // * Its callbacks find it again as `T::client()`, and agree on the type of its data.
        to_result(unsafe { bindings::ib_register_client(client.raw.get()) })
            .inspect_err(|_| client.registered.store(false, Release))?;
        // INVARIANT: Just registered.
        Ok(Self(client))
    }
}

impl<T: ClientOperations> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Waits for callbacks that run.
        unsafe { bindings::ib_unregister_client(self.0.raw.get()) };
        self.0.registered.store(false, Release);
    }
}
