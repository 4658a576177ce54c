// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/wait_queue.rs`: a count of wakeups, which a waiter compares.

use kernel::{prelude::*, runtime};

#[derive(Default)]
pub(crate) struct WaitQueue {
    wakeups: runtime::Mutex<u64>,
    woken: runtime::Condvar,
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

    pub(crate) fn wait_interruptible<T>(
        &self,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        loop {
            let before = *self.wakeups.lock().unwrap();

            if let Some(result) = condition() {
                return Ok(result);
            }
            if runtime::is_killed() {
                return Err(ERESTARTSYS);
            }
            runtime::might_sleep("waiting for a wakeup");

            let mut wakeups = self.wakeups.lock().unwrap();

            while *wakeups == before {
                wakeups = self.woken.wait(wakeups).unwrap();
            }
        }
    }
}
