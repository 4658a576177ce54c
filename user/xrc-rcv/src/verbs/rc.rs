// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An end of a connection without XRC.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::initiator::Initiator;
use super::object;
use super::receives::Receives;
use super::region::{Region, Remote};
use crate::attr::QpAttr;
use crate::completion::Completion;
use crate::error::Result;
use crate::pd::Pd;
use crate::verbs_sys::*;

/// An RC QP: one of the two ends of a connection that belongs to both processes, and breaks when
/// either ends. Programs without XRC use one for each pair of processes.
///
/// It has CQs of its own, one for each direction, and memory for the messages that it receives.
pub struct RcQp {
    // Each is dropped before the objects it uses.
    sender: Initiator,
    receives: Receives,
}

impl RcQp {
    /// Creates an RC QP in `pd` that can have `depth` requests under way, and receives messages of
    /// up to `size` bytes, `receives` of which can be there without being received.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if libibverbs or its provider has no `ibv_create_qp_ex()`, `EINVAL` if a number
    /// is 0 or more than the device can have, and those of the calls of libibverbs.
    pub fn new(pd: &Pd, depth: u32, receives: u32, size: u32) -> Result<RcQp> {
        let create = || {
            let count = receives;
            let receives = Receives::new(pd, count, size)?;
            let sender = Initiator::create(pd, depth, |pd, send_cq, mut cap| {
                cap.max_recv_wr = count;
                cap.max_recv_sge = 1;
                ibv_qp_init_attr_ex::rc(pd, send_cq, receives.cq().cast(), cap)
            })?;
            Ok(RcQp { sender, receives })
        };
        create().map_err(pd.device().error("create an RC QP"))
    }

    /// The number that the peer connects to.
    pub fn qp_num(&self) -> u32 {
        self.sender.qp_num()
    }

    /// Connects to the QP of a peer: takes the QP from RESET to RTS, and then posts the receives,
    /// so that a peer that sends before needs RNR retries. Attributes that are not given are those
    /// of [`Initiator::connect`].
    ///
    /// # Errors
    ///
    /// As [`Initiator::connect`].
    pub fn connect(&mut self, attr: &QpAttr) -> Result<()> {
        self.make_ready(attr)
            .map_err(self.receives.pd().device().error("connect an RC QP"))
    }

    fn make_ready(&mut self, attr: &QpAttr) -> object::Result<()> {
        self.sender.ready_to_send(attr)?;
        // SAFETY: It is a QP with the CQ of `receives`, which is dropped after it.
        unsafe { self.receives.post_all(IBV_OPS_POST_RECV, self.sender.qp()) }
    }

    /// Posts a SEND of the words of `range` of `region`.
    ///
    /// # Errors
    ///
    /// As [`Initiator::send`].
    pub fn send(&mut self, region: &Region, range: Range<usize>) -> Result<()> {
        self.sender.send(0, region, range)
    }

    /// Posts an RDMA READ of memory of the PD of the peer's QP into the words of `range` of
    /// `region`.
    ///
    /// # Errors
    ///
    /// As [`Initiator::send`].
    pub fn read(&mut self, from: Remote, region: &Region, range: Range<usize>) -> Result<()> {
        self.sender.read(0, from, region, range)
    }

    /// Waits for the next completion of a request: see [`Initiator::wait`].
    ///
    /// # Errors
    ///
    /// As [`Initiator::wait`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>> {
        self.sender.wait(timeout)
    }

    /// Receives the next message: see [`Srq::receive`](super::Srq::receive).
    ///
    /// # Errors
    ///
    /// `EIO` for a receive that failed, as all do once the connection is broken, or if the device
    /// was removed.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.receive_until(end)
            .map_err(self.receives.pd().device().error("receive a message"))
    }

    fn receive_until(&mut self, end: Option<Instant>) -> object::Result<Option<Vec<u8>>> {
        let Some((index, message)) = self.receives.wait(end)? else {
            return Ok(None);
        };
        // SAFETY: The operation is that of a QP, and `sender` has an RC QP.
        unsafe {
            self.receives
                .post(IBV_OPS_POST_RECV, self.sender.qp(), index)?
        };
        message.map(Some)
    }
}

impl fmt::Debug for RcQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcQp")
            .field("qp_num", &format_args!("{:#x}", self.qp_num()))
            .field("in_flight", &self.sender.in_flight())
            .finish_non_exhaustive()
    }
}
