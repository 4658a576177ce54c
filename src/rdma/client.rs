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
    attachment::Attached,
    bindings,
    device::Device,
    uverbs::table::Object,
    xrcd::Xrcd, //
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
/// It is owned by ib_core's list of the device's clients, from [`Self::add`] until after
/// [`Self::remove`]. All devices that it gets have XRC domains, and are not seen by ib_uverbs before.
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
}

/// A `struct ib_client`, see [`declare_client`].
pub(crate) struct Client<T> {
    raw: Opaque<bindings::ib_client>,
    registered: Atomic<bool>,
    _operations: PhantomData<fn() -> T>,
}

// SAFETY: ib_core synchronises its accesses to the structure, and nothing else writes to it.
unsafe impl<T> Sync for Client<T> {}

impl<T: ClientOperations> Client<T> {
    /// Describes a client.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            raw: Opaque::new(bindings::ib_client {
                name: as_char_ptr_in_const_context(name),
                add: Some(Self::add_callback),
                remove: Some(Self::remove_callback),
                // SAFETY: Zeroes are valid for every other member: callbacks that are not there,
                // and what ib_core sets up itself.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
            }),
            registered: Atomic::new(false),
            _operations: PhantomData,
        }
    }

    /// What the client has of a device, or `None` if it did not get the device.
    ///
    /// # Safety
    ///
    /// `'a` must end before the client's `remove` for the device begins. All that runs on behalf of
    /// a client that registered later does.
    pub(super) unsafe fn data<'a>(&self, device: &'a Device) -> Option<&'a Attached<T>> {
        // SAFETY: The device and the client are valid.
        let data = unsafe { bindings::ib_xrc_rcv_client_data(device.as_ptr(), self.raw.get()) };

        // SAFETY:
        // * Only `add_callback` sets the pointer, to that of an owned `Attached<T>`.
        // * `remove_callback` takes it back, which does not run before `'a` has ended by the
        //   requirements of this function.
        // * Any thread may use it: `T` is `Sync`, and nothing else in it changes.
        (!data.is_null()).then(|| unsafe { KBox::<Attached<T>>::borrow(data) })
    }

    /// # Safety
    ///
    /// Called by ib_core only, for a device that the client is being added to.
    unsafe extern "C" fn add_callback(device: *mut bindings::ib_device) -> c_int {
        // SAFETY: ib_core passes a valid device.
        let device = unsafe { Device::from_ptr(device) };

        from_result(|| {
            // SAFETY: By the requirements of this function, the device is being added to the client of
            // `T`. It is handed to ib_core, and dropped in `remove_callback` only.
            let attached = unsafe { Attached::<T>::new(device) }?;
            let data = KBox::new(attached, GFP_KERNEL)?.into_foreign();

            // SAFETY:
            // * By the requirements of this function, the client is being added to the device.
            // * It is `T::client()`: no other client with these callbacks can be registered.
            unsafe { bindings::ib_set_client_data(device.as_ptr(), T::client().raw.get(), data) };
            // SAFETY: `data` comes from `into_foreign`, and is taken back in `remove_callback` only,
            // which ib_core does not run before this callback has returned.
            let attached = unsafe { KBox::<Attached<T>>::borrow(data) };

            attached.install();
            attached.client().added();
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by ib_core only, once for each `add_callback` that succeeded, with what it stored.
    unsafe extern "C" fn remove_callback(_device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY:
        // * `data` is what `add_callback` stored, from `into_foreign`, and this is called once for it.
        // * By the requirements of `Client::data`, all other borrows of it have ended.
        let attached = unsafe { KBox::<Attached<T>>::from_foreign(data) };

        attached.client().remove();
    }
}

/// A registered client.
///
/// # Invariants
///
/// The client is that of `T`, and registered.
pub(crate) struct Registration<T: ClientOperations>(&'static Client<T>);

impl<T: ClientOperations> Registration<T> {
    /// Registers the client and adds all devices there are, with an ib_uverbs that is just being
    /// loaded held up meanwhile. `EBUSY` if it is registered.
    ///
    /// # Safety
    ///
    /// The registration must be dropped by the exit of this module only, or if its initialisation
    /// fails for want of it. To drop it takes the devices away from the client while later clients
    /// still use them; at the exit there are none, because each that is attached holds the module.
    pub(crate) unsafe fn new() -> Result<Self> {
        let client = T::client();

        if client.registered.xchg(true, Full) {
            return Err(EBUSY);
        }

        // SAFETY:
        // * The client is static, and not registered.
        // * Its callbacks find it again as `T::client()`, and agree on the type of its data.
        to_result(unsafe { bindings::ib_xrc_rcv_register_client(client.raw.get()) })
            .inspect_err(|_| client.registered.store(false, Release))?;
        // INVARIANT: Just registered.
        Ok(Self(client))
    }
}

impl<T: ClientOperations> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Waits for callbacks that run.
        unsafe { bindings::ib_xrc_rcv_unregister_client(self.0.raw.get()) };
        self.0.registered.store(false, Release);
    }
}
