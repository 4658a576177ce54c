// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::lock`

use super::order;
use crate::runtime;
use core::{
    cell::UnsafeCell,
    convert::Infallible,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};
use pinned_init::PinInit;

/// A kind of lock.
pub trait Backend: 'static {
    /// Whether a thread that waits for the lock sleeps. If not, its owner must not sleep.
    const SLEEPS: bool;
}

pub struct MutexBackend;
pub struct SpinLockBackend;
pub struct SpinLockIrqBackend;

impl Backend for MutexBackend {
    const SLEEPS: bool = true;
}

impl Backend for SpinLockBackend {
    const SLEEPS: bool = false;
}

impl Backend for SpinLockIrqBackend {
    const SLEEPS: bool = false;
}

pub type Mutex<T> = Lock<T, MutexBackend>;
pub type SpinLock<T> = Lock<T, SpinLockBackend>;
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

pub struct Lock<T, B: Backend> {
    name: &'static str,
    raw: runtime::Mutex<()>,
    data: UnsafeCell<T>,
    _backend: PhantomData<fn(B)>,
}

// SAFETY: The owner of the lock has the data.
unsafe impl<T: Send, B: Backend> Sync for Lock<T, B> {}

impl<T, B: Backend> Lock<T, B> {
    pub const fn new(data: T, name: &'static str) -> Self {
        Self {
            name,
            raw: runtime::Mutex::new(()),
            data: UnsafeCell::new(data),
            _backend: PhantomData,
        }
    }

    /// The thread takes the lock, and waits for it if need be.
    pub fn waits(&self) {
        order::waits_for(self.name);
    }

    pub fn try_lock(&self) -> Option<Guard<'_, T, B>> {
        let raw = self.raw.try_lock().ok()?;

        order::holds(self.name);
        if !B::SLEEPS {
            runtime::enter_atomic();
        }
        Some(Guard {
            lock: self,
            raw: Some(raw),
        })
    }

    pub fn lock(&self) -> Guard<'_, T, B> {
        if B::SLEEPS {
            runtime::might_sleep(self.name);
        }

        order::waits_for(self.name);

        let raw = self.raw.lock().unwrap_or_else(|poison| poison.into_inner());

        order::holds(self.name);
        if B::SLEEPS {
            runtime::has_mutex();
        } else {
            runtime::enter_atomic();
        }
        Guard {
            lock: self,
            raw: Some(raw),
        }
    }
}

pub struct Guard<'a, T, B: Backend> {
    lock: &'a Lock<T, B>,
    /// `None` while its owner waits in a [`CondVar`].
    raw: Option<runtime::MutexGuard<'a, ()>>,
}

impl<T, B: Backend> Deref for Guard<'_, T, B> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The lock is held.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, B: Backend> DerefMut for Guard<'_, T, B> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The lock is held, and `self` borrowed.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, B: Backend> Drop for Guard<'_, T, B> {
    fn drop(&mut self) {
        if !B::SLEEPS {
            runtime::leave_atomic();
        }
        order::releases(self.lock.name);
        drop(self.raw.take());
    }
}

#[derive(Default)]
pub struct CondVar(runtime::Condvar);

impl CondVar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<T, B: Backend>(&self, guard: &mut Guard<'_, T, B>) {
        if !B::SLEEPS {
            runtime::leave_atomic();
        }
        runtime::might_sleep("waiting");

        let raw = guard.raw.take().expect("the lock is held");

        guard.raw = Some(
            self.0
                .wait(raw)
                .unwrap_or_else(|poison| poison.into_inner()),
        );
        if !B::SLEEPS {
            runtime::enter_atomic();
        }
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Data that a lock guards which other data is inside of.
pub struct LockedBy<T, U> {
    owner: *const U,
    data: UnsafeCell<T>,
}

// SAFETY: It can be sent if both can; the pointer is only compared.
unsafe impl<T: Send, U> Send for LockedBy<T, U> {}

// SAFETY: The owner of the lock has the data.
unsafe impl<T: Send, U> Sync for LockedBy<T, U> {}

impl<T, U> LockedBy<T, U> {
    pub fn new<B: Backend>(owner: &Lock<U, B>, data: T) -> Self {
        Self {
            owner: owner.data.get(),
            data: UnsafeCell::new(data),
        }
    }

    pub fn access<'a>(&'a self, owner: &'a U) -> &'a T {
        assert!(
            core::ptr::eq(self.owner, owner),
            "the lock of other data is held"
        );
        // SAFETY: The lock is held, whose data is borrowed for as long.
        unsafe { &*self.data.get() }
    }

    pub fn access_mut<'a>(&'a self, owner: &'a mut U) -> &'a mut T {
        assert!(
            core::ptr::eq(self.owner, owner),
            "the lock of other data is held"
        );
        // SAFETY: The lock is held, whose data is borrowed for as long.
        unsafe { &mut *self.data.get() }
    }
}

impl<T, B: Backend> Lock<T, B> {
    /// Initialises a lock of `global_lock!`.
    ///
    /// # Safety
    ///
    /// On the host, the lock is initialised when it is used.
    pub unsafe fn init(&self) {}
}

/// Declares a lock that is a static, with a value of its own in each execution.
#[cfg(feature = "shuttle")]
#[macro_export]
#[doc(hidden)]
macro_rules! __global_lock {
    (unsafe(uninit) static $name:ident: $lock:ident<$type:ty> = $value:expr;) => {
        $crate::runtime::lazy_static! {
            static ref $name: $crate::sync::$lock<$type> =
                $crate::sync::$lock::new($value, stringify!($name));
        }
    };
}

/// Declares a lock that is a static.
#[cfg(not(feature = "shuttle"))]
#[macro_export]
#[doc(hidden)]
macro_rules! __global_lock {
    (unsafe(uninit) static $name:ident: $lock:ident<$type:ty> = $value:expr;) => {
        static $name: $crate::sync::$lock<$type> =
            $crate::sync::$lock::new($value, stringify!($name));
    };
}

/// Returns an initializer that does not fail.
#[doc(hidden)]
pub fn initializer<T>(value: T) -> impl PinInit<T, Infallible> {
    // SAFETY: The value is written once, and pinned as little as it is without this.
    unsafe {
        pinned_init::pin_init_from_closure(move |slot: *mut T| {
            slot.write(value);
            Ok(())
        })
    }
}

#[macro_export]
macro_rules! new_mutex {
    ($data:expr, $name:literal $(,)?) => {
        $crate::sync::Mutex::new($data, $name)
    };
}

#[macro_export]
macro_rules! new_spinlock {
    ($data:expr, $name:literal $(,)?) => {
        $crate::sync::lock::initializer($crate::sync::SpinLock::new($data, $name))
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __new_spinlock_irq {
    ($data:expr, $name:literal $(,)?) => {
        $crate::sync::SpinLockIrq::new($data, $name)
    };
}

#[macro_export]
macro_rules! new_condvar {
    ($name:literal) => {
        $crate::sync::CondVar::new()
    };
}
