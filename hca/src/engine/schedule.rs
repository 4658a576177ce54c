// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The work of an adapter: send queues with requests, and timers.
//!
//! Filled by doorbells and commands, emptied by [`crate::engine::fabric::Fabric::run`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// The action of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The send queue of this QP is looked at again: an RNR delay or ACK timeout has passed.
    Queue(u32),
    /// The command of this id ends.
    Command(u64),
}

/// The work list of one adapter. A reset empties it.
#[derive(Default)]
pub struct Schedule {
    ready: VecDeque<u32>,
    /// The members of `ready`, so that a thousand doorbells are one entry.
    queued: BTreeSet<u32>,
    timers: BTreeMap<(Instant, u64), Task>,
    sequence: u64,
}

impl Schedule {
    /// QP `qpn` may have something to send.
    pub fn queue(&mut self, qpn: u32) {
        if self.queued.insert(qpn) {
            self.ready.push_back(qpn);
        }
    }

    /// The next QP to look at.
    pub fn next_queue(&mut self) -> Option<u32> {
        let qpn = self.ready.pop_front()?;
        self.queued.remove(&qpn);
        Some(qpn)
    }

    /// QP `qpn` is to be looked at again at `when`.
    pub fn queue_at(&mut self, when: Instant, qpn: u32) {
        self.at(when, Task::Queue(qpn));
    }

    /// A command ends at `when`; the answer is its id.
    pub fn command_at(&mut self, when: Instant) -> u64 {
        let id = self.sequence;
        self.at(when, Task::Command(id));
        id
    }

    fn at(&mut self, when: Instant, task: Task) {
        self.timers.insert((when, self.sequence), task);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Takes a timer that is due.
    pub fn due(&mut self, now: Instant) -> Option<Task> {
        let entry = self.timers.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// When there is something to do again, if at all.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        self.timers.first_key_value().map(|((when, _), _)| *when)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_doorbells_are_one_entry() {
        let mut schedule = Schedule::default();
        schedule.queue(5);
        schedule.queue(5);
        schedule.queue(6);
        assert_eq!(schedule.next_queue(), Some(5));
        assert_eq!(schedule.next_queue(), Some(6));
        assert_eq!(schedule.next_queue(), None);
    }

    #[test]
    fn timers_fire_in_order_and_not_early() {
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        let mut schedule = Schedule::default();
        schedule.queue_at(ms(2), 7);
        let id = schedule.command_at(ms(1));
        assert_eq!(schedule.deadline(start), Some(ms(1)));
        assert_eq!(schedule.due(start), None);
        assert_eq!(schedule.due(ms(5)), Some(Task::Command(id)));
        assert_eq!(schedule.due(ms(5)), Some(Task::Queue(7)));
        assert_eq!(schedule.deadline(start), None);
    }
}
