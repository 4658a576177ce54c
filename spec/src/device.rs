// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The QPs of a device, and who is registered with each: what its reports say in sum.
//!
//! A report that cannot follow the ones before it is a [`Violation`]; so is a count of
//! registrations that the holders do not have.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Lifetime, Mutant, Phase, Qp, Step, Violation};

/// The holder of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The event channel, or the user in the kernel; `None` where the report does not identify it.
    pub channel: Option<u64>,
    /// The types of events that are delivered to it: bit n is that of type n.
    pub mask: u64,
}

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
        /// The number of members of all QPs that keep it.
        keeping_all: u32,
    },
    /// A registration was added: now there are this many.
    Register(Holder, Registrations),
    /// A registration ended: this many are left.
    Unregister(Holder, Registrations),
    /// It was removed from its domain with these registrations, by DESTROY with FORCE or not.
    End(Registrations, bool),
    /// It had an event.
    Event(Delivery),
    /// It was destroyed, and QP_GONE delivered.
    Gone(Delivery),
}

impl What {
    /// The number of members of all QPs that keep it, if that is reported.
    fn keeping_all(self) -> Option<u32> {
        match self {
            What::Alloc { keeping_all, .. } => Some(keeping_all),
            What::Register(_, now) | What::Unregister(_, now) | What::End(now, _) => {
                Some(now.keeping_all)
            }
            What::Event(_) | What::Gone(_) => None,
        }
    }
}

/// The registrations of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrations {
    /// The number of registrations.
    pub number: u32,
    /// The number of those that keep the QP.
    pub keeping: u32,
    /// The number of members of all QPs that keep it, of whom `number` counts none.
    pub keeping_all: u32,
    /// The number of changes: registrations that were added, and that ended.
    pub changes: u64,
}

/// An event, and the registrations that it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The type of the event, less than 64.
    pub kind: u32,
    /// The number of registrations.
    pub number: u32,
    /// The number of those that it is delivered to.
    pub delivered: u32,
    /// [`Registrations::changes`] when it happened.
    pub changes: u64,
}

struct Known {
    qp: Qp,
    number: u32,
    /// The event masks of the registrations of channels, and of those that are not identified. Of a
    /// QP that was created before the reports began, only those that were reported.
    channels: BTreeMap<u64, u64>,
    unidentified: Vec<u64>,
    /// [`Registrations::changes`].
    changes: u64,
    /// Events after a change that is not reported yet: of one, as the next waits for the lock of
    /// the domain, with which it is reported.
    waiting: Vec<Delivery>,
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
    /// QPs whose first report was QP_GONE: only the end of a registration may be reported later.
    gone: BTreeSet<(u32, u64)>,
    domains: BTreeMap<u32, Domain>,
}

impl Device {
    /// A device whose QPs are not known yet.
    pub fn new() -> Device {
        Device::default()
    }

    /// The number of QPs that are known to exist.
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
        if let What::Event(delivery) | What::Gone(delivery) = what {
            if delivery.delivered > delivery.number {
                return Err(Violation::DeliveredToOthers);
            }
        }
        let Some(known) = self.qps.get_mut(&(domain, serial)) else {
            return self.first_step(domain, number, serial, what);
        };
        if known.number != number {
            return Err(Violation::SameNumber);
        }
        let closed = self.domains.get(&domain).is_some_and(|of| of.closed);
        known.step(what, closed)?;
        // The end of a registration that came before QP_GONE may be reported after that.
        if known.qp.is_over() && known.waiting.is_empty() {
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
        let mut known = Known::new(number);
        if let What::Alloc { lifetime, .. } = what {
            known.qp.lifetime = Some(lifetime);
            known.step(what, self.domains.get(&domain).is_some_and(|of| of.closed))?;
            self.qps.insert((domain, serial), known);
            return Ok(());
        }
        if matches!(what, What::Unregister(..)) && self.gone.contains(&(domain, serial)) {
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
                keeping_all: now.keeping_all,
                changes: now.changes.checked_sub(1).ok_or(Violation::WrongCount)?,
            },
            What::Unregister(_, left) => Registrations {
                number: left.number + 1,
                keeping: left.keeping,
                keeping_all: left.keeping_all,
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
        known.changes = before.changes;
        if let What::Unregister(holder, _) = what {
            known.holds(holder);
        }
        known.step(what, false)?;
        if !known.qp.is_over() {
            self.qps.insert((domain, serial), known);
        }
        Ok(())
    }
}

impl Known {
    fn new(number: u32) -> Known {
        Known {
            qp: Qp::NEW,
            number,
            channels: BTreeMap::new(),
            unidentified: Vec::new(),
            changes: 0,
            waiting: Vec::new(),
        }
    }

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
        self.qp.held = what.keeping_all().map_or(self.qp.held, |all| all != 0);
        self.qp = self.qp.step(step, closed)?;
        let is_new = self.qp.lifetime.is_some();
        match what {
            What::Alloc { .. } => (),
            What::Register(holder, now) => {
                self.changes += 1;
                if !self.holds(holder) {
                    return Err(Violation::SameFile);
                }
                self.check(now)?;
            }
            What::Unregister(holder, left) => {
                self.changes += 1;
                // The holders of a QP that was created before the reports began are not known.
                match self.held(holder) {
                    None if is_new => return Err(Violation::NotRegistered),
                    Some(mask) if mask != holder.mask => return Err(Violation::OtherMask),
                    _ => (),
                }
                self.check(left)?;
            }
            What::End(now, _) => self.check(now)?,
            What::Event(delivery) | What::Gone(delivery) => {
                if delivery.changes == self.changes + 1 {
                    self.waiting.push(delivery);
                } else {
                    self.check_delivery(delivery)?;
                }
            }
        }
        Ok(())
    }

    /// A registration begins. `false` if the channel has one.
    fn holds(&mut self, holder: Holder) -> bool {
        match holder.channel {
            Some(channel) => self.channels.insert(channel, holder.mask).is_none(),
            None => {
                self.unidentified.push(holder.mask);
                true
            }
        }
    }

    /// A registration ends: the mask with which it began, if that is known. Holders that are not
    /// identified and have one mask are alike.
    fn held(&mut self, holder: Holder) -> Option<u64> {
        match holder.channel {
            Some(channel) => self.channels.remove(&channel),
            None => {
                let mut masks = self.unidentified.iter();
                let at = masks.position(|mask| *mask == holder.mask)?;
                Some(self.unidentified.swap_remove(at))
            }
        }
    }

    /// Checks the registrations that are reported, and the events that waited for the report.
    fn check(&mut self, reported: Registrations) -> Result<(), Violation> {
        let now = Registrations {
            number: self.qp.registrations,
            keeping: self.qp.keeping,
            keeping_all: reported.keeping_all,
            changes: self.changes,
        };
        if reported != now {
            return Err(Violation::WrongCount);
        }
        let waiting = core::mem::take(&mut self.waiting);
        let mut waiting = waiting.into_iter();
        waiting.try_for_each(|delivery| self.check_delivery(delivery))
    }

    /// An event is for the registrations that exist when it happens, and is delivered to those
    /// whose masks have its type.
    fn check_delivery(&self, delivery: Delivery) -> Result<(), Violation> {
        if delivery.changes != self.changes {
            return Err(Violation::WrongCount);
        }
        let masks = self.channels.values().chain(&self.unidentified);
        let (mut known, mut wanting) = (0, 0);
        for mask in masks {
            known += 1;
            let is_masked = mask & (1 << delivery.kind) == 0;
            wanting += u32::from(!is_masked || Mutant::MaskIgnored.is_made());
        }
        let unknown = self.qp.registrations.saturating_sub(known);
        if delivery.number != self.qp.registrations
            || !(wanting..=wanting + unknown).contains(&delivery.delivered)
        {
            return Err(Violation::DeliveredToOthers);
        }
        Ok(())
    }
}
