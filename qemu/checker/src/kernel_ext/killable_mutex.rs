// SPDX-License-Identifier: GPL-2.0

use kernel::{
    prelude::*,
    runtime,
    sync::{
        lock::{Guard, MutexBackend},
        Mutex,
    },
};

pub(crate) type KillableMutex<T> = Mutex<T>;

pub(crate) use kernel::new_mutex as new_killable_mutex;

pub(crate) fn lock_killable<T>(mutex: &KillableMutex<T>) -> Result<Guard<'_, T, MutexBackend>> {
    if runtime::is_killed() {
        return Err(EINTR);
    }
    Ok(mutex.lock())
}
