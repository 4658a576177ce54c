// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A shared receive queue of an XRC domain, with the memory that messages are received into.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use crate::channel::poll_until;
use crate::domain::Domain;
use crate::error::{Cause, Result};
use crate::ffi::ibv_context;
use crate::verbs_sys::*;

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32);
    fn ibv_reg_mr(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
}

/// An object of libibverbs, destroyed when dropped.
struct Object<T>(NonNull<T>, unsafe extern "C" fn(*mut T) -> c_int);

impl<T> Object<T> {
    fn new(
        object: *mut T,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
    ) -> std::result::Result<Object<T>, Cause> {
        let object = NonNull::new(object).ok_or_else(Cause::last)?;
        Ok(Object(object, destroy))
    }

    fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the object, and its users were dropped before.
        unsafe { self.1(self.0.as_ptr()) };
    }
}

/// An SRQ of an XRC domain, to which senders address messages by [`srq_num`](Self::srq_num) through
/// any receive QP of the domain.
///
/// It has a PD, a CQ and memory of its own: `depth` messages of up to `size` bytes can be there
/// without being received. It keeps its domain open.
pub struct Srq {
    // Each is dropped before the objects it uses.
    srq: Object<ibv_srq>,
    mr: Object<ibv_mr>,
    cq: Object<ibv_cq>,
    channel: Object<ibv_comp_channel>,
    _pd: Object<ibv_pd>,
    buffers: Buffers,
    size: usize,
    srq_num: u32,
    domain: Domain,
}

// SAFETY: libibverbs' objects may be used from any thread; the buffers are `self`'s own.
unsafe impl Send for Srq {}
// SAFETY: As above, and from several at once; only who has `&mut self` reads the buffers.
unsafe impl Sync for Srq {}

/// Memory that the device writes.
struct Buffers(NonNull<[u8]>);

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
    /// Creates an SRQ in `domain`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC SRQs, `EINVAL` if `depth` or `size` is 0 or more than it
    /// can have, and those of the calls of libibverbs.
    pub fn new(domain: &Domain, depth: u32, size: u32) -> Result<Srq> {
        let create = || {
            let invalid = Cause::Os(libc::EINVAL);
            let count = c_int::try_from(depth).map_err(|_| invalid)?;
            let length = (depth as usize).checked_mul(size as usize);
            let length = length.filter(|&length| length != 0).ok_or(invalid)?;
            let context = domain.device().as_ibv();
            let ops = domain.device().xrc_ops();
            let unsupported = Cause::Os(libc::EOPNOTSUPP);
            let create_srq_ex = ops.and_then(|ops| ops.create_srq_ex).ok_or(unsupported)?;
            let get_srq_num = ops.and_then(|ops| ops.get_srq_num).ok_or(unsupported)?;

            // SAFETY: The context is open as long as `domain` exists.
            let pd = Object::new(unsafe { ibv_alloc_pd(context) }, ibv_dealloc_pd)?;
            // SAFETY: As above.
            let channel = unsafe { ibv_create_comp_channel(context) };
            let channel = Object::new(channel, ibv_destroy_comp_channel)?;
            // SAFETY: The channel's descriptor is open as long as the channel is.
            if unsafe { libc::fcntl((*channel.as_ptr()).fd, libc::F_SETFL, libc::O_NONBLOCK) } != 0
            {
                return Err(Cause::last());
            }
            // SAFETY: As above, and the channel is.
            let cq = unsafe { ibv_create_cq(context, count, ptr::null_mut(), channel.as_ptr(), 0) };
            let cq = Object::new(cq, ibv_destroy_cq)?;
            let mut attr = ibv_srq_init_attr_ex {
                attr: ibv_srq_attr {
                    max_wr: depth,
                    max_sge: 1,
                    srq_limit: 0,
                },
                ..ibv_srq_init_attr_ex::xrc(pd.as_ptr(), domain.as_ibv(), cq.as_ptr())
            };
            let buffers = Buffers::new(length);
            let address = buffers.address().cast::<c_void>();
            // SAFETY: The memory is there as long as the MR is.
            let mr = unsafe { ibv_reg_mr(pd.as_ptr(), address, length, IBV_ACCESS_LOCAL_WRITE) };
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
                cq,
                channel,
                _pd: pd,
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
        self.receive_until(timeout.and(end))
            .map_err(self.domain.device().error("receive a message"))
    }

    fn receive_until(
        &mut self,
        end: Option<Instant>,
    ) -> std::result::Result<Option<Vec<u8>>, Cause> {
        loop {
            if let Some(message) = self.poll()? {
                return Ok(Some(message));
            }
            self.request_notification()?;
            // A message may have arrived before the request, which notifies of later ones only.
            if let Some(message) = self.poll()? {
                return Ok(Some(message));
            }
            // SAFETY: The channel's descriptor is open as long as the channel is.
            let fd = unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) };
            if !poll_until(fd, end)? {
                return Ok(None);
            }
        }
    }

    /// A function of the provider that libibverbs calls inline.
    ///
    /// # Safety
    ///
    /// `F` is the type of the function at `index`.
    unsafe fn op<F: Copy>(&self, index: usize) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: The context is open as long as the domain is; providers with XRC SRQs have these
        // functions, of the type that the caller names.
        unsafe {
            ptr::from_ref(&(*self.domain.device().as_ibv()).ops[index])
                .cast::<F>()
                .read()
        }
    }

    fn post(&self, index: u64) -> std::result::Result<(), Cause> {
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
            self.op::<Post>(IBV_OPS_POST_SRQ_RECV)(self.srq.as_ptr(), &mut wr, &mut bad)
        } {
            0 => Ok(()),
            errno => Err(Cause::Os(errno)),
        }
    }

    /// Takes a message that was received, and gives its place back to the SRQ.
    fn poll(&mut self) -> std::result::Result<Option<Vec<u8>>, Cause> {
        type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
        let mut wc = ibv_wc::default();
        // SAFETY: The CQ is alive, and there is room for one completion.
        match unsafe { self.op::<Poll>(IBV_OPS_POLL_CQ)(self.cq.as_ptr(), 1, &mut wc) } {
            0 => return Ok(None),
            1 if wc.status == IBV_WC_SUCCESS => {}
            _ => return Err(Cause::Os(libc::EIO)),
        }
        let length = (wc.byte_len as usize).min(self.size);
        // SAFETY: The completion is of one of our receives, whose place is not written any more.
        let message = unsafe {
            let place = self.buffers.address().add(wc.wr_id as usize * self.size);
            std::slice::from_raw_parts(place, length).to_vec()
        };
        self.post(wc.wr_id)?;
        Ok(Some(message))
    }

    /// Has the next completion make the channel readable.
    fn request_notification(&mut self) -> std::result::Result<(), Cause> {
        type Request = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: Channel and CQ are alive; the channel is non-blocking.
        unsafe {
            while ibv_get_cq_event(self.channel.as_ptr(), &mut cq, &mut context) == 0 {
                ibv_ack_cq_events(cq, 1);
            }
        }
        // SAFETY: The CQ is alive.
        match unsafe { self.op::<Request>(IBV_OPS_REQ_NOTIFY_CQ)(self.cq.as_ptr(), 0) } {
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
