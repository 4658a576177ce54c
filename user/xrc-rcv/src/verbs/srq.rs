// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A shared receive queue of an XRC domain, with the memory that messages are received into.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::object::{self, Object, ibv_destroy_srq};
use super::receives::Receives;
use crate::domain::Domain;
use crate::error::{Cause, Result};
use crate::pd::Pd;
use crate::verbs_sys::*;

/// An SRQ of an XRC domain, to which senders address messages by [`srq_num`](Self::srq_num) through
/// any receive QP of the domain.
///
/// It has a CQ and memory of its own: `depth` messages of up to `size` bytes can be there without
/// being received. Peers that name it access the memory regions of its PD. It keeps its domain
/// open.
///
/// Its descriptor ([`AsFd`]) is for event loops: once [`receive`](Self::receive) has returned
/// `None`, it is readable when the next message comes. With the feature `tokio`, `MessageStream` is
/// its stream.
pub struct Srq {
    // Each is dropped before the objects it uses.
    srq: Object<ibv_srq>,
    receives: Receives,
    srq_num: u32,
    domain: Domain,
}

impl Srq {
    /// Creates an SRQ in `domain`, in a PD of its own: peers have no access to memory by it.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC SRQs, `EINVAL` if `depth` or `size` is 0 or more than
    /// it can have, and those of the calls of libibverbs.
    pub fn new(domain: &Domain, depth: u32, size: u32) -> Result<Srq> {
        Srq::in_pd(&Pd::new(domain.device())?, domain, depth, size)
    }

    /// Creates an SRQ in `domain` and in `pd`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); `EINVAL` if `pd` is of another open device.
    pub fn in_pd(pd: &Pd, domain: &Domain, depth: u32, size: u32) -> Result<Srq> {
        let create = || {
            let context = domain.device().as_ibv();
            if pd.device().as_ibv() != context {
                return Err(Cause::Os(libc::EINVAL));
            }
            let ops = domain.device().xrc_ops();
            let unsupported = Cause::Os(libc::EOPNOTSUPP);
            let create_srq_ex = ops.and_then(|ops| ops.create_srq_ex).ok_or(unsupported)?;
            let get_srq_num = ops.and_then(|ops| ops.get_srq_num).ok_or(unsupported)?;

            let receives = Receives::new(pd, depth, size)?;
            let mut attr = ibv_srq_init_attr_ex {
                attr: ibv_srq_attr {
                    max_wr: depth,
                    max_sge: 1,
                    srq_limit: 0,
                },
                ..ibv_srq_init_attr_ex::xrc(pd.as_ibv(), domain.as_ibv(), receives.cq())
            };
            // SAFETY: The provider's function is given its own context, and an attribute with
            // everything its mask names.
            let srq = unsafe { create_srq_ex(context, ptr::from_mut(&mut attr).cast()) };
            let srq = Object::new(srq.cast::<ibv_srq>(), ibv_destroy_srq)?;
            let mut srq_num = 0;
            // SAFETY: The provider's function is given its own SRQ.
            match unsafe { get_srq_num(srq.as_ptr().cast(), &mut srq_num) } {
                0 => {}
                errno => return Err(Cause::Os(errno)),
            }
            // SAFETY: It is an SRQ with the CQ of `receives`, which is dropped after it.
            unsafe { receives.post_all(IBV_OPS_POST_SRQ_RECV, &srq)? };
            Ok(Srq {
                srq,
                receives,
                srq_num,
                domain: domain.clone(),
            })
        };
        create().map_err(domain.device().error("create an SRQ"))
    }

    /// The number that senders address messages to.
    pub fn srq_num(&self) -> u32 {
        self.srq_num
    }

    /// The PD.
    pub fn pd(&self) -> &Pd {
        self.receives.pd()
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Receives the next message, and waits for it for no longer than `timeout` if given: `None` if
    /// the time is up. With [`Duration::ZERO`] it does not wait.
    ///
    /// # Errors
    ///
    /// `EIO` for a receive that failed, such as of a message that is too long, or if the device was
    /// removed.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.receive_until(end)?.transpose()
    }

    /// As [`receive`](Self::receive). The inner error is of one message, the outer one of the SRQ,
    /// which remains.
    pub(super) fn receive_until(
        &mut self,
        end: Option<Instant>,
    ) -> Result<Option<Result<Vec<u8>>>> {
        let error = self.domain.device().error("receive a message");
        match self.take(end) {
            Ok(message) => Ok(message.map(|message| message.map_err(error))),
            Err(cause) => Err(error(cause)),
        }
    }

    /// Takes a message that was received, and gives its place back to the SRQ.
    fn take(&mut self, end: Option<Instant>) -> object::Result<Option<object::Result<Vec<u8>>>> {
        let Some((index, message)) = self.receives.wait(end)? else {
            return Ok(None);
        };
        // SAFETY: The operation is that of an SRQ, which `srq` is.
        unsafe {
            self.receives
                .post(IBV_OPS_POST_SRQ_RECV, &self.srq, index)?
        };
        Ok(Some(message))
    }
}

/// Readable when a message comes, after [`Srq::receive`] has returned `None`.
impl AsFd for Srq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receives.fd()
    }
}

impl AsRawFd for Srq {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("domain", &self.domain)
            .field("srq_num", &self.srq_num)
            .finish_non_exhaustive()
    }
}
