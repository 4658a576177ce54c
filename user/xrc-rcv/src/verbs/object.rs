// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Objects of libibverbs that this crate makes and destroys.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::time::Instant;
#[cfg(feature = "tokio")]
use std::{
    io,
    os::fd::AsRawFd,
    task::{Context, Poll},
};

#[cfg(feature = "tokio")]
use tokio::io::unix::AsyncFd;

use crate::attr::{QpAttr, QpAttrMask, QpState};
use crate::channel::poll_until;
use crate::device::Device;
use crate::error::Cause;
use crate::ffi::{ibv_context, ibv_pd, ibv_qp_attr};
use crate::pd::Pd;
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
    pub(super) fn ibv_reg_mr(
        pd: *mut ibv_pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr;
    pub(super) fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    pub(super) fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub(super) fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
}

pub(super) type Result<T> = std::result::Result<T, Cause>;

/// An object of libibverbs, destroyed when dropped.
pub(super) struct Object<T>(NonNull<T>, unsafe extern "C" fn(*mut T) -> c_int);

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl<T> Send for Object<T> {}
// SAFETY: libibverbs' objects may be used from several threads at once.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    pub(super) fn new(
        object: *mut T,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
    ) -> Result<Object<T>> {
        let object = NonNull::new(object).ok_or_else(Cause::last)?;
        Ok(Object(object, destroy))
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Destroys it, and returns the error that dropping it would ignore.
    pub(super) fn destroy(self) -> Result<()> {
        let destroy = self.1;
        self.destroy_by(destroy)
    }

    /// The same by another function than that of dropping it.
    pub(super) fn destroy_by(self, destroy: unsafe extern "C" fn(*mut T) -> c_int) -> Result<()> {
        let object = ManuallyDrop::new(self);
        // SAFETY: `self` is not dropped, so the object is destroyed once.
        match unsafe { destroy(object.0.as_ptr()) } {
            0 => Ok(()),
            errno => Err(Cause::Os(errno)),
        }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the object, and its users were dropped before.
        unsafe { self.1(self.0.as_ptr()) };
    }
}

/// Modifies the attributes of `values` that `mask` names, and the state if it names that.
pub(super) fn modify(
    qp: &Object<ibv_qp>,
    values: &ibv_qp_attr,
    state: QpState,
    mask: QpAttrMask,
) -> Result<()> {
    // rdma-core's struct is longer by `rate_limit`, so this is followed by zeroes.
    let mut attrs = [*values, ibv_qp_attr::default()];
    attrs[0].qp_state = state as c_uint;
    // SAFETY: The QP is alive, and `attrs` has all that is read.
    match unsafe { ibv_modify_qp(qp.as_ptr(), attrs.as_mut_ptr(), mask.bits() as c_int) } {
        0 => Ok(()),
        errno => Err(Cause::Os(errno)),
    }
}

/// Takes a QP from RESET to RTR.
pub(super) fn ready_to_receive(qp: &Object<ibv_qp>, attr: &QpAttr) -> Result<()> {
    use QpAttrMask as Mask;
    let needed = Mask::PKEY_INDEX | Mask::PORT | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN;
    if !attr.mask().contains(needed) {
        return Err(Cause::Os(libc::EINVAL));
    }
    let values = attr.to_ibv();
    let mask = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS;
    modify(qp, &values, QpState::Init, mask)?;
    let mask = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
    let mask = mask | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
    modify(qp, &values, QpState::Rtr, mask)
}

impl Device {
    /// A function of the provider that libibverbs calls inline.
    ///
    /// # Safety
    ///
    /// `F` is the type of the function at `index`, and the provider has it, as providers with XRC
    /// have all of those that this crate names.
    pub(super) unsafe fn op<F: Copy>(&self, index: usize) -> F {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: The context is open as long as `self` exists, and the caller names the type.
        unsafe {
            ptr::from_ref(&(*self.as_ibv()).ops[index])
                .cast::<F>()
                .read()
        }
    }
}

impl Pd {
    /// Allocates a PD of `device`.
    ///
    /// # Errors
    ///
    /// Those of `ibv_alloc_pd()`.
    pub fn new(device: &Device) -> crate::Result<Pd> {
        // SAFETY: The context is open as long as `device` exists.
        let pd = Object::new(unsafe { ibv_alloc_pd(device.as_ibv()) }, ibv_dealloc_pd)
            .map_err(device.error("allocate a PD"))?;
        // SAFETY: It was just allocated, and its owner deallocates it.
        Ok(unsafe { Pd::from_ibv(device, pd.0, pd) })
    }
}

/// A CQ, and the channel by which its completions are waited for.
pub(super) struct Completions {
    // Each is dropped before the objects it uses.
    cq: Object<ibv_cq>,
    channel: Object<ibv_comp_channel>,
    device: Device,
}

impl Completions {
    pub(super) fn new(device: &Device, depth: u32) -> Result<Completions> {
        let count = c_int::try_from(depth).map_err(|_| Cause::Os(libc::EINVAL))?;
        let context = device.as_ibv();
        // SAFETY: The context is open as long as `device` exists.
        let channel = unsafe { ibv_create_comp_channel(context) };
        let channel = Object::new(channel, ibv_destroy_comp_channel)?;
        // SAFETY: The channel's descriptor is open as long as the channel is.
        if unsafe { libc::fcntl((*channel.as_ptr()).fd, libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(Cause::last());
        }
        // SAFETY: The context and the channel are open as long as these exist.
        let cq = unsafe { ibv_create_cq(context, count, ptr::null_mut(), channel.as_ptr(), 0) };
        Ok(Completions {
            cq: Object::new(cq, ibv_destroy_cq)?,
            channel,
            device: device.clone(),
        })
    }

    pub(super) fn cq(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// The next completion, if there is one.
    pub(super) fn poll(&mut self) -> Result<Option<ibv_wc>> {
        type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
        let mut wc = ibv_wc::default();
        // SAFETY: The CQ is alive, and there is room for one completion.
        match unsafe { self.device.op::<Poll>(IBV_OPS_POLL_CQ)(self.cq.as_ptr(), 1, &mut wc) } {
            0 => Ok(None),
            1 => Ok(Some(wc)),
            _ => Err(Cause::Os(libc::EIO)),
        }
    }

    /// The next completion, `None` if there is none until `end`. In that case the channel becomes
    /// readable with the next one.
    pub(super) fn wait(&mut self, end: Option<Instant>) -> Result<Option<ibv_wc>> {
        loop {
            if let Some(wc) = self.poll()? {
                return Ok(Some(wc));
            }
            self.request_notification()?;
            // One may have come before the request, which notifies of later ones only.
            if let Some(wc) = self.poll()? {
                return Ok(Some(wc));
            }
            if end.is_some_and(|end| end <= Instant::now()) || !poll_until(self.fd(), end)? {
                return Ok(None);
            }
        }
    }

    /// The channel's descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: The descriptor is open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Has the next completion make the channel readable.
    fn request_notification(&mut self) -> Result<()> {
        type Request = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        loop {
            // SAFETY: Channel and CQ are alive; the channel is non-blocking.
            if unsafe { ibv_get_cq_event(self.channel.as_ptr(), &mut cq, &mut context) } == 0 {
                // SAFETY: The event is of this CQ, the only one of the channel.
                unsafe { ibv_ack_cq_events(cq, 1) };
                continue;
            }
            match Cause::last() {
                Cause::Os(libc::EAGAIN) => break,
                Cause::Os(libc::EINTR) => {}
                // The device was removed.
                cause => return Err(cause),
            }
        }
        // SAFETY: The CQ is alive.
        match unsafe { self.device.op::<Request>(IBV_OPS_REQ_NOTIFY_CQ)(self.cq.as_ptr(), 0) } {
            0 => Ok(()),
            errno => Err(Cause::Os(errno)),
        }
    }
}

/// Waits until the channel of completions is readable, or the device is removed: that is EPOLLERR
/// alone, which is to tokio an end that cannot be written to.
#[cfg(feature = "tokio")]
pub(super) fn poll_notified<T: AsRawFd>(
    channel: &AsyncFd<T>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    for ready in [channel.poll_read_ready(cx), channel.poll_write_ready(cx)] {
        if let Poll::Ready(ready) = ready {
            ready?.clear_ready();
            return Poll::Ready(Ok(()));
        }
    }
    Poll::Pending
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::{FromRawFd, OwnedFd};

    use super::*;
    use crate::async_fd::readable;

    #[tokio::test]
    async fn a_channel_that_is_closed_is_noticed() {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for the two descriptors.
        assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
        // SAFETY: Both were just opened.
        let [reader, writer] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: The end of a pipe owns its descriptor.
        let channel = unsafe { readable(writer) }.unwrap();
        let waiting = tokio::spawn(async move { poll_fn(|cx| poll_notified(&channel, cx)).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(reader); // EPOLLERR alone
        waiting.await.unwrap().unwrap();
    }
}
