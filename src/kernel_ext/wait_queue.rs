// SPDX-License-Identifier: GPL-2.0

//! Where readers of a file wait for something to read, asleep in `read(2)` or in `poll(2)`.
//!
//! Not a `kernel::sync::poll::PollCondVar`: that may go while it is being polled, and its destructor
//! waits for an RCU grace period, which a process with a thousand files would feel when it exits.
//! The queue of a file that owns it needs nothing of the kind, see [`WaitQueue::as_ptr`].
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use kernel::{
    bindings,
    prelude::*,
    sync::LockClassKey,
    task::{
        TASK_INTERRUPTIBLE,
        TASK_NORMAL, //
    },
    types::Opaque, //
};

/// Creates an initialiser of a [`WaitQueue`] with a lock class of its own.
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

// SAFETY: The queue belongs to no thread: any may wait, wake, and drop a queue that nothing waits in.
unsafe impl Send for WaitQueue {}

// SAFETY: A shared reference gives access to waiting and waking, which take the queue's own lock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// A queue in which nobody waits.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes, by the requirements of `ffi_init`; `name` and `key` are
            // static. The queue is pinned from now on, which its list head needs.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// For `poll_wait()`. Who waits by that must not do so any more when the queue goes: the file
    /// that is polled owns a reference to what the queue is in, and is not released while it is
    /// polled, or watched by epoll.
    pub(crate) fn as_ptr(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }

    /// Wakes all who wait. Any context.
    pub(crate) fn notify_all(&self) {
        // SAFETY: `new` initialised the queue, which is valid as long as it is borrowed. `__wake_up()` may
        // be called in any context, and passes the null pointer on to callbacks, which `init_wait()` and
        // `poll_wait()` chose and which do without a key.
        unsafe { bindings::__wake_up(self.head.get(), TASK_NORMAL, 0, core::ptr::null_mut()) };
    }

    /// Sleeps until `condition` gives something. It must not sleep itself. `ERESTARTSYS` when a
    /// signal comes first.
    pub(crate) fn wait_interruptible<T>(
        &self,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();

        // SAFETY: `entry` is valid for writes; the current task, which is entered in it, is the one that
        // waits.
        unsafe { bindings::init_wait(entry.get()) };

        let result = loop {
            // SAFETY:
            // * `new` initialised the queue, and `init_wait()` the entry.
            // * The entry is a local variable that does not move. It is taken out of the queue below,
            //   on every way out of this function: `condition` does not unwind, nothing in the kernel does.
            unsafe { bindings::prepare_to_wait(self.head.get(), entry.get(), TASK_INTERRUPTIBLE) };
            // Looked at after the entry is in the queue, so that no wake-up is missed.
            if let Some(result) = condition() {
                break Ok(result);
            }
            if kernel::current!().signal_pending() {
                break Err(ERESTARTSYS);
            }
            // SAFETY: The caller may sleep: it is in `read(2)`, without a lock.
            unsafe { bindings::schedule() };
        };

        // SAFETY: The entry is initialised, and in this queue or in none.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }
}
