// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Faults that a test injects into an adapter: commands fail or take their time, the whole device
//! fails, or is removed.
//!
//! Rules are the test's and outlive a reset of the device; a catastrophe does not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Returns the number of an opcode that a test gives as one: in decimal, or in hexadecimal with 0x.
pub fn opcode_number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Commands fail: after `skip` that may pass, `count` of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandFailure {
    /// Those of this opcode; none is all.
    pub opcode: Option<u16>,
    /// The status they fail with, as the card counts them.
    pub status: u8,
    /// The number that pass before.
    pub skip: u64,
    /// The number that fail; none is all.
    pub count: Option<u64>,
}

/// The time that commands take.
#[derive(Clone, Debug, Default)]
struct Latency {
    /// All commands, unless there is one of their own.
    all: Option<Duration>,
    by_opcode: BTreeMap<u16, Duration>,
    /// When each of the firmware's workers is free again.
    workers: Vec<Instant>,
    /// The number of workers.
    parallel: usize,
}

/// The fate of a request on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It does not.
    Lost,
    /// It arrives, and once more.
    Repeated,
    /// It arrives late: after the next one, if there is one. A request of a reliable service would
    /// have been repeated by then, so that arrives in time as well.
    Late,
}

/// The faults of messages that leave an adapter: each affects every n-th message, or with a seed
/// one in n at random, the same ones for the same seed; 0 affects none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wire {
    /// Requests that are lost.
    pub lose: u64,
    /// Answers that are lost.
    pub lose_answers: u64,
    /// Requests that are repeated.
    pub repeat: u64,
    /// Requests that are late.
    pub delay: u64,
    /// Chooses at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The faults of one adapter.
#[derive(Default)]
pub struct Faults {
    failures: Vec<CommandFailure>,
    latency: Latency,
    catastrophe: Option<u32>,
    removed: bool,
    health_stopped: bool,
    wire: Wire,
    /// Requests that have left since the wire became so.
    requests: u64,
    /// Answers that have left.
    answers: u64,
    /// Source of randomness, for a wire with a seed.
    random: Option<fastrand::Rng>,
}

impl Faults {
    /// Adds a rule.
    pub fn fail_command(&mut self, failure: CommandFailure) {
        self.failures.push(failure);
    }

    /// How a command of this opcode has to fail, if it has to. Counts it.
    pub fn command_status(&mut self, opcode: u16) -> Option<u8> {
        let mut status = None;
        for rule in self
            .failures
            .iter_mut()
            .filter(|rule| rule.opcode.is_none_or(|only| only == opcode))
        {
            if let Some(left) = rule.skip.checked_sub(1) {
                rule.skip = left;
            } else if status.is_none() {
                match &mut rule.count {
                    Some(0) => {}
                    Some(left) => {
                        *left = left.saturating_sub(1);
                        status = Some(rule.status);
                    }
                    None => status = Some(rule.status),
                }
            }
        }
        self.failures.retain(|rule| rule.count != Some(0));
        status
    }

    /// Commands of `opcode`, or all, take `latency`; at most `parallel` at once.
    pub fn set_latency(&mut self, opcode: Option<u16>, latency: Duration, parallel: usize) {
        match opcode {
            Some(opcode) => {
                self.latency.by_opcode.insert(opcode, latency);
            }
            None => self.latency.all = Some(latency),
        }
        self.latency.parallel = parallel.max(1);
        self.latency.workers.clear();
    }

    /// When a command posted now ends; none is at once.
    pub fn command_deadline(&mut self, opcode: u16, now: Instant) -> Option<Instant> {
        let latency = &mut self.latency;
        let time = latency.by_opcode.get(&opcode).copied().or(latency.all)?;
        if time.is_zero() {
            return None;
        }
        latency.workers.retain(|free| *free > now);
        let start = if latency.workers.len() < latency.parallel {
            now
        } else {
            // The worker that is free first takes it.
            let first = latency
                .workers
                .iter()
                .enumerate()
                .min_by_key(|(_, free)| **free);
            match first.map(|(index, free)| (index, *free)) {
                Some((index, free)) => {
                    latency.workers.swap_remove(index);
                    free
                }
                None => now,
            }
        };
        let end = start.checked_add(time)?;
        latency.workers.push(end);
        Some(end)
    }

    /// The wire becomes such.
    pub fn set_wire(&mut self, wire: Wire) {
        self.wire = wire;
        self.requests = 0;
        self.answers = 0;
        self.random = wire.seed.map(fastrand::Rng::with_seed);
    }

    /// Whether the message number `number` is one of those that a fault affects.
    fn affects(&mut self, one_in: u64, number: u64) -> bool {
        match &mut self.random {
            _ if one_in == 0 => false,
            Some(random) => random.u64(..one_in) == 0,
            None => number.checked_rem(one_in) == Some(0),
        }
    }

    /// The fate of the request that leaves now.
    pub fn fate(&mut self) -> Fate {
        self.requests = self.requests.wrapping_add(1);
        let number = self.requests;
        if self.affects(self.wire.lose, number) {
            Fate::Lost
        } else if self.affects(self.wire.repeat, number) {
            Fate::Repeated
        } else if self.affects(self.wire.delay, number) {
            Fate::Late
        } else {
            Fate::Arrives
        }
    }

    /// Whether the answer that leaves now is lost.
    pub fn answer_is_lost(&mut self) -> bool {
        self.answers = self.answers.wrapping_add(1);
        self.affects(self.wire.lose_answers, self.answers)
    }

    /// The device fails: its error buffer reads `code`, and it does nothing more until reset.
    pub fn set_catastrophe(&mut self, code: u32) {
        self.catastrophe = Some(code);
    }

    /// The value of the error buffer.
    pub fn catastrophe(&self) -> Option<u32> {
        self.catastrophe
    }

    /// The counter by which firmware shows that it is alive stops, or counts again; all else works.
    pub fn stop_health(&mut self, stopped: bool) {
        self.health_stopped = stopped;
    }

    /// The counter does not count.
    pub fn health_stopped(&self) -> bool {
        self.health_stopped
    }

    /// The device leaves the bus, or returns: while away, everything reads all ones.
    pub fn set_removed(&mut self, removed: bool) {
        self.removed = removed;
    }

    /// The device is away.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Neither firmware nor queues do anything.
    pub fn is_dead(&self) -> bool {
        self.removed || self.catastrophe.is_some()
    }

    /// Forgets all rules.
    pub fn clear(&mut self) {
        *self = Self {
            removed: self.removed,
            catastrophe: self.catastrophe,
            ..Self::default()
        };
    }

    /// A reset ends a catastrophe.
    pub fn reset(&mut self) {
        self.catastrophe = None;
        self.latency.workers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPCODE: u16 = 0x19;

    fn failures(skip: u64, count: Option<u64>) -> Faults {
        let mut faults = Faults::default();
        faults.fail_command(CommandFailure {
            opcode: Some(OPCODE),
            status: 8,
            skip,
            count,
        });
        faults
    }

    #[test]
    fn without_an_opcode_every_command_counts() {
        let mut faults = Faults::default();
        faults.fail_command(CommandFailure {
            opcode: None,
            status: 3,
            skip: 1,
            count: Some(1),
        });
        let outcomes = [7, 8, 9].map(|opcode| faults.command_status(opcode));
        assert_eq!(outcomes, [None, Some(3), None]);
    }

    #[test]
    fn the_nth_command_fails_and_no_other() {
        let mut faults = failures(1, Some(2));
        let outcomes: Vec<bool> = (0..5)
            .map(|_| faults.command_status(OPCODE).is_some())
            .collect();
        assert_eq!(outcomes, [false, true, true, false, false]);
        assert_eq!(failures(0, Some(1)).command_status(OPCODE + 1), None);
    }

    #[test]
    fn without_a_count_all_fail_until_cleared() {
        let mut faults = failures(0, None);
        assert!((0..9).all(|_| faults.command_status(OPCODE).is_some()));
        faults.clear();
        assert_eq!(faults.command_status(OPCODE), None);
    }

    #[test]
    fn a_seed_chooses_the_same_messages_again() {
        let lost = |seed| -> Vec<bool> {
            let mut faults = Faults::default();
            faults.set_wire(Wire {
                lose: 10,
                seed,
                ..Wire::default()
            });
            (0..1000).map(|_| faults.fate() == Fate::Lost).collect()
        };
        let count = |lost: &[bool]| lost.iter().filter(|lost| **lost).count();
        let every_tenth = lost(None);
        assert_eq!(count(&every_tenth), 100);
        assert_eq!(count(&every_tenth[..10]), 1);
        let random = lost(Some(7));
        assert!((50..150).contains(&count(&random)));
        assert_eq!(random, lost(Some(7)));
        assert_ne!(random, lost(Some(8)));
        assert_ne!(random, every_tenth);
    }

    #[test]
    fn one_in_one_is_all() {
        for seed in [None, Some(1)] {
            let mut faults = Faults::default();
            faults.set_wire(Wire {
                lose: 1,
                lose_answers: 1,
                seed,
                ..Wire::default()
            });
            assert!((0..100).all(|_| faults.fate() == Fate::Lost && faults.answer_is_lost()));
            faults.clear();
            assert_eq!(faults.fate(), Fate::Arrives);
        }
    }

    #[test]
    fn commands_overlap_as_far_as_there_are_workers() {
        let now = Instant::now();
        let us = |n| Some(now + Duration::from_micros(n));
        let mut faults = Faults::default();
        assert_eq!(faults.command_deadline(OPCODE, now), None);
        faults.set_latency(None, Duration::from_micros(300), 2);
        faults.set_latency(Some(7), Duration::ZERO, 2);
        let ends: Vec<_> = (0..5)
            .map(|_| faults.command_deadline(OPCODE, now))
            .collect();
        assert_eq!(ends, [us(300), us(300), us(600), us(600), us(900)]);
        assert_eq!(faults.command_deadline(7, now), None);
        // Later all workers are free again.
        let later = now + Duration::from_secs(1);
        let end = faults.command_deadline(OPCODE, later);
        assert_eq!(end, Some(later + Duration::from_micros(300)));
    }

    #[test]
    fn a_reset_heals_a_catastrophe_but_brings_nothing_back() {
        let mut faults = failures(0, None);
        faults.set_catastrophe(0xdead);
        assert!(faults.is_dead());
        faults.reset();
        assert!(!faults.is_dead());
        faults.set_removed(true);
        faults.reset();
        assert!(faults.is_dead());
        assert!(faults.command_status(OPCODE).is_some());
    }
}
