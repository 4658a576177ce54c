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

// SAFETY: Nothing in it belongs to a thread.
unsafe impl Send for WaitQueue {}

// SAFETY: It has a lock of its own.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// A queue in which nobody waits.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes; `name` and `key` are static.
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
        // SAFETY: The queue is valid and initialised.
        unsafe { bindings::__wake_up(self.head.get(), TASK_NORMAL, 0, core::ptr::null_mut()) };
    }

    /// Sleeps until `condition` gives something. It must not sleep itself. `ERESTARTSYS` when a
    /// signal comes first.
    pub(crate) fn wait_interruptible<T>(
        &self,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();

        // SAFETY: `entry` is valid for writes.
        unsafe { bindings::init_wait(entry.get()) };

        let result = loop {
            // SAFETY: Queue and entry are initialised. The entry does not move until it is taken
            // out below.
            unsafe { bindings::prepare_to_wait(self.head.get(), entry.get(), TASK_INTERRUPTIBLE) };
            // Looked at after the entry is in the queue, so that no wake-up is missed.
            if let Some(result) = condition() {
                break Ok(result);
            }
            if kernel::current!().signal_pending() {
                break Err(ERESTARTSYS);
            }
            // SAFETY: The caller may sleep.
            unsafe { bindings::schedule() };
        };

        // SAFETY: As above.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }
}
