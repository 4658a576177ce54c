// SPDX-License-Identifier: GPL-2.0

//! The holder of a registration in the kernel: a handler of events.
//!
//! It remembers one position of the log: a kind of event of its QP is unread if the last one is at
//! a later position. The registration owns a reference, and so does the list of the QP until it
//! ends.

use crate::{
    event::{
        Counts,
        Event,
        EventMask,
        EventType, //
    },
    kernel_ext::tree::{
        impl_tree_item,
        Linked,
        Links, //
    },
    notify,
    qp_status::QpStatus,
    uapi::xrc_rcv_record, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// A handler of events of a kernel user.
pub(crate) trait Callback: Send + Sync {
    /// Handles events. Called in any context, with locks held: it must not sleep, nor unregister.
    fn event(&self, record: &xrc_rcv_record);
}

/// See the [module's documentation](self).
pub(crate) struct KernelHolder {
    callback: Option<KBox<dyn Callback>>,
    mask: EventMask,
    /// The position in the log up to which all events were handled, or are not for it. Changed with
    /// the lock of the log held.
    read: Atomic<u64>,
    /// In the list of the QP.
    links: Links<BY_ADDRESS>,
    listed: Linked<BY_ADDRESS>,
}

/// The order of the registrations of a QP: by their addresses.
pub(crate) type Key = usize;

/// The [`Tree`](crate::kernel_ext::tree::Tree) of a QP.
pub(crate) const BY_ADDRESS: u64 = 0;

impl_tree_item! {
    impl TreeItem<{ BY_ADDRESS }> for KernelHolder {
        links: links,
        linked: listed,
        key: |holder| -> Key { core::ptr::from_ref(holder).addr() }
    }
}

impl KernelHolder {
    /// Creates a holder, for the events of a mask if it has a handler.
    pub(crate) fn new(callback: Option<KBox<dyn Callback>>, mask: EventMask) -> Result<Arc<Self>> {
        let mask = if callback.is_some() {
            mask
        } else {
            EventMask::default()
        };

        Self::with_mask(callback, mask)
    }

    fn with_mask(callback: Option<KBox<dyn Callback>>, mask: EventMask) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                callback,
                mask,
                read: Atomic::new(0),
                links: Links::new(),
                listed: Linked::new(),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Returns the event mask; of a user without a handler that of no event.
    pub(crate) fn mask(&self) -> EventMask {
        self.mask
    }

    /// Whether it has a handler.
    pub(crate) fn has_handler(&self) -> bool {
        self.callback.is_some()
    }

    /// Returns the holder of the registration for reports.
    pub(crate) fn report(&self) -> notify::HolderReport {
        notify::HolderReport {
            pid: 0,
            file: None,
            mask: self.mask.as_raw(),
        }
    }

    /// Begins: events up to a position are not for it.
    pub(crate) fn begin(&self, position: u64) {
        self.read.store(position, Relaxed);
    }

    /// Returns the kinds of unread events.
    fn unread<'a>(&'a self, counts: &'a Counts) -> impl Iterator<Item = EventType> + 'a {
        let read = self.read.load(Relaxed);

        self.mask
            .kinds()
            .filter(move |kind| counts.position(*kind) > read)
    }

    /// Returns the number of kinds of unread events.
    pub(crate) fn unread_records(&self, counts: &Counts) -> usize {
        self.unread(counts).count()
    }

    /// Takes the next unread events of one kind: in the order of the last ones.
    fn take_unread(&self, counts: &Counts) -> Option<Event> {
        let kind = self
            .unread(counts)
            .min_by_key(|kind| counts.position(*kind))?;

        self.read.store(counts.position(kind), Relaxed);
        Some(counts.event(kind))
    }

    /// Calls the handler with the unread events of a QP. May be called in any context.
    pub(crate) fn signal(&self, status: &QpStatus, counts: &Counts) {
        if let Some(callback) = &self.callback {
            while let Some(event) = self.take_unread(counts) {
                callback.event(&event.to_record(status.qpn(), status.serial()));
            }
        }
    }
}

#[kunit_tests(ib_xrc_rcv_kernel_holder)]
mod tests {
    use super::*;

    const FIRST: EventType = match EventType::from_index(0) {
        Some(kind) => kind,
        None => EventType::QP_GONE,
    };

    const SECOND: EventType = match EventType::from_index(1) {
        Some(kind) => kind,
        None => EventType::QP_GONE,
    };

    /// The events of a QP, which is alone in its log.
    struct Qp {
        counts: Counts,
        end: u64,
    }

    impl Qp {
        fn new() -> Self {
            Self {
                counts: Counts::new(),
                end: 0,
            }
        }

        fn event(&mut self, kind: EventType) {
            self.end += 1;
            self.counts.add(kind, self.end);
        }

        fn register(&self, mask: EventMask) -> Result<Arc<KernelHolder>> {
            let holder = KernelHolder::with_mask(None, mask)?;

            holder.begin(self.end);
            Ok(holder)
        }

        /// Handles the next record.
        fn read(&self, holder: &KernelHolder) -> Option<(EventType, u64)> {
            let event = holder.take_unread(&self.counts)?;

            Some((event.kind, event.total))
        }
    }

    #[test]
    fn repeated_events_are_one_record_with_the_total() -> Result {
        let mut qp = Qp::new();

        qp.event(FIRST);

        let holder = qp.register(EventMask::ALL)?;
        let other = qp.register(EventMask::ALL)?;

        assert!(qp.read(&holder).is_none());
        for _ in 0..100 {
            qp.event(FIRST);
        }
        assert_eq!(holder.unread_records(&qp.counts), 1);
        assert!(qp.read(&holder) == Some((FIRST, 101)));
        assert!(qp.read(&holder).is_none());
        qp.event(FIRST);
        assert!(qp.read(&holder) == Some((FIRST, 102)));
        assert!(qp.read(&other) == Some((FIRST, 102)));
        Ok(())
    }

    #[test]
    fn kinds_are_read_in_the_order_of_their_last_events() -> Result {
        let mut qp = Qp::new();
        let holder = qp.register(EventMask::ALL)?;

        qp.event(FIRST);
        qp.event(SECOND);
        qp.event(FIRST);
        assert_eq!(holder.unread_records(&qp.counts), 2);
        assert!(qp.read(&holder) == Some((SECOND, 1)));
        qp.event(SECOND);
        assert!(qp.read(&holder) == Some((FIRST, 2)));
        assert!(qp.read(&holder) == Some((SECOND, 2)));
        assert!(qp.read(&holder).is_none());
        Ok(())
    }

    #[test]
    fn only_events_that_were_asked_for_are_unread() -> Result {
        let mut qp = Qp::new();
        let mut mask = EventMask::default();

        mask.add(SECOND);

        let holder = qp.register(mask)?;

        qp.event(FIRST);
        qp.event(EventType::QP_GONE);
        assert_eq!(holder.unread_records(&qp.counts), 0);
        qp.event(SECOND);
        assert_eq!(holder.unread_records(&qp.counts), 1);
        Ok(())
    }
}
