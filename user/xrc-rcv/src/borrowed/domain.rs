// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An XRC domain that the caller holds, and the receive QPs in it.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use super::context::Context;
use crate::attr::QpAttr;
use crate::channel::{self, EventTypes};
use crate::error::Cause;
use crate::ffi;
use crate::receive_qp::{AllocOptions, QpInfo, RegisterOptions};
use crate::records::EventChannel;
use crate::registered::Registered;
use crate::uapi::*;
use crate::uverbs::{Command, Result, as_bytes};
use crate::verbs_sys::verbs_xrcd;

/// An XRC domain that the caller holds.
#[derive(Clone, Copy, Debug)]
pub struct Domain<'file> {
    context: Context<'file>,
    handle: u32,
}

impl<'file> Domain<'file> {
    /// The domain of an `ibv_xrcd`.
    ///
    /// The public struct lacks the handle, so it is read from rdma-core's private extension. The
    /// kernel looks every handle up among the domains of this file before it does anything with it,
    /// so a wrong one is [`Cause::UnknownDomain`] of the call that uses it.
    ///
    /// # Safety
    ///
    /// `xrcd` came from `ibv_open_xrcd()` or its like, and stays open for `'file`, its context too.
    pub unsafe fn from_ibv(xrcd: *const ffi::ibv_xrcd) -> Result<Domain<'file>> {
        // SAFETY: `xrcd` is a live `ibv_xrcd` by the caller's word, which every version of
        // rdma-core with XRC allocates as a `verbs_xrcd`.
        let (context, handle) = unsafe {
            let verbs_xrcd = xrcd.cast::<verbs_xrcd>();
            (Context::from_ibv((*xrcd).context)?, (*verbs_xrcd).handle)
        };
        Ok(Domain { context, handle })
    }

    /// The domain with this uverbs handle.
    pub fn from_handle(context: Context<'file>, handle: u32) -> Domain<'file> {
        Domain { context, handle }
    }

    /// The file through which the domain is held.
    pub fn context(&self) -> Context<'file> {
        self.context
    }

    /// Returns `cause`, unless the domain's own handle is unknown to the kernel.
    ///
    /// The kernel's lookup of a handle fails with an errno that methods return for other reasons,
    /// too. A method without an effect tells the two apart.
    fn explain(&self, cause: Cause) -> Cause {
        if !matches!(cause, Cause::Os(libc::ENOENT | libc::EINVAL | libc::EBADF)) {
            return cause;
        }
        let mut count = 0u32;
        let lookup = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN)
            .handle(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, self.handle)
            .output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, &mut count)
            .execute(self.context.as_fd());
        match lookup {
            Err(Cause::Os(libc::ENOENT | libc::EINVAL | libc::EBADF)) => Cause::UnknownDomain,
            _ => cause,
        }
    }

    fn execute(&self, command: Command<'_>) -> Result<()> {
        command
            .execute(self.context.as_fd())
            .map_err(|cause| self.explain(cause))
    }

    fn execute_new(&self, command: Command<'_>) -> Result<u32> {
        command
            .execute_new(self.context.as_fd())
            .map_err(|cause| self.explain(cause))
    }

    /// As [`crate::Domain::create_event_channel`].
    pub fn create_event_channel(&self) -> Result<channel::EventChannel> {
        self.create_channel(None, 0)
    }

    /// As [`crate::Domain::create_event_channel_of_all`].
    pub fn create_event_channel_of_all(&self, keeps: bool) -> Result<channel::EventChannel> {
        let observe = if keeps {
            0
        } else {
            XRC_RCV_EVENT_CHANNEL_OBSERVE
        };
        self.create_channel(None, XRC_RCV_EVENT_CHANNEL_ALL | observe)
    }

    /// Creates an event channel for registrations without events.
    pub fn create_unread_channel(&self) -> Result<channel::EventChannel> {
        self.create_channel(Some(EventTypes::empty()), 0)
    }

    fn create_channel(
        &self,
        events: Option<EventTypes>,
        flags: u32,
    ) -> Result<channel::EventChannel> {
        let record_size = size_of::<xrc_rcv_record>() as u32;
        let events = events.map(|events| events.bits());
        let command = Command::new(
            XRC_RCV_OBJECT_EVENT_CHANNEL,
            XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC,
        )
        .new_object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD)
        .handle(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE, self.handle)
        .input(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE, &record_size)
        .input_opt(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS, events.as_ref())
        .input_opt(
            XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS,
            Some(&flags).filter(|flags| **flags != 0),
        );
        let fd = self.execute_new(command)?;
        // SAFETY: The kernel has just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let registered = match flags {
            0 => Registered::default(),
            _ => Registered::of_all(),
        }
        .created_through(self.context.as_fd());
        let record_size = record_size as usize;
        Ok(channel::EventChannel::new(fd, record_size, registered))
    }

    /// Creates a receive QP, and registers `channel` with it. Returns its number. As
    /// [`crate::Domain::alloc`], but a channel of the options is not used.
    ///
    /// Without a channel, nothing is registered: `EINVAL`, unless the lifetime is that of the
    /// domain.
    pub fn alloc(
        &self,
        channel: Option<EventChannel<'_>>,
        options: &AllocOptions<'_>,
    ) -> Result<u32> {
        self.context.check_events(options.register.events)?;
        let Some(channel) = channel else {
            return self.execute_alloc(None, options);
        };
        let registered = channel.registered();
        registered.alloc(options.register.choice(), |serial| {
            self.execute_alloc(Some((channel.as_fd(), serial)), options)
        })
    }

    /// Creates a receive QP. `registers`: the channel to be registered, and a place for the serial
    /// number.
    fn execute_alloc(
        &self,
        registers: Option<(BorrowedFd<'_>, &mut u64)>,
        options: &AllocOptions<'_>,
    ) -> Result<u32> {
        let mut qp_num = 0;
        let mut command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC)
            .handle(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, self.handle)
            .input_opt(
                XRC_RCV_ATTR_QP_ALLOC_ATTR,
                options.attr.as_ref().map(|attr| &attr.0),
            )
            .input_opt(XRC_RCV_ATTR_QP_ALLOC_LABEL, options.label.as_ref())
            .output(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &mut qp_num);
        if let Some((channel, serial)) = registers {
            command = command
                .fd(XRC_RCV_ATTR_QP_ALLOC_CHANNEL, channel)
                .output(XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL, serial);
        }
        if options.flags != 0 {
            command = command.input(XRC_RCV_ATTR_QP_ALLOC_FLAGS, &options.flags);
        }
        self.execute(command)?;
        Ok(qp_num)
    }

    /// As [`crate::Domain::adopt`], of `channel`: calls `adopted` with each QP, as it is after it
    /// was registered with, or with why it was not.
    pub fn adopt(
        &self,
        channel: EventChannel<'_>,
        options: &RegisterOptions<'_>,
        mut adopted: impl FnMut(QpInfo, Result<()>),
    ) -> Result<()> {
        const PAGE: usize = 64;
        let mut infos = [xrc_rcv_qp_info::default(); PAGE];
        let mut after = None;
        loop {
            let (count, _) = self.query_page(after, &mut infos)?;
            for listed in &infos[..count] {
                let qp_num = listed.qp_num;
                after = Some(qp_num);
                let (_, registered) = self.context.register(channel, &[qp_num], options);
                let info = match (&registered, self.query(qp_num)) {
                    // It was destroyed since it was listed.
                    (Err(Cause::Os(libc::EINVAL)), Err(Cause::Os(libc::EINVAL))) => continue,
                    // In this order an event is either delivered, or in this state.
                    (Ok(()), Ok((_, info))) => info,
                    // It was destroyed since it was registered with: QP_GONE is delivered.
                    _ => QpInfo(*listed),
                };
                adopted(info, registered);
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// As [`crate::Domain::modify`].
    pub fn modify(&self, qp_num: u32, attr: &QpAttr) -> Result<()> {
        self.execute(
            Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY)
                .handle(XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, self.handle)
                .input(XRC_RCV_ATTR_QP_MODIFY_QPN, &qp_num)
                .input(XRC_RCV_ATTR_QP_MODIFY_ATTR, &attr.0),
        )
    }

    /// As [`crate::Domain::query`].
    pub fn query(&self, qp_num: u32) -> Result<(QpAttr, QpInfo)> {
        let mut info = xrc_rcv_qp_info::default();
        let attr = self.query_with(qp_num, |command| {
            command.output(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, &mut info)
        })?;
        Ok((attr, QpInfo(info)))
    }

    /// The attributes of a receive QP. Fills `info`, a `struct xrc_rcv_qp_info` of any length, with
    /// as much as the kernel knows, and the rest with zeroes.
    pub fn query_bytes(&self, qp_num: u32, info: &mut [u8]) -> Result<QpAttr> {
        self.query_with(qp_num, |command| match info.len() {
            0 => command,
            _ => command.output_bytes(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, info),
        })
    }

    fn query_with<'a>(
        &self,
        qp_num: u32,
        info: impl FnOnce(Command<'a>) -> Command<'a>,
    ) -> Result<QpAttr> {
        let mut attr = ib_uverbs_qp_attr::default();
        let command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_QUERY);
        self.execute(
            info(command)
                .handle(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, self.handle)
                .input(XRC_RCV_ATTR_QP_QUERY_QPN, &qp_num)
                .output(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, &mut attr),
        )?;
        Ok(QpAttr(attr))
    }

    /// As [`crate::Domain::destroy`].
    pub fn destroy(&self, qp_num: u32) -> Result<()> {
        self.destroy_with(qp_num, 0)
    }

    /// As [`crate::Domain::destroy_forced`].
    pub fn destroy_forced(&self, qp_num: u32) -> Result<()> {
        self.destroy_with(qp_num, XRC_RCV_DESTROY_FORCE)
    }

    /// Destroys a receive QP. `flags`: of `enum xrc_rcv_destroy_flags`.
    pub fn destroy_with(&self, qp_num: u32, flags: u32) -> Result<()> {
        // A kernel that does not know the flags has no such attribute.
        let flags = (flags != 0).then_some(&flags);
        self.execute(
            Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_DESTROY)
                .handle(XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, self.handle)
                .input(XRC_RCV_ATTR_QP_DESTROY_QPN, &qp_num)
                .input_opt(XRC_RCV_ATTR_QP_DESTROY_FLAGS, flags),
        )
    }

    /// As [`crate::Domain::query_page`].
    pub fn query_page(
        &self,
        after: Option<u32>,
        infos: &mut [xrc_rcv_qp_info],
    ) -> Result<(usize, u32)> {
        // An attribute's length is 16 bits; a longer array is as good as a longest.
        let fits = infos
            .len()
            .min(usize::from(u16::MAX) / size_of::<xrc_rcv_qp_info>());
        let info_size = size_of::<xrc_rcv_qp_info>() as u32;
        let (mut count, mut total) = (0u32, 0u32);
        let mut command = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN)
            .handle(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, self.handle)
            .input_opt(XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN, after.as_ref())
            .output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, &mut count)
            .output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, &mut total)
            .input(XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &info_size);
        if fits != 0 {
            let infos = &mut infos[..fits];
            command = command.output_slice(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos);
        }
        self.execute(command)?;
        Ok((fits.min(count as usize), total))
    }

    /// As [`query_page`](Self::query_page), into `places` of `size` bytes each, each a `struct
    /// xrc_rcv_qp_info` of any length: it gets as much as both it and this crate know, and the rest
    /// is cleared.
    pub fn query_page_bytes(
        &self,
        after: Option<u32>,
        places: &mut [u8],
        size: usize,
    ) -> Result<(usize, u32)> {
        const BATCH: usize = 64;
        // Without a place there is nothing but the total to be learnt.
        let size = size.max(1);
        let room = places.len() / size;
        let mut infos = [xrc_rcv_qp_info::default(); BATCH];
        let (count, total) = self.query_page(after, &mut infos[..room.min(BATCH)])?;
        let known = size.min(size_of::<xrc_rcv_qp_info>());
        for (place, info) in places.chunks_exact_mut(size).zip(&infos[..count]) {
            place[..known].copy_from_slice(&as_bytes(info)[..known]);
            place[known..].fill(0);
        }
        Ok((count, total))
    }
}
