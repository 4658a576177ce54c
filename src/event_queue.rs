// SPDX-License-Identifier: GPL-2.0

//! The unread events of an event channel.
//!
//! For each registration on the channel there is one *slot* per kind of event, allocated with the
//! registration. An event that happens again before it is read only counts up in its slot, so the
//! queue needs memory for what is registered and not for what happens: [`post`](EventQueue::post)
//! allocates nothing, takes constant time, and cannot fail. Slots with something in them form a
//! list, oldest first.
//!
//! To read a record takes a copy to user space, which can sleep for as long as the reader likes, and
//! can fail. So it is done in two steps. [`take`](EventQueue::take) takes records out of the list; their
//! registrations *are being read* until [`finish`](EventQueue::finish) or
//! [`restore`](EventQueue::restore). Meanwhile registrations may go, and events may come. The one that
//! has to be the last of its registration keeps its place in the list. If it is the oldest there while
//! somebody else reads one before it, it is *withheld*: taken out of the list until all those before it
//! are read, and the oldest again then.
//!
//! Owned by an [`EventChannel`](crate::event_channel::EventChannel), whose lock guards it.
//! Nothing in here sleeps, and what frees memory hands it to the caller, who does so without the
//! lock.

use crate::event::{
    Event,
    EventType, //
};
use core::mem::replace;
use kernel::prelude::*;

/// Room for registrations.
pub(crate) type Table = KVVec<Entry>;

/// An entry of the [`Table`].
pub(crate) enum Entry {
    /// A registration's slots.
    Used(KBox<Slots>),
    /// Free, and so is the one it names.
    Free(Option<u32>),
}

/// The slots of one registration.
pub(crate) struct Slots {
    cookie: u64,
    generation: u64,
    /// How many of its records are being read.
    being_read: u32,
    /// By which [`take`](EventQueue::take) all of these were taken, or [`SEVERAL`].
    reader: u64,
    /// That it is gone is unread, but not in the list: others before it are unread or being read.
    gone_is_withheld: bool,
    slots: [Slot; EventType::COUNT],
}

/// More than one [`take`](EventQueue::take).
const SEVERAL: u64 = 0;

/// Unread events of one kind: in the list exactly if `count` is not 0, unless withheld.
#[derive(Clone, Copy)]
struct Slot {
    qpn: u32,
    count: u32,
    first: u64,
    previous: Option<Place>,
    next: Option<Place>,
}

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    entry: u32,
    kind: EventType,
}

/// Names the slots of a registration, for as long as they are in the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotsId {
    entry: u32,
    generation: u64,
}

/// Events of one kind for one registration, taken out of the queue.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    slots: SlotsId,
    pub(crate) kind: EventType,
    pub(crate) cookie: u64,
    pub(crate) qpn: u32,
    pub(crate) count: u32,
    pub(crate) first: u64,
}

impl SlotsId {
    fn place(self, kind: EventType) -> Place {
        Place {
            entry: self.entry,
            kind,
        }
    }
}

impl Slots {
    /// Allocates the slots of a registration.
    pub(crate) fn new(cookie: u64) -> Result<KBox<Self>> {
        const EMPTY: Slot = Slot {
            qpn: 0,
            count: 0,
            first: 0,
            previous: None,
            next: None,
        };
        let slots = Self {
            cookie,
            generation: 0,
            being_read: 0,
            reader: SEVERAL,
            gone_is_withheld: false,
            slots: [EMPTY; EventType::COUNT],
        };

        Ok(KBox::new(slots, GFP_KERNEL_ACCOUNT)?)
    }

    fn unread(&self) -> usize {
        self.slots.iter().filter(|slot| slot.count != 0).count()
    }
}

/// See the [module's documentation](self).
pub(crate) struct EventQueue {
    table: Table,
    free: Option<u32>,
    generation: u64,
    /// How often records were taken.
    takes: u64,
    oldest: Option<Place>,
    newest: Option<Place>,
}

impl EventQueue {
    /// An empty queue without room.
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            free: None,
            generation: 0,
            takes: 0,
            oldest: None,
            newest: None,
        }
    }

    /// Whether there is nothing to read. If there is, it may be what [`take`](Self::take) withholds.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.is_none()
    }

    /// How many registrations there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Moves to a bigger table, and returns the old one. Does nothing if `table` is not bigger.
    pub(crate) fn grow(&mut self, mut table: Table) -> Table {
        if table.capacity() <= self.table.capacity() {
            return table;
        }
        for entry in self.table.drain_all() {
            if table.push_within_capacity(entry).is_err() {
                unreachable_entry();
            }
        }
        replace(&mut self.table, table)
    }

    /// Adds the slots of a registration, or gives them back if there is no room.
    pub(crate) fn insert(&mut self, mut slots: KBox<Slots>) -> Result<SlotsId, KBox<Slots>> {
        self.generation = self.generation.wrapping_add(1);
        slots.generation = self.generation;

        let entry = match self.free {
            Some(index) => {
                let Some(entry) = self.table.get_mut(index as usize) else {
                    return Err(slots);
                };

                if let Entry::Free(next) = replace(entry, Entry::Used(slots)) {
                    self.free = next;
                }
                index
            }
            None => {
                let index = self.table.len();

                if index >= self.table.capacity() || index >= u32::MAX as usize {
                    return Err(slots);
                }
                if self.table.push_within_capacity(Entry::Used(slots)).is_err() {
                    unreachable_entry();
                }
                index as u32
            }
        };

        Ok(SlotsId {
            entry,
            generation: self.generation,
        })
    }

    /// Takes the slots of a registration out, with all that is unread in them.
    pub(crate) fn remove(&mut self, id: SlotsId) -> Option<KBox<Slots>> {
        self.slots(id)?;

        for index in 0..EventType::COUNT {
            let Some(kind) = EventType::from_index(index) else {
                continue;
            };

            self.clear(id.place(kind));
        }

        let free = self.free.replace(id.entry);
        let entry = self.table.get_mut(id.entry as usize)?;

        match replace(entry, Entry::Free(free)) {
            Entry::Used(slots) => Some(slots),
            Entry::Free(_) => None,
        }
    }

    /// Adds an event for a registration. Returns whether there is a new record to read.
    pub(crate) fn post(&mut self, id: SlotsId, event: &Event) -> bool {
        if self.slots(id).is_none() {
            return false;
        }

        let place = id.place(event.kind);
        let Some(slot) = self.slot(place) else {
            return false;
        };
        let new = slot.count == 0;

        slot.count = slot.count.saturating_add(1);
        if new {
            slot.qpn = event.qpn;
            slot.first = event.time;
            self.append(place);
        }
        new
    }

    /// Takes up to `max` of the oldest records out, for which `batch` has room. They are being read
    /// from now on.
    ///
    /// Those that are withheld count too, so that the time that this takes is bounded: nothing is left
    /// to read only if the queue [is empty](Self::is_empty).
    pub(crate) fn take(&mut self, batch: &mut KVVec<Record>, max: usize) {
        self.takes = self.takes.wrapping_add(1);
        for _ in batch.len()..max.min(batch.capacity()) {
            let Some(place) = self.oldest else {
                break;
            };
            let Some(record) = self.pop(place) else {
                continue;
            };

            if batch.push_within_capacity(record).is_err() {
                unreachable_entry();
            }
        }
    }

    /// Takes the records of registrations that are gone out of `batch`. Returns whether there were
    /// any.
    pub(crate) fn drop_gone(&mut self, batch: &mut KVVec<Record>) -> bool {
        let before = batch.len();

        batch.retain(|record| self.slots(record.slots).is_some());
        batch.len() != before
    }

    /// The records were delivered. Returns whether there is a new record to read.
    pub(crate) fn finish(&mut self, batch: &[Record]) -> bool {
        let mut new = false;

        for record in batch {
            let Some(slots) = self.slots(record.slots) else {
                continue;
            };

            slots.being_read = slots.being_read.saturating_sub(1);
            if slots.gone_is_withheld && slots.being_read == 0 && slots.unread() == 1 {
                slots.gone_is_withheld = false;
                self.prepend(record.slots.place(EventType::QP_GONE));
                new = true;
            }
        }
        new
    }

    /// Puts records back that could not be delivered, unless their registration is gone. They are
    /// the oldest again. Returns whether there is a new record to read.
    pub(crate) fn restore(&mut self, batch: &[Record]) -> bool {
        // What is withheld comes after them.
        let mut new = self.finish(batch);

        for record in batch.iter().rev() {
            let place = record.slots.place(record.kind);

            if self.slots(record.slots).is_none() {
                continue;
            }

            let since = self.clear(place);

            if let Some(slot) = self.slot(place) {
                slot.qpn = record.qpn;
                slot.count = record.count.saturating_add(since);
                // What came since can be what another reader has put back, and older.
                slot.first = match since {
                    0 => record.first,
                    _ => record.first.min(slot.first),
                };
            }
            self.prepend(place);
            new = true;
        }
        new
    }

    /// Takes the oldest record out of the list. None if it is withheld from now on.
    fn pop(&mut self, place: Place) -> Option<Record> {
        self.unlink(place);

        let Some(Entry::Used(slots)) = self.table.get_mut(place.entry as usize) else {
            return None;
        };
        let slots: &mut Slots = slots;
        let others_read = slots.being_read != 0 && slots.reader != self.takes;

        if place.kind == EventType::QP_GONE && others_read {
            slots.gone_is_withheld = true;
            return None;
        }
        slots.being_read = slots.being_read.saturating_add(1);
        slots.reader = if others_read { SEVERAL } else { self.takes };

        let slot = slots.slots.get_mut(place.kind.index())?;

        Some(Record {
            slots: SlotsId {
                entry: place.entry,
                generation: slots.generation,
            },
            kind: place.kind,
            cookie: slots.cookie,
            qpn: slot.qpn,
            count: replace(&mut slot.count, 0),
            first: slot.first,
        })
    }

    /// How many records of a registration are unread.
    pub(crate) fn unread(&self, id: SlotsId) -> usize {
        match self.table.get(id.entry as usize) {
            Some(Entry::Used(slots)) if slots.generation == id.generation => slots.unread(),
            _ => 0,
        }
    }

    fn slots(&mut self, id: SlotsId) -> Option<&mut Slots> {
        match self.table.get_mut(id.entry as usize) {
            Some(Entry::Used(slots)) if slots.generation == id.generation => Some(slots),
            _ => None,
        }
    }

    fn slot(&mut self, place: Place) -> Option<&mut Slot> {
        match self.table.get_mut(place.entry as usize) {
            Some(Entry::Used(slots)) => slots.slots.get_mut(place.kind.index()),
            _ => None,
        }
    }

    fn set_next(&mut self, of: Option<Place>, next: Option<Place>) {
        match of {
            Some(place) => {
                if let Some(slot) = self.slot(place) {
                    slot.next = next;
                }
            }
            None => self.oldest = next,
        }
    }

    fn set_previous(&mut self, of: Option<Place>, previous: Option<Place>) {
        match of {
            Some(place) => {
                if let Some(slot) = self.slot(place) {
                    slot.previous = previous;
                }
            }
            None => self.newest = previous,
        }
    }

    fn link(&mut self, place: Place, previous: Option<Place>, next: Option<Place>) {
        if let Some(slot) = self.slot(place) {
            slot.previous = previous;
            slot.next = next;
        }
        self.set_next(previous, Some(place));
        self.set_previous(next, Some(place));
    }

    fn append(&mut self, place: Place) {
        self.link(place, self.newest, None);
    }

    fn prepend(&mut self, place: Place) {
        self.link(place, None, self.oldest);
    }

    /// Empties a slot, whether it is in the list or withheld. Returns how many events it had.
    fn clear(&mut self, place: Place) -> u32 {
        let Some(Entry::Used(slots)) = self.table.get_mut(place.entry as usize) else {
            return 0;
        };
        let withheld =
            place.kind == EventType::QP_GONE && replace(&mut slots.gone_is_withheld, false);
        let Some(slot) = slots.slots.get_mut(place.kind.index()) else {
            return 0;
        };
        let count = replace(&mut slot.count, 0);

        if count != 0 && !withheld {
            self.unlink(place);
        }
        count
    }

    /// Takes a slot out of the list.
    fn unlink(&mut self, place: Place) {
        let Some(slot) = self.slot(place) else {
            return;
        };
        let (previous, next) = (slot.previous.take(), slot.next.take());

        self.set_next(previous, next);
        self.set_previous(next, previous);
    }
}

/// A table had no room though it said so.
#[cold]
fn unreachable_entry() {
    pr_err!("event queue: entry without room\n");
}

#[kunit_tests(ib_xrc_rcv_event_queue)]
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

    fn event(kind: EventType, time: u64) -> Event {
        Event {
            qpn: 0x17,
            kind,
            time,
        }
    }

    fn queue(room: usize) -> Result<EventQueue> {
        let mut queue = EventQueue::new();

        drop(queue.grow(Table::with_capacity(room, GFP_KERNEL)?));
        Ok(queue)
    }

    fn take(queue: &mut EventQueue, room: usize) -> Result<KVVec<Record>> {
        let mut batch = KVVec::with_capacity(room, GFP_KERNEL)?;

        loop {
            queue.take(&mut batch, room);
            if !batch.is_empty() || queue.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Reads the oldest record.
    fn read(queue: &mut EventQueue) -> Option<Record> {
        let batch = take(queue, 1).ok()?;

        queue.finish(&batch);
        batch.first().copied()
    }

    fn add(queue: &mut EventQueue, cookie: u64) -> Result<SlotsId> {
        queue.insert(Slots::new(cookie)?).map_err(|_| ENOSPC)
    }

    #[test]
    fn empty() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 1)?;

        assert!(queue.is_empty());
        assert!(read(&mut queue).is_none());
        assert_eq!(queue.unread(id), 0);
        Ok(())
    }

    #[test]
    fn no_room() -> Result {
        let mut queue = EventQueue::new();

        assert!(add(&mut queue, 1).is_err());
        Ok(())
    }

    #[test]
    fn repeated_events_are_one_record() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 42)?;

        assert!(queue.post(id, &event(FIRST, 100)));
        for time in 101..200 {
            assert!(!queue.post(id, &event(FIRST, time)));
        }
        assert_eq!(queue.unread(id), 1);

        let record = read(&mut queue).ok_or(EINVAL)?;

        assert_eq!(
            (record.count, record.first, record.cookie, record.qpn),
            (100, 100, 42, 0x17)
        );
        assert!(queue.is_empty());
        assert!(queue.post(id, &event(FIRST, 300)));
        assert_eq!(
            read(&mut queue).map(|record| (record.count, record.first)),
            Some((1, 300))
        );
        Ok(())
    }

    #[test]
    fn count_stays_at_its_maximum() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 0)?;

        queue.post(id, &event(FIRST, 1));

        let mut batch = take(&mut queue, 1)?;

        batch[0].count = u32::MAX - 1;
        queue.restore(&batch);
        queue.post(id, &event(FIRST, 2));
        queue.post(id, &event(FIRST, 3));
        assert_eq!(read(&mut queue).map(|record| record.count), Some(u32::MAX));
        Ok(())
    }

    #[test]
    fn oldest_first_over_registrations_and_kinds() -> Result {
        let mut queue = queue(3)?;
        let ids = [
            add(&mut queue, 0)?,
            add(&mut queue, 1)?,
            add(&mut queue, 2)?,
        ];

        queue.post(ids[2], &event(FIRST, 1));
        queue.post(ids[0], &event(EventType::QP_GONE, 2));
        queue.post(ids[1], &event(FIRST, 3));
        queue.post(ids[0], &event(FIRST, 4));
        queue.post(ids[2], &event(FIRST, 5));
        for (cookie, time) in [(2, 1), (0, 2), (1, 3), (0, 4)] {
            assert_eq!(
                read(&mut queue).map(|record| (record.cookie, record.first)),
                Some((cookie, time))
            );
        }
        assert!(read(&mut queue).is_none());
        Ok(())
    }

    #[test]
    fn removal_takes_only_its_own() -> Result {
        let mut queue = queue(3)?;
        let ids = [
            add(&mut queue, 0)?,
            add(&mut queue, 1)?,
            add(&mut queue, 2)?,
        ];

        for (time, id) in ids.iter().enumerate() {
            queue.post(*id, &event(FIRST, time as u64));
            queue.post(*id, &event(EventType::QP_GONE, time as u64));
        }
        assert!(queue.remove(ids[1]).is_some());
        assert!(queue.remove(ids[1]).is_none());
        assert!(!queue.post(ids[1], &event(FIRST, 9)));
        assert_eq!(queue.unread(ids[1]), 0);
        for cookie in [0, 0, 2, 2] {
            assert_eq!(read(&mut queue).map(|record| record.cookie), Some(cookie));
        }
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn places_are_used_again_but_not_mixed_up() -> Result {
        let mut queue = queue(1)?;
        let old = add(&mut queue, 1)?;

        queue.post(old, &event(FIRST, 1));

        let batch = take(&mut queue, 1)?;

        drop(queue.remove(old));

        let new = add(&mut queue, 2)?;

        assert_eq!(new.entry, old.entry);
        assert!(!queue.post(old, &event(FIRST, 2)));
        queue.restore(&batch);
        assert!(queue.is_empty());
        assert!(queue.remove(old).is_none());
        queue.post(new, &event(FIRST, 3));
        assert_eq!(read(&mut queue).map(|record| record.cookie), Some(2));
        Ok(())
    }

    #[test]
    fn restored_record_is_the_oldest_and_counts_what_came_since() -> Result {
        let mut queue = queue(2)?;
        let ids = [add(&mut queue, 0)?, add(&mut queue, 1)?];

        queue.post(ids[0], &event(FIRST, 1));

        let batch = take(&mut queue, 1)?;

        queue.post(ids[1], &event(FIRST, 2));
        queue.post(ids[0], &event(FIRST, 3));
        queue.post(ids[0], &event(FIRST, 4));
        queue.restore(&batch);
        assert_eq!(
            read(&mut queue).map(|record| (record.cookie, record.count, record.first)),
            Some((0, 3, 1))
        );
        assert_eq!(read(&mut queue).map(|record| record.cookie), Some(1));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn two_readers_put_back_one_record_with_the_first_time() -> Result {
        for first_to_fail in [0, 1] {
            let mut queue = queue(1)?;
            let id = add(&mut queue, 0)?;
            let mut batches = KVVec::with_capacity(2, GFP_KERNEL)?;

            for time in [1, 2] {
                queue.post(id, &event(FIRST, time));
                batches.push(take(&mut queue, 1)?, GFP_KERNEL)?;
            }
            queue.restore(&batches[first_to_fail]);
            queue.restore(&batches[1 - first_to_fail]);
            assert_eq!(
                read(&mut queue).map(|record| (record.count, record.first)),
                Some((2, 1))
            );
            assert!(queue.is_empty());
        }
        Ok(())
    }

    #[test]
    fn what_is_read_of_a_registration_that_goes_is_dropped() -> Result {
        let mut queue = queue(2)?;
        let ids = [add(&mut queue, 0)?, add(&mut queue, 1)?];

        queue.post(ids[0], &event(FIRST, 1));
        queue.post(ids[1], &event(FIRST, 2));

        let mut batch = take(&mut queue, 2)?;

        assert_eq!(batch.len(), 2);
        assert!(!queue.drop_gone(&mut batch));
        drop(queue.remove(ids[0]));
        assert!(queue.drop_gone(&mut batch));
        assert_eq!(batch.len(), 1);
        assert_eq!(batch[0].cookie, 1);
        assert!(!queue.finish(&batch));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn gone_waits_for_what_is_being_read() -> Result {
        let mut queue = queue(2)?;
        let ids = [add(&mut queue, 0)?, add(&mut queue, 1)?];

        // It comes later, or is there already; and its registration goes meanwhile, or does not.
        for there in [false, true] {
            queue.post(ids[0], &event(FIRST, 1));
            if there {
                queue.post(ids[0], &event(EventType::QP_GONE, 2));
            }

            let batch = take(&mut queue, 1)?;

            if !there {
                queue.post(ids[0], &event(EventType::QP_GONE, 2));
            }
            assert!(read(&mut queue).is_none());
            assert!(queue.is_empty());
            assert_eq!(queue.unread(ids[0]), 1);
            // Nobody else is held up.
            queue.post(ids[1], &event(FIRST, 3));
            assert_eq!(read(&mut queue).map(|record| record.cookie), Some(1));
            assert!(queue.restore(&batch));
            for kind in [FIRST, EventType::QP_GONE] {
                assert!(read(&mut queue).is_some_and(|record| record.kind == kind));
            }
            assert!(queue.is_empty());
        }
        queue.post(ids[0], &event(FIRST, 1));

        let batch = take(&mut queue, 1)?;

        queue.post(ids[0], &event(EventType::QP_GONE, 2));
        assert!(read(&mut queue).is_none());
        assert!(queue.finish(&batch));
        assert!(read(&mut queue).is_some_and(|record| record.kind == EventType::QP_GONE));

        queue.post(ids[0], &event(FIRST, 1));

        let batch = take(&mut queue, 1)?;

        queue.post(ids[0], &event(EventType::QP_GONE, 2));
        assert!(read(&mut queue).is_none());
        assert!(queue.remove(ids[0]).is_some());
        assert!(!queue.restore(&batch));
        assert!(queue.is_empty());
        Ok(())
    }

    /// What one reader gets of one registration, which reads so many records at a time.
    fn kinds_in_batches_of(queue: &mut EventQueue, room: usize) -> Result<KVVec<EventType>> {
        let mut kinds = KVVec::new();

        loop {
            let batch = take(queue, room)?;

            if batch.is_empty() {
                return Ok(kinds);
            }
            for record in &batch {
                kinds.push(record.kind, GFP_KERNEL)?;
            }
            queue.finish(&batch);
        }
    }

    #[test]
    fn gone_is_last_however_many_are_read_at_once() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 0)?;

        for room in 1..=4 {
            for (time, kind) in [FIRST, SECOND, EventType::QP_GONE].into_iter().enumerate() {
                queue.post(id, &event(kind, time as u64));
            }

            let kinds = kinds_in_batches_of(&mut queue, room)?;

            assert!(kinds[..] == [FIRST, SECOND, EventType::QP_GONE]);
            assert!(queue.is_empty());
        }
        Ok(())
    }

    #[test]
    fn gone_comes_after_what_was_posted_during_a_read() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 0)?;

        for with_another_reader in [false, true] {
            queue.post(id, &event(FIRST, 1));

            let batch = take(&mut queue, 1)?;

            queue.post(id, &event(SECOND, 2));
            queue.post(id, &event(EventType::QP_GONE, 3));
            if with_another_reader {
                assert!(kinds_in_batches_of(&mut queue, 1)?[..] == [SECOND]);
                assert!(queue.finish(&batch));
                assert!(kinds_in_batches_of(&mut queue, 1)?[..] == [EventType::QP_GONE]);
            } else {
                queue.finish(&batch);
                assert!(kinds_in_batches_of(&mut queue, 1)?[..] == [SECOND, EventType::QP_GONE]);
            }
            assert!(queue.is_empty());
        }
        Ok(())
    }

    #[test]
    fn gone_keeps_its_place_among_other_registrations() -> Result {
        let mut queue = queue(2)?;
        let ids = [add(&mut queue, 0)?, add(&mut queue, 1)?];
        let events = [
            (0, FIRST),
            (1, FIRST),
            (0, EventType::QP_GONE),
            (1, EventType::QP_GONE),
        ];

        for (time, (index, kind)) in events.into_iter().enumerate() {
            queue.post(ids[index], &event(kind, time as u64));
        }
        for (index, kind) in events {
            assert!(read(&mut queue)
                .is_some_and(|record| record.cookie == index as u64 && record.kind == kind));
        }
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn gone_comes_after_what_another_reader_puts_back() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 0)?;

        queue.post(id, &event(FIRST, 1));
        queue.post(id, &event(SECOND, 2));

        let (faults, succeeds) = (take(&mut queue, 1)?, take(&mut queue, 1)?);

        queue.post(id, &event(EventType::QP_GONE, 3));
        assert!(read(&mut queue).is_none());
        assert!(queue.restore(&faults));
        assert!(!queue.finish(&succeeds));
        assert!(kinds_in_batches_of(&mut queue, 1)?[..] == [FIRST, EventType::QP_GONE]);
        Ok(())
    }

    #[test]
    fn gone_is_put_back_after_what_its_reader_still_has() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 0)?;

        // What its reader has is delivered, or put back as well; or its registration goes.
        for (delivered, kinds) in [
            (true, &[EventType::QP_GONE][..]),
            (false, &[FIRST, EventType::QP_GONE][..]),
        ] {
            queue.post(id, &event(FIRST, 1));
            queue.post(id, &event(EventType::QP_GONE, 2));

            let batch = take(&mut queue, 2)?;

            queue.restore(&batch[1..]);
            assert!(read(&mut queue).is_none());
            assert_eq!(queue.unread(id), 1);
            if delivered {
                assert!(queue.finish(&batch[..1]));
            } else {
                assert!(queue.restore(&batch[..1]));
            }
            assert!(kinds_in_batches_of(&mut queue, 1)?[..] == *kinds);
        }
        queue.post(id, &event(FIRST, 1));
        queue.post(id, &event(EventType::QP_GONE, 2));

        let batch = take(&mut queue, 2)?;

        queue.restore(&batch[1..]);
        assert!(queue.remove(id).is_some());
        assert!(!queue.restore(&batch[..1]));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn gone_can_be_read_with_what_comes_before() -> Result {
        let mut queue = queue(1)?;
        let id = add(&mut queue, 0)?;

        queue.post(id, &event(FIRST, 1));
        queue.post(id, &event(EventType::QP_GONE, 2));

        let batch = take(&mut queue, 2)?;

        assert_eq!(batch.len(), 2);
        queue.finish(&batch[..1]);
        queue.restore(&batch[1..]);
        assert!(read(&mut queue).is_some_and(|record| record.kind == EventType::QP_GONE));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn growing_keeps_everything() -> Result {
        let mut queue = queue(1)?;
        let first = add(&mut queue, 1)?;

        queue.post(first, &event(FIRST, 1));
        drop(queue.grow(Table::with_capacity(queue.capacity() + 1, GFP_KERNEL)?));

        let second = add(&mut queue, 2)?;

        queue.post(second, &event(FIRST, 2));
        queue.post(first, &event(FIRST, 3));
        assert_eq!(
            read(&mut queue).map(|record| (record.cookie, record.count)),
            Some((1, 2))
        );
        assert_eq!(
            read(&mut queue).map(|record| (record.cookie, record.count)),
            Some((2, 1))
        );
        assert!(queue.remove(first).is_some());
        assert!(queue.remove(second).is_some());
        Ok(())
    }
}
