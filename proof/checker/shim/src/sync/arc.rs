// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::Arc`, whose allocations the runtime counts.

use crate::{
    alloc::{AllocError, Allocation, Flags},
    error::{Error, Result},
};
use core::{marker::PhantomData, ops::Deref, ptr::NonNull};
use pinned_init::PinInit;
use std::sync::Arc as StdArc;

/// The value comes first: a pointer to it is one to the whole.
#[repr(C)]
struct Inner<T> {
    value: T,
    _allocation: Allocation,
}

/// A reference-counted object, which its last reference frees.
pub struct Arc<T>(StdArc<Inner<T>>);

impl<T> Arc<T> {
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        Ok(Self(StdArc::new(Inner {
            value,
            _allocation: Allocation::new(flags)?,
        })))
    }

    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Self>
    where
        Error: From<E>,
    {
        let allocation = Allocation::new(flags)?;
        let mut new = StdArc::<Inner<T>>::new_uninit();
        let slot = StdArc::get_mut(&mut new)
            .expect("there is one reference")
            .as_mut_ptr();

        // SAFETY: `slot` is valid for writes and does not move. It is initialised when the function
        // returns success.
        unsafe {
            init.__pinned_init(&raw mut (*slot).value)?;
            (&raw mut (*slot)._allocation).write(allocation);
            Ok(Self(new.assume_init()))
        }
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        StdArc::ptr_eq(&this.0, &other.0)
    }

    pub fn as_ptr(this: &Self) -> *const T {
        StdArc::as_ptr(&this.0).cast()
    }

    pub fn into_raw(self) -> *const T {
        StdArc::into_raw(self.0).cast()
    }

    /// # Safety
    ///
    /// The pointer comes from [`Self::into_raw`], once.
    pub unsafe fn from_raw(value: *const T) -> Self {
        // SAFETY: By the requirements of this function.
        Self(unsafe { StdArc::from_raw(value.cast()) })
    }

    pub fn as_arc_borrow(&self) -> ArcBorrow<'_, T> {
        // SAFETY: `self` owns a reference, and is borrowed.
        unsafe { ArcBorrow::from_raw(Self::as_ptr(self)) }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// A borrowed reference.
pub struct ArcBorrow<'a, T>(NonNull<T>, PhantomData<&'a T>);

impl<T> ArcBorrow<'_, T> {
    /// # Safety
    ///
    /// The pointer comes from [`Arc::as_ptr`] or [`Arc::into_raw`], and there is a reference for
    /// `'a`.
    pub unsafe fn from_raw(value: *const T) -> Self {
        Self(
            NonNull::new(value.cast_mut()).expect("it is an address"),
            PhantomData,
        )
    }
}

impl<T> Clone for ArcBorrow<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ArcBorrow<'_, T> {}

impl<T> Deref for ArcBorrow<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the requirements of `from_raw`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> From<ArcBorrow<'_, T>> for Arc<T> {
    fn from(borrow: ArcBorrow<'_, T>) -> Self {
        let inner = borrow.0.as_ptr().cast_const().cast::<Inner<T>>();

        // SAFETY: By the requirements of `from_raw`, the pointer is that of an `Arc` that exists.
        unsafe {
            StdArc::increment_strong_count(inner);
            Self(StdArc::from_raw(inner))
        }
    }
}
