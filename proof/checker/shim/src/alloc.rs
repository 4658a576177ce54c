// SPDX-License-Identifier: GPL-2.0

//! `kernel::alloc`

use crate::{
    error::{code, Error},
    runtime,
};
use core::{
    marker::Unsize,
    mem::{ManuallyDrop, MaybeUninit},
    ops::{CoerceUnsized, Deref, DerefMut},
    pin::Pin,
};

#[derive(Debug)]
pub struct AllocError;

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        code::ENOMEM
    }
}

/// The flags of an allocation, each of which may sleep.
#[derive(Clone, Copy)]
pub struct Flags(());

pub mod flags {
    pub const GFP_KERNEL: super::Flags = super::Flags(());
    pub const GFP_KERNEL_ACCOUNT: super::Flags = super::Flags(());
}

/// An allocation, which fails when a scenario says so.
fn allocate() -> Result<(), AllocError> {
    runtime::might_sleep("allocating memory");
    if runtime::allocation_fails() {
        return Err(AllocError);
    }
    Ok(())
}

/// Counts as an object from when it is allocated until it is freed, see [`runtime::objects`].
pub(crate) struct Allocation(());

impl Allocation {
    pub(crate) fn new(_flags: Flags) -> Result<Self, AllocError> {
        allocate()?;
        runtime::count_object(1);
        Ok(Self(()))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        runtime::count_object(-1);
    }
}

pub struct KBox<T: ?Sized>(Box<T>);

impl<T> KBox<T> {
    pub fn new(value: T, _flags: Flags) -> Result<Self, AllocError> {
        allocate()?;
        Ok(Self(Box::new(value)))
    }

    pub fn pin(value: T, flags: Flags) -> Result<Pin<Self>, AllocError> {
        // SAFETY: The value is in a box of its own, which gives it back to no one.
        Ok(unsafe { Pin::new_unchecked(Self::new(value, flags)?) })
    }
}

impl<T> KBox<T> {
    pub fn new_uninit(_flags: Flags) -> Result<KBox<MaybeUninit<T>>, AllocError> {
        allocate()?;
        Ok(KBox(Box::new_uninit()))
    }

    pub fn into_raw(this: Self) -> *mut T {
        Box::into_raw(this.into_box())
    }

    fn into_box(self) -> Box<T> {
        let this = ManuallyDrop::new(self);

        // SAFETY: `this` is not dropped, nor used after this.
        unsafe { core::ptr::read(&this.0) }
    }

    /// # Safety
    ///
    /// The pointer comes from [`Self::into_raw`], once.
    pub unsafe fn from_raw(value: *mut T) -> Self {
        // SAFETY: By the requirements of this function.
        Self(unsafe { Box::from_raw(value) })
    }
}

impl<T> KBox<MaybeUninit<T>> {
    pub fn write(this: Self, value: T) -> KBox<T> {
        let mut room = this.into_box();

        room.write(value);
        // SAFETY: It was just written.
        KBox(unsafe { room.assume_init() })
    }
}

impl<T: ?Sized> From<Box<T>> for KBox<T> {
    fn from(value: Box<T>) -> Self {
        Self(value)
    }
}

impl<T: ?Sized + Unsize<U>, U: ?Sized> CoerceUnsized<KBox<U>> for KBox<T> {}

impl<T: ?Sized> Deref for KBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized> Drop for KBox<T> {
    fn drop(&mut self) {
        runtime::might_sleep("freeing memory");
    }
}

pub type KVec<T> = KVVec<T>;

/// A vector that grows only where it is allowed to fail.
pub struct KVVec<T>(Vec<T>);

#[derive(Debug)]
pub struct PushError<T>(pub T);

impl<T> From<PushError<T>> for Error {
    fn from(_: PushError<T>) -> Self {
        code::EINVAL
    }
}

impl<T> KVVec<T> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn with_capacity(capacity: usize, flags: Flags) -> Result<Self, AllocError> {
        let mut new = Self::new();

        new.reserve(capacity, flags)?;
        Ok(new)
    }

    pub fn reserve(&mut self, additional: usize, _flags: Flags) -> Result<(), AllocError> {
        if self.0.capacity() - self.0.len() < additional {
            allocate()?;
        }
        self.0.try_reserve_exact(additional).map_err(|_| AllocError)
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub fn push(&mut self, value: T, flags: Flags) -> Result<(), AllocError> {
        self.reserve(1, flags)?;
        self.0.push(value);
        Ok(())
    }

    pub fn push_within_capacity(&mut self, value: T) -> Result<(), PushError<T>> {
        if self.0.len() == self.0.capacity() {
            return Err(PushError(value));
        }
        self.0.push(value);
        Ok(())
    }

    pub fn extend_from_slice(&mut self, values: &[T], flags: Flags) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.reserve(values.len(), flags)?;
        self.0.extend_from_slice(values);
        Ok(())
    }

    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

impl<T> Default for KVVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for KVVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> IntoIterator for KVVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a KVVec<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl From<core::convert::Infallible> for AllocError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}
