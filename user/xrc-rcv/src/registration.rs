// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The relation between one event channel and one receive QP.
//!
//! Given up when dropped, and by the kernel when the channel or the device is closed, however the
//! process ends. The last one takes the QP with it, unless its lifetime is the domain's.

use std::sync::Arc;

use crate::borrowed;
use crate::channel::{EventChannel, Shared};
use crate::domain::Domain;
use crate::error::Result;
use crate::receive_qp::{AllocOptions, QpInfo, RegisterOptions};

/// A registration of an event channel with a receive QP. It keeps the channel and the domain open.
///
/// A channel is registered once, however often it registers: the first of several that is dropped
/// ends it. While it has registrations with two QPs that had the same number one after the other,
/// the first that is dropped ends the older one.
#[derive(Debug)]
#[must_use = "dropping a registration ends it"]
pub struct Registration {
    /// `None` after the registration has ended.
    channel: Option<Arc<Shared>>,
    qp_num: u32,
    domain: Domain,
}

impl Registration {
    fn new(domain: &Domain, channel: &EventChannel, qp_num: u32) -> Registration {
        Registration {
            channel: Some(channel.shared().clone()),
            qp_num,
            domain: domain.clone(),
        }
    }

    /// The number that senders connect to.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Gives the registration up, its unread events with it. Dropping it does the same silently.
    pub fn unregister(mut self) -> Result<()> {
        self.give_up()
    }

    fn give_up(&mut self) -> Result<()> {
        let Some(channel) = self.channel.take() else {
            return Ok(());
        };
        let (_, ended) = channel.borrowed().unregister(&[self.qp_num]);
        ended.map_err(|cause| {
            self.domain
                .error("unregister from receive QP", self.qp_num, cause)
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // There is nobody to report a failure to: a signal that kills the process ends the
        // registration, too.
        let _ = self.give_up();
    }
}

impl Domain {
    /// Calls `call` with the channel that the options name, or else the domain's without events.
    fn with_channel<R>(
        &self,
        options: &RegisterOptions<'_>,
        call: impl FnOnce(&EventChannel) -> Result<R>,
    ) -> Result<R> {
        match options.channel {
            Some(channel) => call(channel),
            None => call(&*self.unread_channel()?),
        }
    }

    /// Creates a receive QP and registers with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for attributes that are missing or wrong, and a channel of another domain; `EPERM`
    /// if the domain has an inode that is not a regular file's; `EACCES` if the process neither
    /// owns the domain's file nor may write to it, and for a partition that a security module
    /// denies; `EDQUOT` over a limit (see [`Caps`](crate::Caps)); `EAGAIN` over that of the RDMA
    /// cgroup; `ENOMEM`; and the provider's own.
    pub fn alloc(&self, options: &AllocOptions<'_>) -> Result<Registration> {
        self.with_channel(&options.register, |channel| {
            self.borrowed()
                .and_then(|domain| domain.alloc(Some(channel.borrowed()), options))
                .map(|qp_num| Registration::new(self, channel, qp_num))
                .map_err(self.device().error("alloc a receive QP"))
        })
    }

    /// Registers with an existing receive QP of this domain, which is that of the channel, too.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the channel's domain has no such QP; `EBADF` if this process created the channel
    /// on another device; `EIO` if its device was removed or closed; `EDQUOT` if the QP has as
    /// many registrations as it may (see [`Caps`](crate::Caps)); `EACCES` if a security module
    /// denies the process a partition of the QP.
    pub fn register(&self, qp_num: u32, options: &RegisterOptions<'_>) -> Result<Registration> {
        self.with_channel(options, |channel| {
            self.device()
                .borrowed()
                .and_then(|context| context.register(channel.borrowed(), &[qp_num], options).1)
                .map(|()| Registration::new(self, channel, qp_num))
                .map_err(|cause| self.error("register with receive QP", qp_num, cause))
        })
    }

    /// Registers with every receive QP of this domain, as the successor of a process that has ended
    /// does.
    ///
    /// A QP is returned in the state that it has after it was registered with, so that an event is
    /// either in that state or delivered. A QP that is destroyed before it is registered with is
    /// left out; one that is destroyed later has the state that was listed, and QP_GONE is
    /// delivered. QPs that are created meanwhile may be left out. `options` are those of every
    /// registration: [`Event::qp_num`](crate::Event::qp_num) tells their events apart.
    ///
    /// # Errors
    ///
    /// Those of listing the QPs, after which none is registered with. The registration of a QP
    /// fails by itself: [`AdoptedQp::registration`] has its error, one of those of
    /// [`register`](Self::register).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn adopt(device: &xrc_rcv::Device) -> xrc_rcv::Result<()> {
    /// use xrc_rcv::RegisterOptions;
    ///
    /// let domain = device.open_domain_at("/run/xrc-rcv/service")?;
    /// let channel = domain.create_event_channel()?;
    /// for qp in domain.adopt(&RegisterOptions::new().channel(&channel))? {
    ///     let (label, peer) = (qp.info.label(), qp.info.dest_qp_num());
    ///     println!("QP {:#x} of {label:#x} is connected to {peer:#x}", qp.info.qp_num());
    ///     let registration = qp.registration?; // ends when it is dropped
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt(&self, options: &RegisterOptions<'_>) -> Result<Vec<AdoptedQp>> {
        self.with_channel(options, |channel| {
            let mut qps = Vec::new();
            let adopted = |info: QpInfo, registered: borrowed::Result<()>| {
                let qp_num = info.qp_num();
                qps.push(AdoptedQp {
                    registration: registered
                        .map(|()| Registration::new(self, channel, qp_num))
                        .map_err(|cause| self.error("register with receive QP", qp_num, cause)),
                    info,
                });
            };
            self.borrowed()
                .and_then(|domain| domain.adopt(channel.borrowed(), options, adopted))
                .map(|()| qps)
                .map_err(self.device().error("adopt the receive QPs"))
        })
    }
}

/// A receive QP that [`Domain::adopt`] has found.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping a registration ends it"]
pub struct AdoptedQp {
    /// The QP, as it is after it was registered with.
    pub info: QpInfo,
    /// The registration, or why there is none.
    pub registration: Result<Registration>,
}
