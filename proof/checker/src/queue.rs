// SPDX-License-Identifier: GPL-2.0

//! The event queue beside a simple one: any sequence of its calls has the same results.

use crate::{
    event::{Event, EventMask, EventType},
    event_queue::{Batch, BATCH},
    subscriber::{EventChannel, Holder, Subscriber},
    uapi::RecordSize,
};
use kernel::{runtime, sync::Arc};
use std::collections::BTreeMap;

const REGISTRATIONS: usize = 4;

/// A record: the registration, the type and number of its events, and the time of the first.
type Record = (usize, EventType, u32, u64);

/// The unread events of a registration, by the index of their type: how many, and the time of the
/// first.
#[derive(Default)]
struct Unread {
    events: BTreeMap<usize, (u32, u64)>,
    is_closed: bool,
    has_gone: bool,
    /// QP_GONE was found while another reader had a record.
    is_withheld: bool,
}

impl Unread {
    /// The next record to read.
    fn next(&self) -> Option<(EventType, u64)> {
        let gone = EventType::QP_GONE.index();
        let others = self.events.iter().filter(|(kind, _)| **kind != gone);
        let oldest = others.min_by_key(|(_, (_, first))| *first);
        let (kind, (_, first)) = match oldest {
            Some(oldest) => oldest,
            None if self.is_withheld => return None,
            None => self.events.get_key_value(&gone)?,
        };

        Some((EventType::from_index(*kind).unwrap(), *first))
    }

    /// Returns whether there was no event of the type.
    fn add(&mut self, kind: EventType, count: u32, first: u64) -> bool {
        let is_new = !self.events.contains_key(&kind.index());
        let event = self.events.entry(kind.index()).or_insert((0, first));

        event.0 += count;
        event.1 = event.1.min(first);
        is_new
    }
}

/// A reader, and what it took.
struct Reader {
    batch: Batch<Subscriber>,
    records: Vec<Record>,
}

/// Both queues.
struct Queues {
    channel: Arc<EventChannel>,
    subscribers: Vec<Arc<Subscriber>>,
    unread: [Unread; REGISTRATIONS],
    readers: Vec<Reader>,
    time: u64,
}

impl Queues {
    fn new() -> Self {
        let channel = EventChannel::new(RecordSize::new(None).unwrap()).unwrap();
        let subscriber = |cookie| {
            let holder = Holder::Kernel(None, EventMask::ALL);

            Subscriber::new(holder, Some(channel.clone()), cookie as u64).unwrap()
        };

        Self {
            subscribers: (0..REGISTRATIONS).map(subscriber).collect(),
            channel,
            unread: Default::default(),
            readers: Vec::new(),
            time: 0,
        }
    }

    fn is_being_read(&self, registration: usize) -> bool {
        let mut records = self.readers.iter().flat_map(|reader| &reader.records);

        records.any(|record| record.0 == registration)
    }

    /// The registration with the oldest record.
    fn oldest(&self) -> Option<usize> {
        let first = |index: &usize| Some(self.unread[*index].next()?.1);
        let queued = (0..REGISTRATIONS).filter(|index| first(index).is_some());

        queued.min_by_key(first)
    }

    fn post(&mut self, registration: usize, kind: EventType, count: u32) {
        let unread = &mut self.unread[registration];

        // It is the last event.
        if unread.has_gone {
            return;
        }
        self.time += 1;
        unread.has_gone = kind == EventType::QP_GONE;

        let event = Event {
            qpn: 1,
            kind,
            count,
            time: self.time,
        };
        let is_new = !unread.is_closed && unread.add(kind, count, self.time);
        let subscriber = &self.subscribers[registration];

        assert_eq!(
            self.channel
                .queue()
                .lock()
                .post(subscriber.as_arc_borrow(), &event),
            is_new
        );
    }

    fn close(&mut self, registration: usize) {
        let unread = &mut self.unread[registration];

        unread.is_closed = true;
        unread.events.clear();
        self.subscribers[registration].cancel();
    }

    /// A reader takes records, if any can be taken.
    fn take(&mut self, places: usize) {
        let mut batch = [const { None }; BATCH];
        let taken = self.channel.queue().lock().take(&mut batch[..places]);
        let mut records = Vec::new();

        for _ in 0..places {
            let Some(registration) = self.oldest() else {
                break;
            };
            let is_read = self.is_being_read(registration);
            let unread = &mut self.unread[registration];
            let (kind, first) = unread.next().unwrap();

            if kind == EventType::QP_GONE && is_read {
                unread.is_withheld = true;
                continue;
            }

            let (count, _) = unread.events.remove(&kind.index()).unwrap();

            records.push((registration, kind, count, first));
        }

        let found: Vec<Record> = batch[..taken]
            .iter()
            .flatten()
            .map(|record| {
                let cookie = record.cookie() as usize;

                (cookie, record.kind, record.count, record.first)
            })
            .collect();

        assert!(found == records, "other records are taken");
        if taken != 0 {
            self.readers.push(Reader { batch, records });
        }
    }

    /// A reader has copied so many records, and puts the others back, as a channel does.
    fn settle(&mut self, reader: usize, copied: usize) {
        if self.readers.is_empty() {
            return;
        }

        let index = reader % self.readers.len();
        let mut reader = self.readers.swap_remove(index);
        let taken = reader.records.len();
        let copied = copied.min(taken);
        let back = reader.records.split_off(copied);
        let mut is_new = self.settled(&back, &reader.records);

        for (registration, kind, count, first) in &back {
            let unread = &mut self.unread[*registration];

            if !unread.is_closed {
                unread.add(*kind, *count, *first);
                is_new = true;
            }
        }

        let channel = self.channel.clone();
        let mut queue = channel.queue().lock();

        assert_eq!(queue.restore(&reader.batch[copied..taken]), is_new);

        let kept = queue.drop_closed(&mut reader.batch[..copied]);
        let exist = |record: &&Record| !self.unread[record.0].is_closed;

        assert_eq!(kept, reader.records.iter().filter(exist).count());

        // Those of registrations that ended are settled by the next call of a reader, or dropped.
        let is_new = self.settled(&reader.records, &[]);

        assert_eq!(queue.finish(&reader.batch[..kept]), is_new);
        drop(queue);
    }

    /// Records are not being read any more, but those of the same reader are. Returns whether there
    /// is a new record.
    fn settled(&mut self, records: &[Record], of_reader: &[Record]) -> bool {
        let mut is_new = false;

        for (registration, ..) in records {
            let is_read = self.is_being_read(*registration)
                || of_reader.iter().any(|record| record.0 == *registration);
            let unread = &mut self.unread[*registration];
            let was_queued = unread.next().is_some();

            if !is_read && std::mem::take(&mut unread.is_withheld) {
                is_new |= !was_queued && unread.next().is_some();
            }
        }
        is_new
    }
}

/// Calls the queue as the bytes say, two for a call.
pub fn check(calls: &[u8]) {
    let calls = calls.to_vec();

    runtime::test(move || {
        let mut queues = Queues::new();

        for call in calls.chunks_exact(2) {
            let (high, low) = (usize::from(call[1] >> 4), usize::from(call[1] & 15));
            let registration = high % REGISTRATIONS;

            match call[0] % 8 {
                0..3 => {
                    let kind = EventType::from_index(low % 3).unwrap();

                    queues.post(registration, kind, 1 + u32::from(call[0] >> 4));
                }
                3 => queues.post(registration, EventType::QP_GONE, 1),
                4 | 5 => queues.take(1 + low),
                6 => queues.settle(high, low),
                _ if low == 0 => queues.close(registration),
                _ => queues.settle(high, BATCH),
            }
            assert_eq!(
                queues.channel.queue().lock().is_empty(),
                queues.oldest().is_none()
            );
        }
        while !queues.readers.is_empty() {
            queues.settle(0, BATCH);
        }
        // All that is left can be read.
        while queues.oldest().is_some() {
            queues.take(BATCH);
            queues.settle(0, BATCH);
        }
        for subscriber in &queues.subscribers {
            subscriber.cancel();
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn any_calls_have_the_results_of_a_simple_queue(calls in any_calls()) {
            super::check(&calls);
        }
    }

    #[test]
    fn the_corpus_of_the_fuzzer_is_replayed() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/queue/corpus");
        let mut files = 0;

        for file in std::fs::read_dir(corpus).unwrap() {
            super::check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert_ne!(files, 0);
    }

    fn any_calls() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..400)
    }
}
