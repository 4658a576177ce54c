// SPDX-License-Identifier: GPL-2.0

//! The uverbs files that have registrations.
//!
//! When a file is closed or its device removed, uverbs destroys its handles one after the other.
//! Each may be the last registration of a QP, and destroying a QP takes commands of the device. So
//! the QPs are collected until the last handle of the file, whose end destroys them together with a
//! workqueue: they are destroyed when the file is closed, thousands of them not one after the
//! other, and a few without waiting for the workqueue.
//!
//! A file is in the table from its first registration to its last. No memory is allocated, and no
//! QP destroyed, with the lock held.

use crate::{
    kernel_ext::workqueue::UnboundQueue,
    rdma::uverbs::FileId,
    receive_qp::ReceiveQp, //
};
use core::mem::take;
use kernel::{
    list::{
        List,
        ListArc, //
    },
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct UFiles {
    #[pin]
    table: SpinLock<RBTree<FileId, UFile>>,
}

struct UFile {
    registrations: usize,
    /// QPs to be destroyed before the file is closed.
    pending_destroys: List<ReceiveQp>,
}

/// One registration of a file in the count of its registrations, which dropping it reduces.
pub(crate) struct UFileRef<'a> {
    ufiles: &'a UFiles,
    file: FileId,
}

impl UFiles {
    /// Creates an empty table.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(RBTree::new(), "UFiles::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Increments the number of registrations of a file.
    pub(crate) fn get(&self, file: FileId) -> Result<UFileRef<'_>> {
        if !self.get_known(file) {
            let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
            let mut table = self.table.lock();

            // Another thread may have added the file.
            if let Some(entry) = table.get_mut(&file) {
                entry.registrations += 1;
            } else {
                let new = UFile {
                    registrations: 1,
                    pending_destroys: List::new(),
                };

                table.insert(room.into_node(file, new));
            }
        }
        Ok(UFileRef { ufiles: self, file })
    }

    /// Returns the reference that [`UFileRef::keep`] left to a registration of the file.
    pub(crate) fn take_back(&self, file: FileId) -> UFileRef<'_> {
        UFileRef { ufiles: self, file }
    }

    /// Increments the number of registrations of a file that has one, or returns `false`.
    fn get_known(&self, file: FileId) -> bool {
        let mut table = self.table.lock();
        let entry = table.get_mut(&file);

        if let Some(entry) = entry {
            entry.registrations += 1;
            return true;
        }
        false
    }
}

impl UFileRef<'_> {
    /// Leaves the reference to a registration, see [`UFiles::take_back`].
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }

    /// Drops the reference of a registration of a file that is being closed. `last_of` is the QP
    /// that it was the last registration of: the last registration of the file, or the workqueue,
    /// destroys it.
    pub(crate) fn release(self, last_of: Option<&Arc<ReceiveQp>>, queue: &UnboundQueue) {
        let mut table = self.ufiles.table.lock();
        let Some(file) = table.get_mut(&self.file) else {
            return;
        };

        // A QP is removed from its domain once, so it is in no list.
        if let Some(qp) = last_of.and_then(|qp| ListArc::try_from_arc_or_drop(qp.clone())) {
            file.pending_destroys.push_back(qp);
        }
        if file.registrations > 1 {
            drop(table);
            if let Some(qp) = last_of {
                qp.clone().help_to_destroy(queue);
            }
            return;
        }

        let mut pending_destroys = take(&mut file.pending_destroys);

        drop(table);
        // The workqueue begins with the first.
        while let Some(qp) = pending_destroys.pop_back() {
            qp.destroy();
        }
    }
}

impl Drop for UFileRef<'_> {
    fn drop(&mut self) {
        let mut table = self.ufiles.table.lock();
        let Some(file) = table.get_mut(&self.file) else {
            return;
        };

        file.registrations = file.registrations.saturating_sub(1);
        if file.registrations == 0 {
            table.remove(&self.file);
        }
    }
}
