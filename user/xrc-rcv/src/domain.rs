// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An XRC domain that the caller holds, and the receive QPs in it.
//!
//! The domain is an `ibv_xrcd` of libibverbs or of another binding; a [`Domain`] borrows it. Holding
//! it is the authority for everything here: a QP number alone is none.

use std::os::fd::AsFd;
use std::sync::Mutex;

use crate::attr::{QpAttr, QpState};
use crate::channel::EventChannel;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::ffi;
use crate::registration::Registration;
use crate::uapi::*;
use crate::uverbs::Command;

/// What keeps a receive QP alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Lifetime {
    /// Destroyed with its last registration.
    #[default]
    Registrations = XRC_RCV_LIFETIME_REGISTRATIONS,
    /// Destroyed with its domain's last close, or by [`Domain::destroy`].
    Domain = XRC_RCV_LIFETIME_DOMAIN,
}

impl Lifetime {
    /// The lifetime's name as the kernel spells it.
    pub fn name(self) -> &'static str {
        match self {
            Lifetime::Registrations => "registrations",
            Lifetime::Domain => "domain",
        }
    }
}

/// A receive QP as seen from its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo(xrc_rcv_qp_info);

impl QpInfo {
    /// The QP's number.
    pub fn qp_num(&self) -> u32 {
        self.0.qpn
    }

    /// The QP's state, if this version of the crate knows it.
    pub fn state(&self) -> Option<QpState> {
        QpState::from_raw(self.0.state)
    }

    /// What keeps the QP alive.
    pub fn lifetime(&self) -> Lifetime {
        match self.0.lifetime {
            XRC_RCV_LIFETIME_DOMAIN => Lifetime::Domain,
            _ => Lifetime::Registrations,
        }
    }

    /// How many files and kernel users are registered with the QP.
    pub fn registrations(&self) -> u32 {
        self.0.registrations
    }

    /// The kernel's own struct.
    pub fn as_raw(&self) -> &xrc_rcv_qp_info {
        &self.0
    }
}

/// How to register with a receive QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterOptions<'channel> {
    channel: Option<&'channel EventChannel>,
    cookie: u64,
}

impl<'channel> RegisterOptions<'channel> {
    /// No channel, cookie 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Delivers the QP's events to `channel`. Without one, and if nobody else has one either, they
    /// go to the kernel log.
    pub fn channel(mut self, channel: &'channel EventChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Comes back in every event of this registration.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }
}

/// How to create a receive QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocOptions<'channel> {
    register: RegisterOptions<'channel>,
    flags: u32,
    attr: Option<QpAttr>,
}

impl<'channel> AllocOptions<'channel> {
    /// A QP in RESET that dies with its last registration, without a channel.
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`RegisterOptions::channel`].
    pub fn channel(mut self, channel: &'channel EventChannel) -> Self {
        self.register = self.register.channel(channel);
        self
    }

    /// See [`RegisterOptions::cookie`].
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.register = self.register.cookie(cookie);
        self
    }

    /// What keeps the QP alive.
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.flags = match lifetime {
            Lifetime::Registrations => 0,
            Lifetime::Domain => XRC_RCV_ALLOC_LIFETIME_DOMAIN,
        };
        self
    }

    /// Flags as the kernel defines them; it refuses those it does not know.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// Takes the QP as far as `attr` goes: to INIT, or to RTR.
    pub fn attr(mut self, attr: QpAttr) -> Self {
        self.attr = Some(attr);
        self
    }
}

/// An XRC domain that the caller holds.
///
/// What is made through it cannot outlive it:
///
/// ```compile_fail,E0505
/// # use xrc_rcv::{AllocOptions, Registration, verbs::{Device, OpenDomain}};
/// fn leave_before_registration(open: OpenDomain<'_>) -> xrc_rcv::Result<()> {
///     let qp: Registration<'_> = open.domain()?.alloc(&AllocOptions::new())?;
///     drop(open);
///     qp.unregister()
/// }
/// ```
///
/// nor can the domain outlive its device:
///
/// ```compile_fail,E0505
/// # use xrc_rcv::verbs::Device;
/// fn close_device_before_domain(device: Device) -> xrc_rcv::Result<()> {
///     let open = device.open_domain(None)?;
///     drop(device);
///     open.domain().map(drop)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Domain<'file> {
    context: Context<'file>,
    handle: u32,
}

impl<'file> Domain<'file> {
    /// The domain of an `ibv_xrcd`.
    ///
    /// The public struct lacks the handle, so it is read from rdma-core's private extension and
    /// shown to the kernel, which knows the domains of this file, before anything is done with it.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownDomain`] if the kernel knows no such domain, and those of
    /// [`Context::query_caps`].
    ///
    /// # Safety
    ///
    /// `xrcd` came from `ibv_open_xrcd()` or its like, and stays open for `'file`, its context too.
    pub unsafe fn from_ibv(xrcd: *const ffi::ibv_xrcd) -> Result<Domain<'file>> {
        // SAFETY: `xrcd` is a live `ibv_xrcd` by the caller's word, which every version of rdma-core
        // with XRC allocates as a `verbs_xrcd`.
        let (context, handle) = unsafe {
            let verbs_xrcd = xrcd.cast::<ffi::verbs_xrcd>();
            (Context::from_ibv((*xrcd).context)?, (*verbs_xrcd).handle)
        };
        let domain = Domain { context, handle };
        let key = (xrcd.addr(), handle);
        if !VERIFIED.lock().unwrap().contains(&key) {
            domain.verify()?;
            let mut verified = VERIFIED.lock().unwrap();
            verified.rotate_right(1);
            verified[0] = key;
        }
        Ok(domain)
    }

    /// The domain with this uverbs handle.
    pub fn from_handle(context: Context<'file>, handle: u32) -> Domain<'file> {
        Domain { context, handle }
    }

    /// The file through which the domain is held.
    pub fn context(&self) -> Context<'file> {
        self.context
    }

    fn verify(&self) -> Result<()> {
        let mut count = 0u32;
        Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_DOMAIN)
            .handle(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, self.handle)
            .output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, &mut count)
            .execute(self.context.as_fd())
            .map_err(|error| match error {
                Error::Os(libc::ENOENT | libc::EINVAL | libc::EBADF) => Error::UnknownDomain,
                error => error,
            })
    }

    /// Creates a receive QP and registers the caller with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for attributes that are missing or wrong, `EDQUOT` over a limit (see
    /// [`Caps`](crate::Caps)), `ENOMEM`, and the provider's own.
    pub fn alloc(&self, options: &AllocOptions<'_>) -> Result<Registration<'file>> {
        let mut qp_num = 0;
        let mut command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC)
            .new_object(XRC_RCV_ATTR_QP_ALLOC_HANDLE)
            .handle(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, self.handle)
            .input_opt(
                XRC_RCV_ATTR_QP_ALLOC_ATTR,
                options.attr.as_ref().map(|attr| &attr.0),
            )
            .fd_opt(
                XRC_RCV_ATTR_QP_ALLOC_CHANNEL,
                options.register.channel.map(|c| c.as_fd()),
            )
            .input(XRC_RCV_ATTR_QP_ALLOC_COOKIE, &options.register.cookie)
            .output(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &mut qp_num);
        if options.flags != 0 {
            command = command.input(XRC_RCV_ATTR_QP_ALLOC_FLAGS, &options.flags);
        }
        let handle = command.execute_new(self.context.as_fd())?;
        Ok(Registration::from_handle(self.context, handle, qp_num))
    }

    /// Registers the caller with an existing receive QP of this domain.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP, `EEXIST` if this file is registered already.
    pub fn register(
        &self,
        qp_num: u32,
        options: &RegisterOptions<'_>,
    ) -> Result<Registration<'file>> {
        let handle = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_REG)
            .new_object(XRC_RCV_ATTR_QP_REG_HANDLE)
            .handle(XRC_RCV_ATTR_QP_REG_XRCD_HANDLE, self.handle)
            .input(XRC_RCV_ATTR_QP_REG_QPN, &qp_num)
            .fd_opt(
                XRC_RCV_ATTR_QP_REG_CHANNEL,
                options.channel.map(|c| c.as_fd()),
            )
            .input(XRC_RCV_ATTR_QP_REG_COOKIE, &options.cookie)
            .execute_new(self.context.as_fd())?;
        Ok(Registration::from_handle(self.context, handle, qp_num))
    }

    /// Modifies a receive QP; the caller need not be registered with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP, or its state does not allow this.
    pub fn modify(&self, qp_num: u32, attr: &QpAttr) -> Result<()> {
        Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY)
            .handle(XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, self.handle)
            .input(XRC_RCV_ATTR_QP_MODIFY_QPN, &qp_num)
            .input(XRC_RCV_ATTR_QP_MODIFY_ATTR, &attr.0)
            .execute(self.context.as_fd())
    }

    /// All attributes of a receive QP; the caller need not be registered with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP.
    pub fn query(&self, qp_num: u32) -> Result<(QpAttr, QpInfo)> {
        let mut attr = ib_uverbs_qp_attr::default();
        let mut info = xrc_rcv_qp_info::default();
        Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_QUERY)
            .handle(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, self.handle)
            .input(XRC_RCV_ATTR_QP_QUERY_QPN, &qp_num)
            .output(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, &mut attr)
            .output(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, &mut info)
            .execute(self.context.as_fd())?;
        Ok((QpAttr(attr), QpInfo(info)))
    }

    /// Destroys a receive QP of [`Lifetime::Domain`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP or it is not of that lifetime, `EBUSY` if anybody else
    /// is registered with it.
    pub fn destroy(&self, qp_num: u32) -> Result<()> {
        Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_DESTROY)
            .handle(XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, self.handle)
            .input(XRC_RCV_ATTR_QP_DESTROY_QPN, &qp_num)
            .execute(self.context.as_fd())
    }

    /// Fills `infos` with the receive QPs of the domain in ascending order of their numbers, those
    /// after number `after` if given. Returns how many were filled, and how many the domain has.
    pub fn query_page(
        &self,
        after: Option<u32>,
        infos: &mut [xrc_rcv_qp_info],
    ) -> Result<(usize, u32)> {
        // An attribute's length is 16 bits; a longer array is as good as a longest.
        let fits = infos
            .len()
            .min(usize::from(u16::MAX) / size_of::<xrc_rcv_qp_info>());
        let (mut count, mut total) = (0u32, 0u32);
        let mut command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_DOMAIN)
            .handle(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, self.handle)
            .input_opt(XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN, after.as_ref())
            .output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, &mut count)
            .output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, &mut total);
        if fits != 0 {
            let infos = &mut infos[..fits];
            command = command.output_slice(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos);
        }
        command.execute(self.context.as_fd())?;
        Ok((fits.min(count as usize), total))
    }

    /// The receive QPs of the domain, in ascending order of their numbers.
    ///
    /// QPs that come or go meanwhile may or may not be listed; all others are, once.
    pub fn receive_qps(&self) -> QpInfos<'file> {
        QpInfos {
            domain: *self,
            after: None,
            page: Vec::new().into_iter(),
            done: false,
        }
    }
}

/// How many domains are remembered as verified; more are verified again now and then.
const REMEMBERED: usize = 16;

/// `ibv_xrcd`s that were seen to hold their handle where it is looked for.
static VERIFIED: Mutex<[(usize, u32); REMEMBERED]> = Mutex::new([(0, 0); REMEMBERED]);

/// Iterator over the receive QPs of a domain.
#[derive(Debug)]
pub struct QpInfos<'file> {
    domain: Domain<'file>,
    after: Option<u32>,
    page: std::vec::IntoIter<xrc_rcv_qp_info>,
    done: bool,
}

impl Iterator for QpInfos<'_> {
    type Item = Result<QpInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        const PAGE: usize = 256;

        if self.page.len() == 0 && !self.done {
            let mut page = vec![xrc_rcv_qp_info::default(); PAGE];
            match self.domain.query_page(self.after, &mut page) {
                Ok((count, _)) => page.truncate(count),
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
            self.after = page.last().map(|info| info.qpn);
            self.done = page.is_empty();
            self.page = page.into_iter();
        }
        self.page.next().map(|info| Ok(QpInfo(info)))
    }
}
