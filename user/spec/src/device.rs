// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

use std::collections::{BTreeMap, BTreeSet};

use crate::{Lifetime, Phase, Qp, Step, Violation};

/// The uverbs file that holds a registration; `None` for a user in the kernel.
pub type Holder = Option<u64>;

/// A type of events: any number that no other type has.
pub type Kind = u64;

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
        /// Which of the QPs of the domain it is, in the order of their creation.
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
    Event(Kind, u32),
    /// It was destroyed, and QP_GONE was for this many registrations.
    Gone(u32),
}

struct Known {
    qp: Qp,
    number: u32,
    holders: BTreeSet<u64>,
    /// The registrations since the QP was created, since it ended, and since the last event of each type.
    since_creation: Changes,
    since_end: Changes,
    since_events: BTreeMap<Kind, Changes>,
}

/// The number of registrations at some time, and how many were added and ended since then.
#[derive(Clone, Copy, Default)]
struct Changes {
    before: u32,
    added: u32,
    ended: u32,
}

#[derive(Default)]
struct Domain {
    /// Its last close has begun.
    closed: bool,
    /// The first QP whose creation was reported, and the last. Those before the first may exist.
    serials: Option<(u64, u64)>,
}

/// The receive QPs of a device, as its reports describe them.
#[derive(Default)]
pub struct Device {
    /// By domain and serial number.
    qps: BTreeMap<(u32, u64), Known>,
    domains: BTreeMap<u32, Domain>,
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
        let found = |known: &Known| matches!(known.qp.phase, Phase::Found | Phase::Unneeded);
        let found = self.qps.iter().filter(move |(_, known)| found(known));
        found.map(|((domain, _), known)| (*domain, known.number))
    }

    /// Takes a report, which is to be the last after an error.
    pub fn step(&mut self, record: &Record) -> Result<(), Violation> {
        match *record {
            Record::Close { domain } => {
                self.domains.entry(domain).or_default().closed = true;
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
            self.allocates(domain, serial);
        }
        let Some(known) = self.qps.get_mut(&(domain, serial)) else {
            return self.first_step(domain, number, serial, what);
        };
        if known.number != number {
            return Err(Violation::SameNumber);
        }
        let closed = self.domains.get(&domain).is_some_and(|of| of.closed);
        known.step(what, closed)?;
        if known.qp.is_over() {
            self.qps.remove(&(domain, serial));
        }
        Ok(())
    }

    /// ALLOC is reported. The device may have been removed and added since a domain had the number.
    fn allocates(&mut self, number: u32, serial: u64) {
        let has_qps = self.qps.keys().any(|(domain, _)| *domain == number);
        let domain = self.domains.entry(number).or_default();
        let is_new = domain.serials.is_some_and(|(_, last)| serial <= last);
        if domain.closed && is_new && !has_qps {
            *domain = Domain::default();
        }
        let (first, last) = domain.serials.unwrap_or((serial, serial));
        domain.serials = Some((first, last.max(serial)));
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
            number,
            holders: BTreeSet::new(),
            since_creation: Changes::default(),
            since_end: Changes::default(),
            since_events: BTreeMap::new(),
        };
        if let What::Alloc(lifetime) = what {
            known.qp.lifetime = Some(lifetime);
            known.step(what, self.domains.get(&domain).is_some_and(|of| of.closed))?;
            self.qps.insert((domain, serial), known);
            return Ok(());
        }
        // It may be being created: ALLOC is reported later, or fails.
        if let What::Event(..) = what {
            return Ok(());
        }
        let serials = self.domains.get(&domain).and_then(|of| of.serials);
        if serials.is_some_and(|(first, _)| serial >= first) {
            return Err(Violation::Unknown);
        }
        // It was created before the reports began.
        let registrations = match what {
            What::Register(_, now) => now.checked_sub(1).ok_or(Violation::WrongCount)?,
            What::Unregister(_, left) => left + 1,
            What::End(now) | What::Gone(now) => now,
            What::Alloc(_) | What::Event(..) => 0,
        };
        known.qp.phase = Phase::Found;
        known.qp.registrations = registrations;
        known.since_creation.before = registrations;
        known.since_end.before = registrations;
        if let What::Unregister(Some(file), _) = what {
            known.holders.insert(file);
        }
        known.step(what, false)?;
        if !known.qp.is_over() {
            self.qps.insert((domain, serial), known);
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
            What::Event(..) => Step::Event,
            What::Gone(_) => Step::Gone,
        };
        self.qp = self.qp.step(step, closed)?;
        let is_new = self.qp.lifetime.is_some();
        match what {
            What::Register(holder, now) => {
                self.changes().for_each(|changes| changes.added += 1);
                if holder.is_some_and(|file| !self.holders.insert(file)) {
                    return Err(Violation::SameFile);
                }
                self.check_count(now)?;
            }
            What::Unregister(holder, left) => {
                self.changes().for_each(|changes| changes.ended += 1);
                // The holders of a QP that was created before the reports began are not known.
                if holder.is_some_and(|file| !self.holders.remove(&file)) && is_new {
                    return Err(Violation::NotRegistered);
                }
                self.check_count(left)?;
            }
            What::End(now) => {
                self.check_count(now)?;
                self.since_end = self.now();
            }
            What::Event(kind, number) => {
                let since = self.since_events.get(&kind);
                since.unwrap_or(&self.since_creation).check(number)?;
                self.since_events.insert(kind, self.now());
            }
            What::Gone(number) => self.since_end.check(number)?,
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

    fn changes(&mut self) -> impl Iterator<Item = &mut Changes> {
        let of_kinds = self.since_events.values_mut();
        of_kinds.chain([&mut self.since_creation, &mut self.since_end])
    }

    fn now(&self) -> Changes {
        Changes {
            before: self.qp.registrations,
            ..Changes::default()
        }
    }
}

impl Changes {
    /// An event is for the registrations that exist since the event of its type before it, and for some of
    /// those that were added or ended since then. One more may have been added or ended and not reported yet:
    /// that is reported with the lock of the domain held, and an event is not.
    fn check(self, number: u32) -> Result<(), Violation> {
        let least = self.before.saturating_sub(self.ended + 1);
        let most = self.before + self.added + 1;
        if !(least..=most).contains(&number) {
            return Err(Violation::DeliveredToOthers);
        }
        Ok(())
    }
}
