// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Memory that messages are received into, and the completions of receives.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::time::Instant;

use super::object::{Completions, Object, Result, ibv_dereg_mr, ibv_reg_mr};
use crate::error::Cause;
use crate::pd::Pd;
use crate::verbs_sys::*;

/// Places for `depth` messages of up to `size` bytes, each of which is the memory of one receive.
pub(super) struct Receives {
    // Each is dropped before the objects it uses.
    mr: Object<ibv_mr>,
    completions: Completions,
    pd: Pd,
    buffers: Buffers,
    depth: u32,
    size: usize,
}

/// Memory that the device writes.
struct Buffers(NonNull<[u8]>);

// SAFETY: The buffers are owned by the receives, and no thread has a reference to them.
unsafe impl Send for Buffers {}
// SAFETY: A shared reference gives access to the address only; `Receives` reads the memory through
// `&mut self`.
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

impl Receives {
    pub(super) fn new(pd: &Pd, depth: u32, size: u32) -> Result<Receives> {
        let invalid = Cause::Os(libc::EINVAL);
        let length = (depth as usize).checked_mul(size as usize);
        let length = length.filter(|&length| length != 0).ok_or(invalid)?;
        let completions = Completions::new(pd.device(), depth)?;
        let buffers = Buffers::new(length);
        let address = buffers.address().cast::<c_void>();
        // SAFETY: The PD is allocated as long as `pd` exists, and the memory is there as long as
        // the MR is.
        let mr = unsafe { ibv_reg_mr(pd.as_ibv(), address, length, IBV_ACCESS_LOCAL_WRITE) };
        Ok(Receives {
            mr: Object::new(mr, ibv_dereg_mr)?,
            completions,
            pd: pd.clone(),
            buffers,
            depth,
            size: size as usize,
        })
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(super) fn cq(&self) -> *mut ibv_cq {
        self.completions.cq()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.completions.fd()
    }

    /// Posts a receive for each place, by [`post`](Self::post).
    ///
    /// # Safety
    ///
    /// As of [`post`](Self::post).
    pub(super) unsafe fn post_all<T>(&self, op: usize, queue: &Object<T>) -> Result<()> {
        // SAFETY: By the caller's word, for each index.
        (0..u64::from(self.depth)).try_for_each(|index| unsafe { self.post(op, queue, index) })
    }

    /// Posts the receive of a place.
    ///
    /// # Safety
    ///
    /// `op` is the function by which receives are posted to a `T`. `queue` is of this device, is
    /// destroyed before `self`, and its receives complete in the CQ of `self`.
    pub(super) unsafe fn post<T>(&self, op: usize, queue: &Object<T>, index: u64) -> Result<()> {
        type Post<T> =
            unsafe extern "C" fn(*mut T, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
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
        // SAFETY: The request is valid, and its memory is the queue's until it completes.
        match unsafe { self.pd.device().op::<Post<T>>(op)(queue.as_ptr(), &mut wr, &mut bad) } {
            0 => Ok(()),
            errno => Err(Cause::Os(errno)),
        }
    }

    /// Waits until `end` for the next message: its place, which is to be posted again, and the
    /// message, or an error if the receive failed.
    pub(super) fn wait(&mut self, end: Option<Instant>) -> Result<Option<(u64, Result<Vec<u8>>)>> {
        let Some(wc) = self.completions.wait(end)? else {
            return Ok(None);
        };
        if wc.status != IBV_WC_SUCCESS {
            return Ok(Some((wc.wr_id, Err(Cause::Os(libc::EIO)))));
        }
        let length = (wc.byte_len as usize).min(self.size);
        // SAFETY: The completion is of one of our receives, whose place is not written any more.
        let message = unsafe {
            let place = self.buffers.address().add(wc.wr_id as usize * self.size);
            std::slice::from_raw_parts(place, length).to_vec()
        };
        Ok(Some((wc.wr_id, Ok(message))))
    }
}
