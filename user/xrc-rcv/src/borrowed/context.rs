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

    /// Registers `channel`, an event channel that was created through this file, with receive QPs
    /// of its domain, in order. Returns how many it is registered with, and why not with the next.
    /// A channel of the options is not used.
    pub fn register(
        &self,
        channel: EventChannel<'_>,
        qp_nums: &[u32],
        options: &RegisterOptions<'_>,
    ) -> (usize, Result<()>) {
        if let Err(cause) = self.check_events(options.events) {
            return (0, Err(cause));
        }
        let qp_nums = longest::<xrc_rcv_reg_info>(qp_nums);
        let choice = options.choice();
        channel.registered().register(qp_nums, choice, |infos| {
            let info_size = size_of::<xrc_rcv_reg_info>() as u32;
            let mut done = 0u32;
            let command = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG)
                .fd(XRC_RCV_ATTR_QP_REG_CHANNEL, channel.as_fd())
                .input_slice(XRC_RCV_ATTR_QP_REG_QPNS, qp_nums)
                .output(XRC_RCV_ATTR_QP_REG_RESP_DONE, &mut done)
                .output_slice(XRC_RCV_ATTR_QP_REG_RESP_INFO, infos)
                .input(XRC_RCV_ATTR_QP_REG_INFO_SIZE, &info_size);
            let result = command.execute(self.fd);
            (done as usize, result)
        })
    }

    /// Ends the registrations of `channel` with receive QPs, in order. Returns how many numbers it
    /// is not registered with any more, and why with the next.
    pub fn unregister(&self, channel: EventChannel<'_>, qp_nums: &[u32]) -> (usize, Result<()>) {
        let qp_nums = longest::<u32>(qp_nums);
        channel.registered().unregister(qp_nums, |qp_nums| {
            let mut done = 0u32;
            let command = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG)
                .fd(XRC_RCV_ATTR_QP_UNREG_CHANNEL, channel.as_fd())
                .input_slice(XRC_RCV_ATTR_QP_UNREG_QPNS, qp_nums)
                .output(XRC_RCV_ATTR_QP_UNREG_RESP_DONE, &mut done);
            // After the device was removed there is no registration, which EIO reports.
            match command.execute(self.fd) {
                Err(Cause::Os(libc::EIO)) => (qp_nums.len(), Ok(())),
                result => (done as usize, result),
            }
        })
    }
}

/// As many of the numbers as one call takes, with an array of `T` for them.
fn longest<T>(qp_nums: &[u32]) -> &[u32] {
    let fit = usize::from(u16::MAX) / size_of::<T>();
    &qp_nums[..qp_nums.len().min(fit)]
}

impl AsFd for Context<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
