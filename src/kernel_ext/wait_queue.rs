// SPDX-License-Identifier: GPL-2.0

//! A wait queue for the readers of a file, which sleep in `read(2)` or `poll(2)`.
//!
//! `kernel::sync::poll::PollCondVar` allows for being freed while it is polled: its destructor
//! waits for an RCU grace period, which adds up when a process with a thousand files exits.
//! `PollCondVarBox`, which Linux 7.3 has, is freed by RCU, in an allocation of its own. A queue
//! that lives as long as its file needs neither, see [`WaitQueue::as_ptr`].
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use kernel::{
    bindings,
    prelude::*,
    sync::LockClassKey,
    task::{
        MAX_SCHEDULE_TIMEOUT,
        TASK_NORMAL, //
    },
    types::Opaque, //
};

/// Creates a [`WaitQueue`] initialiser with a new lock class.
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::kernel_ext::wait_queue::WaitQueue::new(
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_wait_queue;

/// A `wait_queue_head_t`.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: The queue belongs to no thread: any thread may wait in it, wake tasks, and drop it when
// it is empty.
unsafe impl Send for WaitQueue {}

// SAFETY: A shared reference gives access to waiting and waking, which take the queue's own lock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Creates an empty queue.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes, by the requirements of `ffi_init`; `name` and
            // `key` are static. The queue is pinned from now on, which its list head needs.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// Returns the queue for `poll_wait()`.
    ///
    /// The caller must ensure that the queue is not freed while a task waits in it: the file that
    /// is polled must own a reference to the object with the queue. A file is not released while it
    /// is polled or watched by epoll.
    pub(crate) fn as_ptr(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }

    /// Wakes all tasks in the queue. May be called where a `spinlock_t` may be taken.
    pub(crate) fn notify_all(&self) {
        // SAFETY: `new` initialised the queue, which is valid as long as it is borrowed.
        // `__wake_up()` takes the queue's `spinlock_t`, as its caller may, and passes the null
        // pointer on to callbacks, those of `wait_interruptible` and `poll_wait()`, which do
        // without a key.
        unsafe { bindings::__wake_up(self.head.get(), TASK_NORMAL, 0, core::ptr::null_mut()) };
    }

    /// Whether there is an entry in the queue. If not, all that wait later check their condition
    /// later: those that check it with a lock that the caller has find what was done with that.
    pub(crate) fn has_waiters(&self) -> bool {
        // SAFETY: `new` initialised the queue, which is valid as long as it is borrowed. The
        // function reads its list head.
        unsafe { crate::bindings::ib_xrc_rcv_has_waiters(self.head.get()) }
    }

    /// Sleeps until `condition` returns a value. `ERESTARTSYS` if a signal is pending first.
    ///
    /// `condition` may sleep: the state of the task is set when it has returned, and a wake-up that
    /// comes meanwhile is noted in the entry.
    pub(crate) fn wait_interruptible<T>(
        &self,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();

        // SAFETY:
        // * `entry` is valid for writes. It refers to the current task, which waits below.
        // * `woken_wake_function()` is a callback of entries that `wait_woken()` waits with.
        // * `new` initialised the queue, and `init_wait()` the entry, a local variable that does
        //   not move. It is taken out of the queue below, on every way out of this function:
        //   `condition` does not unwind, nothing in the kernel does.
        unsafe {
            bindings::init_wait(entry.get());
            (*entry.get()).func = Some(bindings::woken_wake_function);
            bindings::add_wait_queue(self.head.get(), entry.get());
        }

        let result = loop {
            // Checked after the entry was added to the queue: no wake-up is missed.
            if let Some(result) = condition() {
                break Ok(result);
            }
            if kernel::current!().signal_pending() {
                break Err(ERESTARTSYS);
            }
            // SAFETY: The entry is in the queue, with the callback that the function needs. The
            // caller may sleep: it is in `read(2)`, without a lock.
            unsafe {
                bindings::wait_woken(
                    entry.get(),
                    bindings::TASK_INTERRUPTIBLE,
                    MAX_SCHEDULE_TIMEOUT,
                )
            };
        };

        // SAFETY: The entry is in this queue.
        unsafe { bindings::remove_wait_queue(self.head.get(), entry.get()) };
        result
    }
}

#[kunit_tests(ib_xrc_rcv_wait_queue)]
mod tests {
    use super::*;
    use kernel::{
        new_mutex,
        sync::Arc, //
    };

    /// The debug kernel reports a mutex that is taken in another state than TASK_RUNNING.
    #[test]
    fn a_condition_may_sleep_and_misses_no_wakeup() -> Result {
        let queue = Arc::pin_init(new_wait_queue!("tests::wait_queue"), GFP_KERNEL)?;
        let calls = Arc::pin_init(new_mutex!(0, "tests::calls"), GFP_KERNEL)?;
        let result = queue.wait_interruptible(|| {
            let mut calls = calls.lock();

            *calls += 1;
            // Before the task sleeps.
            queue.notify_all();
            (*calls == 3).then_some(*calls)
        })?;

        assert_eq!(result, 3);
        Ok(())
    }
}
