// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The objects that calls name, with the effects of calls and events on them: uverbs files with
//! handles of domains, event channels, and receive QPs with their registrations.
//!
//! The life of each QP is that of [`Qp`]: an effect that its rules do not allow is a fault of the
//! contract itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{Alloc, Attributes, Breach, Caller, Id, Membership, Outcome, Right, State};
use crate::{Mutant, Phase, Qp, Step};

/// The type of QP_GONE.
pub const QP_GONE: u32 = 63;

/// The type of QP_ADDED.
pub const QP_ADDED: u32 = 61;

/// The type of OVERRUN.
pub const OVERRUN: u32 = 62;

/// A record of an event channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The QP number.
    pub number: u32,
    /// The serial number of the QP.
    pub serial: u64,
    /// The type.
    pub kind: u32,
    /// The number of events of the type since the QP was created.
    pub total: u64,
}

/// That of records that were lost.
const OVERRUN_RECORD: Event = Event {
    number: 0,
    serial: 0,
    kind: OVERRUN,
    total: 1,
};

/// A domain and a serial number.
pub(crate) type QpId = (Id, u64);

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
struct File {
    handles: BTreeMap<u64, Id>,
    /// Its device is being removed.
    is_removed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Channel {
    file: Id,
    /// `None` after the last close of the domain: one that is opened by the same file later is
    /// another.
    domain: Option<Id>,
    right: Right,
    mask: u64,
    of: Membership,
    /// Those with all QPs, if it is a member of all. Also those that have ended with the QP or the
    /// device and have records to read.
    registrations: BTreeMap<QpId, Registration>,
    /// It has lost records since it has read OVERRUN.
    has_lost: bool,
    /// No event is added any more.
    has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Registration {
    keeps: bool,
    /// It ended with the device: QP_GONE is its last record, and it keeps nothing.
    is_released: bool,
    /// The position of the last event that was read, or came before the registration.
    read: u64,
}

/// A receive QP.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Known {
    pub(crate) life: Qp,
    number: u32,
    creator: u32,
    /// `None` if it is not known: a provider failed, or an event changed it.
    pub(crate) state: Option<State>,
    /// By type: the number of events, and the position of the last.
    events: BTreeMap<u32, (u64, u64)>,
}

impl Known {
    /// Returns the right of a caller over it.
    pub(crate) fn right_of(&self, caller: Caller) -> Right {
        if self.creator == caller.user {
            Right::Own
        } else {
            caller.right
        }
    }

    fn is_found(&self) -> bool {
        self.life.phase == Phase::Found
    }

    fn is_gone(&self) -> bool {
        self.life.phase == Phase::Gone
    }

    /// The position of the last event.
    fn position(&self) -> u64 {
        let positions = self.events.values().map(|(_, position)| *position);
        positions.max().unwrap_or(0)
    }
}

/// See the [module's documentation](self).
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Objects {
    files: BTreeMap<Id, File>,
    /// Until they are closed.
    channels: BTreeMap<Id, Channel>,
    qps: BTreeMap<QpId, Known>,
    /// The domains whose QPs have ended: that of another QP follows its creation.
    closed: BTreeSet<Id>,
    /// All QPs that were created.
    serials: BTreeSet<QpId>,
    /// The number of events so far.
    position: u64,
    /// The number of QPs that were destroyed of which channels have records to read; `None` if it
    /// is not limited.
    kept: Option<usize>,
}

impl Objects {
    /// Returns a device without objects.
    pub fn new() -> Objects {
        Objects::default()
    }

    /// Limits the number of QPs of a domain that were destroyed of which channels have records to
    /// read: those of the QP that was destroyed first are lost then.
    pub fn keep_gone(&mut self, kept: usize) {
        self.kept = Some(kept);
    }

    /// Whether no file and no channel is open, and nothing is known of a QP.
    pub fn is_unused(&self) -> bool {
        self.files.is_empty() && self.channels.is_empty() && self.qps.is_empty()
    }

    /// Numbers the events of QPs anew, in their order: then objects are equal if no call and no
    /// read can have different results.
    pub fn renumber(&mut self) {
        let mut positions = Vec::new();
        for qp in self.qps.values() {
            positions.extend(qp.events.values().map(|(_, position)| *position));
        }
        positions.sort_unstable();
        let number = |position: u64| positions.partition_point(|other| *other <= position) as u64;
        for (_, position) in self.qps.values_mut().flat_map(|qp| qp.events.values_mut()) {
            *position = number(*position);
        }
        for of in self.channels.values_mut() {
            for registration in of.registrations.values_mut() {
                registration.read = number(registration.read);
            }
        }
        self.position = positions.len() as u64;
    }

    /// Returns the number of QPs that can be found.
    pub fn len(&self) -> usize {
        self.qps.values().filter(|qp| qp.is_found()).count()
    }

    /// Whether no QP can be found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the domain of a handle.
    pub fn domain(&self, file: Id, handle: u64) -> Option<Id> {
        self.files.get(&file)?.handles.get(&handle).copied()
    }

    /// Whether a file has a domain open.
    pub fn is_open(&self, domain: Id) -> bool {
        let mut open = self.files.values().flat_map(|of| of.handles.values());
        open.any(|other| *other == domain)
    }

    /// Returns the domain of a channel, and the serial number of its QP that has a number.
    pub fn qp_of(&self, channel: Id, number: u32) -> Option<(Id, u64)> {
        self.find(self.channels.get(&channel)?.domain?, number)
    }

    /// Returns the QP of a domain that has a number.
    pub(crate) fn find(&self, domain: Id, number: u32) -> Option<QpId> {
        let is_named = |id: &QpId| self.qps.get(id).is_some_and(|qp| qp.number == number);
        if Mutant::NumberOfAnyDomain.is_made() {
            let all = self.qps.iter().filter(|(_, qp)| qp.is_found());
            return all.map(|(id, _)| *id).find(is_named);
        }
        self.found_in(domain).find(is_named)
    }

    /// Returns the QPs of a domain that can be found.
    fn found_in(&self, domain: Id) -> impl Iterator<Item = QpId> + '_ {
        let qps = self.qps.range((domain, 0)..=(domain, u64::MAX));
        let found = qps.filter(|(_, qp)| qp.is_found());
        found.map(|(id, _)| *id)
    }

    /// Returns the number of QPs of a domain that can be found.
    pub(crate) fn count(&self, domain: Id) -> usize {
        self.found_in(domain).count()
    }

    /// Whether the device is removed for a file.
    pub(crate) fn is_removed(&self, file: Id) -> bool {
        self.files.get(&file).is_some_and(|of| of.is_removed)
    }

    /// Returns a QP.
    pub(crate) fn qp(&self, id: QpId) -> Option<&Known> {
        self.qps.get(&id)
    }

    /// Returns the domain of a channel, if that was created through the file and has not ended:
    /// none, after the domain was closed.
    pub(crate) fn domain_of(&self, file: Id, channel: Id) -> Option<Option<Id>> {
        self.channel(file, channel).map(|channel| channel.domain)
    }

    /// Whether a channel that was created through the file has ended, and its descriptor is open.
    pub(crate) fn has_ended(&self, file: Id, channel: Id) -> bool {
        let found = self.channels.get(&channel);
        found.is_some_and(|found| found.file == file && found.has_ended)
    }

    fn channel(&self, file: Id, channel: Id) -> Option<&Channel> {
        let found = self.channels.get(&channel)?;
        (found.file == file && !found.has_ended).then_some(found)
    }

    /// ALLOC has created a QP in a domain. `Err` if the outcome cannot be that of a new one.
    pub(crate) fn alloc(
        &mut self,
        caller: Caller,
        domain: Id,
        alloc: &Alloc,
        outcome: &Outcome,
    ) -> Result<(), Breach> {
        if self.find(domain, outcome.number).is_some() {
            return Err(Breach::Number);
        }
        let id = (domain, outcome.serial);
        if !self.serials.insert(id) {
            return Err(Breach::Serial);
        }
        let life = Qp {
            lifetime: alloc.lifetime,
            ..Qp::NEW
        };
        let state = match alloc.attributes {
            Attributes::To(state) => Some(state),
            Attributes::Absent | Attributes::Invalid => Some(State::Reset),
            Attributes::Any => None,
        };
        let qp = Known {
            life,
            number: outcome.number,
            creator: caller.user,
            state,
            events: BTreeMap::new(),
        };
        self.qps.insert(id, qp);
        self.added(id, alloc.channel);
        Ok(())
    }

    /// A QP is new in its domain: its creator is registered with it, and each member of all.
    fn added(&mut self, id: QpId, creator: Option<Id>) {
        let registers = creator.is_some_and(|channel| self.keeps_new(channel));
        // QP_ADDED comes after the registrations of members of all.
        let position = self.position;
        self.position += 1;
        if let Some(qp) = self.qps.get_mut(&id) {
            qp.events.insert(QP_ADDED, (1, self.position));
        }
        self.step(id, Step::Alloc { registers });
        if let Some(channel) = creator {
            let read = if self.is_of_all(channel) || Mutant::AddedToCreator.is_made() {
                position
            } else {
                self.position
            };
            self.add(channel, id, registers, read);
        }
        for channel in self.members_of_all(id.0) {
            if creator != Some(channel) && !Mutant::AllMissNew.is_made() {
                self.add(channel, id, self.keeps_new(channel), position);
            }
        }
    }

    /// Whether a channel is registered with all QPs.
    pub(crate) fn is_of_all(&self, channel: Id) -> bool {
        let found = self.channels.get(&channel);
        found.is_some_and(|of| of.of != Membership::Named)
    }

    /// Whether the registration of a channel keeps a QP that it creates, or that others create if
    /// it is registered with all.
    pub(crate) fn keeps_new(&self, channel: Id) -> bool {
        let found = self.channels.get(&channel);
        found.is_some_and(|of| match of.of {
            Membership::Named => true,
            Membership::All => of.right >= Right::Write,
            Membership::Observer => Mutant::ObserversKeep.is_made(),
        })
    }

    /// The channels that are registered with all QPs of a domain.
    fn members_of_all(&self, domain: Id) -> Vec<Id> {
        let of_domain = |of: &Channel| of.domain == Some(domain) && !of.has_ended;
        let channels = self.channels.iter();
        let found = channels.filter(|(id, of)| of_domain(of) && self.is_of_all(**id));
        found.map(|(id, _)| *id).collect()
    }

    /// EVENT_CHANNEL_ALLOC has created a channel.
    pub(crate) fn create_channel(
        &mut self,
        id: Id,
        caller: Caller,
        domain: Id,
        mask: u64,
        of: Membership,
    ) {
        let channel = Channel {
            file: caller.file,
            domain: Some(domain),
            right: caller.right,
            mask,
            of,
            registrations: BTreeMap::new(),
            has_lost: false,
            has_ended: false,
        };
        self.channels.insert(id, channel);
        if of != Membership::Named {
            let qps: Vec<_> = self.found_in(domain).collect();
            for qp in qps {
                self.add(id, qp, self.keeps_new(id), self.position);
            }
        }
    }

    /// MODIFY of a QP has moved it to a state, or to one that is not known.
    pub(crate) fn modified(&mut self, id: QpId, state: Option<State>) {
        if let Some(qp) = self.qps.get_mut(&id) {
            qp.state = state;
        }
    }

    /// REG of a QP number. A registration that the channel has stays as it is.
    pub(crate) fn register(&mut self, caller: Caller, channel: Id, number: u32) {
        let Some(of) = self.channels.get(&channel) else {
            return;
        };
        let id = of.domain.and_then(|domain| self.find(domain, number));
        let Some((id, qp)) = id.and_then(|id| Some((id, self.qps.get(&id)?))) else {
            return;
        };
        if !of.registrations.contains_key(&id) {
            let may_keep = of.right >= Right::Write || qp.creator == caller.user;
            let keeps = may_keep || Mutant::ReadersKeep.is_made();
            let read = if Mutant::LateHearsAll.is_made() {
                0
            } else {
                self.position
            };
            self.add(channel, id, keeps, read);
        }
    }

    fn add(&mut self, channel: Id, id: QpId, keeps: bool, read: u64) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            let registration = Registration {
                keeps,
                is_released: false,
                read,
            };
            channel.registrations.insert(id, registration);
            self.step(id, Step::Register { keeps });
        }
    }

    /// UNREG of a QP number: the registrations with the QPs that have, or had, it end.
    pub(crate) fn unregister_number(&mut self, channel: Id, number: u32) {
        let Some(of) = self.channels.get(&channel) else {
            return;
        };
        let ids = of.registrations.keys().copied();
        let leaves = |qp: &Known| qp.is_gone() && Mutant::UnregLeavesRecords.is_made();
        let is_named = |qp: &Known| qp.number == number && !leaves(qp);
        let has_number = |id: &QpId| self.qps.get(id).is_some_and(is_named);
        for id in ids.filter(has_number).collect::<Vec<_>>() {
            self.unregister(channel, id);
        }
    }

    fn unregister(&mut self, channel: Id, id: QpId) {
        let Some(channel) = self.channels.get_mut(&channel) else {
            return;
        };
        let Some(registration) = channel.registrations.remove(&id) else {
            return;
        };
        let is_gone = self.qps.get(&id).is_some_and(Known::is_gone);
        if !registration.is_released && !is_gone {
            let keeps = registration.keeps;
            self.step(id, Step::Unregister { keeps });
        }
        self.forget(id);
    }

    /// The device is removed for a channel, of which others of its file may be left for a time: its
    /// registrations keep nothing any more, and stay for their records until it is closed.
    pub fn release_channel(&mut self, channel: Id) {
        let Some(of) = self.channels.get_mut(&channel) else {
            return;
        };
        of.has_ended = true;
        let mut released = Vec::new();
        for (id, registration) in &mut of.registrations {
            let is_gone = self.qps.get(id).is_some_and(Known::is_gone);
            if !is_gone && !registration.is_released {
                registration.is_released = true;
                released.push((*id, registration.keeps));
            }
        }
        for (id, keeps) in released {
            self.step(id, Step::Unregister { keeps });
        }
    }

    /// Forgets the registrations that have ended with a QP or the device and have no record to
    /// read, and the QP if nothing can be read of it any more.
    fn forget(&mut self, id: QpId) {
        let is_gone = self.qps.get(&id).is_some_and(Known::is_gone);
        let mut is_read = Vec::new();
        for (channel, of) in &self.channels {
            if let Some(registration) = of.registrations.get(&id) {
                let has_ended = is_gone || registration.is_released;
                let unread = self.unread_of(of);
                if has_ended && unread.iter().all(|(of_qp, ..)| *of_qp != id) {
                    is_read.push(*channel);
                }
            }
        }
        for channel in is_read {
            if let Some(of) = self.channels.get_mut(&channel) {
                of.registrations.remove(&id);
            }
        }
        let mut channels = self.channels.values();
        let is_known = channels.any(|of| of.registrations.contains_key(&id));
        if is_gone && !is_known && !Mutant::GoneStay.is_made() {
            self.qps.remove(&id);
        }
    }

    /// The records of the QPs that were destroyed before the others of a domain are lost, if they
    /// are too many.
    fn evict(&mut self, domain: Id) {
        let Some(kept) = self.kept else {
            return;
        };
        let qps = self.qps.range((domain, 0)..=(domain, u64::MAX));
        let gone = qps.filter(|(_, qp)| qp.is_gone());
        let mut gone: Vec<_> = gone.map(|(id, qp)| (qp.position(), *id)).collect();
        gone.sort_unstable();
        let too_many = gone.len().saturating_sub(kept);
        if Mutant::NewestIsLost.is_made() {
            gone.reverse();
        }
        for (_, id) in gone.into_iter().take(too_many) {
            for of in self.channels.values_mut() {
                let is_lost = of.registrations.remove(&id).is_some();
                of.has_lost |= is_lost && !Mutant::LossIsSilent.is_made();
                of.has_lost |= Mutant::OverrunOfNothing.is_made();
            }
            self.qps.remove(&id);
        }
    }

    /// A step in the life of a QP. If nothing keeps it any more, its end is the next.
    fn step(&mut self, id: QpId, step: Step) {
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        let closed = self.closed.contains(&id.0);
        // The contract takes each step where the life of a QP has it.
        qp.life = qp.life.step(step, closed).expect("a step of its life");
        if qp.life.phase == Phase::Unneeded {
            self.end(id, false, closed);
        }
    }

    /// A QP ends, by DESTROY with FORCE or without, or with its domain: it is destroyed, and the
    /// registrations that it has get QP_GONE.
    pub(crate) fn end(&mut self, id: QpId, forced: bool, with_domain: bool) {
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        let end = qp.life.step(Step::End { forced }, with_domain);
        qp.life = end.expect("a QP ends when the contract says so");
        self.position += 1;
        if !Mutant::GoneMissing.is_made() {
            qp.events.insert(QP_GONE, (1, self.position));
        }
        self.step(id, Step::Gone);
        self.forget(id);
        self.evict(id.0);
    }

    /// The provider reports an event of a QP.
    pub fn event(&mut self, domain: Id, serial: u64, kind: u32) {
        let Some(qp) = self.qps.get_mut(&(domain, serial)) else {
            return;
        };
        if qp.life.phase >= Phase::Ended && !Mutant::EventAfterGone.is_made() {
            return;
        }
        self.position += 1;
        let (total, position) = qp.events.entry(kind).or_default();
        *total += 1;
        *position = self.position;
        qp.state = None;
    }

    /// Returns the records of a channel that are unread, in order, with the QP and the position of
    /// the last event of each.
    fn unread_of(&self, channel: &Channel) -> Vec<(QpId, u64, Event)> {
        let mut unread = Vec::new();
        for (id, registration) in &channel.registrations {
            let Some(qp) = self.qps.get(id) else {
                continue;
            };
            let mut events = qp.events.clone();
            if registration.is_released {
                events.entry(QP_GONE).or_insert((1, u64::MAX));
            }
            for (kind, (total, position)) in events {
                let is_masked = channel.mask & (1 << kind) == 0 && !Mutant::MaskIgnored.is_made();
                if position > registration.read && !is_masked {
                    let event = Event {
                        number: qp.number,
                        serial: id.1,
                        kind,
                        total,
                    };
                    unread.push((*id, position, event));
                }
            }
        }
        unread.sort_by_key(|(id, position, _)| (*position, *id));
        if Mutant::Unordered.is_made() {
            unread.sort_by_key(|(id, ..)| *id);
        }
        unread
    }

    /// Returns the records of a channel that are unread, in order.
    pub fn unread(&self, channel: Id) -> Vec<Event> {
        let unread = self.unread_at(channel).into_iter();
        unread.map(|(.., event)| event).collect()
    }

    /// Returns the records of a channel that are unread, in order, each with the domain of its QP
    /// and the [position](Objects::position) of its last event: 0 and 0 for OVERRUN.
    pub fn unread_at(&self, channel: Id) -> Vec<(Id, u64, Event)> {
        let Some(of) = self.channels.get(&channel) else {
            return Vec::new();
        };
        let overrun = of.has_lost.then_some((0, 0, OVERRUN_RECORD));
        let unread = self.unread_of(of).into_iter();
        let unread = unread.map(|(id, position, event)| (id.0, position, event));
        overrun.into_iter().chain(unread).collect()
    }

    /// Returns the number of events so far, which is the position of the last.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// A process reads the first `count` records of a channel.
    pub fn read(&mut self, channel: Id, count: usize) {
        let mut unread = self.unread(channel);
        unread.truncate(count);
        self.read_these(channel, &unread);
    }

    /// A process reads some of the records of a channel that are unread: of events that happened at
    /// the same time, any may be the first.
    pub fn read_these(&mut self, channel: Id, events: &[Event]) {
        let Some(of) = self.channels.get_mut(&channel) else {
            return;
        };
        of.has_lost &= !events.contains(&OVERRUN_RECORD);
        let mut unread = self.channels.get(&channel).map(|of| self.unread_of(of));
        let unread = unread.iter_mut().flat_map(|unread| unread.drain(..));
        for (id, position, _) in unread.filter(|(.., event)| events.contains(event)) {
            let of = self.channels.get_mut(&channel);
            if let Some(registration) = of.and_then(|of| of.registrations.get_mut(&id)) {
                registration.read = match () {
                    _ if Mutant::ReadAgain.is_made() => registration.read,
                    _ if Mutant::ReadSkips.is_made() => self.position,
                    _ => position,
                };
            }
            self.forget(id);
        }
    }

    /// A uverbs file is opened.
    pub fn open_file(&mut self, file: Id) {
        self.files.entry(file).or_default();
    }

    /// A file opens a domain.
    pub fn open_domain(&mut self, file: Id, handle: u64, domain: Id) {
        let file = self.files.entry(file).or_default();
        file.handles.insert(handle, domain);
        self.closed.remove(&domain);
    }

    /// A file closes its handle of a domain. Returns whether it had one.
    pub fn close_handle(&mut self, file: Id, handle: u64) -> bool {
        let file = self.files.get_mut(&file);
        let Some(domain) = file.and_then(|of| of.handles.remove(&handle)) else {
            return false;
        };
        self.handle_closed(domain);
        true
    }

    /// A handle of a domain was closed. With the last one all QPs of the domain end.
    fn handle_closed(&mut self, domain: Id) {
        if self.is_open(domain) {
            return;
        }
        if !Mutant::CloseLeavesQps.is_made() {
            self.end_domain(domain);
        }
        for channel in self.channels.values_mut() {
            channel.domain.take_if(|of| *of == domain);
        }
    }

    /// All QPs of a domain end: it is closed for the last time, or its device removed.
    pub fn end_domain(&mut self, domain: Id) {
        let ids: Vec<_> = self.found_in(domain).collect();
        for id in ids {
            self.end(id, false, true);
        }
        self.closed.insert(domain);
    }

    /// The numbers of the QPs of a domain that can be found, in order.
    pub fn numbers(&self, domain: Id) -> Vec<u32> {
        let found = self.found_in(domain);
        let mut numbers: Vec<_> = found
            .filter_map(|id| Some(self.qps.get(&id)?.number))
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// The registrations of a channel end with its file, of which others may be left for a time.
    pub fn end_channel(&mut self, channel: Id) {
        let Some(of) = self.channels.get_mut(&channel) else {
            return;
        };
        of.has_ended = true;
        let ids: Vec<_> = of.registrations.keys().copied().collect();
        for id in ids {
            self.unregister(channel, id);
        }
        // Nothing is left to read, nor that something was lost: also of what it has lost just now.
        if let Some(of) = self.channels.get_mut(&channel) {
            of.has_lost = false;
        }
    }

    /// A channel is closed for the last time.
    pub fn close_channel(&mut self, channel: Id) {
        self.end_channel(channel);
        self.channels.remove(&channel);
    }

    fn channels_of(&self, file: Id) -> Vec<Id> {
        let channels = self.channels.iter().filter(|(_, of)| of.file == file);
        channels.map(|(channel, _)| *channel).collect()
    }

    /// A uverbs file is closed for the last time: its channels end, then its handles are closed.
    pub fn close_file(&mut self, file: Id) {
        for channel in self.channels_of(file) {
            if !Mutant::CloseLeavesChannels.is_made() {
                self.end_channel(channel);
            }
        }
        let closed = self.files.remove(&file).unwrap_or_default();
        for domain in closed.handles.into_values() {
            self.handle_closed(domain);
        }
    }

    /// The device is removed, for one of its files, and for each in the end. Registrations of its
    /// channels keep nothing any more, and stay for their records until the channel is closed.
    pub fn remove_device_of(&mut self, file: Id) {
        for channel in self.channels_of(file) {
            if Mutant::RemovalDropsRecords.is_made() {
                self.end_channel(channel);
            } else {
                self.release_channel(channel);
            }
        }
        let Some(of) = self.files.get_mut(&file) else {
            return;
        };
        of.is_removed = true;
        for domain in std::mem::take(&mut of.handles).into_values() {
            self.handle_closed(domain);
        }
    }
}
