// SPDX-License-Identifier: GPL-2.0

//! The uverbs files that have registrations.
//!
//! When a file is closed, or loses its device, uverbs takes its handles away one after the other.
//! Each may be the last registration of a QP, and destroying a QP takes commands of the device.
//! So the QPs are destroyed by a workqueue, at the same time, and only the end of the file's last
//! handle waits for them: what the file held is gone when it is closed, but a process that held
//! thousands of QPs does not wait for one after the other.
//!
//! A file is known from its first registration to its last. The lock is held for no longer than
//! to count.

use crate::{
    limits::Population,
    rdma::uverbs::FileId, //
};
use kernel::{
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
    departing: Arc<Population>,
}

/// A file's having one registration more, until dropped.
pub(crate) struct Seat {
    files: Arc<Files>,
    file: FileId,
    departing: Arc<Population>,
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
        let nobody = Population::new()?;
        let mut table = self.table.lock();
        let departing = if let Some(entry) = table.get_mut(&file) {
            entry.seats += 1;
            entry.departing.clone()
        } else {
            let new = File {
                seats: 1,
                departing: nobody.clone(),
            };

            table.insert(room.into_node(file, new));
            nobody
        };

        drop(table);
        Ok(Seat {
            files: self.clone(),
            file,
            departing,
        })
    }
}

impl Seat {
    /// The QPs that are being destroyed because the file goes.
    pub(crate) fn departing(&self) -> &Arc<Population> {
        &self.departing
    }

    /// Whether it is the file's last.
    pub(crate) fn is_last(&self) -> bool {
        let table = self.files.table.lock();

        table.get(&self.file).is_none_or(|file| file.seats == 1)
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
