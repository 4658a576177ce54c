// SPDX-License-Identifier: GPL-2.0

//! Processes that make calls, read and end in any order, in one or two domains: each step is one of
//! [`Contract`], and after each the [promises](crate::promises) are compared with it.
//!
//! A call is one step here. [`System`](crate::System) has the steps between which the module holds
//! no lock.

use std::{
    hash::{Hash, Hasher},
    sync::OnceLock,
};

use stateright::{Model, Property};
use xrc_rcv_spec::{
    Alloc, Attributes, Call, Caller, Contract, Destroy, Errnos, Id, Lifetime, Membership, Mutant,
    Outcome, Right,
};

use crate::promises::{Breach, Member, Promises, QpId};

/// The user of a uverbs file, with its right in all domains, and those that it opens.
#[derive(Clone, Debug)]
pub struct FileTerms {
    pub right: Right,
    pub domains: &'static [Id],
}

/// An event channel that a file creates, at any time.
#[derive(Clone, Debug)]
pub struct ChannelTerms {
    pub file: Id,
    pub domain: Id,
    pub mask: u64,
    pub of: Membership,
    /// Whether anyone reads it.
    pub is_read: bool,
}

/// What happens in a configuration, without which its properties would say less than they seem to.
#[derive(Clone, Copy, Debug)]
pub enum Shown {
    /// Records are lost.
    Loss,
    /// A number is used again while records of the QP before are unread.
    SameNumber,
    /// The last channel, which is not read, registers after an event.
    LateRegistration,
    /// A QP outlives the file of its creator.
    Outlived,
}

impl Shown {
    fn property(self) -> Property<Node> {
        match self {
            Shown::Loss => Property::sometimes("records are lost", |_, state: &NodeState| {
                state.promises.has_lost()
            }),
            Shown::SameNumber => {
                Property::sometimes("a number is used again", |_, state: &NodeState| {
                    state.promises.has_two_of_a_number()
                })
            }
            Shown::LateRegistration => Property::sometimes(
                "a registration is late",
                |node: &Node, state: &NodeState| {
                    state.promises.is_late(node.channels.len() as Id - 1)
                },
            ),
            Shown::Outlived => {
                Property::sometimes("a QP outlives its creator", |_, state: &NodeState| {
                    state
                        .promises
                        .has_outlived(|user| state.files & (1 << user) == 0)
                })
            }
        }
    }
}

/// The configuration.
#[derive(Clone, Debug)]
pub struct Node {
    /// By number, from 0.
    pub files: &'static [FileTerms],
    pub channels: &'static [ChannelTerms],
    /// The number of QPs that are created.
    pub qps: u64,
    /// The number of events of each QP, and their types.
    pub events: u64,
    pub kinds: &'static [u32],
    /// The number of QPs that were destroyed whose records are kept.
    pub kept: Option<usize>,
    /// Whether the device may be removed.
    pub is_removed: bool,
    pub shows: &'static [Shown],
    pub mutant: Option<Mutant>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeState {
    contract: Contract,
    promises: Promises,
    /// A call has a result that it must not have.
    is_wrong: bool,
    compared: Compared,
    /// The number of QPs that were created, in each domain.
    created: [u64; 2],
    /// The files that are open, and the channels that were created, by number.
    files: u8,
    channels: u8,
}

/// Whether the contract and the promises say the same, once they were compared. Most steps lead to
/// states that are known.
#[derive(Debug, Default)]
struct Compared(OnceLock<Option<Breach>>);

impl Clone for Compared {
    /// The copy becomes another state.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Compared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Compared {}

impl Hash for Compared {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl NodeState {
    /// Returns the promise that the last step has broken.
    fn broken(&self, node: &Node) -> Option<Breach> {
        if self.is_wrong {
            return Some(Breach::Result);
        }
        let compare = || self.promises.compare(&self.contract.objects);
        let compare = || Mutant::during(node.mutant, compare);
        *self.compared.0.get_or_init(compare)
    }
}

/// A step, of objects by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Join(Id),
    CloseChannel(Id),
    Alloc(Id, Alloc),
    Reg(Id, u32),
    Unreg(Id, u32),
    Destroy(Id, Destroy),
    Event(QpId, u32),
    Read(Id),
    CloseHandle(Id, Id),
    CloseFile(Id),
    RemoveDevice(Id),
}

const DONE: Outcome = Outcome {
    result: Ok(()),
    number: 0,
    serial: 0,
    channel: 0,
    done: 0,
    total: None,
};

const HAS_RESULT: &str = "a call has the result that the rights and the registrations give it";
const LIVES: &str = "a QP exists as long as its lifetime says";
const MASKED: &str = "a channel has no record that its mask excludes";
const LAST: &str = "QP_GONE is the last record of a QP";
const GONE: &str = "QP_GONE reaches each registration with a QP that ends, once";
const ADDED: &str = "QP_ADDED reaches each member of all QPs that existed, once, and no other";
const LOST: &str = "OVERRUN comes if records were lost, once, and they are the oldest";
const EVENTS: &str = "each event reaches each registration that exists when it happens, once";
const ORDER: &str = "records are in the order of their last events";
const ZERO: &str = "nothing is left when all is closed";

impl Node {
    /// Each mutant of the contract that changes what calls do, with the property that finds it.
    pub const MUTANTS: [(Mutant, &'static str); 24] = [
        (Mutant::UnregNotCounted, LIVES),
        (Mutant::RegOfUnknown, HAS_RESULT),
        (Mutant::DestroyOfKept, HAS_RESULT),
        (Mutant::ForceByAnyone, HAS_RESULT),
        (Mutant::ReadersKeep, LIVES),
        (Mutant::ObserversKeep, LIVES),
        (Mutant::NumberOfAnyDomain, HAS_RESULT),
        (Mutant::CloseLeavesQps, LIVES),
        (Mutant::CloseLeavesChannels, LIVES),
        (Mutant::MaskIgnored, MASKED),
        (Mutant::LateHearsAll, EVENTS),
        (Mutant::ReadAgain, EVENTS),
        (Mutant::ReadSkips, EVENTS),
        (Mutant::UnregLeavesRecords, GONE),
        (Mutant::Unordered, ORDER),
        (Mutant::GoneMissing, GONE),
        (Mutant::EventAfterGone, LAST),
        (Mutant::AddedToCreator, ADDED),
        (Mutant::AllMissNew, ADDED),
        (Mutant::LossIsSilent, LOST),
        (Mutant::OverrunOfNothing, LOST),
        (Mutant::NewestIsLost, GONE),
        (Mutant::RemovalDropsRecords, GONE),
        (Mutant::GoneStay, ZERO),
    ];

    fn caller(&self, file: Id) -> Caller {
        Caller {
            file,
            user: file as u32,
            right: self.files[file as usize].right,
        }
    }

    /// The lowest number that no QP has: QPs that differ in their numbers alone are one.
    fn free_number(&self, state: &NodeState) -> u32 {
        let is_free = |number: &u32| {
            let mut domains = [1, 2].iter();
            domains.all(|domain| state.promises.find(*domain, *number).is_none())
        };
        let mut numbers = self.numbers();
        numbers.find(is_free).unwrap_or_default()
    }

    /// The numbers that QPs have, or that channels may have records of.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        1..=self.qps as u32
    }

    fn actions_of_channel(&self, state: &NodeState, channel: Id, actions: &mut Vec<Doing>) {
        let terms = &self.channels[channel as usize];
        let is_new = state.channels & (1 << channel) == 0;
        if is_new && state.promises.has_open(terms.file, terms.domain) {
            actions.push(Doing::Join(channel));
        }
        if !state.promises.members.contains_key(&channel) {
            return;
        }
        actions.push(Doing::CloseChannel(channel));
        for number in self.numbers() {
            actions.push(Doing::Reg(channel, number));
            actions.push(Doing::Unreg(channel, number));
        }
        if terms.is_read && !state.contract.objects.unread(channel).is_empty() {
            actions.push(Doing::Read(channel));
        }
    }

    fn actions_of_file(&self, state: &NodeState, file: Id, actions: &mut Vec<Doing>) {
        if state.files & (1 << file) == 0 {
            return;
        }
        actions.push(Doing::CloseFile(file));
        if state.promises.is_removed(file) {
            return;
        }
        if self.is_removed {
            actions.push(Doing::RemoveDevice(file));
        }
        for domain in self.files[file as usize].domains.iter().copied() {
            if !state.promises.has_open(file, domain) {
                continue;
            }
            actions.push(Doing::CloseHandle(file, domain));
            for (number, force) in self.numbers().flat_map(|of| [(of, false), (of, true)]) {
                let destroy = Destroy {
                    handle: domain,
                    number,
                    force: Some(force),
                };
                actions.push(Doing::Destroy(file, destroy));
            }
            if state.created.iter().sum::<u64>() < self.qps {
                self.allocs(state, file, domain, actions);
            }
        }
    }

    fn allocs(&self, state: &NodeState, file: Id, domain: Id, actions: &mut Vec<Doing>) {
        let members = state.promises.members.iter();
        let own = members.filter(|(_, of)| of.file == file && of.is_open);
        let channels = own.map(|(channel, _)| Some(*channel)).chain([None]);
        for channel in channels {
            for lifetime in [Lifetime::Registrations, Lifetime::Domain] {
                let alloc = Alloc {
                    handle: domain,
                    lifetime: Some(lifetime),
                    attributes: Attributes::Absent,
                    channel,
                };
                actions.push(Doing::Alloc(file, alloc));
            }
        }
    }

    /// Whether a call succeeds, by the words of semantics.rst.
    fn succeeds(&self, promises: &Promises, action: Doing) -> bool {
        let member = |channel: Id| promises.members.get(&channel).filter(|of| of.is_open);
        match action {
            Doing::Alloc(file, alloc) => {
                let lives_on = alloc.lifetime == Some(Lifetime::Domain);
                let is_kept = match alloc.channel {
                    Some(channel) => member(channel).is_some_and(|of| {
                        of.domain == alloc.handle && (of.keeps_new() || lives_on)
                    }),
                    None => lives_on,
                };
                self.caller(file).right >= Right::Write && is_kept
            }
            Doing::Reg(channel, number) => {
                member(channel).is_some_and(|of| promises.find(of.domain, number).is_some())
            }
            Doing::Unreg(channel, _) => {
                member(channel).is_some_and(|of| of.of == Membership::Named)
            }
            Doing::Destroy(file, destroy) => {
                let Some(id) = promises.find(destroy.handle, destroy.number) else {
                    return false;
                };
                let right = match self.caller(file) {
                    caller if promises.is_creator(id, caller.user) => Right::Own,
                    caller => caller.right,
                };
                if destroy.force == Some(true) {
                    return right == Right::Own;
                }
                right >= Right::Write && promises.lives_on(id) && !promises.is_kept(id)
            }
            _ => true,
        }
    }

    /// Returns the call that an action makes, of a file, with its answers if it succeeds.
    fn call(&self, state: &NodeState, action: Doing) -> Option<(Id, Call, Outcome)> {
        Some(match action {
            Doing::Join(channel) => {
                let terms = &self.channels[channel as usize];
                let call = Call::EventChannelAlloc {
                    handle: terms.domain,
                    mask: terms.mask,
                    of: Some(terms.of),
                };
                (terms.file, call, Outcome { channel, ..DONE })
            }
            Doing::Alloc(file, alloc) => {
                let created = Outcome {
                    number: self.free_number(state),
                    serial: state.created[alloc.handle as usize - 1] + 1,
                    ..DONE
                };
                (file, Call::Alloc(alloc), created)
            }
            Doing::Reg(channel, number) | Doing::Unreg(channel, number) => {
                let numbers = vec![number];
                let call = match action {
                    Doing::Reg(..) => Call::Reg { channel, numbers },
                    _ => Call::Unreg { channel, numbers },
                };
                let file = self.channels[channel as usize].file;
                (file, call, Outcome { done: 1, ..DONE })
            }
            Doing::Destroy(file, destroy) => (file, Call::Destroy(destroy), DONE),
            _ => return None,
        })
    }

    /// Promises the effect of a call that has succeeded.
    fn promise(&self, state: &mut NodeState, action: Doing, outcome: &Outcome) {
        let promises = &mut state.promises;
        match action {
            Doing::Join(channel) => {
                let terms = &self.channels[channel as usize];
                let right = self.caller(terms.file).right;
                let member = Member::new(terms.file, terms.domain, terms.mask, terms.of, right);
                state.channels |= 1 << channel;
                promises.join(channel, member);
            }
            Doing::Alloc(file, alloc) => {
                let id = (alloc.handle, outcome.serial);
                let lifetime = alloc.lifetime.unwrap_or(Lifetime::Domain);
                let made = (outcome.number, lifetime, self.caller(file).user);
                state.created[alloc.handle as usize - 1] = outcome.serial;
                promises.create(id, made, alloc.channel);
            }
            Doing::Reg(channel, number) => {
                let file = self.channels[channel as usize].file;
                promises.register_number(channel, number, self.caller(file).user);
            }
            Doing::Unreg(channel, number) => promises.unregister(channel, number),
            Doing::Destroy(_, destroy) => {
                if let Some(id) = promises.find(destroy.handle, destroy.number) {
                    promises.destroy(id);
                    promises.settle();
                }
            }
            _ => (),
        }
    }

    /// Does an action that is no call of a method.
    fn effect(&self, state: &mut NodeState, action: Doing) {
        let NodeState {
            contract, promises, ..
        } = state;
        let objects = &mut contract.objects;
        match action {
            Doing::CloseChannel(channel) => {
                objects.close_channel(channel);
                promises.close(channel);
            }
            Doing::Event((domain, serial), kind) => {
                objects.event(domain, serial, kind);
                promises.happens((domain, serial), kind);
            }
            Doing::Read(channel) => {
                let unread = objects.unread(channel);
                objects.read(channel, 1);
                if let Some(first) = unread.first() {
                    promises.read(channel, first);
                }
            }
            Doing::CloseHandle(file, domain) => {
                objects.close_handle(file, domain);
                promises.close_handle(file, domain);
            }
            Doing::CloseFile(file) => {
                objects.close_file(file);
                promises.close_file(file, false);
                state.files &= !(1 << file);
            }
            Doing::RemoveDevice(file) => {
                objects.remove_device_of(file);
                promises.close_file(file, true);
            }
            _ => (),
        }
    }

    /// Returns the state after an action, none if a call fails as it should.
    fn step(&self, state: &NodeState, action: Doing) -> Option<NodeState> {
        let mut next;
        if let Some((file, call, outcome)) = self.call(state, action) {
            let caller = self.caller(file);
            let is_refused = !state.contract.results(caller, &call).certain.is_empty();
            let should_succeed = self.succeeds(&state.promises, action);
            if is_refused && !should_succeed {
                return None;
            }
            next = state.clone();
            let taken = next.contract.take(caller, &call, &outcome, Errnos::NONE);
            if taken.is_err() || !should_succeed {
                next.is_wrong = true;
                return Some(next);
            }
            self.promise(&mut next, action, &outcome);
        } else {
            next = state.clone();
            self.effect(&mut next, action);
        }
        next.contract.objects.renumber();
        Some(next)
    }
}

impl Model for Node {
    type State = NodeState;
    type Action = Doing;

    fn init_states(&self) -> Vec<NodeState> {
        let mut contract = Contract::new();
        let mut promises = Promises::new(self.kept);
        if let Some(kept) = self.kept {
            contract.objects.keep_gone(kept);
        }
        for (file, terms) in (0..).zip(self.files) {
            contract.objects.open_file(file);
            for domain in terms.domains {
                contract.objects.open_domain(file, *domain, *domain);
                promises.open(file, *domain);
            }
        }
        vec![NodeState {
            contract,
            promises,
            is_wrong: false,
            compared: Compared::default(),
            created: [0; 2],
            files: (1 << self.files.len()) - 1,
            channels: 0,
        }]
    }

    fn actions(&self, state: &NodeState, actions: &mut Vec<Doing>) {
        if state.broken(self).is_some() {
            return;
        }
        for channel in 0..self.channels.len() as Id {
            self.actions_of_channel(state, channel, actions);
        }
        for file in 0..self.files.len() as Id {
            self.actions_of_file(state, file, actions);
        }
        for (id, _) in state.promises.qps() {
            if state.promises.events(id) < self.events {
                actions.extend(self.kinds.iter().map(|kind| Doing::Event(id, *kind)));
            }
        }
    }

    fn next_state(&self, state: &NodeState, action: Doing) -> Option<NodeState> {
        Mutant::during(self.mutant, || self.step(state, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! never {
            ($name:ident: $broken:ident) => {
                Property::always($name, |node: &Self, state: &NodeState| {
                    state.broken(node) != Some(Breach::$broken)
                })
            };
        }

        let mut properties = vec![
            never!(HAS_RESULT: Result),
            never!(LIVES: Life),
            never!(MASKED: Mask),
            never!(LAST: AfterGone),
            never!(GONE: Gone),
            never!(ADDED: Added),
            never!(LOST: Overrun),
            never!(EVENTS: Event),
            never!(ORDER: Order),
            Property::always(ZERO, |_, state: &NodeState| {
                let is_over = state.files == 0 && state.promises.members.is_empty();
                !is_over || state.contract.objects.is_unused() && state.promises.is_unused()
            }),
        ];
        properties.extend(self.shows.iter().map(|shown| shown.property()));
        properties
    }
}
