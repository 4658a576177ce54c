// SPDX-License-Identifier: GPL-2.0

//! The uverbs files that have registrations.
//!
//! When a file is closed, or loses its device, uverbs takes its handles away one after the other.
//! Each may be the last registration of a QP, and destroying a QP takes commands of the device.
//! So the QPs are kept until the file's last handle, whose end destroys them, helped by a
//! workqueue: what the file held is gone when it is closed, but a process that held thousands of
//! QPs does not destroy one after the other, and one that held few does not wait for the queue.
//!
//! A file is known from its first registration to its last. Nothing is allocated, and no QP
//! destroyed, with the lock held.

use crate::{
    rdma::{
        uverbs::FileId,
        workqueue::UnboundQueue, //
    },
    receive_qp::ReceiveQp, //
};
use core::mem::take;
use kernel::{
    list::{
        List,
        ListArc, //
    },
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Files {
    #[pin]
    table: Mutex<RBTree<FileId, File>>,
}

struct File {
    seats: usize,
    /// What is to be destroyed before the file is closed.
    departing: List<ReceiveQp>,
}

/// A file's having one registration more, until dropped.
pub(crate) struct Seat {
    files: Arc<Files>,
    file: FileId,
}

impl Files {
    /// No files.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                table <- new_mutex!(RBTree::new(), "Files::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a registration of a file.
    pub(crate) fn enter(self: &Arc<Self>, file: FileId) -> Result<Seat> {
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut table = self.table.lock();

        if let Some(entry) = table.get_mut(&file) {
            entry.seats += 1;
        } else {
            let new = File {
                seats: 1,
                departing: List::new(),
            };

            table.insert(room.into_node(file, new));
        }
        drop(table);
        Ok(Seat {
            files: self.clone(),
            file,
        })
    }
}

impl Seat {
    /// The file is being closed. A QP that it was the last to be registered with is to be
    /// destroyed: by the file's last seat, which destroys all there are, or by the workqueue.
    pub(crate) fn vacate(self, last_of: Option<&Arc<ReceiveQp>>, queue: &UnboundQueue) {
        let mut table = self.files.table.lock();
        let Some(file) = table.get_mut(&self.file) else {
            return;
        };

        // It is taken out of its domain once, so it is in no list.
        if let Some(qp) = last_of.and_then(|qp| ListArc::try_from_arc_or_drop(qp.clone())) {
            file.departing.push_back(qp);
        }
        if file.seats > 1 {
            drop(table);
            if let Some(qp) = last_of {
                qp.clone().help_to_destroy(queue);
            }
            return;
        }

        let mut departing = take(&mut file.departing);

        drop(table);
        // The workqueue begins at the other end.
        while let Some(qp) = departing.pop_back() {
            qp.destroy();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.files.table.lock();
        let Some(file) = table.get_mut(&self.file) else {
            return;
        };

        file.seats = file.seats.saturating_sub(1);
        if file.seats == 0 {
            table.remove(&self.file);
        }
    }
}
