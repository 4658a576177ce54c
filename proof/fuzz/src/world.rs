// SPDX-License-Identifier: GPL-2.0

//! The objects that exist at each step of a program, as far as its calls succeed: most steps should
//! name objects that do.

use crate::dice::Dice;
use crate::program::*;
use crate::uapi::{
    XRC_RCV_ALLOC_LIFETIME_DOMAIN, XRC_RCV_DESTROY_FORCE, ib_uverbs_qp_attr, xrc_rcv_qp_info,
};

/// The states of a QP, as far as the attributes of MODIFY depend on them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Other,
}

impl State {
    /// Returns the attributes that take a QP to another state, those that are wanted more often
    /// more than once.
    fn transitions(self) -> &'static [Transition] {
        use Transition::*;
        match self {
            State::Reset => &[ToInit, ToInit, ToInitAndRtr],
            State::Init => &[ToRtr, ToRtr, ToRtr, ToInit, ToError, ToReset],
            State::Rtr => &[ToError, ToError, ToReset, ToRts],
            State::Rts => &[ToError, ToSqd, ToReset],
            State::Other => &[ToReset, ToError],
        }
    }

    /// Returns the state after these attributes.
    fn after(transition: Transition) -> State {
        match transition {
            Transition::ToReset => State::Reset,
            Transition::ToInit => State::Init,
            Transition::ToRtr | Transition::ToInitAndRtr => State::Rtr,
            Transition::ToRts => State::Rts,
            Transition::ToError | Transition::ToSqd | Transition::All => State::Other,
        }
    }
}

/// The channels of each process that are registered, or have something to read.
type OfChannels = [[bool; SLOTS]; PROCESSES];

const NO_CHANNEL: OfChannels = [[false; SLOTS]; PROCESSES];

#[derive(Clone, Copy)]
struct Qp {
    serial: usize,
    domain: u64,
    /// The process that created it: no other process can open its domain, if that has no file.
    creator: usize,
    /// Whether it has the lifetime of its domain.
    lives_on: bool,
    registered: OfChannels,
    state: State,
}

#[derive(Default)]
pub struct World {
    serial: usize,
    qps: [Option<Qp>; SLOTS],
    opened: [[bool; DOMAINS]; PROCESSES],
    /// The channels with a QP_GONE.
    unread: OfChannels,
}

fn choose<T: Copy>(dice: &mut impl Dice, from: impl Iterator<Item = T>) -> Option<T> {
    let all: Vec<T> = from.collect();
    all.get(dice.roll(all.len())).copied()
}

fn choose_transition(dice: &mut impl Dice, state: State) -> Arg {
    choose(dice, state.transitions().iter()).and_then(|transition| transition.arg())
}

/// Returns a channel of the domain of a QP.
fn channel_of(dice: &mut impl Dice, qp: &Qp) -> Arg {
    let of_domain = (0..SLOTS).filter(|slot| domain_of(*slot) as u64 == qp.domain);
    choose(dice, of_domain).map(|slot| slot as u64)
}

impl World {
    /// Makes a step name what exists, mostly, and does it.
    pub fn pass(&mut self, dice: &mut impl Dice, step: &mut Step) {
        if !dice.one_in(4) {
            self.connect(dice, step);
        }
        if step.spoils.is_empty() {
            self.run(step);
        }
    }

    /// Replaces the QP of a call by a QP that suits, if any does, and returns it.
    fn connect_qp(
        &self,
        dice: &mut impl Dice,
        process: usize,
        named: &mut Arg,
        suits: impl Fn(&Qp) -> bool,
    ) -> Option<Qp> {
        let can_use = |qp: &Qp| qp.domain != PRIVATE || qp.creator == process;
        let is_good = |slot: &usize| self.qps[*slot].is_some_and(|qp| can_use(&qp) && suits(&qp));
        let good = slot_of(*named).filter(is_good);
        let found = good.or_else(|| choose(dice, (0..SLOTS).filter(is_good)))?;
        *named = Some(found as u64);
        self.qps[found]
    }

    fn connect(&self, dice: &mut impl Dice, step: &mut Step) {
        let process = step.process();
        match &mut step.call {
            Call::Alloc { .. } => self.connect_alloc(dice, &mut step.call),
            Call::Reg { qp, channel, .. } | Call::IoctlReg { qp, channel, .. } => {
                let is_new = |qp: &Qp| qp.registered[process] == [false; SLOTS];
                if let Some(found) = self.connect_qp(dice, process, qp, is_new) {
                    *channel = channel_of(dice, &found);
                }
            }
            Call::Unreg { qp, channel, .. } | Call::IoctlUnreg { qp, channel, .. } => {
                let has = |qp: &Qp| qp.registered[process] != [false; SLOTS];
                if let Some(found) = self.connect_qp(dice, process, qp, has) {
                    let registered = (0..SLOTS).filter(|slot| found.registered[process][*slot]);
                    *channel = choose(dice, registered).map(|slot| slot as u64);
                }
            }
            Call::Modify { qp, domain, attr } => {
                if let Some(found) = self.connect_qp(dice, process, qp, |_| true) {
                    *domain = Some(found.domain);
                    *attr = choose_transition(dice, found.state);
                }
            }
            Call::Query {
                qp,
                domain,
                attr,
                info,
            } => {
                if let Some(found) = self.connect_qp(dice, process, qp, |_| true) {
                    *domain = Some(found.domain);
                }
                *attr = attr.map(|_| size_of::<ib_uverbs_qp_attr>() as u64);
                *info = info.map(|_| size_of::<xrc_rcv_qp_info>() as u64);
            }
            Call::Destroy { qp, domain, .. } => {
                let unneeded = |qp: &Qp| qp.lives_on && qp.registered == NO_CHANNEL;
                if let Some(found) = self.connect_qp(dice, process, qp, unneeded) {
                    *domain = Some(found.domain);
                }
            }
            Call::Read { channel, .. } | Call::Poll { channel } => {
                let all =
                    (0..PROCESSES).flat_map(|process| (0..SLOTS).map(move |slot| (process, slot)));
                let unread = all.filter(|(process, slot)| self.unread[*process][*slot]);
                if let Some((process, slot)) = choose(dice, unread) {
                    *channel = Some(slot as u64);
                    step.process = process as u8;
                }
            }
            _ => (),
        }
    }

    fn connect_alloc(&self, dice: &mut impl Dice, call: &mut Call) {
        let Call::Alloc {
            qp,
            domain,
            attr,
            channel,
            ..
        } = call
        else {
            return;
        };
        let empty = |slot: &usize| self.qps[*slot].is_none();
        if let Some(slot) = choose(dice, (0..SLOTS).filter(empty)) {
            *qp = Some(slot as u64);
        }
        if attr.is_some() {
            *attr = choose_transition(dice, State::Reset);
        }
        if let (Some(slot), Some(domain)) = (slot_of(*channel), *domain) {
            if domain_of(slot) as u64 != domain && domain < DOMAINS as u64 {
                *channel = Some(domain);
            }
        }
    }

    /// Ends QPs; the channels that are registered get QP_GONE.
    fn gone(&mut self, ends: impl Fn(&Qp) -> bool) {
        for qp in &mut self.qps {
            let Some(ended) = qp.take_if(|qp| ends(qp)) else {
                continue;
            };
            let of_processes = ended.registered.iter().zip(&mut self.unread);
            for (registered, unread) in of_processes {
                for (registered, unread) in registered.iter().zip(unread) {
                    *unread |= registered;
                }
            }
        }
    }

    /// Ends the registrations of a process for which `ends` is true, of a channel with a QP.
    fn unregister(&mut self, process: usize, ends: impl Fn(usize, &Qp) -> bool) {
        for place in &mut self.qps {
            let Some(qp) = place else {
                continue;
            };
            for slot in 0..SLOTS {
                if ends(slot, qp) {
                    qp.registered[process][slot] = false;
                }
            }
            place.take_if(|qp| !qp.lives_on && qp.registered == NO_CHANNEL);
        }
    }

    fn close_channel(&mut self, process: usize, channel: Arg) {
        if let Some(closed) = slot_of(channel) {
            self.unread[process][closed] = false;
            self.unregister(process, |slot, _| slot == closed);
        }
    }

    fn close_domain(&mut self, process: usize, domain: usize) {
        self.opened[process][domain] = false;
        let is_closed = !self.opened.iter().any(|opened| opened[domain]);
        self.gone(|qp| {
            qp.domain == domain as u64
                && if qp.domain == PRIVATE {
                    qp.creator == process
                } else {
                    is_closed
                }
        });
    }

    fn close_file(&mut self, process: usize) {
        self.unregister(process, |_, _| true);
        for domain in 0..DOMAINS {
            self.close_domain(process, domain);
        }
    }

    /// Returns the QP that a call names by its number and its domain.
    fn named(&mut self, call: &Call) -> Option<&mut Qp> {
        let slot = slot_of(call.qp())?;
        self.qps[slot]
            .as_mut()
            .filter(|qp| Some(qp.domain) == call.domain())
    }

    fn run(&mut self, step: &Step) {
        let process = step.process();
        if let Some(domain) = step.call.domain().filter(|which| *which < DOMAINS as u64) {
            self.opened[process][domain as usize] = true;
        }
        match step.call {
            Call::Alloc { .. } => {
                self.alloc(process, &step.call);
            }
            Call::Reg { qp, channel, .. } | Call::IoctlReg { qp, channel, .. } => {
                self.register(process, slot_of(qp), slot_of(channel));
            }
            Call::Unreg { qp, channel, .. } | Call::IoctlUnreg { qp, channel, .. } => {
                let serial = slot_of(qp).and_then(|slot| Some(self.qps[slot]?.serial));
                if let Some(channel) = slot_of(channel) {
                    self.unregister(process, |slot, qp| {
                        slot == channel && Some(qp.serial) == serial
                    });
                }
            }
            Call::Modify { attr, .. } => self.modify(&step.call, attr),
            Call::Destroy { flags, .. } => self.destroy(&step.call, flags),
            Call::Read { channel, .. } => {
                if let Some(slot) = slot_of(channel) {
                    self.unread[process][slot] = false;
                }
            }
            Call::CloseChannel { channel } | Call::Channel { channel, .. } => {
                self.close_channel(process, channel);
            }
            Call::CloseDomain { domain } => {
                self.close_domain(process, domain.unwrap_or(0) as usize % DOMAINS);
            }
            Call::CloseFile {} => self.close_file(process),
            Call::Kill { worker } => {
                self.close_file(process_of(worker));
                self.unread[process_of(worker)] = [false; SLOTS];
            }
            Call::TakeFile { worker } if process_of(worker) != process => {
                self.close_file(process);
                self.opened[process] = self.opened[process_of(worker)];
            }
            Call::Remove {} => *self = World::default(),
            _ => (),
        }
    }

    fn modify(&mut self, call: &Call, attr: Arg) {
        if let (Some(qp), Some(attr)) = (self.named(call), attr) {
            let transition = Transition::of(attr);
            if qp.state.transitions().contains(&transition) {
                qp.state = State::after(transition);
            }
        }
    }

    fn destroy(&mut self, call: &Call, flags: Arg) {
        let forced = flags == Some(XRC_RCV_DESTROY_FORCE.into());
        let serial = self.named(call).map(|qp| qp.serial);
        self.gone(|qp| {
            let unneeded = qp.lives_on && qp.registered == NO_CHANNEL;
            Some(qp.serial) == serial && (unneeded || forced)
        });
    }

    fn register(
        &mut self,
        process: usize,
        qp: Option<usize>,
        channel: Option<usize>,
    ) -> Option<()> {
        let (qp, channel) = (self.qps[qp?].as_mut()?, channel?);
        if domain_of(channel) as u64 == qp.domain {
            qp.registered[process][channel] = true;
        }
        Some(())
    }

    /// Creates a QP, if the call succeeds.
    fn alloc(&mut self, process: usize, call: &Call) -> Option<()> {
        let Call::Alloc {
            qp,
            domain,
            flags,
            attr,
            channel,
            ..
        } = *call
        else {
            return None;
        };
        let state = match attr.map(Transition::of) {
            None => State::Reset,
            Some(transition @ (Transition::ToInit | Transition::ToInitAndRtr)) => {
                State::after(transition)
            }
            Some(_) => return None,
        };
        let domain = domain.filter(|domain| *domain < DOMAINS as u64)?;
        let place = slot_of(qp)?;
        let lives_on = match flags.unwrap_or(0) {
            0 => false,
            flags if flags == u64::from(XRC_RCV_ALLOC_LIFETIME_DOMAIN) => true,
            _ => return None,
        };
        let channel = slot_of(channel);
        if channel.is_none() && !lives_on {
            return None;
        }
        let mut registered = NO_CHANNEL;
        if let Some(channel) = channel {
            registered[process][channel] = true;
        }
        self.serial += 1;
        self.qps[place] = Some(Qp {
            serial: self.serial,
            domain,
            creator: process,
            lives_on,
            registered,
            state,
        });
        Some(())
    }
}
