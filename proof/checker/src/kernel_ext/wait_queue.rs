// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/wait_queue.rs`: a count of wakeups, which a waiter compares, and one of entries.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use kernel::{prelude::*, runtime};

#[derive(Default)]
pub(crate) struct WaitQueue {
    wakeups: runtime::Mutex<u64>,
    woken: runtime::Condvar,
    entries: AtomicUsize,
    /// A call that wakes the waiters takes as long as a test holds it.
    pub(crate) wakes: runtime::Mutex<()>,
}

macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::kernel_ext::wait_queue::WaitQueue::default()
    };
}
pub(crate) use new_wait_queue;

impl WaitQueue {
    /// May be called in any context.
    pub(crate) fn notify_all(&self) {
        runtime::wakes_others();
        drop(self.wakes.lock().unwrap());
        *self.wakeups.lock().unwrap() += 1;
        self.woken.notify_all();
    }

    /// Adds an entry that stays, as that of a watch of epoll does.
    pub(crate) fn watch(&self) {
        self.entries.fetch_add(1, Relaxed);
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.entries.load(Relaxed) != 0
    }

    /// Waits for a wakeup after those that a waiter has seen.
    pub(crate) fn wait_for_edge(&self, seen: &mut u64) {
        let mut wakeups = self.wakeups.lock().unwrap();

        while *wakeups == *seen {
            wakeups = self.woken.wait(wakeups).unwrap();
        }
        *seen = *wakeups;
    }

    pub(crate) fn wait_interruptible<T>(
        &self,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        self.watch();

        let result = loop {
            let mut before = *self.wakeups.lock().unwrap();

            if let Some(result) = condition() {
                break Ok(result);
            }
            if runtime::is_killed() {
                break Err(ERESTARTSYS);
            }
            runtime::might_sleep("waiting for a wakeup");
            self.wait_for_edge(&mut before);
        };

        self.entries.fetch_sub(1, Relaxed);
        result
    }
}
