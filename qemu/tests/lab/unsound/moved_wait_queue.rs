// SPDX-License-Identifier: GPL-2.0
// E0277
//! A wait queue that is moved: its list head points to where it was.

use crate::kernel_ext::wait_queue::WaitQueue;
use kernel::prelude::*;

pub(crate) fn unpin(queue: Pin<KBox<WaitQueue>>) -> KBox<WaitQueue> {
    Pin::into_inner(queue)
}
