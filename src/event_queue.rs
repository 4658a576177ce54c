// SPDX-License-Identifier: GPL-2.0

//! The unread events of an event channel.
//!
//! A registration on the channel has one *slot* per type of event. An event that happens again
//! before it is read increments the count in its slot, so memory is needed per registration and not
//! per event: [`post`](EventQueue::post) allocates nothing and cannot fail. Registrations with
//! unread events are in a tree, in the order of their oldest ones. Each operation on one of them
//! takes logarithmic time.
//!
//! Reading a record copies it to user space, which can sleep for an unbounded time and can fail. So
//! it takes two steps. [`take`](EventQueue::take) empties slots, those of a [`Batch`] at most, as
//! the lock is held and interrupts are disabled; their registrations *are being read* until
//! [`finish`](EventQueue::finish) or [`restore`](EventQueue::restore). Meanwhile registrations may
//! end, and events may be added. QP_GONE, the last event of a registration, is *withheld* from one
//! reader while another reads an earlier record.
//!
//! Owned by an [`EventChannel`](crate::event_channel::EventChannel), whose lock guards the queue
//! and the slots. Nothing in this file sleeps or frees memory.

use crate::{
    event::{
        Event,
        EventType, //
    },
    kernel_ext::tree::{
        Tree,
        TreeItem, //
    }, //
};
use core::mem::replace;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

/// The unread events of one registration.
pub(crate) struct Slots {
    counts: [u32; EventType::COUNT],
    /// The time of the first event; undefined where the count is 0.
    first: [u64; EventType::COUNT],
    qpn: u32,
    /// The number of records that are being read.
    being_read: u32,
    /// The number of the [`take`](EventQueue::take) that took all of these, or [`SEVERAL`].
    reader: u64,
    /// QP_GONE is unread, and not to be taken: earlier records are being read.
    gone_is_withheld: bool,
    /// The registration ended, and its events were discarded.
    closed: bool,
}

/// A registration on a channel.
pub(crate) trait Queued: TreeItem<BY_TIME, Key = Key> {
    /// Returns the slots, or `None` without a channel. `queue` must be that of the channel.
    fn slots<'a>(&'a self, queue: &'a mut EventQueue<Self>) -> Option<&'a mut Slots>;

    /// Returns the time of the oldest unread event. Constant while the registration is queued.
    fn time(&self) -> &Atomic<u64>;

    /// Returns the cookie that the holder chose.
    fn cookie(&self) -> u64;
}

/// The order of a queue: by time, then by address.
pub(crate) type Key = (u64, usize);

/// The [`Tree`] of a queue.
pub(crate) const BY_TIME: u64 = 1;

/// The maximum number of records that are taken, or settled, in one section of the lock.
pub(crate) const BATCH: usize = 16;

/// Records that one reader took. They precede the places that are `None`.
pub(crate) type Batch<Q> = [Option<Record<Q>>; BATCH];

/// Stands for more than one [`take`](EventQueue::take).
const SEVERAL: u64 = 0;

/// The events of one slot, taken to be read.
pub(crate) struct Record<Q> {
    queued: Arc<Q>,
    pub(crate) kind: EventType,
    pub(crate) qpn: u32,
    pub(crate) count: u32,
    pub(crate) first: u64,
}

impl<Q: Queued> Record<Q> {
    /// Returns the cookie of the registration.
    pub(crate) fn cookie(&self) -> u64 {
        self.queued.cookie()
    }
}

impl Slots {
    /// Creates the slots of a new registration.
    pub(crate) const fn new() -> Self {
        Self {
            counts: [0; EventType::COUNT],
            first: [0; EventType::COUNT],
            qpn: 0,
            being_read: 0,
            reader: SEVERAL,
            gone_is_withheld: false,
            closed: false,
        }
    }

    /// Returns the number of unread records.
    pub(crate) fn unread(&self) -> usize {
        self.counts.iter().filter(|count| **count != 0).count()
    }

    /// Adds `count` events. Returns whether there is a new record.
    fn add(&mut self, kind: EventType, count: u32, first: u64) -> bool {
        let index = kind.index();
        let new = self.counts[index] == 0;

        self.counts[index] = self.counts[index].saturating_add(count);
        // A reader may put back a record that is older than the slot's first event.
        if new || first < self.first[index] {
            self.first[index] = first;
        }
        new
    }

    /// Returns the type of the next record: in the order of the first events, QP_GONE last.
    fn oldest(&self) -> Option<EventType> {
        let gone = EventType::QP_GONE.index();
        let unread = (0..gone).filter(|index| self.counts[*index] != 0);

        match unread.min_by_key(|index| self.first[*index]) {
            Some(index) => EventType::from_index(index),
            None => {
                let readable = self.counts[gone] != 0 && !self.gone_is_withheld;

                readable.then_some(EventType::QP_GONE)
            }
        }
    }

    /// Empties the slot of the next record for `reader`. Returns `None` if the record is withheld.
    fn take(&mut self, reader: u64) -> Option<(EventType, u32, u64)> {
        let kind = self.oldest()?;
        let others_read = self.being_read != 0 && self.reader != reader;

        if kind == EventType::QP_GONE && others_read {
            self.gone_is_withheld = true;
            return None;
        }
        self.being_read = self.being_read.saturating_add(1);
        self.reader = if others_read { SEVERAL } else { reader };

        let index = kind.index();

        Some((kind, replace(&mut self.counts[index], 0), self.first[index]))
    }
}

/// See the [module's documentation](self).
pub(crate) struct EventQueue<Q: Queued> {
    /// Registrations with unread events.
    tree: Tree<Q, BY_TIME>,
    /// The number of calls of `take`.
    takes: u64,
    /// The descriptor or uverbs file was closed, or the device removed: no event is added.
    pub(crate) ended: bool,
    /// The number of readers that took records and have not finished.
    pub(crate) reading: usize,
}

impl<Q: Queued> EventQueue<Q> {
    /// Creates an empty queue.
    pub(crate) const fn new() -> Self {
        Self {
            tree: Tree::new(),
            takes: 0,
            ended: false,
            reading: 0,
        }
    }

    /// Whether the queue is empty. If not, [`take`](Self::take) may still withhold all its records.
    pub(crate) fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Whether no record will be added to those in the queue.
    pub(crate) fn at_end(&self) -> bool {
        self.ended && self.reading == 0
    }

    /// Adds events to a registration that is on this channel. Returns whether there is a new
    /// record.
    pub(crate) fn post(&mut self, queued: ArcBorrow<'_, Q>, event: &Event) -> bool {
        let new = match queued.slots(self) {
            Some(slots) if !slots.closed => {
                slots.qpn = event.qpn;
                slots.add(event.kind, event.count, event.time)
            }
            _ => false,
        };

        if new {
            self.requeue(queued);
        }
        new
    }

    /// Discards the events of a registration that ended.
    pub(crate) fn close(&mut self, queued: ArcBorrow<'_, Q>) {
        if let Some(slots) = queued.slots(self) {
            slots.closed = true;
            slots.counts = [0; EventType::COUNT];
            self.requeue(queued);
        }
    }

    /// Removes all registrations, for the caller to drop without the lock. The file has no reader
    /// left.
    pub(crate) fn take_all(&mut self) -> Tree<Q, BY_TIME> {
        replace(&mut self.tree, Tree::new())
    }

    /// Takes the oldest records, as many as `batch` has places, and returns their number. They are
    /// being read after this.
    ///
    /// Withheld records count, too, which bounds the time that this takes. So an empty batch means
    /// that there is no record only if the queue [is empty](Self::is_empty).
    pub(crate) fn take(&mut self, batch: &mut [Option<Record<Q>>]) -> usize {
        let mut taken = 0;

        self.takes = self.takes.wrapping_add(1);

        for _ in 0..batch.len() {
            let Some(queued) = self.tree.pop_first() else {
                break;
            };
            let reader = self.takes;
            let Some(slots) = queued.slots(self) else {
                continue;
            };
            let (next, qpn) = (slots.take(reader), slots.qpn);

            self.requeue(queued.as_arc_borrow());
            // This does not drop the last reference: the reader for whose record QP_GONE is
            // withheld has one.
            let Some((kind, count, first)) = next else {
                continue;
            };

            batch[taken] = Some(Record {
                queued,
                kind,
                qpn,
                count,
                first,
            });
            taken += 1;
        }
        taken
    }

    /// Moves the records of registrations that ended to the end of `batch`. Returns the number of
    /// the others, whose order is kept.
    pub(crate) fn drop_closed(&mut self, batch: &mut [Option<Record<Q>>]) -> usize {
        let mut kept = 0;

        for index in 0..batch.len() {
            let exists = batch[index]
                .as_ref()
                .and_then(|record| record.queued.slots(self))
                .is_some_and(|slots| !slots.closed);

            if exists {
                batch.swap(kept, index);
                kept += 1;
            }
        }
        kept
    }

    /// Finishes reading records. Returns whether there is a new record to read.
    pub(crate) fn finish(&mut self, batch: &[Option<Record<Q>>]) -> bool {
        let mut new = false;

        for record in batch.iter().flatten() {
            let Some(slots) = record.queued.slots(self) else {
                continue;
            };

            slots.being_read = slots.being_read.saturating_sub(1);
            if slots.being_read == 0 && replace(&mut slots.gone_is_withheld, false) {
                new |= self.requeue(record.queued.as_arc_borrow());
            }
        }
        new
    }

    /// Puts records back that could not be copied, unless their registration ended. They are the
    /// oldest again. Returns whether there is a new record to read.
    pub(crate) fn restore(&mut self, batch: &[Option<Record<Q>>]) -> bool {
        let mut new = self.finish(batch);

        for record in batch.iter().flatten() {
            let Some(slots) = record.queued.slots(self) else {
                continue;
            };

            if !slots.closed {
                slots.add(record.kind, record.count, record.first);
                self.requeue(record.queued.as_arc_borrow());
                new = true;
            }
        }
        new
    }

    /// Moves a registration to its place after its slots changed. Returns whether it was added to
    /// the queue.
    fn requeue(&mut self, queued: ArcBorrow<'_, Q>) -> bool {
        let time = match queued.slots(self) {
            Some(slots) => slots.oldest().map(|kind| slots.first[kind.index()]),
            None => None,
        };
        let was_queued = queued.linked().get();

        if was_queued && time == Some(queued.time().load(Relaxed)) {
            return false;
        }

        // Not the last reference: the caller has one.
        let removed = was_queued.then(|| self.tree.remove(&queued)).flatten();

        if let Some(time) = time {
            queued.time().store(time, Relaxed);
            // Cannot fail: the registration is in no tree.
            let _ = self.tree.insert(removed.unwrap_or_else(|| queued.into()));
        }
        time.is_some() && !was_queued
    }
}

#[kunit_tests(ib_xrc_rcv_event_queue)]
mod tests {
    use super::*;
    use crate::kernel_ext::{
        new_spinlock_irq,
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        },
        SpinLockIrq, //
    };
    use kernel::sync::LockedBy;

    const FIRST: EventType = match EventType::from_index(0) {
        Some(kind) => kind,
        None => EventType::QP_GONE,
    };

    const SECOND: EventType = match EventType::from_index(1) {
        Some(kind) => kind,
        None => EventType::QP_GONE,
    };

    fn event(kind: EventType, time: u64) -> Event {
        Event {
            qpn: 0x17,
            kind,
            count: 1,
            time,
        }
    }

    /// A registration.
    struct Item {
        slots: LockedBy<Slots, EventQueue<Self>>,
        queue: Arc<Locked>,
        cookie: u64,
        time: Atomic<u64>,
        links: Links<BY_TIME>,
        linked: Linked<BY_TIME>,
    }

    impl_tree_item! {
        impl TreeItem<{ BY_TIME }> for Item {
            links: links,
            linked: linked,
            key: |item| -> Key { (item.time.load(Relaxed), item.cookie as usize) }
        }
    }

    impl Queued for Item {
        fn slots<'a>(&'a self, queue: &'a mut EventQueue<Self>) -> Option<&'a mut Slots> {
            Some(self.slots.access_mut(queue))
        }

        fn time(&self) -> &Atomic<u64> {
            &self.time
        }

        fn cookie(&self) -> u64 {
            self.cookie
        }
    }

    impl Item {
        fn unread(&self) -> usize {
            self.slots.access_mut(&mut self.queue.lock()).unread()
        }
    }

    type Place = Option<Record<Item>>;

    type Locked = SpinLockIrq<EventQueue<Item>>;

    /// A queue, whose lock is taken for each call.
    struct Queue(Arc<Locked>);

    impl Queue {
        fn post(&self, item: &Arc<Item>, event: &Event) -> bool {
            self.0.lock().post(item.as_arc_borrow(), event)
        }

        fn close(&self, item: &Arc<Item>) {
            self.0.lock().close(item.as_arc_borrow());
        }

        fn is_empty(&self) -> bool {
            self.0.lock().is_empty()
        }

        fn finish(&self, batch: &[Place]) -> bool {
            self.0.lock().finish(batch)
        }

        fn restore(&self, batch: &[Place]) -> bool {
            self.0.lock().restore(batch)
        }

        fn drop_closed(&self, batch: &mut KVVec<Place>) -> bool {
            let kept = self.0.lock().drop_closed(batch);
            let before = batch.len();

            batch.truncate(kept);
            kept != before
        }
    }

    fn queue() -> Result<Queue> {
        let queue = new_spinlock_irq!(EventQueue::new(), "tests::Locked");

        Ok(Queue(Arc::pin_init(queue, GFP_KERNEL)?))
    }

    fn take(queue: &Queue, room: usize) -> Result<KVVec<Place>> {
        let mut batch = KVVec::with_capacity(room, GFP_KERNEL)?;

        for _ in 0..room {
            batch.push(None, GFP_KERNEL)?;
        }
        loop {
            let taken = queue.0.lock().take(&mut batch);

            if taken != 0 || queue.is_empty() {
                batch.truncate(taken);
                return Ok(batch);
            }
        }
    }

    /// Reads the oldest record.
    fn read(queue: &Queue) -> Option<Record<Item>> {
        let mut batch = take(queue, 1).ok()?;

        queue.finish(&batch);
        batch.pop()?
    }

    fn add(queue: &Queue, cookie: u64) -> Result<Arc<Item>> {
        Ok(Arc::new(
            Item {
                slots: LockedBy::new(&queue.0, Slots::new()),
                queue: queue.0.clone(),
                cookie,
                time: Atomic::new(0),
                links: Links::new(),
                linked: Linked::new(),
            },
            GFP_KERNEL,
        )?)
    }

    #[test]
    fn empty() -> Result {
        let queue = queue()?;
        let id = add(&queue, 1)?;

        assert!(queue.is_empty());
        assert!(read(&queue).is_none());
        assert_eq!(id.unread(), 0);
        Ok(())
    }

    #[test]
    fn repeated_events_are_one_record() -> Result {
        let queue = queue()?;
        let id = add(&queue, 42)?;

        assert!(queue.post(&id, &event(FIRST, 100)));
        for time in 101..200 {
            assert!(!queue.post(&id, &event(FIRST, time)));
        }
        assert_eq!(id.unread(), 1);

        let record = read(&queue).ok_or(EINVAL)?;

        assert_eq!(
            (record.count, record.first, record.cookie(), record.qpn),
            (100, 100, 42, 0x17)
        );
        assert!(queue.is_empty());
        assert!(queue.post(&id, &event(FIRST, 300)));
        assert_eq!(
            read(&queue).map(|record| (record.count, record.first)),
            Some((1, 300))
        );
        Ok(())
    }

    #[test]
    fn count_stays_at_its_maximum() -> Result {
        let queue = queue()?;
        let id = add(&queue, 0)?;

        queue.post(&id, &event(FIRST, 1));

        let mut batch = take(&queue, 1)?;

        for record in batch.iter_mut().flatten() {
            record.count = u32::MAX - 1;
        }
        queue.restore(&batch);
        queue.post(&id, &event(FIRST, 2));
        queue.post(&id, &event(FIRST, 3));
        assert_eq!(read(&queue).map(|record| record.count), Some(u32::MAX));
        Ok(())
    }

    #[test]
    fn oldest_first_over_registrations_and_kinds() -> Result {
        let queue = queue()?;
        let ids = [add(&queue, 0)?, add(&queue, 1)?, add(&queue, 2)?];

        queue.post(&ids[2], &event(FIRST, 1));
        queue.post(&ids[0], &event(SECOND, 2));
        queue.post(&ids[1], &event(FIRST, 3));
        queue.post(&ids[0], &event(FIRST, 4));
        queue.post(&ids[2], &event(FIRST, 5));
        for (cookie, time) in [(2, 1), (0, 2), (1, 3), (0, 4)] {
            assert_eq!(
                read(&queue).map(|record| (record.cookie(), record.first)),
                Some((cookie, time))
            );
        }
        assert!(read(&queue).is_none());
        Ok(())
    }

    #[test]
    fn closing_discards_only_its_own_records() -> Result {
        let queue = queue()?;
        let ids = [add(&queue, 0)?, add(&queue, 1)?, add(&queue, 2)?];

        for (time, id) in ids.iter().enumerate() {
            queue.post(id, &event(FIRST, time as u64));
            queue.post(id, &event(EventType::QP_GONE, time as u64));
        }
        queue.close(&ids[1]);
        assert!(!queue.post(&ids[1], &event(FIRST, 9)));
        assert_eq!(ids[1].unread(), 0);
        for cookie in [0, 0, 2, 2] {
            assert_eq!(read(&queue).map(|record| record.cookie()), Some(cookie));
        }
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn restored_record_is_the_oldest_and_counts_later_events() -> Result {
        let queue = queue()?;
        let ids = [add(&queue, 0)?, add(&queue, 1)?];

        queue.post(&ids[0], &event(FIRST, 1));

        let batch = take(&queue, 1)?;

        queue.post(&ids[1], &event(FIRST, 2));
        queue.post(&ids[0], &event(FIRST, 3));
        queue.post(&ids[0], &event(FIRST, 4));
        queue.restore(&batch);
        assert_eq!(
            read(&queue).map(|record| (record.cookie(), record.count, record.first)),
            Some((0, 3, 1))
        );
        assert_eq!(read(&queue).map(|record| record.cookie()), Some(1));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn two_readers_put_back_one_record_with_the_first_time() -> Result {
        for first_to_fail in [0, 1] {
            let queue = queue()?;
            let id = add(&queue, 0)?;
            let mut batches = KVVec::with_capacity(2, GFP_KERNEL)?;

            for time in [1, 2] {
                queue.post(&id, &event(FIRST, time));
                batches.push(take(&queue, 1)?, GFP_KERNEL)?;
            }
            queue.restore(&batches[first_to_fail]);
            queue.restore(&batches[1 - first_to_fail]);
            assert_eq!(
                read(&queue).map(|record| (record.count, record.first)),
                Some((2, 1))
            );
            assert!(queue.is_empty());
        }
        Ok(())
    }

    #[test]
    fn records_of_a_registration_that_ends_are_dropped() -> Result {
        let queue = queue()?;
        let ids = [add(&queue, 0)?, add(&queue, 1)?];

        queue.post(&ids[0], &event(FIRST, 1));
        queue.post(&ids[1], &event(FIRST, 2));

        let mut batch = take(&queue, 2)?;

        assert_eq!(batch.len(), 2);
        assert!(!queue.drop_closed(&mut batch));
        queue.close(&ids[0]);
        assert!(queue.drop_closed(&mut batch));
        assert_eq!(batch.len(), 1);
        assert_eq!(batch[0].as_ref().map(|record| record.cookie()), Some(1));
        assert!(!queue.finish(&batch));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn gone_waits_for_records_being_read() -> Result {
        let queue = queue()?;
        let ids = [add(&queue, 0)?, add(&queue, 1)?];

        // QP_GONE is posted later, or before; and its registration ends meanwhile, or does not.
        for there in [false, true] {
            queue.post(&ids[0], &event(FIRST, 1));
            if there {
                queue.post(&ids[0], &event(EventType::QP_GONE, 2));
            }

            let batch = take(&queue, 1)?;

            if !there {
                queue.post(&ids[0], &event(EventType::QP_GONE, 2));
            }
            assert!(read(&queue).is_none());
            assert!(queue.is_empty());
            assert_eq!(ids[0].unread(), 1);
            // Records of other registrations are not delayed.
            queue.post(&ids[1], &event(FIRST, 3));
            assert_eq!(read(&queue).map(|record| record.cookie()), Some(1));
            assert!(queue.restore(&batch));
            for kind in [FIRST, EventType::QP_GONE] {
                assert!(read(&queue).is_some_and(|record| record.kind == kind));
            }
            assert!(queue.is_empty());
        }
        queue.post(&ids[0], &event(FIRST, 1));

        let batch = take(&queue, 1)?;

        queue.post(&ids[0], &event(EventType::QP_GONE, 2));
        assert!(read(&queue).is_none());
        assert!(queue.finish(&batch));
        assert!(read(&queue).is_some_and(|record| record.kind == EventType::QP_GONE));

        queue.post(&ids[0], &event(FIRST, 1));

        let batch = take(&queue, 1)?;

        queue.post(&ids[0], &event(EventType::QP_GONE, 2));
        assert!(read(&queue).is_none());
        queue.close(&ids[0]);
        assert!(!queue.restore(&batch));
        assert!(queue.is_empty());
        Ok(())
    }

    /// Reads all records of one registration, `room` at a time, and returns their kinds.
    fn kinds_in_batches_of(queue: &Queue, room: usize) -> Result<KVVec<EventType>> {
        let mut kinds = KVVec::new();

        loop {
            let batch = take(queue, room)?;

            if batch.is_empty() {
                return Ok(kinds);
            }
            for record in batch.iter().flatten() {
                kinds.push(record.kind, GFP_KERNEL)?;
            }
            queue.finish(&batch);
        }
    }

    #[test]
    fn gone_is_last_however_many_are_read_at_once() -> Result {
        let queue = queue()?;
        let id = add(&queue, 0)?;

        for room in 1..=4 {
            for (time, kind) in [FIRST, SECOND, EventType::QP_GONE].into_iter().enumerate() {
                queue.post(&id, &event(kind, time as u64));
            }

            let kinds = kinds_in_batches_of(&queue, room)?;

            assert!(kinds[..] == [FIRST, SECOND, EventType::QP_GONE]);
            assert!(queue.is_empty());
        }
        Ok(())
    }

    #[test]
    fn gone_comes_after_events_posted_during_a_read() -> Result {
        let queue = queue()?;
        let id = add(&queue, 0)?;

        for with_another_reader in [false, true] {
            queue.post(&id, &event(FIRST, 1));

            let batch = take(&queue, 1)?;

            queue.post(&id, &event(SECOND, 2));
            queue.post(&id, &event(EventType::QP_GONE, 3));
            if with_another_reader {
                assert!(kinds_in_batches_of(&queue, 1)?[..] == [SECOND]);
                assert!(queue.finish(&batch));
                assert!(kinds_in_batches_of(&queue, 1)?[..] == [EventType::QP_GONE]);
            } else {
                queue.finish(&batch);
                assert!(kinds_in_batches_of(&queue, 1)?[..] == [SECOND, EventType::QP_GONE]);
            }
            assert!(queue.is_empty());
        }
        Ok(())
    }

    #[test]
    fn gone_keeps_its_place_among_other_registrations() -> Result {
        let queue = queue()?;
        let ids = [add(&queue, 0)?, add(&queue, 1)?];
        let events = [
            (0, FIRST),
            (1, FIRST),
            (0, EventType::QP_GONE),
            (1, EventType::QP_GONE),
        ];

        for (time, (index, kind)) in events.into_iter().enumerate() {
            queue.post(&ids[index], &event(kind, time as u64));
        }
        for (index, kind) in events {
            assert!(read(&queue)
                .is_some_and(|record| record.cookie() == index as u64 && record.kind == kind));
        }
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn gone_comes_after_records_that_another_reader_puts_back() -> Result {
        let queue = queue()?;
        let id = add(&queue, 0)?;

        queue.post(&id, &event(FIRST, 1));
        queue.post(&id, &event(SECOND, 2));

        let (faults, succeeds) = (take(&queue, 1)?, take(&queue, 1)?);

        queue.post(&id, &event(EventType::QP_GONE, 3));
        assert!(read(&queue).is_none());
        assert!(queue.restore(&faults));
        assert!(!queue.finish(&succeeds));
        assert!(kinds_in_batches_of(&queue, 1)?[..] == [FIRST, EventType::QP_GONE]);
        Ok(())
    }

    #[test]
    fn gone_is_put_back_after_other_records_of_its_reader() -> Result {
        let queue = queue()?;
        let id = add(&queue, 0)?;

        // The reader's record is delivered, or put back as well; or its registration ends.
        for (delivered, kinds) in [
            (true, &[EventType::QP_GONE][..]),
            (false, &[FIRST, EventType::QP_GONE][..]),
        ] {
            queue.post(&id, &event(FIRST, 1));
            queue.post(&id, &event(EventType::QP_GONE, 2));

            let batch = take(&queue, 2)?;

            queue.restore(&batch[1..]);
            assert!(read(&queue).is_none());
            assert_eq!(id.unread(), 1);
            if delivered {
                assert!(queue.finish(&batch[..1]));
            } else {
                assert!(queue.restore(&batch[..1]));
            }
            assert!(kinds_in_batches_of(&queue, 1)?[..] == *kinds);
        }
        queue.post(&id, &event(FIRST, 1));
        queue.post(&id, &event(EventType::QP_GONE, 2));

        let batch = take(&queue, 2)?;

        queue.restore(&batch[1..]);
        queue.close(&id);
        assert!(!queue.restore(&batch[..1]));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn gone_can_be_read_with_earlier_records() -> Result {
        let queue = queue()?;
        let id = add(&queue, 0)?;

        queue.post(&id, &event(FIRST, 1));
        queue.post(&id, &event(EventType::QP_GONE, 2));

        let batch = take(&queue, 2)?;

        assert_eq!(batch.len(), 2);
        queue.finish(&batch[..1]);
        queue.restore(&batch[1..]);
        assert!(read(&queue).is_some_and(|record| record.kind == EventType::QP_GONE));
        assert!(queue.is_empty());
        Ok(())
    }
}
