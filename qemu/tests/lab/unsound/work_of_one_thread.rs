// SPDX-License-Identifier: GPL-2.0
// E0277
//! Work with an object that belongs to the thread that queues it.

use crate::kernel_ext::workqueue::UnboundQueue;
use kernel::{
    prelude::*,
    sync::Arc,
    types::NotThreadSafe,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    }, //
};

#[pin_data]
pub(crate) struct Item {
    #[pin]
    work: Work<Self>,
    owned: NotThreadSafe,
}

impl_has_work! {
    impl HasWork<Self> for Item { self.work }
}

impl WorkItem for Item {
    type Pointer = Arc<Self>;

    fn run(_item: Arc<Self>) {}
}

pub(crate) fn queue_it(queue: &UnboundQueue, item: Arc<Item>) {
    let _ = queue.enqueue(item);
}
