// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/mutex.rs`: a lock that a killed process does not wait for.

use kernel::{
    prelude::*,
    runtime,
    sync::{
        lock::{Guard, MutexBackend},
        Mutex,
    },
};

pub(crate) fn lock_killable<T>(mutex: &Mutex<T>) -> Result<Guard<'_, T, MutexBackend>> {
    if runtime::is_killed() {
        return Err(EINTR);
    }
    Ok(mutex.lock())
}
