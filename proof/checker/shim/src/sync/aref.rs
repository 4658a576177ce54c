// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::aref`

use core::{ops::Deref, ptr::NonNull};

/// An object that counts its references.
///
/// # Safety
///
/// The object must exist as long as there is a reference.
pub unsafe trait AlwaysRefCounted {
    fn inc_ref(&self);

    /// # Safety
    ///
    /// The caller gives up a reference.
    unsafe fn dec_ref(object: NonNull<Self>);
}

pub struct ARef<T: AlwaysRefCounted>(NonNull<T>);

// SAFETY: A reference from any thread.
unsafe impl<T: AlwaysRefCounted + Send + Sync> Send for ARef<T> {}

// SAFETY: A reference from any thread.
unsafe impl<T: AlwaysRefCounted + Send + Sync> Sync for ARef<T> {}

impl<T: AlwaysRefCounted> From<&T> for ARef<T> {
    fn from(object: &T) -> Self {
        object.inc_ref();
        Self(object.into())
    }
}

impl<T: AlwaysRefCounted> Deref for ARef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `self` owns a reference.
        unsafe { self.0.as_ref() }
    }
}

impl<T: AlwaysRefCounted> Drop for ARef<T> {
    fn drop(&mut self) {
        // SAFETY: `self` owns a reference.
        unsafe { T::dec_ref(self.0) }
    }
}
