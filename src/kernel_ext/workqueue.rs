// SPDX-License-Identifier: GPL-2.0

//! Unbound workqueues that their owner can destroy.
//!
//! The kernel crate has only the system's queues. A work item that is pending on one of these when
//! the module is unloaded would run freed code.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    workqueue::{
        Queue,
        RawWorkItem, //
    }, //
};

/// An unbound workqueue. Pending work items run before it is destroyed on drop.
///
/// # Invariants
///
/// The pointer is that of a workqueue which `self` owns.
pub(crate) struct UnboundQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: `destroy_workqueue()` may be called by any task that may sleep; a workqueue belongs to no
// thread.
unsafe impl Send for UnboundQueue {}

// SAFETY: A shared reference gives access to a `Queue` only, which is `Sync`.
unsafe impl Sync for UnboundQueue {}

impl UnboundQueue {
    /// Allocates a workqueue. `name` is the name of its rescuer thread.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        // SAFETY: `name` is a C string, and valid for the length of the call, which copies it.
        let queue = unsafe { bindings::ib_xrc_rcv_alloc_workqueue(name.as_char_ptr()) };

        // INVARIANT: Newly allocated, so `self` is the owner.
        NonNull::new(queue).map(Self).ok_or(ENOMEM)
    }

    /// Waits until all queued work has run. No work may be queued meanwhile, nor afterwards.
    pub(crate) fn drain(&self) {
        // SAFETY: By the type invariant, the workqueue is valid. The caller may sleep.
        unsafe { bindings::drain_workqueue(self.0.as_ptr()) }
    }

    /// Queues an item.
    ///
    /// The rest of [`Queue`] is not reachable: a delayed item is not queued before its time, so
    /// dropping the queue would not wait for it.
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        // SAFETY:
        // * By the type invariant, the workqueue is valid; only `drop` destroys it, so it is for as
        //   long as `self` is borrowed, which the reference does not outlive.
        // * `Queue` is a transparent wrapper of the C type that this points to.
        unsafe { Queue::from_raw(self.0.as_ptr()) }.enqueue(item)
    }
}

impl Drop for UnboundQueue {
    fn drop(&mut self) {
        // SAFETY:
        // * By the type invariant, we own the workqueue, so this is the one call for it.
        // * No work is queued during the call, as that takes a reference to `self`. Pending items
        //   are run first, so that none is left with a pointer to the queue.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}

/// An [`UnboundQueue`] for a `static`, which exists from the initialisation of the module to its
/// exit.
///
/// # Invariants
///
/// Only [`Self::init`] and the drop of what it returns write to the queue, and nothing reads it
/// meanwhile.
pub(crate) struct ModuleQueue(UnsafeCell<Option<UnboundQueue>>);

// SAFETY: By the type invariant, nothing writes to the queue while another thread reads it. A
// shared reference to an `UnboundQueue` may be used by any thread, which may also drop it.
unsafe impl Sync for ModuleQueue {}

impl ModuleQueue {
    /// Creates a place for a queue.
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Allocates the queue, which exists until the result is dropped. `name` is the name of its
    /// rescuer thread.
    ///
    /// # Safety
    ///
    /// Must be called once. No item may be queued before this returns, nor once the drop of the
    /// result begins.
    pub(crate) unsafe fn init(&'static self, name: &CStr) -> Result<ModuleQueueOwner> {
        let queue = UnboundQueue::new(name)?;

        // SAFETY: By the requirements of this function, nothing else accesses the queue meanwhile.
        unsafe { *self.0.get() = Some(queue) };
        Ok(ModuleQueueOwner(self))
    }

    /// Queues an item. May be called in any context.
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W) -> Option<W::EnqueueOutput>
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        // SAFETY: By the type invariant, nothing writes to the queue meanwhile.
        let queue = unsafe { &*self.0.get() };

        queue.as_ref().map(|queue| queue.enqueue(item))
    }
}

/// Destroys a [`ModuleQueue`] on drop, after its pending items have run.
pub(crate) struct ModuleQueueOwner(&'static ModuleQueue);

impl Drop for ModuleQueueOwner {
    fn drop(&mut self) {
        // SAFETY: By the requirements of `ModuleQueue::init`, nothing queues an item any more, and
        // this is the one owner. Items that run do not access the queue.
        drop(unsafe { (*self.0 .0.get()).take() });
    }
}
