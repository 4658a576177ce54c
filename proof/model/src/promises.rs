// SPDX-License-Identifier: GPL-2.0

//! What processes have been promised, as counts: the events of each QP, and those that each
//! registration has not read yet.
//!
//! The contract has a position for each event, and a registration has read up to one. Here a
//! registration has a total of each type, and nothing has a position but the order of the last
//! events. Both have to say the same after each step.

use std::collections::{BTreeMap, BTreeSet};

use xrc_rcv_spec::{Event, Id, Lifetime, Membership, OVERRUN, Objects, QP_ADDED, QP_GONE, Right};

/// A domain and a serial number.
pub type QpId = (Id, u64);

/// A promise that a step has broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Breach {
    /// A call has another result.
    Result,
    /// A QP exists, or does not.
    Life,
    /// A record that the event mask excludes.
    Mask,
    /// A record comes after QP_GONE.
    AfterGone,
    /// QP_GONE is missing, or comes without an end.
    Gone,
    /// QP_ADDED is missing, or comes to another.
    Added,
    /// OVERRUN is missing, or nothing was lost.
    Overrun,
    /// An event is missing, comes again, or has another total.
    Event,
    /// Records are in another order than their last events.
    Order,
}

/// A QP that was created, until no channel has records of it to read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Made {
    number: u32,
    lifetime: Lifetime,
    creator: u32,
    /// The number of events of each type.
    happened: BTreeMap<u32, u64>,
}

/// A registration, also one with records that has ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Registered {
    keeps: bool,
    /// It has ended with the device.
    is_released: bool,
    /// The totals that were read, or were there before.
    counted: BTreeMap<u32, u64>,
}

/// An event channel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    pub file: Id,
    pub domain: Id,
    pub mask: u64,
    pub of: Membership,
    pub right: Right,
    /// It was not ended with its file, its domain or the device.
    pub is_open: bool,
    registered: BTreeMap<QpId, Registered>,
    has_lost: bool,
}

impl Member {
    pub fn new(file: Id, domain: Id, mask: u64, of: Membership, right: Right) -> Member {
        Member {
            file,
            domain,
            mask,
            of,
            right,
            is_open: true,
            registered: BTreeMap::new(),
            has_lost: false,
        }
    }

    /// Whether its registrations by membership, or that of a QP that it creates, keep the QP.
    pub fn keeps_new(&self) -> bool {
        match self.of {
            Membership::Named => true,
            Membership::All => self.right >= Right::Write,
            Membership::Observer => false,
        }
    }

    fn is_of_all(&self) -> bool {
        self.of != Membership::Named
    }
}

/// See the [module's documentation](self).
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Promises {
    qps: BTreeMap<QpId, Made>,
    pub members: BTreeMap<Id, Member>,
    /// The last event of each type of each QP, the oldest first.
    order: Vec<(QpId, u32)>,
    /// The QPs that were destroyed, the first one first.
    gone: Vec<QpId>,
    /// The domains that each file has open.
    open: BTreeSet<(Id, Id)>,
    removed: BTreeSet<Id>,
    kept: Option<usize>,
}

impl Promises {
    /// A device whose domains remember so many QPs that were destroyed.
    pub fn new(kept: Option<usize>) -> Promises {
        Promises {
            kept,
            ..Promises::default()
        }
    }

    /// The QPs that exist, and those that anyone has records of.
    pub fn qps(&self) -> impl Iterator<Item = (QpId, &Made)> {
        self.qps.iter().map(|(id, made)| (*id, made))
    }

    pub fn exists(&self, id: QpId) -> bool {
        self.qps.contains_key(&id) && !self.gone.contains(&id)
    }

    /// The QPs of a domain that exist.
    fn existing(&self, domain: Id) -> Vec<QpId> {
        let ids = self.qps.keys().copied();
        ids.filter(|id| id.0 == domain && self.exists(*id))
            .collect()
    }

    /// The QP of a domain that has a number.
    pub fn find(&self, domain: Id, number: u32) -> Option<QpId> {
        let mut found = self
            .qps()
            .filter(|(id, made)| id.0 == domain && made.number == number && self.exists(*id));
        found.next().map(|(id, _)| id)
    }

    /// The number of events of a QP but QP_ADDED and QP_GONE.
    pub fn events(&self, id: QpId) -> u64 {
        let happened = self.qps.get(&id).map(|made| made.happened.iter());
        let own = happened.into_iter().flatten();
        let own = own.filter(|(kind, _)| !matches!(**kind, QP_ADDED | QP_GONE));
        own.map(|(_, total)| total).sum()
    }

    /// Whether a QP stays when its last registration has ended.
    pub fn lives_on(&self, id: QpId) -> bool {
        self.qps
            .get(&id)
            .is_some_and(|made| made.lifetime == Lifetime::Domain)
    }

    pub fn is_creator(&self, id: QpId, user: u32) -> bool {
        self.qps.get(&id).is_some_and(|made| made.creator == user)
    }

    /// Whether a registration keeps a QP.
    pub fn is_kept(&self, id: QpId) -> bool {
        self.members.values().any(|member| {
            let registered = member.registered.get(&id);
            registered.is_some_and(|of| of.keeps && !of.is_released)
        })
    }

    /// Whether the device is removed for a file.
    pub fn is_removed(&self, file: Id) -> bool {
        self.removed.contains(&file)
    }

    pub fn has_open(&self, file: Id, domain: Id) -> bool {
        self.open.contains(&(file, domain))
    }

    pub fn open(&mut self, file: Id, domain: Id) {
        self.open.insert((file, domain));
    }

    /// An event channel is created.
    pub fn join(&mut self, channel: Id, member: Member) {
        let is_of_all = member.is_of_all();
        let keeps = member.keeps_new();
        let domain = member.domain;
        self.members.insert(channel, member);
        if is_of_all {
            for id in self.existing(domain) {
                self.register(channel, id, keeps);
            }
        }
    }

    /// A QP is created, with a registration of a channel or without.
    pub fn create(&mut self, id: QpId, made: (u32, Lifetime, u32), channel: Option<Id>) {
        let (number, lifetime, creator) = made;
        let made = Made {
            number,
            lifetime,
            creator,
            happened: BTreeMap::new(),
        };
        self.qps.insert(id, made);
        let members = self.members.iter();
        let of_all = members.filter(|(_, of)| of.is_of_all() && of.is_open && of.domain == id.0);
        let of_all: Vec<_> = of_all
            .map(|(channel, of)| (*channel, of.keeps_new()))
            .collect();
        for (channel, keeps) in of_all {
            self.register(channel, id, keeps);
        }
        self.happens(id, QP_ADDED);
        if let Some(channel) = channel {
            let keeps = self.members.get(&channel).is_some_and(Member::keeps_new);
            self.register(channel, id, keeps);
        }
    }

    /// A channel is registered with the QP that has a number, by a user.
    pub fn register_number(&mut self, channel: Id, number: u32, user: u32) {
        let found = self.members.get(&channel);
        let found = found.and_then(|of| Some((self.find(of.domain, number)?, of.right)));
        if let Some((id, right)) = found {
            let keeps = right >= Right::Write || self.is_creator(id, user);
            self.register(channel, id, keeps);
        }
    }

    /// A channel is registered with a QP, unless it is already.
    fn register(&mut self, channel: Id, id: QpId, keeps: bool) {
        let Some(made) = self.qps.get(&id) else {
            return;
        };
        let registered = Registered {
            keeps,
            is_released: false,
            counted: made.happened.clone(),
        };
        if let Some(member) = self.members.get_mut(&channel) {
            member.registered.entry(id).or_insert(registered);
        }
    }

    /// The registrations of a channel end with the QPs that have, or had, a number.
    pub fn unregister(&mut self, channel: Id, number: u32) {
        let qps = &self.qps;
        if let Some(member) = self.members.get_mut(&channel) {
            let is_other = |id: &QpId| qps.get(id).is_none_or(|made| made.number != number);
            member.registered.retain(|id, _| is_other(id));
        }
        self.settle();
    }

    /// An event of a QP.
    pub fn happens(&mut self, id: QpId, kind: u32) {
        if !self.exists(id) {
            return;
        }
        if let Some(made) = self.qps.get_mut(&id) {
            *made.happened.entry(kind).or_default() += 1;
        }
        self.order.retain(|of| *of != (id, kind));
        self.order.push((id, kind));
    }

    /// A QP is destroyed.
    pub fn destroy(&mut self, id: QpId) {
        self.happens(id, QP_GONE);
        self.gone.push(id);
    }

    /// A registration reads its next record.
    pub fn read(&mut self, channel: Id, record: &Event) {
        let Some(member) = self.members.get_mut(&channel) else {
            return;
        };
        if record.kind == OVERRUN {
            member.has_lost = false;
        } else if let Some(of) = member.registered.get_mut(&(member.domain, record.serial)) {
            of.counted.insert(record.kind, record.total);
        }
        self.settle();
    }

    /// A channel ends: with it, the registrations, and all that they have to read.
    pub fn leave(&mut self, channel: Id) {
        if let Some(member) = self.members.get_mut(&channel) {
            member.is_open = false;
            member.has_lost = false;
            member.registered.clear();
        }
        self.settle();
    }

    /// The descriptor of a channel is closed.
    pub fn close(&mut self, channel: Id) {
        self.members.remove(&channel);
        self.settle();
    }

    fn channels_of(&self, file: Id) -> Vec<Id> {
        let channels = self.members.iter().filter(|(_, of)| of.file == file);
        channels.map(|(channel, _)| *channel).collect()
    }

    /// A file closes its handle of a domain.
    pub fn close_handle(&mut self, file: Id, domain: Id) {
        self.open.remove(&(file, domain));
        if !self.open.iter().any(|(_, open)| *open == domain) {
            for id in self.existing(domain) {
                self.destroy(id);
            }
        }
        self.settle();
    }

    /// A file is closed, or the device is removed for it.
    pub fn close_file(&mut self, file: Id, is_removed: bool) {
        for channel in self.channels_of(file) {
            if !is_removed {
                self.leave(channel);
            } else if let Some(member) = self.members.get_mut(&channel) {
                member.is_open = false;
                for (id, registered) in &mut member.registered {
                    registered.is_released |= !self.gone.contains(id);
                }
                self.settle();
            }
        }
        if is_removed {
            self.removed.insert(file);
        } else {
            self.removed.remove(&file);
        }
        let open: Vec<_> = self.open.iter().copied().collect();
        for (_, domain) in open.into_iter().filter(|(of, _)| *of == file) {
            self.close_handle(file, domain);
        }
    }

    /// QPs end that nothing keeps, and those of which all was read are forgotten.
    pub fn settle(&mut self) {
        let ids: Vec<_> = self.qps.keys().copied().collect();
        for id in ids {
            let lifetime = self.qps.get(&id).map(|made| made.lifetime);
            let needs_members = lifetime == Some(Lifetime::Registrations);
            if self.exists(id) && needs_members && !self.is_kept(id) {
                self.destroy(id);
            }
        }
        self.forget();
        for domain in self.gone.iter().map(|id| id.0).collect::<BTreeSet<_>>() {
            self.lose(domain);
        }
    }

    /// Forgets registrations that have ended and were read, and QPs that have none.
    fn forget(&mut self) {
        let channels: Vec<_> = self.members.keys().copied().collect();
        for channel in channels {
            let owed = self.owed(channel);
            if let Some(member) = self.members.get_mut(&channel) {
                member.registered.retain(|id, registered| {
                    let has_ended = self.gone.contains(id) || registered.is_released;
                    !has_ended || owed.iter().any(|event| event.serial == id.1)
                });
            }
        }
        let is_read = |id: &QpId| {
            let mut members = self.members.values();
            self.gone.contains(id) && !members.any(|of| of.registered.contains_key(id))
        };
        let read: Vec<_> = self.qps.keys().copied().filter(is_read).collect();
        read.into_iter().for_each(|id| self.drop_qp(id));
    }

    fn drop_qp(&mut self, id: QpId) {
        self.qps.remove(&id);
        self.gone.retain(|of| *of != id);
        self.order.retain(|(of, _)| *of != id);
    }

    /// The records of the QPs that were destroyed first are lost, if they are too many.
    fn lose(&mut self, domain: Id) {
        let Some(kept) = self.kept else {
            return;
        };
        let gone = self.gone.iter().copied().filter(|id| id.0 == domain);
        let gone: Vec<_> = gone.collect();
        for id in gone.iter().take(gone.len().saturating_sub(kept)) {
            for member in self.members.values_mut() {
                member.has_lost |= member.registered.remove(id).is_some();
            }
            self.drop_qp(*id);
        }
    }

    /// The records that a channel has to read, but OVERRUN, in order.
    fn owed(&self, channel: Id) -> Vec<Event> {
        let Some(member) = self.members.get(&channel) else {
            return Vec::new();
        };
        let mut owed = Vec::new();
        for (id, kind) in &self.order {
            let (Some(registered), Some(made)) = (member.registered.get(id), self.qps.get(id))
            else {
                continue;
            };
            let total = made.happened.get(kind).copied().unwrap_or(0);
            let counted = registered.counted.get(kind).copied().unwrap_or(0);
            if total > counted && member.mask & (1 << kind) != 0 {
                owed.push(event(*id, made, *kind, total));
            }
        }
        for (id, registered) in &member.registered {
            let is_early = registered.is_released && self.exists(*id);
            if let Some(made) = self.qps.get(id).filter(|_| is_early) {
                let is_read = registered.counted.contains_key(&QP_GONE);
                if !is_read && member.mask & (1 << QP_GONE) != 0 {
                    owed.push(event(*id, made, QP_GONE, 1));
                }
            }
        }
        owed
    }

    /// Compares the QPs and the records of the contract with the promises.
    pub fn compare(&self, objects: &Objects) -> Option<Breach> {
        for domain in [1, 2] {
            let existing = self
                .qps()
                .filter(|(id, _)| id.0 == domain && self.exists(*id));
            let mut numbers: Vec<_> = existing.map(|(_, made)| made.number).collect();
            numbers.sort_unstable();
            if objects.numbers(domain) != numbers {
                return Some(Breach::Life);
            }
        }
        let members = self.members.iter();
        let mut broken = members.filter_map(|(channel, member)| {
            self.compare_records(member, &self.owed(*channel), &objects.unread(*channel))
        });
        broken.next()
    }

    /// Compares the records of a channel with those that it is owed.
    fn compare_records(&self, member: &Member, owed: &[Event], have: &[Event]) -> Option<Breach> {
        let is_overrun = |event: &&Event| event.kind == OVERRUN;
        let overruns = have.iter().filter(is_overrun).count();
        let comes_first = have.first().as_ref().is_some_and(is_overrun);
        if overruns != usize::from(member.has_lost) || comes_first != member.has_lost {
            return Some(Breach::Overrun);
        }
        let have = &have[overruns..];
        if have == owed {
            return None;
        }
        let differs = |is_of_kind: &dyn Fn(u32) -> bool| {
            let of = |events: &[Event]| -> BTreeSet<(u64, u32, u64)> {
                let events = events.iter().filter(|event| is_of_kind(event.kind));
                events
                    .map(|event| (event.serial, event.kind, event.total))
                    .collect()
            };
            of(have) != of(owed)
        };
        let is_after = |(index, event): (usize, &Event)| {
            let before = have[..index].iter();
            before
                .filter(|of| of.serial == event.serial)
                .any(|of| of.kind == QP_GONE)
        };
        Some(match () {
            _ if have
                .iter()
                .any(|event| member.mask & (1 << event.kind) == 0) =>
            {
                Breach::Mask
            }
            _ if have.iter().enumerate().any(is_after) => Breach::AfterGone,
            _ if differs(&|kind| kind == QP_ADDED) => Breach::Added,
            _ if differs(&|kind| !matches!(kind, QP_ADDED | QP_GONE)) => Breach::Event,
            _ if differs(&|kind| kind == QP_GONE) => Breach::Gone,
            _ => Breach::Order,
        })
    }

    /// Whether a channel has records to read of a QP whose number another QP has.
    pub fn has_two_of_a_number(&self) -> bool {
        let mut gone = self.gone.iter();
        gone.any(|id| {
            let number = self.qps.get(id).map(|made| made.number);
            number.is_some_and(|number| self.find(id.0, number).is_some())
        })
    }

    /// Whether a channel has lost records.
    pub fn has_lost(&self) -> bool {
        self.members.values().any(|member| member.has_lost)
    }

    /// Whether a registration of a channel that never reads was made after an event.
    pub fn is_late(&self, channel: Id) -> bool {
        let registered = self.members.get(&channel).map(|of| of.registered.values());
        let mut registered = registered.into_iter().flatten();
        registered.any(|of| of.counted.keys().any(|kind| *kind != QP_ADDED))
    }

    /// Whether a QP exists whose creator is one of these users.
    pub fn has_outlived(&self, is_gone: impl Fn(u32) -> bool) -> bool {
        self.qps()
            .any(|(id, made)| self.exists(id) && is_gone(made.creator))
    }

    /// Whether nothing is left.
    pub fn is_unused(&self) -> bool {
        self.qps.is_empty() && self.members.is_empty() && self.open.is_empty()
    }
}

fn event(id: QpId, made: &Made, kind: u32, total: u64) -> Event {
    Event {
        number: made.number,
        serial: id.1,
        kind,
        total,
    }
}
