// SPDX-License-Identifier: GPL-2.0

//! Acquiring a mutex killably, for which [`kernel::sync::Mutex`] has no function.
//!
//! C header: [`include/linux/mutex.h`](srctree/include/linux/mutex.h)

use crate::bindings;
use kernel::{
    prelude::*,
    sync::{
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        Mutex, //
    }, //
};

// A `Lock` begins with its state: `Lock::from_raw` makes one without data of that alone.
const _: () = assert!(size_of::<Mutex<()>>() == size_of::<bindings::mutex>());

/// Acquires the mutex. `EINTR` if the caller is killed while it waits.
pub(crate) fn lock_killable<T>(mutex: &Mutex<T>) -> Result<Guard<'_, T, MutexBackend>> {
    let state = core::ptr::from_ref(mutex).cast_mut().cast();

    // SAFETY: `Lock` is `repr(C)`, and its first member an `Opaque<mutex>`, which its only
    // constructor has initialised. So `state` points to a mutex, which is valid as long as it is
    // borrowed.
    if unsafe { bindings::ib_xrc_rcv_mutex_lock_killable(state) } != 0 {
        return Err(EINTR);
    }
    // SAFETY: `mutex_lock_killable()` returned 0, so the caller owns the mutex. No other guard
    // does.
    Ok(unsafe { Guard::new(mutex, ()) })
}

#[kunit_tests(ib_xrc_rcv_mutex)]
mod tests {
    use super::*;
    use kernel::{
        new_mutex,
        sync::Arc, //
    };

    #[test]
    fn the_mutex_is_held_until_the_guard_is_dropped() -> Result {
        let mutex = Arc::pin_init(new_mutex!(1, "tests::mutex"), GFP_KERNEL)?;
        let mut guard = lock_killable(&mutex)?;

        assert!(mutex.try_lock().is_none());
        *guard += 1;
        drop(guard);
        assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
        assert_eq!(*lock_killable(&mutex)?, 2);
        Ok(())
    }
}
