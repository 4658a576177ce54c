// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The relation between one open device and one receive QP.
//!
//! Given up when dropped, and by the kernel when the device is closed, however the process ends.
//! The last one takes the QP with it, unless its lifetime is the domain's.

use crate::borrowed;
use crate::domain::Domain;
use crate::error::Result;
use crate::receive_qp::{AllocOptions, QpInfo, RegisterOptions};

/// A registration with a receive QP. It keeps its domain open.
#[derive(Debug)]
#[must_use = "dropping a registration ends it"]
pub struct Registration {
    /// Valid until the registration ends.
    handle: Option<u32>,
    qp_num: u32,
    domain: Domain,
}

impl Registration {
    fn of(domain: &Domain, registration: borrowed::Registration<'_>) -> Registration {
        Registration {
            qp_num: registration.qp_num(),
            handle: Some(registration.into_handle()),
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
        let Some(handle) = self.handle.take() else {
            return Ok(());
        };
        self.domain
            .borrowed()
            .and_then(|domain| {
                let context = domain.context();
                borrowed::Registration::from_handle(context, handle, self.qp_num).unregister()
            })
            .map_err(|cause| {
                self.domain
                    .error("unregister from receive QP", self.qp_num, cause)
            })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A failure means that the handle does not exist any more: a forked child that shares the
        // file destroyed it. Either way the registration has ended.
        let _ = self.give_up();
    }
}

impl Domain {
    /// Creates a receive QP and registers with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for attributes that are missing or wrong; `EPERM` if the domain has an inode that is
    /// not a regular file's; `EACCES` for [`Lifetime::Domain`](crate::Lifetime::Domain) without
    /// owning the domain's file or being allowed to write to it, and for a partition that a security
    /// module denies; `EDQUOT` over a limit (see [`Caps`](crate::Caps)); `ENOMEM`; and the provider's
    /// own.
    pub fn alloc(&self, options: &AllocOptions<'_>) -> Result<Registration> {
        self.borrowed()
            .and_then(|domain| domain.alloc(options))
            .map(|registration| Registration::of(self, registration))
            .map_err(self.device().error("alloc a receive QP"))
    }

    /// Registers with an existing receive QP of this domain.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP, `EEXIST` if this open device is registered already,
    /// `EDQUOT` if the QP has as many registrations as it may (see [`Caps`](crate::Caps)), `EACCES`
    /// if a security module denies the process a partition of the QP.
    pub fn register(&self, qp_num: u32, options: &RegisterOptions<'_>) -> Result<Registration> {
        self.borrowed()
            .and_then(|domain| domain.register(qp_num, options))
            .map(|registration| Registration::of(self, registration))
            .map_err(|cause| self.error("register with receive QP", qp_num, cause))
    }

    /// Registers with every receive QP of this domain, as the successor of a process that has ended does.
    ///
    /// A QP is returned in the state that it has after it was registered with, so that an event is either in that
    /// state or delivered. QPs that are destroyed meanwhile are left out, and those that are created meanwhile may
    /// be. `options` are those of every registration: [`Event::qp_num`](crate::Event::qp_num) tells their events
    /// apart.
    ///
    /// # Errors
    ///
    /// Those of listing the QPs, after which none is registered with. The registration of a QP fails by itself:
    /// [`AdoptedQp::registration`] has its error, one of those of [`register`](Self::register).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn adopt(device: &xrc_rcv::Device) -> xrc_rcv::Result<()> {
    /// use xrc_rcv::RegisterOptions;
    ///
    /// let domain = device.open_domain_at("/run/xrc-rcv/service")?;
    /// let channel = device.create_event_channel()?;
    /// for qp in domain.adopt(&RegisterOptions::new().channel(&channel))? {
    ///     let (label, peer) = (qp.info.label(), qp.info.dest_qp_num());
    ///     println!("QP {:#x} of {label:#x} is connected to {peer:#x}", qp.info.qp_num());
    ///     let registration = qp.registration?; // ends when it is dropped
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt(&self, options: &RegisterOptions<'_>) -> Result<Vec<AdoptedQp>> {
        let mut qps = Vec::new();
        self.borrowed()
            .and_then(|domain| {
                domain.adopt(options, |info, registration| {
                    qps.push(AdoptedQp {
                        registration: registration
                            .map(|registration| Registration::of(self, registration))
                            .map_err(|cause| {
                                self.error("register with receive QP", info.qp_num(), cause)
                            }),
                        info,
                    });
                })
            })
            .map(|()| qps)
            .map_err(self.device().error("adopt the receive QPs"))
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
