// SPDX-License-Identifier: GPL-2.0

//! `kernel::types`

use core::{
    cell::UnsafeCell,
    marker::PhantomPinned,
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
};

/// Memory that C uses.
#[repr(transparent)]
pub struct Opaque<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    _pin: PhantomPinned,
}

impl<T> Opaque<T> {
    pub const fn uninit() -> Self {
        Self {
            value: UnsafeCell::new(MaybeUninit::uninit()),
            _pin: PhantomPinned,
        }
    }

    pub fn get(&self) -> *mut T {
        self.value.get().cast()
    }

    pub fn cast_into(this: *const Self) -> *mut T {
        this.cast_mut().cast()
    }
}

/// Calls a function with a value when it is dropped.
pub struct ScopeGuard<T, F: FnOnce(T)>(Option<(T, F)>);

impl<T, F: FnOnce(T)> ScopeGuard<T, F> {
    pub fn new_with_data(data: T, cleanup: F) -> Self {
        Self(Some((data, cleanup)))
    }

    pub fn dismiss(mut self) -> T {
        self.0.take().expect("it is not dropped").0
    }
}

impl<T, F: FnOnce(T)> Deref for ScopeGuard<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.as_ref().expect("it is not dropped").0
    }
}

impl<T, F: FnOnce(T)> DerefMut for ScopeGuard<T, F> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.as_mut().expect("it is not dropped").0
    }
}

impl<T, F: FnOnce(T)> Drop for ScopeGuard<T, F> {
    fn drop(&mut self) {
        if let Some((data, cleanup)) = self.0.take() {
            cleanup(data);
        }
    }
}
