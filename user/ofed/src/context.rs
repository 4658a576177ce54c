// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The layer's state of an open device: its event channel and its registrations.
//!
//! Created when the device is opened, so that a program that waits for its events from then on gets
//! ours, too, or at the first XRC call if the device was opened without this library; dropped when the
//! device is closed. OFED counts registrations by "open device": forked children share it, and their
//! copies of this state name the same kernel objects.

use std::collections::btree_map::Entry;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use xrc_rcv::borrowed::{Context, Registration, Result};
use xrc_rcv::ffi::{ibv_context, ibv_device};
use xrc_rcv::{Cause, EventChannel};

use crate::{fds, real, state};

/// An open device with receive QPs.
#[derive(Clone)]
pub(crate) struct Device {
    context: *mut ibv_context,
    /// Where the events of all registrations arrive; non-blocking.
    pub(crate) channel: Arc<EventChannel>,
    /// Held by the one thread that takes an event, so that no other waits for an event that was
    /// taken already.
    pub(crate) reading: Arc<Mutex<()>>,
}

// SAFETY: The `ibv_context` may be used from any thread, and nothing else is tied to one.
unsafe impl Send for Device {}
// SAFETY: As above; the fields that change are behind locks.
unsafe impl Sync for Device {}

/// A registration of this open device.
pub(crate) struct Registered {
    handle: u32,
    /// The address of the `ibv_xrc_domain` it was made through.
    domain: usize,
}

impl Device {
    /// The device of an open `ibv_context`.
    ///
    /// # Safety
    ///
    /// `context` is open, and is closed through [`ibv_close_device`].
    pub(crate) unsafe fn of(context: *mut ibv_context) -> Result<Device> {
        if let Some(device) = Device::find(context) {
            return Ok(device);
        }
        // SAFETY: `context` is open.
        let channel = unsafe { Context::from_ibv(context) }?.create_event_channel()?;
        channel
            .set_nonblocking(true)
            .map_err(|_| Cause::Os(libc::EIO))?;
        // SAFETY: As above.
        let async_fd = unsafe { (*context).async_fd };
        // Another thread's may have been first, and then ours is dropped.
        match state::lock().devices.entry(context.addr()) {
            Entry::Occupied(device) => Ok(device.get().clone()),
            Entry::Vacant(place) => {
                fds::insert(async_fd, channel.as_raw_fd());
                let device = Device {
                    context,
                    channel: Arc::new(channel),
                    reading: Arc::default(),
                };
                Ok(place.insert(device).clone())
            }
        }
    }

    /// The device of an open `ibv_context`, if it is known.
    pub(crate) fn find(context: *mut ibv_context) -> Option<Device> {
        state::lock().devices.get(&context.addr()).cloned()
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
        let key = (self.context.addr(), qp_num);
        let stale = state::lock().registrations.insert(key, registered);
        // The kernel makes a second registration only if the first one's QP was destroyed and its
        // number was given to a new one.
        if let Some(stale) = stale {
            if let Ok(file) = self.file() {
                drop(Registration::from_handle(file, stale.handle, qp_num));
            }
        }
    }

    /// Gives up the registration with `qp_num` that was made through the domain at `domain`.
    pub(crate) fn forget(&self, qp_num: u32, domain: usize) -> Result<()> {
        let key = (self.context.addr(), qp_num);
        let registered = match state::lock().registrations.entry(key) {
            Entry::Occupied(entry) if entry.get().domain == domain => entry.remove(),
            _ => return Err(Cause::Os(libc::EINVAL)),
        };
        Registration::from_handle(self.file()?, registered.handle, qp_num).unregister()
    }

    /// Whether a registration was made through the domain at `domain` and is still held.
    pub(crate) fn uses(&self, domain: usize) -> bool {
        let context = self.context.addr();
        state::lock()
            .registrations
            .range((context, 0)..=(context, u32::MAX))
            .any(|(_, registered)| registered.domain == domain)
    }
}

/// Opens a device, as libibverbs does, with a channel for the events of receive QPs if it has any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: The caller's device.
    let context = unsafe { real::open_device(device) };
    if !context.is_null() {
        // A device without receive QPs works otherwise; the calls that need them return the error.
        // SAFETY: Just opened.
        let _ = unsafe { Device::of(context) };
    }
    context
}

/// Closes a device, as libibverbs does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> i32 {
    let device = {
        let mut state = state::lock();
        state
            .registrations
            .retain(|(of, _), _| *of != context.addr());
        state.devices.remove(&context.addr())
    };
    if let Some(device) = device {
        // SAFETY: The caller's context is open.
        fds::remove(unsafe { (*context).async_fd }, device.channel.as_raw_fd());
        // An open channel would keep the file, and with it all registrations.
        drop(device);
    }
    // SAFETY: The caller's context.
    unsafe { real::close_device(context) }
}
