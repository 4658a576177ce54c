// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The layer's state of an open device: the channel of its events, and what its registrations are
//! known by.
//!
//! Clones are the same device: a thread that waits for an event has one, and holds no lock of the
//! layer meanwhile.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use xrc_rcv::EventChannel;
use xrc_rcv::borrowed::{Context, Result};
use xrc_rcv::ffi::ibv_context;

/// An open device with receive QPs.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) context: *mut ibv_context,
    /// Where the events of all registrations arrive; non-blocking.
    pub(crate) channel: Arc<EventChannel>,
    /// Readable when libibverbs or the channel has an event.
    pub(crate) events: Arc<OwnedFd>,
    /// Held by the one thread that takes an event, so that no other waits for an event that was
    /// taken already.
    pub(crate) reading: Arc<Mutex<()>>,
    /// Held by the one thread that registers or unregisters: a registration that the kernel has is
    /// known here before another thread gets EEXIST for it.
    pub(crate) registering: Arc<Mutex<()>>,
}

// SAFETY: The `ibv_context` may be used from any thread, and nothing else is tied to one.
unsafe impl Send for Device {}
// SAFETY: The fields that change are behind locks, and the `ibv_context` may be used from several
// threads at once.
unsafe impl Sync for Device {}

/// A registration of this open device.
pub(crate) struct Registered {
    pub(crate) handle: u32,
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

/// A descriptor that is readable when one of `fds` is. Programs wait for it in ways of their own,
/// also in signal handlers and forked children, so the kernel has to combine them.
pub(crate) fn readable_with(fds: [RawFd; 2]) -> io::Result<OwnedFd> {
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
        // SAFETY: The descriptors are open, and `event` is valid for the call.
        if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(epoll)
}
