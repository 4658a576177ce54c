// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An open uverbs file, on which methods are called.

use std::os::fd::{AsFd, BorrowedFd};

use crate::caps::Caps;
use crate::channel::EventTypes;
use crate::error::Cause;
use crate::ffi;
use crate::receive_qp::RegisterOptions;
use crate::records::EventChannel;
use crate::uapi::*;
use crate::uverbs::{Command, Result};

/// An open uverbs file.
#[derive(Clone, Copy, Debug)]
pub struct Context<'file> {
    fd: BorrowedFd<'file>,
}

impl<'file> Context<'file> {
    /// The file of an open device of libibverbs.
    ///
    /// # Safety
    ///
    /// `context` came from `ibv_open_device()` or its like, and stays open for `'file`.
    pub unsafe fn from_ibv(context: *const ffi::ibv_context) -> Result<Context<'file>> {
        // SAFETY: `context` is a live `ibv_context` by the caller's word.
        let fd = unsafe { (*context).cmd_fd };
        if fd < 0 {
            // A provider that talks to its device without the kernel (mlx5 over VFIO).
            return Err(Cause::Unavailable);
        }
        // SAFETY: The context keeps its command file open as long as it lives.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(Context { fd })
    }

    /// The uverbs file `fd`, on which a context has been allocated.
    pub fn from_fd(fd: BorrowedFd<'file>) -> Context<'file> {
        Context { fd }
    }

    /// As [`Device::query_caps`](crate::Device::query_caps).
    pub fn query_caps(&self) -> Result<Caps> {
        let mut caps = xrc_rcv_caps::default();
        Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS)
            .output(XRC_RCV_ATTR_QUERY_CAPS_RESP, &mut caps)
            .execute(self.fd)?;
        Ok(Caps(caps))
    }

    /// Fills `caps`, a `struct xrc_rcv_caps` of any length, with as much as the kernel knows, and
    /// the rest with zeroes.
    pub fn query_caps_bytes(&self, caps: &mut [u8]) -> Result<()> {
        Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS)
            .output_bytes(XRC_RCV_ATTR_QUERY_CAPS_RESP, caps)
            .execute(self.fd)
    }

    /// Fails with `EINVAL` if the kernel does not know an event of a mask. It knows those that this
    /// version of the crate does.
    pub(crate) fn check_events(&self, events: Option<EventTypes>) -> Result<()> {
        match events {
            Some(events) if !EventTypes::all().contains(events) => {
                let known = self.query_caps()?.event_types().contains(events);
                known.then_some(()).ok_or(Cause::Os(libc::EINVAL))
            }
            _ => Ok(()),
        }
    }

    /// Registers `channel` with receive QPs of its domain, in order. Returns how many it is
    /// registered with, and why not with the next: `EBADF` if the channel was created on another
    /// device. A channel of the options is not used.
    pub fn register(
        &self,
        channel: EventChannel<'_>,
        qp_nums: &[u32],
        options: &RegisterOptions<'_>,
    ) -> (usize, Result<()>) {
        // Of a domain and a channel of different devices, the channel's domain may have another QP
        // of the same number.
        if !channel.registered().may_be_of(self.fd) {
            return (0, Err(Cause::Os(libc::EBADF)));
        }
        if let Err(cause) = self.check_events(options.events) {
            return (0, Err(cause));
        }
        channel.register(qp_nums, options.choice())
    }
}

impl AsFd for Context<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
