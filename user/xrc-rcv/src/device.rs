// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An open RDMA device.

use std::any::Any;
use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::borrowed::{self, Context};
use crate::caps::Caps;
use crate::error::{Cause, Error, Result};
use crate::ffi::ibv_context;
use crate::verbs_sys::verbs_context_xrc_ops;

/// An open device; clones are the same one, and it stays open as long as one of them, or anything
/// that was made through it, exists.
///
/// The feature `verbs` opens it by name (`Device::open`); [`from_ibv`](Self::from_ibv) takes a
/// context that another binding has opened.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    context: NonNull<ibv_context>,
    name: Arc<str>,
    /// Closes the context when dropped, or keeps others from doing so.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: libibverbs' objects may be used from several threads at once.
unsafe impl Sync for Inner {}

impl Device {
    /// The device that another binding has opened.
    ///
    /// `owner` is dropped when the device is no longer used, after everything made through it:
    /// usually the other binding's own handle, such as `Arc<sideway::ibverbs::DeviceContext>`.
    ///
    /// # Safety
    ///
    /// `context` came from `ibv_open_device()` or its like, and stays open at least until `owner`
    /// is dropped.
    pub unsafe fn from_ibv(
        context: NonNull<ibv_context>,
        owner: impl Send + Sync + 'static,
    ) -> Device {
        // SAFETY: The context is open, and its device exists as long as it is.
        let name = unsafe { CStr::from_ptr((*(*context.as_ptr()).device).name.as_ptr()) };
        Device(Arc::new(Inner {
            context,
            name: name.to_string_lossy().into(),
            _owner: Box::new(owner),
        }))
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The open device for calls that this crate does not wrap.
    pub fn as_ibv(&self) -> *mut ibv_context {
        self.0.context.as_ptr()
    }

    /// The error of `operation` on this device.
    pub(crate) fn error(&self, operation: &'static str) -> impl Fn(Cause) -> Error + use<> {
        let name = self.0.name.clone();
        move |cause| Error::new(&name, operation, cause)
    }

    /// The provider's XRC functions, if libibverbs is new enough to have them.
    pub(crate) fn xrc_ops(&self) -> Option<&verbs_context_xrc_ops> {
        // SAFETY: The context is open as long as `self` is, and came from libibverbs.
        unsafe { verbs_context_xrc_ops::of(self.as_ibv()) }
    }

    pub(crate) fn borrowed(&self) -> borrowed::Result<Context<'_>> {
        // SAFETY: The context is open as long as `self` is, which the result borrows.
        unsafe { Context::from_ibv(self.as_ibv()) }
    }

    /// Queries the capabilities of the kernel and this device.
    ///
    /// # Errors
    ///
    /// [`Cause::Unavailable`] if the device has no receive QPs.
    pub fn query_caps(&self) -> Result<Caps> {
        self.borrowed()
            .and_then(|context| context.query_caps())
            .map_err(self.error("query the capabilities"))
    }
}

/// The device's file, to which everything belongs that was made through it. What is kept open by
/// another process, such as a service manager, outlives this one.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: The context is open as long as `self` exists, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.as_ibv()).cmd_fd) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.0.name).finish()
    }
}
