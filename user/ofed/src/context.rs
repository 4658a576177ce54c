// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The layer's state of an open device: its events and its registrations.
//!
//! Created when the device is opened, so that a program that waits for its events from then on gets
//! ours, too, or at the first XRC call if the device was opened without this library; dropped when the
//! device is closed. OFED counts registrations by "open device": forked children share it, and their
//! copies of this state name the same kernel objects.

use std::collections::btree_map::Entry;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use xrc_rcv::borrowed::{Context, Registration, Result};
use xrc_rcv::ffi::{ibv_context, ibv_device};
use xrc_rcv::{Cause, EventChannel};

use crate::{ffi, real, state};

/// An open device with receive QPs.
#[derive(Clone)]
pub(crate) struct Device {
    context: *mut ibv_context,
    /// Where the events of all registrations arrive; non-blocking.
    pub(crate) channel: Arc<EventChannel>,
    /// Readable when libibverbs or the channel has an event.
    pub(crate) events: Arc<OwnedFd>,
    /// Held by the one thread that takes an event, so that no other waits for an event that was
    /// taken already.
    pub(crate) reading: Arc<Mutex<()>>,
    /// Held by the one thread that registers or unregisters: a registration that the kernel has is known here
    /// before another thread gets EEXIST for it.
    pub(crate) registering: Arc<Mutex<()>>,
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
        let os = |error: io::Error| Cause::Os(error.raw_os_error().unwrap_or(libc::EIO));
        channel.set_nonblocking(true).map_err(os)?;
        // SAFETY: As above.
        let async_fd = unsafe { (*context).async_fd };
        let events = readable_with([async_fd, channel.as_raw_fd()]).map_err(os)?;
        // Another thread's may have been first, and then ours is dropped.
        match state::lock().devices.entry(context.addr()) {
            Entry::Occupied(device) => Ok(device.get().clone()),
            Entry::Vacant(place) => {
                // SAFETY: As above.
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

    /// Gives up the registration with `qp_num` that was made through the domain at `domain`, or through another
    /// `ibv_xrc_domain` of the same domain: `is_member` returns whether the QP is in the caller's.
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

/// A descriptor that is readable when one of `fds` is. Programs wait for it in ways of their own, also
/// in signal handlers and forked children, so the kernel has to combine them.
fn readable_with(fds: [RawFd; 2]) -> io::Result<OwnedFd> {
    // SAFETY: No memory is passed.
    let epoll = match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: The descriptor was just opened.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    for fd in fds {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: `event` is valid.
        if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(epoll)
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

/// Prepares a device that the layer does not know yet: it gets a channel for the events of receive QPs
/// if it has any.
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
    // SAFETY: The caller's device.
    unsafe { opened(real::open_device(device)) }
}

/// Opens a device by its descriptor, as libibverbs does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    // SAFETY: The caller's descriptor.
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
    // SAFETY: The caller's context.
    unsafe { real::close_device(context) }
}
