// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The objects that calls name, with the effects of calls and events on them: uverbs files with
//! handles of domains, event channels, and receive QPs with their registrations.
//!
//! The life of each QP is that of [`Qp`]: an effect that its rules do not allow is a fault of the
//! contract itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{Alloc, Attributes, Breach, Caller, Id, Outcome, Right, State};
use crate::{Phase, Qp, Step};

/// The type of QP_GONE.
pub const QP_GONE: u32 = 63;

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

/// A domain and a serial number.
pub(crate) type QpId = (Id, u64);

#[derive(Clone, Default, Debug)]
struct File {
    handles: BTreeMap<u64, Id>,
    /// Its device is being removed.
    is_removed: bool,
}

#[derive(Clone, Debug)]
struct Channel {
    file: Id,
    /// `None` after the last close of the domain: one that is opened by the same file later is
    /// another.
    domain: Option<Id>,
    right: Right,
    mask: u64,
    registrations: BTreeMap<QpId, Registration>,
    /// No event is added any more.
    has_ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    keeps: bool,
    /// It ended with the device: QP_GONE is its last record, and it keeps nothing.
    is_released: bool,
    /// The position of the last event that was read, or came before the registration.
    read: u64,
}

/// A receive QP.
#[derive(Clone, Debug)]
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

    /// The position of the last event.
    fn position(&self) -> u64 {
        let positions = self.events.values().map(|(_, position)| *position);
        positions.max().unwrap_or(0)
    }
}

/// See the [module's documentation](self).
#[derive(Clone, Default, Debug)]
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
}

impl Objects {
    /// Returns a device without objects.
    pub fn new() -> Objects {
        Objects::default()
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
        let mut found = self.found_in(domain);
        found.find(|id| self.qps.get(id).is_some_and(|qp| qp.number == number))
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
        let registers = alloc.channel.is_some();
        self.step(id, Step::Alloc { registers });
        if let Some(channel) = alloc.channel {
            self.add(channel, id, true);
        }
        Ok(())
    }

    /// EVENT_CHANNEL_ALLOC has created a channel.
    pub(crate) fn create_channel(&mut self, id: Id, caller: Caller, domain: Id, mask: u64) {
        let channel = Channel {
            file: caller.file,
            domain: Some(domain),
            right: caller.right,
            mask,
            registrations: BTreeMap::new(),
            has_ended: false,
        };
        self.channels.insert(id, channel);
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
            let keeps = of.right >= Right::Write || qp.creator == caller.user;
            self.add(channel, id, keeps);
        }
    }

    fn add(&mut self, channel: Id, id: QpId, keeps: bool) {
        let read = self.position;
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

    /// UNREG of a QP number: the registration with the oldest QP that has, or had, it ends.
    pub(crate) fn unregister_number(&mut self, channel: Id, number: u32) {
        let Some(of) = self.channels.get(&channel) else {
            return;
        };
        let mut ids = of.registrations.keys();
        let id = ids.find(|id| self.qps.get(id).is_some_and(|qp| qp.number == number));
        if let Some(id) = id.copied() {
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
        if !registration.is_released {
            let keeps = registration.keeps;
            self.step(id, Step::Unregister { keeps });
        }
        self.forget(id);
    }

    /// The registrations of a channel end with the device.
    fn release(&mut self, channel: Id) {
        let Some(of) = self.channels.get_mut(&channel) else {
            return;
        };
        of.has_ended = true;
        let registrations = of.registrations.iter_mut();
        let mut released = Vec::new();
        for (id, registration) in registrations.filter(|(_, of)| !of.is_released) {
            registration.is_released = true;
            released.push((*id, registration.keeps));
        }
        for (id, keeps) in released {
            self.step(id, Step::Unregister { keeps });
        }
    }

    /// Forgets a QP of which nothing can be read any more.
    fn forget(&mut self, id: QpId) {
        let mut channels = self.channels.values();
        let is_over = self.qps.get(&id).is_some_and(|qp| qp.life.is_over());
        if is_over && !channels.any(|of| of.registrations.contains_key(&id)) {
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
        qp.events.insert(QP_GONE, (1, self.position));
        self.step(id, Step::Gone);
        self.forget(id);
    }

    /// The provider reports an event of a QP.
    pub fn event(&mut self, domain: Id, serial: u64, kind: u32) {
        let Some(qp) = self.qps.get_mut(&(domain, serial)) else {
            return;
        };
        if qp.life.phase >= Phase::Ended {
            return;
        }
        self.position += 1;
        let (total, position) = qp.events.entry(kind).or_default();
        *total += 1;
        *position = self.position;
        qp.state = None;
    }

    /// Returns the records of a channel that are unread, in order, with the QP and the position of
    /// each: by the last events of their QPs, those of a QP by their own.
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
                if position > registration.read && channel.mask & (1 << kind) != 0 {
                    let event = Event {
                        number: qp.number,
                        serial: id.1,
                        kind,
                        total,
                    };
                    unread.push((qp.position(), position, *id, event));
                }
            }
        }
        unread.sort_by_key(|(of_qp, position, ..)| (*of_qp, *position));
        let without = |(_, position, id, event)| (id, position, event);
        unread.into_iter().map(without).collect()
    }

    /// Returns the records of a channel that are unread, in order.
    pub fn unread(&self, channel: Id) -> Vec<Event> {
        let unread = self.channels.get(&channel).map(|of| self.unread_of(of));
        let unread = unread.unwrap_or_default();
        unread.into_iter().map(|(.., event)| event).collect()
    }

    /// A process reads the first `count` records of a channel.
    pub fn read(&mut self, channel: Id, count: usize) {
        let Some(of) = self.channels.get(&channel) else {
            return;
        };
        let unread = self.unread_of(of);
        for (id, position, _) in unread.into_iter().take(count) {
            let of = self.channels.get_mut(&channel);
            if let Some(registration) = of.and_then(|of| of.registrations.get_mut(&id)) {
                registration.read = position;
            }
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
        self.end_domain(domain);
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

    /// The registrations of a channel end.
    fn end_channel(&mut self, channel: Id) {
        let Some(of) = self.channels.get_mut(&channel) else {
            return;
        };
        of.has_ended = true;
        let ids: Vec<_> = of.registrations.keys().copied().collect();
        for id in ids {
            self.unregister(channel, id);
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
            self.end_channel(channel);
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
            self.release(channel);
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
