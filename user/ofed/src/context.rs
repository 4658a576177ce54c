// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Devices as they are opened and closed, and the registrations of each.
//!
//! The layer's state of a device is created when the device is opened, so that a program that waits
//! for its events from then on gets ours, too, or at the first XRC call if the device was opened
//! without this library; dropped when the device is closed. OFED counts registrations by "open
//! device": forked children share it, and their copies of this state name the same kernel objects.

use std::collections::btree_map::Entry;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use xrc_rcv::Cause;
use xrc_rcv::borrowed::{Context, Registration, Result};
use xrc_rcv::ffi::{ibv_context, ibv_device};

use crate::device::{Device, Registered, readable_with};
use crate::{ffi, real, state};

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
        // SAFETY: `context` is open, by the caller's word.
        let channel = unsafe { Context::from_ibv(context) }?.create_event_channel()?;
        let os = |error: io::Error| Cause::Os(error.raw_os_error().unwrap_or(libc::EIO));
        channel.set_nonblocking(true).map_err(os)?;
        // SAFETY: `context` is open, by the caller's word.
        let async_fd = unsafe { (*context).async_fd };
        let events = readable_with([async_fd, channel.as_raw_fd()]).map_err(os)?;
        // Another thread's may have been first, and then ours is dropped.
        match state::lock().devices.entry(context.addr()) {
            Entry::Occupied(device) => Ok(device.get().clone()),
            Entry::Vacant(place) => {
                // SAFETY: `context` is open, by the caller's word.
                unsafe { set_async_fd(context, events.as_raw_fd()) };
                let device = Device {
                    context,
                    channel: Arc::new(channel),
                    events: Arc::new(events),
                    reading: Arc::default(),
                    registering: Arc::default(),
                };
                Ok(place.insert(device).clone())
            }
        }
    }

    /// The device of an open `ibv_context`, if it is known.
    pub(crate) fn find(context: *mut ibv_context) -> Option<Device> {
        state::lock().devices.get(&context.addr()).cloned()
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

    /// Gives up the registration with `qp_num` that was made through the domain at `domain`, or
    /// through another `ibv_xrc_domain` of the same domain: `is_member` returns whether the QP is
    /// in the caller's.
    pub(crate) fn forget(
        &self,
        qp_num: u32,
        domain: usize,
        is_member: impl FnOnce() -> bool,
    ) -> Result<()> {
        let key = (self.context.addr(), qp_num);
        let _turn = self.registering.lock().unwrap();
        let of = state::lock()
            .registrations
            .get(&key)
            .map(|registered| registered.domain);
        if of != Some(domain) && !(of.is_some() && is_member()) {
            return Err(Cause::Os(libc::EINVAL));
        }
        let registered = state::lock().registrations.remove(&key);
        let registered = registered.ok_or(Cause::Os(libc::EINVAL))?;
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

/// Sets the `async_fd` that programs see.
///
/// # Safety
///
/// `context` is open.
unsafe fn set_async_fd(context: *mut ibv_context, fd: RawFd) {
    // SAFETY: The member is in padding of libibverbs' struct, before its lock.
    unsafe { (*context.cast::<ffi::ibv_context>()).async_fd = fd };
}

/// Prepares a device that the layer does not know yet: it gets a channel for the events of receive
/// QPs if it has any.
///
/// # Safety
///
/// `context` is open.
pub(crate) unsafe fn prepare(context: *mut ibv_context) {
    // SAFETY: By the caller's word.
    if unsafe { Device::of(context) }.is_ok() {
        return;
    }
    // A device without receive QPs works otherwise; the calls that need them return the error.
    let state = state::lock();
    // Another thread may have prepared it meanwhile.
    if !state.devices.contains_key(&context.addr()) {
        // SAFETY: By the caller's word.
        unsafe { set_async_fd(context, (*context).async_fd) };
    }
}

/// Prepares a device that libibverbs has opened, if it has.
///
/// # Safety
///
/// `context` is null or open.
unsafe fn opened(context: *mut ibv_context) -> *mut ibv_context {
    if !context.is_null() {
        // SAFETY: By the caller's word.
        unsafe { prepare(context) };
    }
    context
}

/// Opens a device, as libibverbs does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: The device is in the caller's list of devices.
    unsafe { opened(real::open_device(device)) }
}

/// Opens a device by its descriptor, as libibverbs does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    // SAFETY: The descriptor is the caller's, of an open device.
    unsafe { opened(real::import_device(cmd_fd)) }
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
    // An open channel would keep the file, and with it all registrations.
    drop(device);
    // SAFETY: The caller's context is open, and is closed once.
    unsafe { real::close_device(context) }
}
