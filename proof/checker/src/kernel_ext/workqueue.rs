// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/workqueue.rs`: a queue with a thread for each work item.

use core::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "shuttle")]
use kernel::runtime;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{HasWork, Queue, WorkItem},
};

pub(crate) struct UnboundQueue {
    queue: Queue,
    is_used: AtomicBool,
    is_drained: AtomicBool,
}

impl UnboundQueue {
    pub(crate) fn new(_name: &CStr) -> Result<Self> {
        Ok(Self {
            queue: Queue::default(),
            is_used: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
        })
    }

    pub(crate) fn drain(&self) {
        assert!(!self.is_drained.swap(true, Ordering::SeqCst));
        self.queue.drain();
    }

    pub(crate) fn enqueue<T>(&self, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: HasWork + WorkItem<Pointer = Arc<T>> + Send + Sync + 'static,
    {
        assert!(
            !self.is_drained.load(Ordering::SeqCst),
            "an item is queued while the queue is drained, or later"
        );
        self.is_used.store(true, Ordering::SeqCst);
        self.queue.enqueue(item)
    }
}

impl Drop for UnboundQueue {
    /// Deadlocks in a worker of the queue, as `destroy_workqueue()` does. The last reference must
    /// not be that of an item, so the owner has drained the queue.
    fn drop(&mut self) {
        assert!(
            self.is_drained.load(Ordering::SeqCst)
                || !self.is_used.load(Ordering::SeqCst)
                || std::thread::panicking(),
            "a queue is destroyed that was not drained"
        );
        self.queue.drain();
    }
}

#[cfg(feature = "shuttle")]
runtime::lazy_static! {
    /// The queue of the [`ModuleQueue`] of the module, one in each execution.
    static ref MODULE_QUEUE: Queue = Queue::default();
}

#[cfg(not(feature = "shuttle"))]
static MODULE_QUEUE: std::sync::LazyLock<Queue> = std::sync::LazyLock::new(Queue::default);

pub(crate) struct ModuleQueue;

pub(crate) struct ModuleQueueOwner;

impl Drop for ModuleQueueOwner {
    fn drop(&mut self) {
        MODULE_QUEUE.drain();
    }
}

impl ModuleQueue {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// # Safety
    ///
    /// As in the module.
    pub(crate) unsafe fn init(&'static self, _name: &CStr) -> Result<ModuleQueueOwner> {
        Ok(ModuleQueueOwner)
    }

    pub(crate) fn enqueue<T>(&self, item: Arc<T>) -> Option<Result<(), Arc<T>>>
    where
        T: HasWork + WorkItem<Pointer = Arc<T>> + Send + Sync + 'static,
    {
        Some(MODULE_QUEUE.enqueue(item))
    }

    /// Waits until no item is queued or running.
    pub(crate) fn drain() {
        MODULE_QUEUE.drain();
    }
}
