// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The relation between one open device and one receive QP.
//!
//! Given up when dropped, and by the kernel when the device is closed, however the process ends.
//! The last one takes the QP with it, unless its lifetime is the domain's.

use crate::borrowed;
use crate::domain::Domain;
use crate::error::Result;
use crate::receive_qp::QpInfo;

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
    pub(crate) fn of(domain: &Domain, registration: borrowed::Registration<'_>) -> Registration {
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
