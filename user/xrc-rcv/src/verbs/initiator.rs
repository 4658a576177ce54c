// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The sending end of an XRC connection.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::object::{self, Completions, Object, ibv_destroy_qp};
use super::region::{Region, Remote};
use crate::attr::{QpAttr, QpAttrMask, QpState};
use crate::error::{Cause, Result};
use crate::ffi::ibv_qp_cap;
use crate::pd::Pd;
use crate::verbs_sys::*;

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_wc_status_str(status: c_uint) -> *const c_char;
}

/// An XRC initiator QP: sends to the SRQs of the domain that its peer, a receive QP, is in, and
/// reads memory through them.
///
/// It has a CQ of its own. Every request completes, in the order in which they were posted, and
/// holds the [`Region`] of its words until then.
///
/// Its descriptor ([`AsFd`]) is for event loops: once [`wait`](Self::wait) has returned `None` with
/// a request under way, it is readable when the next request completes.
///
/// # Examples
///
/// ```no_run
/// # fn read(pd: &xrc_rcv::Pd, peer: &xrc_rcv::QpAttr, srq_num: u32, from: xrc_rcv::verbs::Remote)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::Ordering::Relaxed;
/// use xrc_rcv::Access;
/// use xrc_rcv::verbs::{Initiator, Memory, Region};
///
/// let region = Region::new(pd, &Memory::new("buffer", 8)?, Access::empty())?;
/// let mut initiator = Initiator::new(pd, 4)?;
/// println!("the receive QP is to be connected to {:#x}", initiator.qp_num());
/// initiator.connect(peer)?;
/// initiator.read(srq_num, from, &region, 0..8)?;
/// match initiator.wait(None)? {
///     Some(completion) if completion.is_success() => {
///         println!("{}", region.memory()[0].load(Relaxed));
///     }
///     Some(completion) => println!("the connection is broken: {completion}"),
///     None => unreachable!("the wait has no end"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Initiator {
    // Each is dropped before the objects it uses.
    qp: Object<ibv_qp>,
    completions: Completions,
    /// Those of requests that have not completed.
    regions: VecDeque<Region>,
    depth: usize,
    /// Before, a provider may queue a request that it refuses, or lose one that it takes.
    is_connected: bool,
    pd: Pd,
}

impl Initiator {
    /// Creates an initiator in `pd` that can have `depth` requests under way.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC, `EINVAL` if `depth` is 0 or more than it can have,
    /// and those of the calls of libibverbs.
    pub fn new(pd: &Pd, depth: u32) -> Result<Initiator> {
        let attr = ibv_qp_init_attr_ex::xrc_initiator;
        Initiator::create(pd, depth, attr).map_err(pd.device().error("create an XRC initiator QP"))
    }

    /// Creates a QP that sends, with the attributes that `attr` makes of PD, CQ and limits.
    pub(super) fn create(
        pd: &Pd,
        depth: u32,
        attr: impl FnOnce(*mut ibv_pd, *mut c_void, ibv_qp_cap) -> ibv_qp_init_attr_ex,
    ) -> object::Result<Initiator> {
        if depth == 0 {
            return Err(Cause::Os(libc::EINVAL));
        }
        let device = pd.device();
        let create_qp_ex = device.xrc_ops().and_then(|ops| ops.create_qp_ex);
        let create_qp_ex = create_qp_ex.ok_or(Cause::Os(libc::EOPNOTSUPP))?;
        let completions = Completions::new(device, depth)?;
        let cap = ibv_qp_cap {
            max_send_wr: depth,
            max_send_sge: 1,
            ..Default::default()
        };
        let mut attr = attr(pd.as_ibv(), completions.cq().cast(), cap);
        // SAFETY: The provider's function is given its own context, and an attribute with
        // everything its mask names.
        let qp = unsafe { create_qp_ex(device.as_ibv(), &mut attr) };
        Ok(Initiator {
            qp: Object::new(qp, ibv_destroy_qp)?,
            completions,
            regions: VecDeque::with_capacity(depth as usize),
            depth: depth as usize,
            is_connected: false,
            pd: pd.clone(),
        })
    }

    pub(super) fn qp(&self) -> &Object<ibv_qp> {
        &self.qp
    }

    /// The number that the receive QP is connected to.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: The QP is alive.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Connects to a receive QP: takes the QP from RESET to RTS.
    ///
    /// `attr` has P_Key index, port, path, path MTU, number of the receive QP and PSNs. Unless
    /// given otherwise both PSNs are 0, the ACK timeout is 14 (67 ms), and there are 7 retries,
    /// without an end when the receiver is not ready, and one RDMA READ at a time.
    ///
    /// # Errors
    ///
    /// `EINVAL` for attributes that are missing or wrong, and if it was connected before; the
    /// provider's own.
    pub fn connect(&mut self, attr: &QpAttr) -> Result<()> {
        self.ready_to_send(attr)
            .map_err(self.pd.device().error("connect an XRC initiator QP"))
    }

    pub(super) fn ready_to_send(&mut self, attr: &QpAttr) -> object::Result<()> {
        use QpAttrMask as Mask;
        let mut values = attr.to_ibv();
        let default = |bit, value: &mut u8, default| {
            if !attr.mask().contains(bit) {
                *value = default;
            }
        };
        default(Mask::TIMEOUT, &mut values.timeout, 14);
        default(Mask::RETRY_CNT, &mut values.retry_cnt, 7);
        default(Mask::RNR_RETRY, &mut values.rnr_retry, 7);
        default(Mask::MAX_QP_RD_ATOMIC, &mut values.max_rd_atomic, 1);
        let mask = Mask::STATE | Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::SQ_PSN;
        let mask = mask | Mask::MAX_QP_RD_ATOMIC;
        object::ready_to_receive(&self.qp, attr)?;
        object::modify(&self.qp, &values, QpState::Rts, mask)?;
        self.is_connected = true;
        Ok(())
    }

    /// The number of requests that are under way.
    pub fn in_flight(&self) -> usize {
        self.regions.len()
    }

    /// Posts a SEND of the words of `range` of `region`, to the SRQ `srq_num`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not connected, or if `region` does not have the words, or is of another
    /// PD; `ENOMEM` if as many requests are under way as there can be; the provider's own.
    pub fn send(&mut self, srq_num: u32, region: &Region, range: Range<usize>) -> Result<()> {
        self.post(IBV_WR_SEND, srq_num, Remote::default(), region, range)
            .map_err(self.pd.device().error("post a SEND"))
    }

    /// Posts an RDMA READ of memory of the PD of the SRQ `srq_num` into the words of `range` of
    /// `region`.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn read(
        &mut self,
        srq_num: u32,
        from: Remote,
        region: &Region,
        range: Range<usize>,
    ) -> Result<()> {
        self.post(IBV_WR_RDMA_READ, srq_num, from, region, range)
            .map_err(self.pd.device().error("post an RDMA READ"))
    }

    fn post(
        &mut self,
        opcode: c_uint,
        srq_num: u32,
        remote: Remote,
        region: &Region,
        range: Range<usize>,
    ) -> object::Result<()> {
        type Post =
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
        if self.regions.len() == self.depth {
            return Err(Cause::Os(libc::ENOMEM));
        }
        if !self.is_connected || region.pd().as_ibv() != self.pd.as_ibv() {
            return Err(Cause::Os(libc::EINVAL));
        }
        let mut sge = region.sge(range)?;
        let mut wr = ibv_send_wr {
            sg_list: &mut sge,
            num_sge: 1,
            opcode,
            send_flags: IBV_SEND_SIGNALED,
            remote_addr: remote.address,
            rkey: remote.key,
            remote_srqn: srq_num,
            ..Default::default()
        };
        let mut bad = ptr::null_mut();
        let device = self.pd.device();
        // SAFETY: The QP is alive and the request is valid. Its words are registered until it
        // completes, and are atomics, which may change at any time.
        match unsafe { device.op::<Post>(IBV_OPS_POST_SEND)(self.qp.as_ptr(), &mut wr, &mut bad) } {
            0 => self.regions.push_back(region.clone()),
            errno => return Err(Cause::Os(errno)),
        }
        Ok(())
    }

    /// Waits for the next completion, and for no longer than `timeout` if given: `None` if the time
    /// is up, or if no request is under way. With [`Duration::ZERO`] it does not wait.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was removed.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>> {
        if self.regions.is_empty() {
            return Ok(None);
        }
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let wc = self
            .completions
            .wait(end)
            .map_err(self.pd.device().error("wait for a completion"))?;
        Ok(wc.map(|wc| {
            // All are signalled, and complete in the order in which they were posted.
            self.regions.pop_front();
            Completion(wc.status)
        }))
    }
}

/// Readable when a request completes, after [`Initiator::wait`] has returned `None` with one under
/// way.
impl AsFd for Initiator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.completions.fd()
    }
}

impl AsRawFd for Initiator {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("qp_num", &format_args!("{:#x}", self.qp_num()))
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// The completion of a request. If one fails, so does every later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion(c_uint);

impl Completion {
    /// Whether it was done.
    pub fn is_success(self) -> bool {
        self.0 == IBV_WC_SUCCESS
    }

    /// The `enum ibv_wc_status`.
    pub fn status(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: Any number has a description, which is a constant C string.
        f.write_str(&unsafe { CStr::from_ptr(ibv_wc_status_str(self.0)) }.to_string_lossy())
    }
}
