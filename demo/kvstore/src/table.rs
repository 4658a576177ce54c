// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The table in memory: what its words mean to the server, and to clients that have read some of
//! them.
//!
//! First a word that counts the servers and what they know of the [`Kept`] objects, then a [`Slot`]
//! for each client, then two [`Record`]s for each key. A record is written over the older one of
//! the two, so that one is whole at any time, whenever the server is killed.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use xrc_rcv::verbs::{Memory, Remote};

/// Numbers of clients are below it.
pub(crate) const CLIENTS: u64 = 128;
/// A client puts the keys `KEYS_OF_CLIENT * client` and so on, and gets all.
pub(crate) const KEYS_OF_CLIENT: u64 = 4;
pub(crate) const KEYS: u64 = CLIENTS * KEYS_OF_CLIENT;
/// PUTs of a client that may be unanswered at a time: as many receives are posted for it.
pub(crate) const CREDITS: u64 = 4;

pub(crate) const SLOT: usize = 8;
pub(crate) const RECORD: usize = 32;
const KEPT: Range<usize> = 1..5;
const SLOTS: usize = 8;
const ENTRIES: usize = SLOTS + CLIENTS as usize * SLOT;
pub(crate) const WORDS: usize = ENTRIES + 2 * KEYS as usize * RECORD;

/// The words of the table that are a client's slot.
pub(crate) fn slot_of(client: u64) -> Range<usize> {
    let begin = SLOTS + client as usize * SLOT;
    begin..begin + SLOT
}

/// The words of the table that are a key's two records.
pub(crate) fn entry_of(key: u64) -> Range<usize> {
    let begin = ENTRIES + key as usize * 2 * RECORD;
    begin..begin + 2 * RECORD
}

/// A hash, by which words that were read while they were written are recognized.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

fn load<const N: usize>(from: &[AtomicU64]) -> [u64; N] {
    std::array::from_fn(|i| from[i].load(Acquire))
}

fn store(to: &[AtomicU64], words: &[u64]) {
    for (to, word) in to.iter().zip(words) {
        to.store(*word, Release);
    }
}

/// The SRQ that clients' messages name and the server that it belongs to, and the table with the
/// SRQ that reads of it name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) generation: u64,
    pub(crate) srq_num: u32,
    pub(crate) table: Remote,
    pub(crate) table_srq: u32,
}

impl Target {
    /// Whether reads of the table are the same requests with both.
    pub(crate) fn reads_like(&self, other: &Target) -> bool {
        (self.table, self.table_srq) == (other.table, other.table_srq)
    }
}

/// Objects that each server leaves to the next as they are: the numbers by which it imports the PD
/// and the region, the address of the region, and the SRQ that gives access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) pd: u32,
    pub(crate) region: u32,
    pub(crate) address: u64,
    pub(crate) srq_num: u32,
}

/// A client's slot of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The number of the last message that was answered.
    pub(crate) answered: u64,
    /// The number of its receive QP; 0 if it has none.
    pub(crate) qp_num: u32,
    /// The target of its requests.
    pub(crate) target: Target,
    /// The newest server that has got a message from it: it names nothing of those before.
    pub(crate) confirmed: u64,
}

impl Slot {
    fn words(&self) -> [u64; SLOT] {
        let Target {
            generation,
            srq_num,
            table,
            table_srq,
        } = self.target;
        let mut words = [
            self.answered,
            self.qp_num.into(),
            generation,
            (u64::from(table_srq) << 32) | u64::from(srq_num),
            table.address,
            table.key.into(),
            self.confirmed,
            0,
        ];
        words[SLOT - 1] = hash(&words[..SLOT - 1]);
        words
    }

    fn from_words(words: [u64; SLOT]) -> Slot {
        Slot {
            answered: words[0],
            qp_num: words[1] as u32,
            target: Target {
                generation: words[2],
                srq_num: words[3] as u32,
                table: Remote {
                    address: words[4],
                    key: words[5] as u32,
                },
                table_srq: (words[3] >> 32) as u32,
            },
            confirmed: words[6],
        }
    }

    /// The slot in those words; `None` if it was being written.
    pub(crate) fn read(from: &[AtomicU64]) -> Option<Slot> {
        let words = load(from);
        let slot = Slot::from_words(words);
        (slot.words() == words).then_some(slot)
    }
}

/// A key that no record has: a message without a value.
pub(crate) const NOTHING: u64 = u64::MAX;

/// A value: number of the client and of its message, key, and words that follow from them; also the
/// message that puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record([u64; RECORD]);

impl Record {
    pub(crate) fn new(client: u64, number: u64, key: u64) -> Record {
        let seed = hash(&[client, number, key]);
        let mut words: [u64; RECORD] = std::array::from_fn(|i| hash(&[seed, i as u64]));
        words[..3].copy_from_slice(&[client, number, key]);
        words[RECORD - 1] = hash(&words[..RECORD - 1]);
        Record(words)
    }

    pub(crate) fn client(&self) -> u64 {
        self.0[0]
    }

    pub(crate) fn number(&self) -> u64 {
        self.0[1]
    }

    pub(crate) fn key(&self) -> u64 {
        self.0[2]
    }

    /// Whether every word is the one that the client has put.
    pub(crate) fn is_true(&self) -> bool {
        *self == Record::new(self.client(), self.number(), self.key())
    }

    fn checked(words: [u64; RECORD]) -> Option<Record> {
        (words[RECORD - 1] == hash(&words[..RECORD - 1])).then_some(Record(words))
    }

    pub(crate) fn from_message(message: &[u8]) -> Option<Record> {
        let mut words = [0; RECORD];
        let chunks = message.chunks_exact(8);
        if chunks.len() != RECORD || !chunks.remainder().is_empty() {
            return None;
        }
        for (word, bytes) in words.iter_mut().zip(chunks) {
            *word = u64::from_ne_bytes(bytes.try_into().ok()?);
        }
        Record::checked(words)
    }

    pub(crate) fn write(&self, to: &[AtomicU64]) {
        store(to, &self.0);
    }
}

/// Both records of a key were being written while they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torn;

/// The newer one of the two records of a key; `None` if it was never put.
pub(crate) fn newer(from: &[AtomicU64]) -> Result<Option<Record>, Torn> {
    let (first, second) = from.split_at(RECORD);
    let words: [[u64; RECORD]; 2] = [load(first), load(second)];
    let newer = words
        .into_iter()
        .filter_map(Record::checked)
        .max_by_key(Record::number);
    // The last word of the first record is the last that the first PUT writes.
    if newer.is_none() && words[0][RECORD - 1] != 0 {
        return Err(Torn);
    }
    Ok(newer)
}

/// The server's view.
pub(crate) struct Table<'memory>(pub(crate) &'memory Memory);

impl Table<'_> {
    /// Counts a server that starts, and returns its number.
    pub(crate) fn next_generation(&self) -> u64 {
        self.0[0].fetch_add(1, Relaxed) + 1
    }

    /// Those of the first server.
    pub(crate) fn kept(&self) -> Kept {
        let words: [u64; 4] = load(&self.0[KEPT]);
        Kept {
            pd: words[0] as u32,
            region: words[1] as u32,
            address: words[2],
            srq_num: words[3] as u32,
        }
    }

    pub(crate) fn set_kept(&self, kept: Kept) {
        let Kept {
            pd,
            region,
            address,
            srq_num,
        } = kept;
        let words = [pd.into(), region.into(), address, srq_num.into()];
        store(&self.0[KEPT], &words);
    }

    /// The slot of a client. If a server was killed while it wrote it, each field is the old or the
    /// new one.
    pub(crate) fn slot(&self, client: u64) -> Slot {
        Slot::from_words(load(&self.0[slot_of(client)]))
    }

    pub(crate) fn set_slot(&self, client: u64, slot: Slot) {
        store(&self.0[slot_of(client)], &slot.words());
    }

    /// Does what a message says, once: it may come again, from a client that got no answer. Returns
    /// whether the client has changed over to this server by it.
    pub(crate) fn apply(&self, record: &Record, generation: u64) -> bool {
        let slot = self.slot(record.client());
        if record.number() > slot.answered && record.key() < KEYS {
            self.put(record);
        }
        let now = Slot {
            answered: slot.answered.max(record.number()),
            confirmed: generation,
            ..slot
        };
        self.set_slot(record.client(), now);
        slot.confirmed != generation
    }

    fn put(&self, record: &Record) {
        let (first, second) = self.0[entry_of(record.key())].split_at(RECORD);
        let number =
            |words: &[AtomicU64]| Record::checked(load(words)).map(|record| record.number());
        // One without a number was being written when a server was killed, or never.
        let (older, newest) = match (number(first), number(second)) {
            (first_number, second_number) if first_number <= second_number => {
                (first, second_number)
            }
            (first_number, _) => (second, first_number),
        };
        if newest < Some(record.number()) {
            record.write(older);
        }
    }
}
