// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/mutex.rs`: a lock that a killed process does not wait for.

use super::rwsem;
use kernel::{
    prelude::*,
    runtime,
    sync::{
        lock::{Guard, MutexBackend},
        Mutex,
    },
};

/// As `mutex_lock_killable()`, which a killed process that need not wait does not notice.
pub(crate) fn lock_killable<T>(mutex: &Mutex<T>) -> Result<Guard<'_, T, MutexBackend>> {
    runtime::might_sleep("a killable lock");
    assert!(
        !rwsem::is_reader(),
        "the writer of a semaphore would wait for those that wait for a lock"
    );
    mutex.waits();
    if let Some(guard) = mutex.try_lock() {
        return Ok(guard);
    }
    if runtime::is_killed() {
        return Err(EINTR);
    }
    Ok(mutex.lock())
}
