// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A shared receive queue of an XRC domain, with the memory that messages are received into.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use super::object::{self, Completions, Object, ibv_dereg_mr, ibv_destroy_srq, ibv_reg_mr};
use crate::domain::Domain;
use crate::error::{Cause, Result};
use crate::pd::Pd;
use crate::verbs_sys::*;

/// An SRQ of an XRC domain, to which senders address messages by [`srq_num`](Self::srq_num) through
/// any receive QP of the domain.
///
/// It has a CQ and memory of its own: `depth` messages of up to `size` bytes can be there without being received.
/// Peers that name it access the memory regions of its PD. It keeps its domain open.
pub struct Srq {
    // Each is dropped before the objects it uses.
    srq: Object<ibv_srq>,
    mr: Object<ibv_mr>,
    completions: Completions,
    pd: Pd,
    buffers: Buffers,
    size: usize,
    srq_num: u32,
    domain: Domain,
}

/// Memory that the device writes.
struct Buffers(NonNull<[u8]>);

// SAFETY: The buffers are owned by the SRQ, and no thread has a reference to them.
unsafe impl Send for Buffers {}
// SAFETY: A shared reference gives access to the address only; `Srq` reads the memory through `&mut self`.
unsafe impl Sync for Buffers {}

impl Buffers {
    fn new(length: usize) -> Buffers {
        let buffers = Box::leak(vec![0u8; length].into_boxed_slice());
        Buffers(NonNull::from(buffers))
    }

    fn address(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: It came from a box, and its MR was deregistered before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Srq {
    /// Creates an SRQ in `domain`, in a PD of its own: peers have no access to memory by it.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC SRQs, `EINVAL` if `depth` or `size` is 0 or more than it
    /// can have, and those of the calls of libibverbs.
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
            let invalid = Cause::Os(libc::EINVAL);
            let length = (depth as usize).checked_mul(size as usize);
            let length = length.filter(|&length| length != 0).ok_or(invalid)?;
            let context = domain.device().as_ibv();
            if pd.device().as_ibv() != context {
                return Err(invalid);
            }
            let ops = domain.device().xrc_ops();
            let unsupported = Cause::Os(libc::EOPNOTSUPP);
            let create_srq_ex = ops.and_then(|ops| ops.create_srq_ex).ok_or(unsupported)?;
            let get_srq_num = ops.and_then(|ops| ops.get_srq_num).ok_or(unsupported)?;

            let completions = Completions::new(domain.device(), depth)?;
            let mut attr = ibv_srq_init_attr_ex {
                attr: ibv_srq_attr {
                    max_wr: depth,
                    max_sge: 1,
                    srq_limit: 0,
                },
                ..ibv_srq_init_attr_ex::xrc(pd.as_ibv(), domain.as_ibv(), completions.cq())
            };
            let buffers = Buffers::new(length);
            let address = buffers.address().cast::<c_void>();
            // SAFETY: The PD is allocated as long as `pd` exists, and the memory is there as long as the MR is.
            let mr = unsafe { ibv_reg_mr(pd.as_ibv(), address, length, IBV_ACCESS_LOCAL_WRITE) };
            let mr = Object::new(mr, ibv_dereg_mr)?;
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
            let srq = Srq {
                srq,
                mr,
                completions,
                pd: pd.clone(),
                buffers,
                size: size as usize,
                srq_num,
                domain: domain.clone(),
            };
            for index in 0..u64::from(depth) {
                srq.post(index)?;
            }
            Ok(srq)
        };
        create().map_err(domain.device().error("create an SRQ"))
    }

    /// The number that senders address messages to.
    pub fn srq_num(&self) -> u32 {
        self.srq_num
    }

    /// The PD.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Receives the next message, and waits for it for no longer than `timeout` if given: `None` if
    /// the time is up.
    ///
    /// # Errors
    ///
    /// `EIO` for a receive that failed, such as of a message that is too long, or if the device was
    /// removed.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.receive_until(end)
            .map_err(self.domain.device().error("receive a message"))
    }

    /// Takes a message that was received, and gives its place back to the SRQ.
    fn receive_until(&mut self, end: Option<Instant>) -> object::Result<Option<Vec<u8>>> {
        let Some(wc) = self.completions.wait(end)? else {
            return Ok(None);
        };
        let message = (wc.status == IBV_WC_SUCCESS).then(|| {
            let length = (wc.byte_len as usize).min(self.size);
            // SAFETY: The completion is of one of our receives, whose place is not written any more.
            unsafe {
                let place = self.buffers.address().add(wc.wr_id as usize * self.size);
                std::slice::from_raw_parts(place, length).to_vec()
            }
        });
        self.post(wc.wr_id)?;
        message.map(Some).ok_or(Cause::Os(libc::EIO))
    }

    fn post(&self, index: u64) -> object::Result<()> {
        type Post =
            unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
        let mut sge = ibv_sge {
            addr: self.buffers.address().expose_provenance() as u64 + index * self.size as u64,
            length: self.size as u32,
            // SAFETY: The MR is alive.
            lkey: unsafe { (*self.mr.as_ptr()).lkey },
        };
        let mut wr = ibv_recv_wr {
            wr_id: index,
            next: ptr::null_mut(),
            sg_list: &mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: The request is valid, and its memory is the SRQ's until it completes.
        match unsafe {
            let device = self.domain.device();
            device.op::<Post>(IBV_OPS_POST_SRQ_RECV)(self.srq.as_ptr(), &mut wr, &mut bad)
        } {
            0 => Ok(()),
            errno => Err(Cause::Os(errno)),
        }
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
