// SPDX-License-Identifier: GPL-2.0

//! A subscriber of a receive QP: the part of a registration that its events are for.
//!
//! It has no events of its own. It remembers how many of each kind it has got, and the QP counts
//! all: the difference is unread. The registration owns a reference, and so does the list of the QP
//! until the registration ends. Members that change are atomic, and changed with the lock of the
//! log held.

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
    right::Right, //
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

/// The holder of a registration, and its event mask.
pub(crate) enum Holder {
    /// The event channel of a member, its cookie, the process that registered, and its right.
    File(Arc<Listener>, u64, Process, EventMask, Right),
    /// A kernel user, and the handler of its events.
    Kernel(Option<KBox<dyn Callback>>, EventMask),
}

/// A handler of events of a kernel user.
pub(crate) trait Callback: Send + Sync {
    /// Handles an event. Called in any context, with locks held: it must not sleep, nor unregister.
    fn event(&self, event: &Event);
}

/// See the [module's documentation](self).
pub(crate) struct Subscriber {
    holder: Holder,
    /// The number of events of each kind that it has got, of those of the QP.
    read: [Atomic<u64>; EventType::COUNT],
    /// The number of events that its mask has, before it was added.
    before: Atomic<u64>,
    /// The time at which the registration ended with the device, or 0: QP_GONE is all that comes
    /// after the events that are unread.
    removed: Atomic<u64>,
    /// In the list of the QP.
    links: Links<BY_HOLDER>,
    listed: Linked<BY_HOLDER>,
}

/// With its reference count, the subscriber fits into kmalloc-192.
const _: () = assert!(size_of::<Subscriber>() + size_of::<u64>() <= 192);

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
                read: [const { Atomic::new(0) }; EventType::COUNT],
                before: Atomic::new(0),
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

    /// Returns the event mask.
    pub(crate) fn mask(&self) -> EventMask {
        let (Holder::File(.., mask, _) | Holder::Kernel(_, mask)) = self.holder;

        mask
    }

    /// Returns the pid of the process that registered, or 0 for a kernel user.
    pub(crate) fn pid(&self) -> i32 {
        match &self.holder {
            Holder::File(_, _, process, ..) => process.pid(),
            Holder::Kernel(..) => 0,
        }
    }

    /// Returns the cookie that is returned with each event; 0 for a kernel user.
    pub(crate) fn cookie(&self) -> u64 {
        match self.holder {
            Holder::File(_, cookie, ..) => cookie,
            Holder::Kernel(..) => 0,
        }
    }

    /// Returns the holder of the registration for reports.
    pub(crate) fn report(&self) -> notify::Holder {
        notify::Holder {
            pid: self.pid(),
            file: self.file(),
            mask: if self.hears() {
                self.mask().as_raw()
            } else {
                0
            },
        }
    }

    /// Returns the event channel of the member that holds the registration.
    fn file(&self) -> Option<FileId> {
        match &self.holder {
            Holder::File(listener, ..) => Some(listener.id()),
            Holder::Kernel(..) => None,
        }
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

    /// Begins: events that happened before are not for it.
    pub(crate) fn begin(&self, counts: &Counts) {
        for kind in EventType::iter() {
            self.read[kind.index()].store(counts.total(kind), Relaxed);
        }
        self.before.store(self.wanted(counts), Relaxed);
    }

    /// Returns the number of events of the QP that the mask has.
    fn wanted(&self, counts: &Counts) -> u64 {
        let totals = self.mask().kinds().map(|kind| counts.total(kind));

        totals.fold(0, u64::wrapping_add)
    }

    /// Returns the number of events that were for it, modulo 2^32.
    pub(crate) fn delivered(&self, counts: &Counts) -> u32 {
        if !self.hears() {
            return 0;
        }
        self.wanted(counts).wrapping_sub(self.before.load(Relaxed)) as u32
    }

    /// Returns the number of unread events of a kind. QP_GONE is the last.
    fn unread_of(&self, kind: EventType, counts: &Counts) -> u32 {
        let gone = EventType::QP_GONE;
        let of = |kind: EventType| {
            let read = self.read[kind.index()].load(Relaxed);

            u32::try_from(counts.total(kind).wrapping_sub(read)).unwrap_or(u32::MAX)
        };
        let gone_was_read = self.read[gone.index()].load(Relaxed) != 0;

        if !self.mask().has(kind) || gone_was_read {
            0
        } else if kind == gone && self.is_removed() {
            1
        } else {
            of(kind)
        }
    }

    /// Returns the number of records that are unread.
    pub(crate) fn unread(&self, counts: &Counts) -> usize {
        EventType::iter()
            .filter(|kind| self.unread_of(*kind, counts) != 0)
            .count()
    }

    /// Returns the next unread events of one kind: in the order of the last ones, QP_GONE last.
    pub(crate) fn next_unread(&self, qpn: u32, counts: &Counts) -> Option<Event> {
        let kind = EventType::iter()
            .filter(|kind| self.unread_of(*kind, counts) != 0)
            .min_by_key(|kind| (*kind == EventType::QP_GONE, counts.time(*kind)))?;
        let time = match counts.time(kind) {
            0 => self.removed.load(Relaxed),
            time => time,
        };

        Some(Event {
            qpn,
            kind,
            count: self.unread_of(kind, counts),
            time,
        })
    }

    /// All events of a kind were read.
    pub(crate) fn note_read(&self, kind: EventType, counts: &Counts) {
        let read = match kind {
            EventType::QP_GONE => 1,
            _ => counts.total(kind),
        };

        self.read[kind.index()].store(read, Relaxed);
    }

    /// Delivers unread events to the handler of a kernel user, or wakes the readers of the channel.
    /// May be called in any context.
    pub(crate) fn signal(&self, qpn: u32, counts: &Counts) {
        match &self.holder {
            Holder::File(listener, ..) => {
                if self.next_unread(qpn, counts).is_some() {
                    listener.wake_later();
                }
            }
            Holder::Kernel(Some(callback), _) => {
                while let Some(event) = self.next_unread(qpn, counts) {
                    self.note_read(event.kind, counts);
                    callback.event(&event);
                }
            }
            Holder::Kernel(None, _) => (),
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

    fn subscriber(mask: EventMask) -> Result<Arc<Subscriber>> {
        let holder = Holder::File(
            Listener::new(0)?,
            42,
            Process::current(),
            mask,
            Right::Write,
        );

        Subscriber::new(holder)
    }

    /// Reads the next record.
    fn read(subscriber: &Subscriber, counts: &Counts) -> Option<(EventType, u32)> {
        let event = subscriber.next_unread(0x17, counts)?;

        subscriber.note_read(event.kind, counts);
        Some((event.kind, event.count))
    }

    #[test]
    fn repeated_events_are_one_record() -> Result {
        let counts = Counts::new();
        let subscriber = subscriber(EventMask::ALL)?;

        counts.add(FIRST);
        subscriber.begin(&counts);
        assert!(read(&subscriber, &counts).is_none());
        for _ in 0..100 {
            counts.add(FIRST);
        }
        assert_eq!(subscriber.unread(&counts), 1);
        assert_eq!(subscriber.delivered(&counts), 100);
        assert!(read(&subscriber, &counts) == Some((FIRST, 100)));
        assert!(read(&subscriber, &counts).is_none());
        counts.add(FIRST);
        assert!(read(&subscriber, &counts) == Some((FIRST, 1)));
        assert_eq!(subscriber.delivered(&counts), 101);
        Ok(())
    }

    #[test]
    fn count_stays_at_its_maximum() -> Result {
        let counts = Counts::new();
        let subscriber = subscriber(EventMask::ALL)?;

        subscriber.begin(&counts);
        subscriber.read[FIRST.index()].store(0u64.wrapping_sub(u64::from(u32::MAX)), Relaxed);
        assert!(read(&subscriber, &counts) == Some((FIRST, u32::MAX)));
        subscriber.read[FIRST.index()].store(0u64.wrapping_sub(1 << 40), Relaxed);
        assert!(read(&subscriber, &counts) == Some((FIRST, u32::MAX)));
        assert!(read(&subscriber, &counts).is_none());
        Ok(())
    }

    #[test]
    fn only_events_that_were_asked_for_are_unread() -> Result {
        let counts = Counts::new();
        let mut mask = EventMask::default();

        mask.add(SECOND);

        let subscriber = subscriber(mask)?;

        subscriber.begin(&counts);
        counts.add(FIRST);
        counts.add(EventType::QP_GONE);
        assert_eq!(
            (subscriber.unread(&counts), subscriber.delivered(&counts)),
            (0, 0)
        );
        counts.add(SECOND);
        assert_eq!(
            (subscriber.unread(&counts), subscriber.delivered(&counts)),
            (1, 1)
        );
        Ok(())
    }

    #[test]
    fn gone_is_the_last_record_and_comes_once() -> Result {
        // The QP is destroyed, or the registration ends with the device, or both.
        for (is_destroyed, is_removed) in [(true, false), (false, true), (true, true)] {
            let counts = Counts::new();
            let subscriber = subscriber(EventMask::ALL)?;

            subscriber.begin(&counts);
            if is_removed {
                subscriber.remove_with_device();
            }
            if is_destroyed {
                counts.add(EventType::QP_GONE);
            }
            counts.add(SECOND);
            counts.add(FIRST);
            assert_eq!(subscriber.unread(&counts), 3);
            assert!(read(&subscriber, &counts) == Some((SECOND, 1)));
            assert!(read(&subscriber, &counts) == Some((FIRST, 1)));
            assert!(read(&subscriber, &counts) == Some((EventType::QP_GONE, 1)));
            counts.add(FIRST);
            assert!(read(&subscriber, &counts).is_none());
        }
        Ok(())
    }
}
