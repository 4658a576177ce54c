// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic`
//!
//! Orderings are those of std, so that ThreadSanitizer and Miri see them; shuttle has sequential
//! consistency.

use crate::runtime;
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

pub struct Relaxed;
pub struct Acquire;
pub struct Release;

pub trait LoadOrdering {
    const LOAD: Ordering;
}

pub trait StoreOrdering {
    const STORE: Ordering;
}

pub trait RmwOrdering {
    const RMW: Ordering;
}

impl LoadOrdering for Relaxed {
    const LOAD: Ordering = Ordering::Relaxed;
}

impl LoadOrdering for Acquire {
    const LOAD: Ordering = Ordering::Acquire;
}

impl StoreOrdering for Relaxed {
    const STORE: Ordering = Ordering::Relaxed;
}

impl StoreOrdering for Release {
    const STORE: Ordering = Ordering::Release;
}

impl RmwOrdering for Relaxed {
    const RMW: Ordering = Ordering::Relaxed;
}

impl RmwOrdering for Acquire {
    const RMW: Ordering = Ordering::Acquire;
}

impl RmwOrdering for Release {
    const RMW: Ordering = Ordering::Release;
}

/// A type that std has an atomic type for, of the same layout.
pub trait AtomicType: Copy {
    type Std;

    fn load(this: &Self::Std, ordering: Ordering) -> Self;
    fn store(this: &Self::Std, value: Self, ordering: Ordering);
    fn swap(this: &Self::Std, value: Self, ordering: Ordering) -> Self;
    fn compare_exchange(
        this: &Self::Std,
        old: Self,
        new: Self,
        ordering: Ordering,
    ) -> Result<Self, Self>;
}

pub trait AtomicAdd: AtomicType {
    fn fetch_add(this: &Self::Std, value: Self, ordering: Ordering) -> Self;
}

macro_rules! atomic_types {
    ($($type:ty: $std:ident),*) => {
        $(impl AtomicType for $type {
            type Std = $std;

            fn load(this: &$std, ordering: Ordering) -> Self {
                this.load(ordering)
            }

            fn store(this: &$std, value: Self, ordering: Ordering) {
                this.store(value, ordering)
            }

            fn swap(this: &$std, value: Self, ordering: Ordering) -> Self {
                this.swap(value, ordering)
            }

            fn compare_exchange(
                this: &$std,
                old: Self,
                new: Self,
                ordering: Ordering,
            ) -> Result<Self, Self> {
                this.compare_exchange(old, new, ordering, Ordering::Relaxed)
            }
        })*
    };
}

macro_rules! atomic_add {
    ($($type:ty: $std:ident),*) => {
        $(impl AtomicAdd for $type {
            fn fetch_add(this: &$std, value: Self, ordering: Ordering) -> Self {
                this.fetch_add(value, ordering)
            }
        })*
    };
}

atomic_types! {
    bool: AtomicBool, u32: AtomicU32, u64: AtomicU64, i64: AtomicI64, usize: AtomicUsize
}
atomic_add!(u32: AtomicU32, u64: AtomicU64, i64: AtomicI64);

#[repr(transparent)]
pub struct Atomic<T: AtomicType>(UnsafeCell<T>);

// SAFETY: The value is accessed by atomic operations only.
unsafe impl<T: AtomicType> Sync for Atomic<T> {}

// SAFETY: It is a number.
unsafe impl<T: AtomicType> Send for Atomic<T> {}

impl<T: AtomicType> Atomic<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn std(&self) -> &T::Std {
        runtime::interleave();
        // SAFETY: By `AtomicType`, the type has the layout of `T`; all accesses are atomic.
        unsafe { &*self.0.get().cast() }
    }

    pub fn load<O: LoadOrdering>(&self, _: O) -> T {
        T::load(self.std(), O::LOAD)
    }

    pub fn store<O: StoreOrdering>(&self, value: T, _: O) {
        T::store(self.std(), value, O::STORE)
    }

    pub fn xchg<O: RmwOrdering>(&self, value: T, _: O) -> T {
        T::swap(self.std(), value, O::RMW)
    }

    pub fn cmpxchg<O: RmwOrdering>(&self, old: T, new: T, _: O) -> Result<T, T> {
        T::compare_exchange(self.std(), old, new, O::RMW)
    }

    pub fn add<O: RmwOrdering>(&self, value: T, _: O)
    where
        T: AtomicAdd,
    {
        T::fetch_add(self.std(), value, O::RMW);
    }

    pub fn fetch_add<O: RmwOrdering>(&self, value: T, _: O) -> T
    where
        T: AtomicAdd,
    {
        T::fetch_add(self.std(), value, O::RMW)
    }
}
