// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The QPs of a device, and who is registered with each: what its reports say in sum.
//!
//! A report that cannot follow the ones before it is a [`Violation`]; so is a count of
//! registrations that the holders do not have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Lifetime, Phase, Qp, Step, Violation};

/// The event channel that holds a registration; `None` for a user in the kernel.
pub type Holder = Option<u64>;

/// A report of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The last close of a domain has begun, or the removal of the device: its QPs can no longer be
    /// found.
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
        /// The report itself.
        what: What,
    },
}

/// A report about a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It was added to its domain, with a registration of its creator or without any.
    Alloc {
        /// The lifetime.
        lifetime: Lifetime,
        /// Whether the creator registers.
        registers: bool,
    },
    /// A registration was added: now there are this many.
    Register(Holder, Registrations),
    /// A registration ended: this many are left.
    Unregister(Holder, Registrations),
    /// It was removed from its domain with these registrations, by DESTROY with FORCE or not.
    End(Registrations, bool),
    /// An event was delivered.
    Event(Delivery),
    /// It was destroyed, and QP_GONE delivered.
    Gone(Delivery),
}

/// The registrations of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrations {
    /// The number of registrations.
    pub number: u32,
    /// The number of those that keep the QP.
    pub keeping: u32,
    /// The number of changes: registrations that were added, and that ended.
    pub changes: u64,
}

/// The delivery of an event, or of several of the same type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The number of registrations it was for.
    pub number: u32,
    /// [`Registrations::changes`] when the first one happened.
    pub since: u64,
    /// [`Registrations::changes`] when it had been delivered.
    pub until: u64,
}

struct Known {
    qp: Qp,
    number: u32,
    holders: BTreeSet<u64>,
    changes: Changes,
    /// Deliveries that ended after a change that is not reported yet: of one, as the next waits for
    /// the lock of the domain, with which it is reported.
    waiting: Vec<Delivery>,
}

/// The changes of the number of registrations since the last event happened.
#[derive(Default)]
struct Changes {
    /// The number of changes before that, and of registrations.
    before: u64,
    number: u32,
    /// The later changes: whether a registration was added; else one ended.
    later: VecDeque<bool>,
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
    /// QPs whose first report was QP_GONE: only their registrations end later.
    gone: BTreeSet<(u32, u64)>,
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
        if let What::Alloc { .. } = what {
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
        let is_new = domain.serials.is_none_or(|(_, last)| serial <= last);
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
            changes: Changes::default(),
            waiting: Vec::new(),
        };
        if let What::Alloc { lifetime, .. } = what {
            known.qp.lifetime = Some(lifetime);
            known.step(what, self.domains.get(&domain).is_some_and(|of| of.closed))?;
            self.qps.insert((domain, serial), known);
            return Ok(());
        }
        if matches!(what, What::Unregister(..)) && self.gone.contains(&(domain, serial)) {
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
        let before = match what {
            What::Register(_, now) => Registrations {
                number: now.number.checked_sub(1).ok_or(Violation::WrongCount)?,
                keeping: now.keeping.min(now.number - 1),
                changes: now.changes.checked_sub(1).ok_or(Violation::WrongCount)?,
            },
            What::Unregister(_, left) => Registrations {
                number: left.number + 1,
                keeping: left.keeping,
                changes: left.changes.checked_sub(1).ok_or(Violation::WrongCount)?,
            },
            What::End(now, _) => now,
            What::Gone(_) => {
                self.gone.insert((domain, serial));
                return Ok(());
            }
            What::Alloc { .. } | What::Event(_) => return Ok(()),
        };
        known.qp.phase = Phase::Found;
        known.qp.registrations = before.number;
        known.qp.keeping = before.keeping;
        known.changes = Changes::since(before);
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
            What::Alloc { registers, .. } => Step::Alloc { registers },
            What::Register(_, now) => Step::Register {
                keeps: now.keeping > self.qp.keeping,
            },
            What::Unregister(_, left) => Step::Unregister {
                keeps: left.keeping < self.qp.keeping,
            },
            What::End(_, forced) => Step::End { forced },
            What::Event(..) => Step::Event,
            What::Gone(_) => Step::Gone,
        };
        self.qp = self.qp.step(step, closed)?;
        let is_new = self.qp.lifetime.is_some();
        match what {
            What::Alloc { .. } => (),
            What::Register(holder, now) => {
                self.changes.later.push_back(true);
                if holder.is_some_and(|file| !self.holders.insert(file)) {
                    return Err(Violation::SameFile);
                }
                self.check(now)?;
            }
            What::Unregister(holder, left) => {
                self.changes.later.push_back(false);
                // The holders of a QP that was created before the reports began are not known.
                if holder.is_some_and(|file| !self.holders.remove(&file)) && is_new {
                    return Err(Violation::NotRegistered);
                }
                self.check(left)?;
            }
            What::End(now, _) => self.check(now)?,
            What::Event(delivery) | What::Gone(delivery) => {
                let reported = self.changes.count();
                if delivery.until == reported + 1 {
                    self.waiting.push(delivery);
                } else if delivery.until == reported {
                    self.changes.check(delivery, is_new)?;
                } else {
                    return Err(Violation::WrongCount);
                }
            }
        }
        Ok(())
    }

    /// Checks the registrations that are reported, and the events that waited for the report.
    fn check(&mut self, reported: Registrations) -> Result<(), Violation> {
        let now = Registrations {
            number: self.qp.registrations,
            keeping: self.qp.keeping,
            changes: self.changes.count(),
        };
        if reported != now {
            return Err(Violation::WrongCount);
        }
        let is_new = self.qp.lifetime.is_some();
        let mut waiting = self.waiting.drain(..);
        waiting.try_for_each(|delivery| self.changes.check(delivery, is_new))
    }
}

impl Changes {
    fn since(registrations: Registrations) -> Changes {
        Changes {
            before: registrations.changes,
            number: registrations.number,
            later: VecDeque::new(),
        }
    }

    /// The number of all changes so far.
    fn count(&self) -> u64 {
        self.before + self.later.len() as u64
    }

    /// An event is for the registrations that exist when it happens, but for some of those that
    /// ended before it was delivered to all. Deliveries are reported in the order in which their
    /// events happened.
    fn check(&mut self, delivery: Delivery, is_new: bool) -> Result<(), Violation> {
        let Delivery {
            number,
            since,
            until,
        } = delivery;
        let Some(earlier) = since.checked_sub(self.before) else {
            // The registrations at that time are not known if it was before the reports began.
            return if is_new {
                Err(Violation::EventsUnordered)
            } else {
                Ok(())
            };
        };
        let meanwhile = until.checked_sub(since).ok_or(Violation::WrongCount)?;
        if until > self.count() {
            return Err(Violation::WrongCount);
        }
        for is_added in self.later.drain(..earlier as usize) {
            self.number = if is_added {
                self.number + 1
            } else {
                self.number - 1
            };
        }
        self.before = since;
        let meanwhile = self.later.range(..meanwhile as usize);
        let ended = meanwhile.filter(|is_added| !**is_added).count() as u32;
        if !(self.number.saturating_sub(ended)..=self.number).contains(&number) {
            return Err(Violation::DeliveredToOthers);
        }
        Ok(())
    }
}
