// SPDX-License-Identifier: GPL-2.0

//! The workqueues of a device.
//!
//! They are allocated with the first domain of the device that has receive QPs, because each has a
//! thread of its own. Items hold references to QPs, which hold references to the queues. A queue
//! cannot be destroyed by an item that runs on it, so the device's
//! [`Domains`](crate::domain::Domains) hold a reference until they have drained all of them.

use crate::kernel_ext::workqueue::UnboundQueue;
use kernel::prelude::*;

/// See the [module's documentation](self).
pub(crate) struct Workers {
    /// Takes QPs from [`EndingQps`](crate::receive_qp::EndingQps) and destroys them.
    pub(crate) destruction: UnboundQueue,
    /// Signals the members of a QP that had an event.
    delivery: UnboundQueue,
    /// Signals those of a QP that was destroyed: the thousands of QPs of a domain are destroyed at
    /// the same time, and the events of other QPs do not wait for them.
    gone: UnboundQueue,
}

impl Workers {
    /// Allocates the workqueues.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            destruction: UnboundQueue::new(crate::NAME)?,
            delivery: UnboundQueue::new(c"ib_xrc_rcv_delivery")?,
            gone: UnboundQueue::new(c"ib_xrc_rcv_gone")?,
        })
    }

    /// Returns the workqueue that signals the events of a QP, which is destroyed if `is_gone`.
    pub(crate) fn delivery(&self, is_gone: bool) -> &UnboundQueue {
        if is_gone {
            &self.gone
        } else {
            &self.delivery
        }
    }

    /// Waits until no item is queued and the events of all QPs are delivered. All have been
    /// destroyed, and none is created any more.
    pub(crate) fn drain(&self) {
        self.destruction.drain();
        // An item of a QP that was destroyed moves to the other queue, and never back.
        self.delivery.drain();
        self.gone.drain();
    }
}
