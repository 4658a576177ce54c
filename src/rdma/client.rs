// SPDX-License-Identifier: GPL-2.0

//! Clients of ib_core.
//!
//! ib_core calls the `add` of each client for every RDMA device, in the order in which the clients
//! registered, and their `remove` in the reverse order.
//!
//! Without hooks, a client must register before ib_uverbs. So it is added to a device before
//! ib_uverbs is, and removed after it: its data for the device exists whenever a uverbs method
//! runs, and as long as a process has an XRC domain open, because the `remove` of ib_uverbs waits
//! for the former and closes the latter. With hooks, clients register in any order. A client's
//! methods run from within its `added` until within its `remove`, which waits for them, and
//! processes may have XRC domains open before and after.
//!
//! None of that holds for other clients, which the kernel has XRC domains for. If a client is being
//! unregistered while a device is removed, its `remove` may run when ib_core calls that of the next
//! client: `remove_client_context()` is not a fence. It keeps the device registered meanwhile, and
//! needs references to the other client's objects that it uses.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    bindings,
    device::Device, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::null_mut, //
};
use kernel::{
    error::to_result,
    prelude::*,
    str::as_char_ptr_in_const_context,
    sync::{
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    }, //
};

// Without hooks the order of clients matters.
#[cfg(hooked)]
use bindings::{
    ib_register_client as register_client,
    ib_unregister_client as unregister_client, //
};
#[cfg(not(hooked))]
use bindings::{
    ib_xrc_rcv_register_client as register_client,
    ib_xrc_rcv_unregister_client as unregister_client, //
};

/// The reason why a client does not get a device.
#[cfg_attr(
    hooked,
    expect(dead_code, reason = "the order of modules does not matter")
)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declined {
    /// The provider has no XRC domains.
    NoXrcDomains,
    /// ib_uverbs may see the device before the client does.
    BehindUverbs,
    /// The driver has an object with the same id as one of the client's: ib_uverbs would refuse the
    /// device.
    ObjectIdsInUse,
    /// Ids of drivers end before those of the client's objects: ib_uverbs would refuse the device.
    ObjectIdsTooLarge,
    /// There is no memory, or the device refuses what the client needs.
    Failed(Error),
}

impl<E> From<E> for Declined
where
    Error: From<E>,
{
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The data of a client for a device.
///
/// ib_core's list of the device's clients has a reference to it, from [`Self::add`] to
/// [`Self::remove`], and so has each caller of [`Client::get`].
///
/// # Safety
///
/// [`Self::client`] returns the same client whenever it is called.
pub(crate) unsafe trait ClientData: Send + Sync + Sized + 'static {
    /// The client whose data this is.
    fn client() -> &'static Client<Self>;

    /// Creates the data for a device. The client does not get the device if this fails.
    ///
    /// # Safety
    ///
    /// The device must be being added to the client.
    unsafe fn add(device: &Device) -> Result<Self, Declined>;

    /// Called for a device that the client does not get.
    fn declined(device: &Device, why: Declined);

    /// Called once [`Client::data`] and [`Client::get`] find the data, before the device is added
    /// to later clients. The client does not get the device if this fails, and then no method has
    /// run.
    fn added(&self) -> Result<(), Declined>;

    /// Called when the device is removed from the client. No method runs any more when this
    /// returns. Afterwards the data is not found any more.
    fn remove(&self);
}

/// A `struct ib_client` whose data for a device is a `D`.
pub(crate) struct Client<D> {
    raw: Opaque<bindings::ib_client>,
    registered: Atomic<bool>,
    _data: PhantomData<fn() -> D>,
}

// SAFETY: ib_core synchronises its accesses to `raw`, and nothing else writes to it; `registered`
// is atomic.
unsafe impl<D> Sync for Client<D> {}

impl<D: ClientData> Client<D> {
    /// Creates a client that is not registered.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            raw: Opaque::new(bindings::ib_client {
                name: as_char_ptr_in_const_context(name),
                add: Some(Self::add_callback),
                remove: Some(Self::remove_callback),
                // SAFETY: Zeroes are valid for the other members: callbacks that are `None`, a flag
                // that is off, and `uses`, `uses_zero` and `client_id`, which ib_core initialises
                // when it registers the client.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
            }),
            registered: Atomic::new(false),
            _data: PhantomData,
        }
    }

    /// Returns the data for a device, or `None` if the client did not get the device.
    ///
    /// # Safety
    ///
    /// `'a` must end before [`ClientData::remove`] returns for the device. If [`ClientData::added`]
    /// fails for it, there must have been no `'a`.
    pub(super) unsafe fn data<'a>(&self, device: &'a Device) -> Option<&'a D> {
        let data = self.pointer(device);

        // SAFETY:
        // * Only `add_callback` sets the pointer, to that of an owned `Arc<D>`.
        // * `remove_callback` takes it back after `ClientData::remove` has returned, and
        //   `add_callback` only if `ClientData::added` fails. By the requirements of this function,
        //   `'a` has ended by the former, and there is none with the latter.
        // * Any thread may use it: `D` is `Sync`.
        (!data.is_null()).then(|| &**unsafe { KBox::<Arc<D>>::borrow(data) })
    }

    /// Returns a reference to the data for a device, or `None` if the client did not get the
    /// device, or the device was removed from it.
    pub(super) fn get(&self, device: &Device) -> Option<Arc<D>> {
        // SAFETY: The device is valid as long as it is borrowed. The lock is released below, and
        // nothing that is called until then sleeps or takes it.
        unsafe { bindings::ib_xrc_rcv_lock_client_data(device.as_ptr()) };

        let data = self.pointer(device);
        let reference = if data.is_null() {
            None
        } else {
            // SAFETY:
            // * Only `add_callback` sets the pointer, to that of an owned `Arc<D>`.
            // * `remove_callback` takes it back after it has set the pointer to null, for which
            //   `ib_set_client_data` takes the lock. So it is valid until the lock is released.
            Some(unsafe { KBox::<Arc<D>>::borrow(data) }.clone())
        };

        // SAFETY: The lock was taken above.
        unsafe { bindings::ib_xrc_rcv_unlock_client_data(device.as_ptr()) };
        reference
    }

    fn pointer(&self, device: &Device) -> *mut c_void {
        // SAFETY: `device` is valid as long as it is borrowed, and `raw` is initialised. The client
        // is registered: uverbs' methods and ib_core's callbacks exist since it is, and another
        // module links to this one's functions after its initialisation, which registers the
        // client.
        unsafe { bindings::ib_xrc_rcv_client_data(device.as_ptr(), self.raw.get()) }
    }

    /// # Safety
    ///
    /// Called by ib_core only, for a device that the client is being added to.
    unsafe extern "C" fn add_callback(device: *mut bindings::ib_device) -> c_int {
        // SAFETY: ib_core passes a device that is registered until this returns.
        let device = unsafe { Device::from_ptr(device) };

        // SAFETY: By the requirements of this function, the device is being added to the client of
        // `D`.
        let data = match unsafe { Self::create(device) } {
            Ok(data) => data.into_foreign(),
            Err(why) => {
                D::declined(device, why);
                // Any error: ib_core ignores which.
                return ENODEV.to_errno();
            }
        };

        // SAFETY:
        // * By the requirements of this function, the client is being added to the device.
        // * The client is `D::client()`, the only one with these callbacks.
        unsafe { bindings::ib_set_client_data(device.as_ptr(), D::client().raw.get(), data) };
        // SAFETY: `data` comes from `into_foreign`, and is taken back below, or in
        // `remove_callback`, which ib_core does not run before this callback has returned.
        let Err(why) = unsafe { KBox::<Arc<D>>::borrow(data) }.added() else {
            return 0;
        };

        // SAFETY:
        // * The device is being added to the client, and `data` was stored above. ib_core calls
        //   `remove_callback` only for a callback that succeeds.
        // * `added` has failed, so by the requirements of `Client::data` nothing has its return
        //   value.
        unsafe { Self::take(device.as_ptr(), data) };
        D::declined(device, why);
        ENODEV.to_errno()
    }

    /// Takes back the data of a device.
    ///
    /// # Safety
    ///
    /// The device must be being added to the client, or removed from it, and `data` be what
    /// `add_callback` stored. It must not be taken back again, nor be used after this.
    unsafe fn take(device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: By the requirements of this function, the device is valid. The client is
        // `D::client()`, the only one with these callbacks.
        unsafe { bindings::ib_set_client_data(device, D::client().raw.get(), null_mut()) };
        // SAFETY:
        // * `add_callback` stored `data`, from `into_foreign`. By the requirements of this
        //   function, it is taken back once, and nothing uses it after this.
        // * `Client::get` finds null since the line above.
        drop(unsafe { KBox::<Arc<D>>::from_foreign(data) });
    }

    /// # Safety
    ///
    /// The device must be being added to the client.
    unsafe fn create(device: &Device) -> Result<KBox<Arc<D>>, Declined> {
        // SAFETY: By the requirements of this function.
        let data = Arc::new(unsafe { D::add(device) }?, GFP_KERNEL)?;

        Ok(KBox::new(data, GFP_KERNEL)?)
    }

    /// # Safety
    ///
    /// Called by ib_core only, once for each `add_callback` that succeeded, with the data that it
    /// stored.
    unsafe extern "C" fn remove_callback(device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: `add_callback` stored `data`, from `into_foreign`, and this is called once for
        // it. It is taken back below.
        unsafe { KBox::<Arc<D>>::borrow(data) }.remove();
        // SAFETY:
        // * ib_core passes a device that the client has data of until this returns, and the data.
        //   It is taken back once, here.
        // * `ClientData::remove` has returned, so by the requirements of `Client::data` its return
        //   value is not used any more.
        unsafe { Self::take(device, data) };
    }
}

/// A registered client.
///
/// # Invariants
///
/// The client is that of `D`, and registered.
pub(crate) struct RegisteredClient<D: ClientData>(&'static Client<D>);

impl<D: ClientData> RegisteredClient<D> {
    /// Registers the client and adds it to all devices. An ib_uverbs that is being loaded meanwhile
    /// waits. `EBUSY` if the client is registered already.
    ///
    /// # Safety
    ///
    /// The registration must not be dropped before the exit of this module. Dropping it removes the
    /// client from its devices, which later clients must not be using by it: at the exit, nothing
    /// has a reference to the module.
    pub(crate) unsafe fn new() -> Result<Self> {
        let client = D::client();

        if client.registered.xchg(true, Full) {
            return Err(EBUSY);
        }

        // SAFETY: The function has no requirements.
        to_result(unsafe { bindings::ib_xrc_rcv_check_core() })
            // SAFETY:
            // * The client is static, and not registered.
            // * Its callbacks find it again as `D::client()`, and agree on the type of its data.
            .and_then(|()| to_result(unsafe { register_client(client.raw.get()) }))
            .inspect_err(|_| client.registered.store(false, Release))?;
        // INVARIANT: Just registered.
        Ok(Self(client))
    }
}

impl<D: ClientData> Drop for RegisteredClient<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the client is registered, and this is the one call that
        // unregisters it. It waits for callbacks that run.
        unsafe { unregister_client(self.0.raw.get()) };
        self.0.registered.store(false, Release);
    }
}
