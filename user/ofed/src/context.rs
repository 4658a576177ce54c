// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Devices as they are opened and closed, and the registrations of each.
//!
//! The layer's state of a device is created when the device is opened, so that a program that waits
//! for its events from then on gets ours, too, or at the first XRC call if the device was opened
//! without this library; dropped when the device is closed. Each domain has an event channel, from
//! its first registration until it is closed. OFED counts registrations by "open device": forked
//! children share it, and their copies of this state name the same kernel objects.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xrc_rcv::borrowed::{Context, Domain, Result};
use xrc_rcv::ffi::{ibv_context, ibv_device};
use xrc_rcv::{Cause, EventChannel, RegisterOptions};

use crate::device::{Device, Registered, cause_of, readable_with, unwatch, watch};
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
        // SAFETY: The caller's context is open.
        unsafe { Context::from_ibv(context) }?.query_caps()?;
        // SAFETY: The caller's context is open, so its struct can be read.
        let async_fd = unsafe { (*context).async_fd };
        let events = readable_with(async_fd).map_err(cause_of)?;
        // Another thread's may have been first, and then ours is dropped.
        match state::lock().devices.entry(context.addr()) {
            Entry::Occupied(device) => Ok(device.get().clone()),
            Entry::Vacant(place) => {
                // SAFETY: `context` is open, by the caller's word.
                unsafe { set_async_fd(context, events.as_raw_fd()) };
                let device = Device {
                    context,
                    events: Arc::new(events),
                    reading: Arc::default(),
                    registering: Arc::default(),
                    turn: Arc::default(),
                };
                Ok(place.insert(device).clone())
            }
        }
    }

    /// The device of an open `ibv_context`, if it is known.
    pub(crate) fn find(context: *mut ibv_context) -> Option<Device> {
        state::lock().devices.get(&context.addr()).cloned()
    }

    /// The channel of the domain at `domain`, which is `rcv`.
    pub(crate) fn channel(&self, domain: usize, rcv: &Domain<'_>) -> Result<Arc<EventChannel>> {
        let key = (self.context.addr(), domain);
        if let Some(channel) = state::lock().channels.get(&key) {
            return Ok(channel.clone());
        }
        let channel = rcv.create_event_channel()?;
        channel.set_nonblocking(true).map_err(cause_of)?;
        // Another thread's may have been first, and then ours is dropped.
        match state::lock().channels.entry(key) {
            Entry::Occupied(channel) => Ok(channel.get().clone()),
            Entry::Vacant(place) => {
                watch(&self.events, channel.as_raw_fd()).map_err(cause_of)?;
                Ok(place.insert(Arc::new(channel)).clone())
            }
        }
    }

    /// Closes the channel of the domain at `domain`, which has no registration any more.
    pub(crate) fn close_channel(&self, domain: usize) {
        let channel = state::lock()
            .channels
            .remove(&(self.context.addr(), domain));
        if let Some(channel) = channel {
            // A forked child may still have it open.
            unwatch(&self.events, channel.as_raw_fd());
        }
    }

    /// The channels of the device, each of them first in turn.
    pub(crate) fn channels(&self) -> Vec<Arc<EventChannel>> {
        let context = self.context.addr();
        let mut channels: Vec<_> = state::lock()
            .channels
            .range((context, 0)..=(context, usize::MAX))
            .map(|(_, channel)| channel.clone())
            .collect();
        if !channels.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % channels.len();
            channels.rotate_left(first);
        }
        channels
    }

    /// The registration with `qp_num`.
    pub(crate) fn registered(&self, qp_num: u32) -> Option<Registered> {
        let key = (self.context.addr(), qp_num);
        state::lock().registrations.get(&key).cloned()
    }

    /// Takes note of a registration of `channel` that was made through the domain at `domain`.
    pub(crate) fn remember(&self, channel: Arc<EventChannel>, qp_num: u32, domain: usize) {
        let key = (self.context.addr(), qp_num);
        let registered = Registered {
            channel: channel.clone(),
            domain,
        };
        let stale = state::lock().registrations.insert(key, registered);
        // The QP of another domain that had the number was destroyed.
        if let Some(stale) = stale.filter(|stale| !Arc::ptr_eq(&stale.channel, &channel)) {
            let _ = self.end(&stale, qp_num);
        }
    }

    /// Registers `channel` with a QP of its domain.
    pub(crate) fn register(&self, channel: &EventChannel, qp_num: u32) -> Result<()> {
        let options = RegisterOptions::new();
        self.file()?
            .register(channel.borrowed(), &[qp_num], &options)
            .1
    }

    fn end(&self, registered: &Registered, qp_num: u32) -> Result<()> {
        registered.channel.borrowed().unregister(&[qp_num]).1
    }

    /// Forgets a registration with a QP that has ended, with its unread events.
    pub(crate) fn forget_ended(&self, qp_num: u32, registered: &Registered) {
        let key = (self.context.addr(), qp_num);
        state::lock().registrations.remove(&key);
        let _ = self.end(registered, qp_num);
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
        let _turn = self.registering.lock().unwrap();
        let registered = self.registered(qp_num).ok_or(Cause::Os(libc::EINVAL))?;
        if registered.domain != domain && !is_member() {
            return Err(Cause::Os(libc::EINVAL));
        }
        let key = (self.context.addr(), qp_num);
        state::lock().registrations.remove(&key);
        self.end(&registered, qp_num)
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
    let dropped = {
        let mut state = state::lock();
        state
            .registrations
            .retain(|(of, _), _| *of != context.addr());
        let (of_device, others) = std::mem::take(&mut state.channels)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|((of, _), _)| *of == context.addr());
        state.channels = others;
        (state.devices.remove(&context.addr()), of_device)
    };
    // An open channel would keep the file.
    drop(dropped);
    // SAFETY: The caller's context, which is open and no longer used.
    unsafe { real::close_device(context) }
}
