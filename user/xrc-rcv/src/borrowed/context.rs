// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An open uverbs file, on which methods are called.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::caps::Caps;
use crate::channel::EventChannel;
use crate::error::Cause;
use crate::ffi;
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
        Command::new(XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QUERY_CAPS)
            .output(XRC_RCV_ATTR_QUERY_CAPS_RESP, &mut caps)
            .execute(self.fd)?;
        Ok(Caps(caps))
    }

    /// Fills `caps`, a `struct xrc_rcv_caps` of any length, with as much as the kernel knows, and
    /// the rest with zeroes.
    pub fn query_caps_bytes(&self, caps: &mut [u8]) -> Result<()> {
        Command::new(XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QUERY_CAPS)
            .output_bytes(XRC_RCV_ATTR_QUERY_CAPS_RESP, caps)
            .execute(self.fd)
    }

    /// As [`Device::create_event_channel`](crate::Device::create_event_channel).
    pub fn create_event_channel(&self) -> Result<EventChannel> {
        let event_size = size_of::<xrc_rcv_event>() as u32;
        let fd = Command::new(
            XRC_RCV_OBJECT_EVENT_CHANNEL,
            XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC,
        )
        .new_object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD)
        .input(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE, &event_size)
        .execute_new(self.fd)?;
        // SAFETY: The kernel has just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(EventChannel::from_fd(fd, event_size as usize))
    }
}

impl AsFd for Context<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
