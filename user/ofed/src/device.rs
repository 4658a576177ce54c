// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The layer's state of an open device: its events, and what its registrations are known by.
//!
//! Clones are the same device: a thread that waits for an event has one, and holds no lock of the
//! layer meanwhile.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use xrc_rcv::borrowed::{Context, Result};
use xrc_rcv::ffi::ibv_context;
use xrc_rcv::{Cause, EventChannel};

/// An open device with receive QPs.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) context: *mut ibv_context,
    /// Readable when libibverbs or a channel has an event.
    pub(crate) events: Arc<OwnedFd>,
    /// Held by the one thread that takes an event, so that no other waits for an event that was
    /// taken already.
    pub(crate) reading: Arc<Mutex<()>>,
    /// Held by the one thread that registers or unregisters: what is known here is what the kernel
    /// has.
    pub(crate) registering: Arc<Mutex<()>>,
    /// The channel that is read first: they take turns.
    pub(crate) turn: Arc<AtomicUsize>,
}

// SAFETY: The `ibv_context` may be used from any thread, and nothing else is tied to one.
unsafe impl Send for Device {}
// SAFETY: The fields that change are behind locks, and the `ibv_context` may be used from several
// threads at once.
unsafe impl Sync for Device {}

/// A registration of this open device.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) channel: Arc<EventChannel>,
    /// The address of the `ibv_xrc_domain` it was made through.
    pub(crate) domain: usize,
}

impl Device {
    /// The device for calls of `xrc-rcv`.
    pub(crate) fn file(&self) -> Result<Context<'_>> {
        // SAFETY: The context is open as long as the device is known.
        unsafe { Context::from_ibv(self.context) }
    }
}

pub(crate) fn cause_of(error: io::Error) -> Cause {
    Cause::Os(error.raw_os_error().unwrap_or(libc::EIO))
}

/// A descriptor that is readable when `fd` is, or another that is [watched](watch). Programs wait
/// for it in ways of their own, also in signal handlers and forked children, so the kernel has to
/// combine them.
pub(crate) fn readable_with(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: No memory is passed.
    let epoll = match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: The descriptor was just opened.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    watch(&epoll, fd)?;
    Ok(epoll)
}

pub(crate) fn watch(epoll: &OwnedFd, fd: RawFd) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: `event` is a valid event, which the call only reads.
    match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn unwatch(epoll: &OwnedFd, fd: RawFd) {
    // SAFETY: No memory is passed.
    unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_DEL,
            fd,
            std::ptr::null_mut(),
        )
    };
}
