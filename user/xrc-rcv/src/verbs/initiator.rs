// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The sending end of an XRC connection.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::memory::Memory;
use super::object::{self, Completions, Object, ibv_destroy_qp};
use super::region::{Region, Remote};
use crate::attr::{Access, QpAttr, QpAttrMask, QpState};
use crate::completion::Completion;
use crate::error::{Cause, Error, Result};
use crate::ffi::ibv_qp_cap;
use crate::pd::Pd;
use crate::verbs_sys::*;

/// An XRC initiator QP: sends to the SRQs of the domain that its peer, a receive QP, is in, and
/// accesses memory through them.
///
/// It has a CQ of its own. Every request completes, in the order in which they were posted, and
/// holds the [`Region`] of its words until then.
///
/// Its descriptor ([`AsFd`]) is for event loops: once [`wait`](Self::wait) has returned `None` with
/// a request under way, it is readable when the next request completes. With the feature `tokio`,
/// `Requests` has its requests as futures.
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
    /// Those that have not completed.
    requests: VecDeque<Request>,
    /// A word for the old value of each atomic, registered with the first one.
    old_values: Option<Region>,
    /// The number of atomics that were posted.
    atomics: usize,
    depth: usize,
    /// Before, a provider may queue a request that it refuses, or lose one that it takes.
    is_connected: bool,
    pd: Pd,
}

/// A request that has not completed.
struct Request {
    /// Memory that the device accesses.
    region: Region,
    /// The word of it that an atomic's old value is written to.
    old_value: Option<usize>,
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
            requests: VecDeque::with_capacity(depth as usize),
            old_values: None,
            atomics: 0,
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
    /// without an end when the receiver is not ready, and one RDMA READ or atomic at a time.
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
        self.requests.len()
    }

    /// The number of requests that can be posted before one completes.
    #[cfg(feature = "tokio")]
    pub(super) fn room(&self) -> usize {
        self.depth - self.requests.len()
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

    /// Posts an RDMA WRITE of the words of `range` of `region` to memory of the PD of the SRQ
    /// `srq_num`. The receiver does not notice.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn write(
        &mut self,
        srq_num: u32,
        to: Remote,
        region: &Region,
        range: Range<usize>,
    ) -> Result<()> {
        self.post(IBV_WR_RDMA_WRITE, srq_num, to, region, range)
            .map_err(self.pd.device().error("post an RDMA WRITE"))
    }

    /// Posts a FETCH_ADD: adds `add` to a word of the PD of the SRQ `srq_num`, atomically to other
    /// atomics of that device. Its completion has the word's [old value](Completion::old_value).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and `EINVAL` if the word is not aligned; with the first atomic,
    /// those of [`Memory::new`] and [`Region::new`], as memory for old values is registered.
    pub fn fetch_add(&mut self, srq_num: u32, to: Remote, add: u64) -> Result<()> {
        self.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, srq_num, to, add, 0)
            .map_err(self.pd.device().error("post a FETCH_ADD"))
    }

    /// Posts a CMP_SWAP: stores `swap` to a word of the PD of the SRQ `srq_num` if it is `compare`,
    /// atomically to other atomics of that device. Its completion has the word's
    /// [old value](Completion::old_value).
    ///
    /// # Errors
    ///
    /// As [`fetch_add`](Self::fetch_add).
    pub fn cmp_swap(&mut self, srq_num: u32, to: Remote, compare: u64, swap: u64) -> Result<()> {
        self.post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, srq_num, to, compare, swap)
            .map_err(self.pd.device().error("post a CMP_SWAP"))
    }

    fn post_atomic(
        &mut self,
        opcode: c_uint,
        srq_num: u32,
        to: Remote,
        compare_add: u64,
        swap: u64,
    ) -> object::Result<()> {
        if to.address % size_of::<u64>() as u64 != 0 {
            return Err(Cause::Os(libc::EINVAL));
        }
        let region = self.old_values()?;
        // That of the atomic `depth` atomics ago, which has completed.
        let word = self.atomics % self.depth;
        let wr = ibv_wr_atomic {
            remote_addr: to.address,
            compare_add,
            swap,
            rkey: to.key,
        };
        let request = Request {
            region,
            old_value: Some(word),
        };
        let wr = ibv_wr { atomic: wr };
        self.post_wr(opcode, srq_num, wr, request, word..word + 1)?;
        self.atomics += 1;
        Ok(())
    }

    fn old_values(&mut self) -> object::Result<Region> {
        if let Some(region) = &self.old_values {
            return Ok(region.clone());
        }
        let memory = Memory::new("old values", self.depth)
            .map_err(|error| Cause::Os(error.raw_os_error().unwrap_or(libc::EINVAL)))?;
        let region = Region::new(&self.pd, &memory, Access::empty());
        let region = region.map_err(|error| error.cause())?;
        Ok(self.old_values.insert(region).clone())
    }

    fn post(
        &mut self,
        opcode: c_uint,
        srq_num: u32,
        remote: Remote,
        region: &Region,
        range: Range<usize>,
    ) -> object::Result<()> {
        let wr = ibv_wr_rdma {
            remote_addr: remote.address,
            rkey: remote.key,
        };
        let request = Request {
            region: region.clone(),
            old_value: None,
        };
        self.post_wr(opcode, srq_num, ibv_wr { rdma: wr }, request, range)
    }

    /// Posts a request to remote memory `wr`, if its opcode has one, and the words of `range` of
    /// the request's region.
    fn post_wr(
        &mut self,
        opcode: c_uint,
        srq_num: u32,
        wr: ibv_wr,
        request: Request,
        range: Range<usize>,
    ) -> object::Result<()> {
        type Post =
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
        if self.requests.len() == self.depth {
            return Err(Cause::Os(libc::ENOMEM));
        }
        if !self.is_connected || request.region.pd().as_ibv() != self.pd.as_ibv() {
            return Err(Cause::Os(libc::EINVAL));
        }
        let mut sge = request.region.sge(range)?;
        let mut wr = ibv_send_wr {
            sg_list: &mut sge,
            num_sge: 1,
            opcode,
            send_flags: IBV_SEND_SIGNALED,
            wr,
            remote_srqn: srq_num,
            ..Default::default()
        };
        let mut bad = ptr::null_mut();
        let device = self.pd.device();
        // SAFETY: The QP is alive and the request is valid: `wr` is the member of its opcode. Its
        // words are registered until it completes, and are atomics, which may change at any time.
        match unsafe { device.op::<Post>(IBV_OPS_POST_SEND)(self.qp.as_ptr(), &mut wr, &mut bad) } {
            0 => self.requests.push_back(request),
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
        if self.requests.is_empty() {
            return Ok(None);
        }
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.complete(end).map_err(|cause| self.error(cause))
    }

    /// As [`wait`](Self::wait). If it returns `None`, the channel becomes readable with the next
    /// completion, also of a request that is posted later.
    pub(super) fn complete(&mut self, end: Option<Instant>) -> object::Result<Option<Completion>> {
        let Some(wc) = self.completions.wait(end)? else {
            return Ok(None);
        };
        // All are signalled, and complete in the order in which they were posted.
        let request = self.requests.pop_front();
        let done = request.filter(|_| wc.status == IBV_WC_SUCCESS);
        let old_value = done.and_then(|Request { region, old_value }| {
            Some(region.memory()[old_value?].load(Relaxed))
        });
        Ok(Some(Completion::new(wc.status, old_value)))
    }

    /// The error of a request that was posted.
    pub(super) fn error(&self, cause: Cause) -> Error {
        self.pd.device().error("complete a request")(cause)
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
