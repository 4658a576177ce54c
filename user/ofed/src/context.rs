// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! What the layer keeps for each open device: its event channel and its registrations.
//!
//! Made when the device is opened, so that whoever waits for its events from then on hears ours
//! too, or at the first XRC call if it was opened past us; dies when the device is closed. "Open
//! device" is what OFED counts registrations by: forked children share it, and their copies of this
//! state name the same kernel objects.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use xrc_rcv::ffi::{ibv_context, ibv_device};
use xrc_rcv::{Context, Error, EventChannel, Registration, Result};

use crate::real;

/// An open device with receive QPs.
pub(crate) struct Device {
    context: *mut ibv_context,
    /// Where the events of all registrations arrive; non-blocking.
    pub(crate) channel: EventChannel,
    /// By QP number.
    registrations: Mutex<HashMap<u32, Registered>>,
    /// Held by the one thread that takes an event, so that none is left waiting for what another
    /// took.
    pub(crate) reading: Mutex<()>,
}

// SAFETY: The `ibv_context` may be used from any thread, and nothing else is tied to one.
unsafe impl Send for Device {}
// SAFETY: As above; what changes is behind locks.
unsafe impl Sync for Device {}

/// A registration of this open device.
struct Registered {
    handle: u32,
    /// The address of the `ibv_xrc_domain` it was made through.
    domain: usize,
}

/// The open devices by the address of their `ibv_context`.
static DEVICES: RwLock<BTreeMap<usize, Arc<Device>>> = RwLock::new(BTreeMap::new());

/// The size of [`DEVICES`], so that `poll()` of a program without any costs nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Device {
    /// The device of an open `ibv_context`.
    ///
    /// # Safety
    ///
    /// `context` is open, and is closed through [`ibv_close_device`].
    pub(crate) unsafe fn of(context: *mut ibv_context) -> Result<Arc<Device>> {
        if let Some(device) = Device::find(context) {
            return Ok(device);
        }
        let mut devices = DEVICES.write().unwrap();
        if let Some(device) = devices.get(&context.addr()) {
            return Ok(device.clone());
        }
        // SAFETY: `context` is open.
        let channel = unsafe { Context::from_ibv(context) }?.create_event_channel()?;
        channel
            .set_nonblocking(true)
            .map_err(|_| Error::Os(libc::EIO))?;
        let device = Arc::new(Device {
            context,
            channel,
            registrations: Mutex::default(),
            reading: Mutex::default(),
        });
        devices.insert(context.addr(), device.clone());
        COUNT.store(devices.len(), Ordering::Relaxed);
        Ok(device)
    }

    /// The device of an open `ibv_context`, if it is known.
    pub(crate) fn find(context: *mut ibv_context) -> Option<Arc<Device>> {
        DEVICES.read().unwrap().get(&context.addr()).cloned()
    }

    fn file(&self) -> Result<Context<'_>> {
        // SAFETY: The context is open as long as the device is known.
        unsafe { Context::from_ibv(self.context) }
    }

    /// Takes note of a registration that was made through the domain at `domain`.
    pub(crate) fn remember(&self, registration: Registration<'_>, domain: usize) {
        let qp_num = registration.qp_num();
        let registered = Registered {
            handle: registration.into_handle(),
            domain,
        };
        let stale = self
            .registrations
            .lock()
            .unwrap()
            .insert(qp_num, registered);
        // The kernel makes a second registration only if the first one's QP is gone and its number
        // was given to a new one.
        if let Some(stale) = stale {
            if let Ok(file) = self.file() {
                drop(Registration::from_handle(file, stale.handle, qp_num));
            }
        }
    }

    /// Gives up the registration with `qp_num` that was made through the domain at `domain`.
    pub(crate) fn forget(&self, qp_num: u32, domain: usize) -> Result<()> {
        let mut registrations = self.registrations.lock().unwrap();
        match registrations.get(&qp_num) {
            Some(registered) if registered.domain == domain => {}
            _ => return Err(Error::Os(libc::EINVAL)),
        }
        let Some(registered) = registrations.remove(&qp_num) else {
            return Err(Error::Os(libc::EINVAL));
        };
        Registration::from_handle(self.file()?, registered.handle, qp_num).unregister()
    }

    /// Whether a registration was made through the domain at `domain` and is still held.
    pub(crate) fn uses(&self, domain: usize) -> bool {
        self.registrations
            .lock()
            .unwrap()
            .values()
            .any(|registered| registered.domain == domain)
    }
}

/// Calls `visit` with the asynchronous event descriptor of each device, and the one of its channel.
pub(crate) fn for_each_channel(mut visit: impl FnMut(RawFd, RawFd)) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    for device in DEVICES.read().unwrap().values() {
        // SAFETY: The context is open as long as the device is known.
        let async_fd = unsafe { (*device.context).async_fd };
        visit(async_fd, device.channel.as_raw_fd());
    }
}

/// Opens a device, as libibverbs does, with a channel for the events of receive QPs if it has any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: The caller's device.
    let context = unsafe { real::open_device(device) };
    if !context.is_null() {
        // Without receive QPs the device is an ordinary one, and the calls that want them say so.
        // SAFETY: Just opened.
        let _ = unsafe { Device::of(context) };
    }
    context
}

/// Closes a device, as libibverbs does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> i32 {
    let mut devices = DEVICES.write().unwrap();
    // An open channel would keep the file, and with it all registrations.
    devices.remove(&context.addr());
    COUNT.store(devices.len(), Ordering::Relaxed);
    drop(devices);
    // SAFETY: The caller's context.
    unsafe { real::close_device(context) }
}
