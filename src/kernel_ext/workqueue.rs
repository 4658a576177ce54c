// SPDX-License-Identifier: GPL-2.0

//! An unbound workqueue that its owner can take down.
//!
//! The kernel crate knows the system's queues only. An item left on one of those when the module is
//! unloaded would run code that is gone.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
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

// SAFETY: `destroy_workqueue()` may be called by any task that may sleep, and the pointer is to nothing
// that belongs to a thread.
unsafe impl Send for UnboundQueue {}

// SAFETY: `Queue` is `Sync`, and only that is reachable through a shared reference.
unsafe impl Sync for UnboundQueue {}

impl UnboundQueue {
    /// Allocates a queue; `name` is that of its rescuer thread.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        // SAFETY: `name` is a C string, and valid for the length of the call, which copies it.
        let queue = unsafe { bindings::ib_xrc_rcv_alloc_workqueue(name.as_char_ptr()) };

        // INVARIANT: Newly allocated, so nobody else owns it.
        NonNull::new(queue).map(Self).ok_or(ENOMEM)
    }
}

impl Deref for UnboundQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY:
        // * By the type invariant, the workqueue is valid; only `drop` destroys it, so it is for as long
        //   as `self` is borrowed, which is as long as the reference may be used.
        // * `Queue` is a transparent wrapper of a `struct workqueue_struct`, which is what this is.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for UnboundQueue {
    fn drop(&mut self) {
        // SAFETY:
        // * By the type invariant, we own the workqueue, so this is the one call for it.
        // * Nothing is queued any more: that takes a reference to `self`. What is queued is run first, so
        //   no item is left with a pointer to the queue.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}
