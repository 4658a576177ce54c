// SPDX-License-Identifier: GPL-2.0

use core::sync::atomic::{AtomicBool, Ordering};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{HasWork, Queue, WorkItem},
};

pub(crate) struct UnboundQueue {
    queue: Queue,
    is_drained: AtomicBool,
}

impl UnboundQueue {
    pub(crate) fn new(_name: &CStr) -> Result<Self> {
        Ok(Self {
            queue: Queue::default(),
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
        self.queue.enqueue(item)
    }
}

impl Drop for UnboundQueue {
    /// Deadlocks in a worker of the queue, as `destroy_workqueue()` does.
    fn drop(&mut self) {
        self.queue.drain();
    }
}
