// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A protection domain: what memory a peer may access through an SRQ.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::device::Device;
use crate::ffi::ibv_pd;

/// A protection domain; clones are the same one. An SRQ in it
/// ([`Srq::in_pd`](crate::verbs::Srq::in_pd)) gives peers access to the memory regions in it.
#[derive(Clone)]
pub struct Pd(Arc<Inner>);

struct Inner {
    pd: NonNull<ibv_pd>,
    /// Deallocates the PD when dropped, or keeps others from doing so.
    _owner: Box<dyn Any + Send + Sync>,
    /// The last to be dropped.
    device: Device,
}

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: libibverbs' objects may be used from several threads at once.
unsafe impl Sync for Inner {}

impl Pd {
    /// The PD that another binding has allocated on `device`.
    ///
    /// `owner` is dropped when the PD is no longer used, after everything made in it.
    ///
    /// # Safety
    ///
    /// `pd` came from `ibv_alloc_pd()` or its like on the context of `device`, and stays allocated
    /// at least until `owner` is dropped.
    pub unsafe fn from_ibv(
        device: &Device,
        pd: NonNull<ibv_pd>,
        owner: impl Send + Sync + 'static,
    ) -> Pd {
        Pd(Arc::new(Inner {
            pd,
            _owner: Box::new(owner),
            device: device.clone(),
        }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The PD for calls that this crate does not wrap.
    pub fn as_ibv(&self) -> *mut ibv_pd {
        self.0.pd.as_ptr()
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd")
            .field("device", &self.device().name())
            .finish_non_exhaustive()
    }
}
