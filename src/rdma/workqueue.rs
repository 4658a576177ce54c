// SPDX-License-Identifier: GPL-2.0

//! An unbound workqueue that its owner can take down.
//!
//! The kernel crate knows the system's queues only. An item left on one of those when the module is
//! unloaded would run code that is gone.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use super::bindings;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    workqueue::Queue, //
};

/// An own unbound queue. Dropping it runs what is queued to its end first.
///
/// # Invariants
///
/// The pointer is that of a workqueue which `self` owns.
pub(crate) struct UnboundQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A workqueue can be destroyed from any thread.
unsafe impl Send for UnboundQueue {}

// SAFETY: `Queue` is `Sync`, and only that is reachable through a shared reference.
unsafe impl Sync for UnboundQueue {}

impl UnboundQueue {
    /// Allocates a queue; `name` is that of its rescuer thread.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        // SAFETY: `name` is a valid string, and copied.
        let queue = unsafe { bindings::xrc_rcv_alloc_workqueue(name.as_char_ptr()) };

        // INVARIANT: Newly allocated, so nobody else owns it.
        NonNull::new(queue).map(Self).ok_or(ENOMEM)
    }
}

impl Deref for UnboundQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: By the type invariant, the queue lives as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for UnboundQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, we own the queue.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}
