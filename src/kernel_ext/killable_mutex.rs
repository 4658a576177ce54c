// SPDX-License-Identifier: GPL-2.0

//! A mutex for which a process can be killed while it waits.
//!
//! The kernel crate's [`kernel::sync::Mutex`] has no `mutex_lock_killable()`.
//!
//! C header: [`include/linux/mutex.h`](srctree/include/linux/mutex.h)

use crate::bindings;
use kernel::{
    prelude::*,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    }, //
};

/// A [`Lock`] that [`lock_killable`] can take.
pub(crate) type KillableMutex<T> = Lock<T, KillableMutexBackend>;

/// Creates a [`KillableMutex`] initialiser with a new lock class.
macro_rules! new_killable_mutex {
    ($inner:expr, $name:literal) => {
        $crate::kernel_ext::killable_mutex::KillableMutex::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_killable_mutex;

/// Acquires the mutex. `EINTR` if the caller is killed while it waits.
pub(crate) fn lock_killable<T>(
    mutex: &KillableMutex<T>,
) -> Result<Guard<'_, T, KillableMutexBackend>> {
    mutex.try_lock().ok_or(EINTR)
}

/// A backend whose `lock` is `mutex_lock()` and whose `try_lock` is `mutex_lock_killable()`, which
/// SLEEPS: [`Lock`] has no other method that can fail, and its state is private. Only [`lock_killable`]
/// calls `try_lock`.
pub(crate) struct KillableMutexBackend;

// SAFETY:
// * `mutex_lock()` returns when no other thread owns the mutex, until `mutex_unlock()`.
// * `try_lock` returns a state only if `mutex_lock_killable()` returned 0, which means that the
//   caller owns the mutex.
// * `relock` is the default, which calls `lock`.
unsafe impl Backend for KillableMutexBackend {
    type State = kernel::bindings::mutex;
    type GuardState = ();

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: By the requirements of this function, `ptr` is valid for writes, and `name` and
        // `key` remain valid, as `__mutex_init()` requires.
        unsafe { kernel::bindings::__mutex_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this
        // function. The caller may sleep, as every user of a `KillableMutex` may.
        unsafe { kernel::bindings::mutex_lock(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this
        // function. The caller may sleep, as every user of a `KillableMutex` may.
        (unsafe { bindings::ib_xrc_rcv_mutex_lock_killable(ptr) } == 0).then_some(())
    }

    unsafe fn unlock(ptr: *mut Self::State, (): &()) {
        // SAFETY: By the requirements of this function, `ptr` is valid and the caller owns the
        // mutex.
        unsafe { kernel::bindings::mutex_unlock(ptr) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this
        // function.
        unsafe { kernel::bindings::mutex_assert_is_held(ptr) }
    }
}
