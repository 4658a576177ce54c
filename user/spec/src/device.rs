// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

use std::collections::{BTreeMap, BTreeSet};

use crate::{Lifetime, Phase, Qp, Step, Violation};

/// The uverbs file that holds a registration; `None` for a user in the kernel.
pub type Holder = Option<u64>;

/// A report of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The last close of a domain has begun, or the removal of the device: its QPs can no longer be found.
    Close {
        /// The number of the domain.
        domain: u32,
    },
    /// Something happened to a QP.
    Qp {
        /// The number of its domain.
        domain: u32,
        /// Its QP number, which another QP can have later.
        number: u32,
        /// Which of the QPs of the device it is, in the order of their creation.
        serial: u64,
        /// What happened.
        what: What,
    },
}

/// What happened to a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It was added to its domain.
    Alloc(Lifetime),
    /// A registration was added: now there are this many.
    Register(Holder, u32),
    /// A registration ended: this many are left.
    Unregister(Holder, u32),
    /// It was removed from its domain with this many registrations.
    End(u32),
    /// An event was for this many registrations.
    Event(u32),
    /// It was destroyed, and QP_GONE was for this many registrations.
    Gone(u32),
}

struct Known {
    qp: Qp,
    domain: u32,
    number: u32,
    holders: BTreeSet<u64>,
    /// The number of registrations at the last event, and how many were added and ended since then.
    at_event: u32,
    added: u32,
    ended: u32,
}

/// The receive QPs of a device, as its reports describe them.
#[derive(Default)]
pub struct Device {
    qps: BTreeMap<u64, Known>,
    closed: BTreeSet<u32>,
    /// The first QP whose creation was reported. Those before it may exist.
    first: Option<u64>,
}

impl Device {
    /// A device whose QPs are not known yet.
    pub fn new() -> Device {
        Device::default()
    }

    /// The number of QPs that are known to exist, or to have registrations.
    pub fn len(&self) -> usize {
        self.qps.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.qps.is_empty()
    }

    /// The QPs that can be found: their domains and numbers.
    pub fn found(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let found = |known: &&Known| matches!(known.qp.phase, Phase::Found | Phase::Unneeded);
        self.qps
            .values()
            .filter(found)
            .map(|known| (known.domain, known.number))
    }

    /// Takes a report. After an error the state is as before it.
    pub fn step(&mut self, record: &Record) -> Result<(), Violation> {
        match *record {
            Record::Close { domain } => {
                if !self.closed.insert(domain) {
                    return Err(Violation::ClosedTwice);
                }
                Ok(())
            }
            Record::Qp {
                domain,
                number,
                serial,
                what,
            } => self.qp_step(domain, number, serial, what),
        }
    }

    fn qp_step(
        &mut self,
        domain: u32,
        number: u32,
        serial: u64,
        what: What,
    ) -> Result<(), Violation> {
        if let What::Alloc(_) = what {
            if self
                .found()
                .any(|(other, its)| other == domain && its == number)
            {
                return Err(Violation::SameNumber);
            }
            self.first.get_or_insert(serial);
        }
        let Some(known) = self.qps.get(&serial) else {
            return self.first_step(domain, number, serial, what);
        };
        if (known.domain, known.number) != (domain, number) {
            return Err(Violation::SameNumber);
        }
        let mut known = Known {
            holders: known.holders.clone(),
            ..*known
        };
        known.step(what, self.closed.contains(&domain))?;
        if known.qp.is_over() {
            self.qps.remove(&serial);
        } else {
            self.qps.insert(serial, known);
        }
        Ok(())
    }

    /// The first report of a QP.
    fn first_step(
        &mut self,
        domain: u32,
        number: u32,
        serial: u64,
        what: What,
    ) -> Result<(), Violation> {
        let mut known = Known {
            qp: Qp::NEW,
            domain,
            number,
            holders: BTreeSet::new(),
            at_event: 0,
            added: 0,
            ended: 0,
        };
        if let What::Alloc(lifetime) = what {
            known.qp.lifetime = Some(lifetime);
            known.step(what, self.closed.contains(&domain))?;
            self.qps.insert(serial, known);
            return Ok(());
        }
        // It may be being created: ALLOC is reported later, or fails.
        if let What::Event(_) = what {
            return Ok(());
        }
        if self.first.is_some_and(|first| serial >= first) {
            return Err(Violation::Unknown);
        }
        // It was created before the reports began.
        let registrations = match what {
            What::Register(_, now) => now.checked_sub(1).ok_or(Violation::WrongCount)?,
            What::Unregister(_, left) => left + 1,
            What::End(now) | What::Gone(now) => now,
            What::Alloc(_) | What::Event(_) => 0,
        };
        known.qp.phase = Phase::Found;
        known.qp.registrations = registrations;
        known.at_event = registrations;
        if let What::Unregister(Some(file), _) = what {
            known.holders.insert(file);
        }
        known.step(what, false)?;
        if !known.qp.is_over() {
            self.qps.insert(serial, known);
        }
        Ok(())
    }
}

impl Known {
    fn step(&mut self, what: What, closed: bool) -> Result<(), Violation> {
        let step = match what {
            What::Alloc(_) => Step::Alloc,
            What::Register(..) => Step::Register,
            What::Unregister(..) => Step::Unregister,
            What::End(_) => Step::End,
            What::Event(_) => Step::Event,
            What::Gone(_) => Step::Gone,
        };
        self.qp = self.qp.step(step, closed)?;
        let is_new = self.qp.lifetime.is_some();
        match what {
            What::Register(holder, now) => {
                self.added += 1;
                if holder.is_some_and(|file| !self.holders.insert(file)) {
                    return Err(Violation::SameFile);
                }
                self.check_count(now)?;
            }
            What::Unregister(holder, left) => {
                self.ended += 1;
                // The holders of a QP that was created before the reports began are not known.
                if holder.is_some_and(|file| !self.holders.remove(&file)) && is_new {
                    return Err(Violation::NotRegistered);
                }
                self.check_count(left)?;
            }
            What::End(now) => self.check_count(now)?,
            What::Event(number) => self.check_event(number)?,
            What::Gone(number) => self.check_event(number)?,
            What::Alloc(_) => (),
        }
        Ok(())
    }

    fn check_count(&self, reported: u32) -> Result<(), Violation> {
        if reported != self.qp.registrations {
            return Err(Violation::WrongCount);
        }
        Ok(())
    }

    /// An event is for the registrations that exist since the event before it, and for some of those that
    /// were added or ended since then. One more may have been added or ended without a report yet: a report
    /// is made with the lock of the domain held, and one of an event is not.
    fn check_event(&mut self, number: u32) -> Result<(), Violation> {
        let least = self.at_event.saturating_sub(self.ended + 1);
        let most = self.at_event + self.added + 1;
        if !(least..=most).contains(&number) {
            return Err(Violation::DeliveredToOthers);
        }
        self.at_event = self.qp.registrations;
        self.added = 0;
        self.ended = 0;
        Ok(())
    }
}
