// SPDX-License-Identifier: GPL-2.0

//! A subscriber of a receive QP: the part of a registration that its events are for.
//!
//! It has no events of its own, and remembers one position of the log: a kind of event of its QP is
//! unread if the last one is at a later position. The list of the QP owns it: of a member's until
//! the registration has ended and its events are read. The registration of a kernel user owns a
//! reference, too. Members that change are atomic, and changed with the lock of the log held.

use crate::{
    event::{
        Counts,
        Event,
        EventMask,
        EventType, //
    },
    kernel_ext::{
        monotonic_ns,
        process::Process,
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        }, //
    },
    listener::Listener,
    notify::{
        self,
        FileId, //
    },
    qp_status::QpStatus,
    right::Right,
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

/// The holder of a registration.
pub(crate) enum Holder {
    /// The event channel of a member, the process that registered, and its right.
    File(Arc<Listener>, Process, Right),
    /// A kernel user, the handler of its events, and their mask.
    Kernel(Option<KBox<dyn Callback>>, EventMask),
}

/// A handler of events of a kernel user.
pub(crate) trait Callback: Send + Sync {
    /// Handles events. Called in any context, with locks held: it must not sleep, nor unregister.
    fn event(&self, record: &xrc_rcv_record);
}

/// See the [module's documentation](self).
pub(crate) struct Subscriber {
    holder: Holder,
    /// The position in the log up to which all events were read, or are not for it.
    read: Atomic<u64>,
    /// The time at which the registration ended with the device, or 0: QP_GONE is all that comes
    /// after the events that are unread.
    removed: Atomic<u64>,
    /// In the list of the QP.
    links: Links<BY_HOLDER>,
    listed: Linked<BY_HOLDER>,
}

/// With its reference count, the subscriber fits into kmalloc-96.
const _: () = assert!(size_of::<Subscriber>() + size_of::<u64>() <= 96);

/// The position of QP_GONE, which no event is after.
const END: u64 = u64::MAX;

/// The order of the subscribers of a QP: by the address of the event channel, or, of a kernel
/// user's, by its own.
pub(crate) type Key = usize;

/// The [`Tree`](crate::kernel_ext::tree::Tree) of a QP.
pub(crate) const BY_HOLDER: u64 = 0;

impl_tree_item! {
    impl TreeItem<{ BY_HOLDER }> for Subscriber {
        links: links,
        linked: listed,
        key: |subscriber| -> Key { subscriber.address() }
    }
}

impl Subscriber {
    /// Creates a subscriber. `EIO` if its event channel is at its end.
    pub(crate) fn new(holder: Holder) -> Result<Arc<Self>> {
        if let Holder::File(listener, ..) = &holder {
            if listener.has_ended() {
                return Err(EIO);
            }
        }

        Ok(Arc::new(
            Self {
                holder,
                read: Atomic::new(0),
                removed: Atomic::new(0),
                links: Links::new(),
                listed: Linked::new(),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Returns the holder of the registration.
    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the event mask: that of the channel, or of the kernel user.
    pub(crate) fn mask(&self) -> EventMask {
        match &self.holder {
            Holder::File(listener, ..) => listener.mask(),
            Holder::Kernel(_, mask) => *mask,
        }
    }

    /// Returns the pid of the process that registered, or 0 for a kernel user.
    pub(crate) fn pid(&self) -> i32 {
        match &self.holder {
            Holder::File(_, process, _) => process.pid(),
            Holder::Kernel(..) => 0,
        }
    }

    /// Returns the holder of the registration for reports.
    pub(crate) fn report(&self) -> notify::HolderReport {
        notify::HolderReport {
            pid: self.pid(),
            file: self.file(),
            mask: if self.hears() {
                self.mask().as_raw()
            } else {
                0
            },
        }
    }

    /// Returns the listener of the member that holds the registration.
    pub(crate) fn listener(&self) -> Option<&Arc<Listener>> {
        match &self.holder {
            Holder::File(listener, ..) => Some(listener),
            Holder::Kernel(..) => None,
        }
    }

    /// Returns the event channel of that member.
    pub(crate) fn file(&self) -> Option<FileId> {
        self.listener().map(|listener| listener.id())
    }

    fn address(&self) -> usize {
        match self.file() {
            Some(file) => file.addr(),
            None => core::ptr::from_ref(self).addr(),
        }
    }

    /// Whether the QP stays as long as the registration, unless its domain is closed.
    pub(crate) fn keeps(&self) -> bool {
        match self.holder {
            Holder::File(.., right) => right >= Right::Write,
            Holder::Kernel(..) => true,
        }
    }

    /// Whether the holder can get events: a kernel user may have no handler.
    pub(crate) fn hears(&self) -> bool {
        !matches!(self.holder, Holder::Kernel(None, _))
    }

    /// Whether events are read from a channel.
    pub(crate) fn has_channel(&self) -> bool {
        self.file().is_some()
    }

    /// Begins: events up to a position are not for it.
    pub(crate) fn begin(&self, position: u64) {
        self.read.store(position, Relaxed);
    }

    /// Returns the position of the last event of a kind. That of QP_GONE is the [`END`], also if
    /// the registration ended with the device, and other events of the QP follow.
    fn position(&self, kind: EventType, counts: &Counts) -> u64 {
        let position = counts.position(kind);

        if kind == EventType::QP_GONE && (position != 0 || self.is_removed()) {
            END
        } else {
            position
        }
    }

    /// Returns the kinds of unread events.
    fn unread<'a>(&'a self, counts: &'a Counts) -> impl Iterator<Item = EventType> + 'a {
        let read = self.read.load(Relaxed);

        self.mask()
            .kinds()
            .filter(move |kind| self.position(*kind, counts) > read)
    }

    /// Returns the number of records that are unread.
    pub(crate) fn unread_records(&self, counts: &Counts) -> usize {
        self.unread(counts).count()
    }

    /// Returns the next unread events of one kind: in the order of the last ones, QP_GONE last.
    pub(crate) fn next_unread(&self, counts: &Counts) -> Option<Event> {
        let kind = self
            .unread(counts)
            .min_by_key(|kind| self.position(*kind, counts))?;

        Some(match counts.total(kind) {
            // The registration ended with the device, and the QP exists.
            0 => Event {
                kind,
                total: 1,
                time: self.removed.load(Relaxed),
            },
            total => Event {
                kind,
                total,
                time: counts.time(kind),
            },
        })
    }

    /// The next unread events, which are of this kind, were read.
    pub(crate) fn note_read(&self, kind: EventType, counts: &Counts) {
        self.read.store(self.position(kind, counts), Relaxed);
    }

    /// Delivers unread events of a QP to the handler of a kernel user, or wakes the readers of the
    /// channel. May be called in any context.
    pub(crate) fn signal(&self, status: &QpStatus, counts: &Counts) {
        match &self.holder {
            Holder::File(listener, ..) => {
                if self.unread(counts).next().is_some() {
                    listener.wake_later();
                }
            }
            Holder::Kernel(Some(callback), _) => {
                while let Some(event) = self.next_unread(counts) {
                    self.note_read(event.kind, counts);
                    callback.event(&event.to_record(status.qpn(), status.serial()));
                }
            }
            Holder::Kernel(None, _) => (),
        }
    }

    /// Nothing of the QP can be read any more: the events of a channel that are unread are lost.
    pub(crate) fn lose(&self, counts: &Counts) {
        if let Some(listener) = self.listener() {
            if self.unread(counts).next().is_some() {
                listener.lose();
            }
        }
    }

    /// Whether the registration ended with the device.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Relaxed) != 0
    }

    /// The registration ends with the device: QP_GONE is unread.
    pub(crate) fn remove_with_device(&self) {
        self.removed.store(monotonic_ns().max(1), Relaxed);
    }
}

#[kunit_tests(ib_xrc_rcv_subscriber)]
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

        fn register(&self, mask: EventMask) -> Result<Arc<Subscriber>> {
            let listener = Listener::new(mask, self.end)?;
            let holder = Holder::File(listener, Process::current(), Right::Write);
            let subscriber = Subscriber::new(holder)?;

            subscriber.begin(self.end);
            Ok(subscriber)
        }

        /// Reads the next record.
        fn read(&self, subscriber: &Subscriber) -> Option<(EventType, u64)> {
            let event = subscriber.next_unread(&self.counts)?;

            subscriber.note_read(event.kind, &self.counts);
            Some((event.kind, event.total))
        }
    }

    #[test]
    fn repeated_events_are_one_record_with_the_total() -> Result {
        let mut qp = Qp::new();

        qp.event(FIRST);

        let subscriber = qp.register(EventMask::ALL)?;
        let other = qp.register(EventMask::ALL)?;

        assert!(qp.read(&subscriber).is_none());
        for _ in 0..100 {
            qp.event(FIRST);
        }
        assert_eq!(subscriber.unread_records(&qp.counts), 1);
        assert!(qp.read(&subscriber) == Some((FIRST, 101)));
        assert!(qp.read(&subscriber).is_none());
        qp.event(FIRST);
        assert!(qp.read(&subscriber) == Some((FIRST, 102)));
        assert!(qp.read(&other) == Some((FIRST, 102)));
        Ok(())
    }

    #[test]
    fn kinds_are_read_in_the_order_of_their_last_events() -> Result {
        let mut qp = Qp::new();
        let subscriber = qp.register(EventMask::ALL)?;

        qp.event(FIRST);
        qp.event(SECOND);
        qp.event(FIRST);
        assert_eq!(subscriber.unread_records(&qp.counts), 2);
        assert!(qp.read(&subscriber) == Some((SECOND, 1)));
        qp.event(SECOND);
        assert!(qp.read(&subscriber) == Some((FIRST, 2)));
        assert!(qp.read(&subscriber) == Some((SECOND, 2)));
        assert!(qp.read(&subscriber).is_none());
        Ok(())
    }

    #[test]
    fn only_events_that_were_asked_for_are_unread() -> Result {
        let mut qp = Qp::new();
        let mut mask = EventMask::default();

        mask.add(SECOND);

        let subscriber = qp.register(mask)?;

        qp.event(FIRST);
        qp.event(EventType::QP_GONE);
        assert_eq!(subscriber.unread_records(&qp.counts), 0);
        qp.event(SECOND);
        assert_eq!(subscriber.unread_records(&qp.counts), 1);
        Ok(())
    }

    #[test]
    fn gone_is_the_last_record_and_comes_once() -> Result {
        // The QP is destroyed, or the registration ends with the device, or both.
        for (is_destroyed, is_removed) in [(true, false), (false, true), (true, true)] {
            let mut qp = Qp::new();
            let subscriber = qp.register(EventMask::ALL)?;

            if is_removed {
                subscriber.remove_with_device();
            }
            if is_destroyed {
                qp.event(EventType::QP_GONE);
            }
            qp.event(SECOND);
            qp.event(FIRST);
            assert_eq!(subscriber.unread_records(&qp.counts), 3);
            assert!(qp.read(&subscriber) == Some((SECOND, 1)));
            assert!(qp.read(&subscriber) == Some((FIRST, 1)));
            assert!(qp.read(&subscriber) == Some((EventType::QP_GONE, 1)));
            qp.event(FIRST);
            if !is_destroyed {
                qp.event(EventType::QP_GONE);
            }
            subscriber.remove_with_device();
            assert!(qp.read(&subscriber).is_none());
        }
        Ok(())
    }
}
