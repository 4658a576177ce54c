// SPDX-License-Identifier: GPL-2.0

//! What exists at each step of a program, as far as its calls succeed: most steps should name
//! objects that do.

use crate::choose::Dice;
use crate::program::*;
use crate::uapi::{ib_uverbs_qp_attr, xrc_rcv_qp_info};

#[derive(Clone, Copy)]
struct Qp {
    serial: usize,
    domain: u64,
    /// The process that allocated it: no other one can open its domain, if that has no file.
    maker: usize,
    /// Until DESTROY or the end of its domain, else until its last registration ends or DESTROY
    /// with FORCE.
    lives_on: bool,
    /// The channels of each process that are registered.
    registered: [[bool; SLOTS]; WORKERS],
    state: u64,
}

#[derive(Default)]
pub struct World {
    serial: usize,
    qps: [Option<Qp>; SLOTS],
    opened: [[bool; DOMAINS]; WORKERS],
    /// Channels with a QP_GONE.
    unread: [[bool; SLOTS]; WORKERS],
}

fn slot(arg: Option<u64>) -> Option<usize> {
    arg.map(|value| value as usize).filter(|slot| *slot < SLOTS)
}

fn choose<T: Copy>(dice: &mut impl Dice, from: impl Iterator<Item = T>) -> Option<T> {
    let all: Vec<T> = from.collect();
    all.get(dice.roll(all.len())).copied()
}

/// Attributes, see `qp_attr()`, that take a QP of a state to another one.
fn attrs(state: u64) -> &'static [u64] {
    match state {
        0 => &[1, 1, 4],
        1 => &[2, 2, 2, 1, 3, 0],
        2 => &[3, 3, 0, 5],
        3 => &[3, 6, 0],
        _ => &[0, 3],
    }
}

/// A channel of the domain of a QP.
fn channel_of(dice: &mut impl Dice, qp: &Qp) -> Option<u64> {
    let of_domain = (0..SLOTS).filter(|slot| domain_of(*slot) as u64 == qp.domain);

    choose(dice, of_domain).map(|slot| slot as u64)
}

impl World {
    /// Makes a step name what exists, mostly, and does it.
    pub fn pass(&mut self, dice: &mut impl Dice, step: &mut Step) {
        if !dice.one_in(4) {
            self.connect(dice, step);
        }
        if step.spoil.is_none() {
            self.run(step);
        }
    }

    fn can_use(&self, worker: usize, qp: &Qp) -> bool {
        qp.domain != 2 || qp.maker == worker
    }

    /// Makes the step's QP one that suits, if any does.
    fn connect_to(
        &self,
        dice: &mut impl Dice,
        step: &mut Step,
        suits: impl Fn(&Qp) -> bool,
    ) -> Option<Qp> {
        let worker = usize::from(step.worker);
        let good = |qp: &Qp| self.can_use(worker, qp) && suits(qp);
        let is_good = |slot: &usize| self.qps[*slot].is_some_and(|qp| good(&qp));
        let named = slot(step.args[0]).filter(is_good);
        let found = named.or_else(|| choose(dice, (0..SLOTS).filter(is_good)))?;
        step.args[0] = Some(found as u64);
        self.qps[found]
    }

    /// The same, and its domain that of the QP.
    fn connect_qp(
        &self,
        dice: &mut impl Dice,
        step: &mut Step,
        suits: impl Fn(&Qp) -> bool,
    ) -> Option<Qp> {
        let qp = self.connect_to(dice, step, suits)?;
        step.args[1] = Some(qp.domain);
        Some(qp)
    }

    fn connect(&self, dice: &mut impl Dice, step: &mut Step) {
        let worker = usize::from(step.worker);
        match step.call {
            Call::Alloc => {
                let empty = |slot: &usize| self.qps[*slot].is_none();
                if let Some(slot) = choose(dice, (0..SLOTS).filter(empty)) {
                    step.args[0] = Some(slot as u64);
                }
                if step.args[3].is_some() {
                    step.args[3] = Some(attrs(0)[dice.roll(3)]);
                }
                if let (Some(channel), Some(domain)) = (slot(step.args[4]), step.args[1]) {
                    if domain_of(channel) as u64 != domain && domain < DOMAINS as u64 {
                        step.args[4] = Some(domain);
                    }
                }
            }
            Call::Reg => {
                let is_new = |qp: &Qp| qp.registered[worker] == [false; SLOTS];
                if let Some(qp) = self.connect_to(dice, step, is_new) {
                    step.args[1] = channel_of(dice, &qp);
                }
            }
            Call::Unreg => {
                let has = |qp: &Qp| qp.registered[worker] != [false; SLOTS];
                if let Some(qp) = self.connect_to(dice, step, has) {
                    let registered = (0..SLOTS).filter(|slot| qp.registered[worker][*slot]);
                    step.args[1] = choose(dice, registered).map(|slot| slot as u64);
                }
            }
            Call::Modify => {
                if let Some(qp) = self.connect_qp(dice, step, |_| true) {
                    let attrs = attrs(qp.state);
                    step.args[2] = Some(attrs[dice.roll(attrs.len())]);
                }
            }
            Call::Query => {
                self.connect_qp(dice, step, |_| true);
                step.args[2] = step.args[2].map(|_| size_of::<ib_uverbs_qp_attr>() as u64);
                step.args[3] = step.args[3].map(|_| size_of::<xrc_rcv_qp_info>() as u64);
            }
            Call::Destroy => {
                self.connect_qp(dice, step, |qp| {
                    qp.lives_on && qp.registered == [[false; SLOTS]; WORKERS]
                });
            }
            Call::Read | Call::Poll => {
                let all =
                    (0..WORKERS).flat_map(|worker| (0..SLOTS).map(move |slot| (worker, slot)));
                let unread = all.filter(|(worker, slot)| self.unread[*worker][*slot]);
                if let Some((worker, slot)) = choose(dice, unread) {
                    step.worker = worker as u8;
                    step.args[0] = Some(slot as u64);
                }
            }
            _ => (),
        }
    }

    /// The QP ends; those registered get QP_GONE.
    fn gone(&mut self, of: impl Fn(&Qp) -> bool) {
        for qp in &mut self.qps {
            let Some(ended) = qp.take_if(|qp| of(qp)) else {
                continue;
            };
            let all = ended.registered.iter().zip(&mut self.unread);
            for (registered, unread) in all {
                for (registered, unread) in registered.iter().zip(unread) {
                    *unread |= registered;
                }
            }
        }
    }

    /// Ends registrations of a process, of which `ends` says whether that of a channel with a QP is
    /// one.
    fn unregister(&mut self, worker: usize, ends: impl Fn(usize, &Qp) -> bool) {
        for place in &mut self.qps {
            let Some(qp) = place else {
                continue;
            };
            for slot in 0..SLOTS {
                if ends(slot, qp) {
                    qp.registered[worker][slot] = false;
                }
            }
            place.take_if(|qp| !qp.lives_on && qp.registered == [[false; SLOTS]; WORKERS]);
        }
    }

    fn close_domain(&mut self, worker: usize, domain: usize) {
        self.opened[worker][domain] = false;
        let is_closed = !self.opened.iter().any(|opened| opened[domain]);
        self.gone(|qp| {
            let has_file = domain != 2;
            qp.domain == domain as u64
                && if has_file {
                    is_closed
                } else {
                    qp.maker == worker
                }
        });
    }

    fn close_file(&mut self, worker: usize) {
        self.unregister(worker, |_, _| true);
        for domain in 0..DOMAINS {
            self.close_domain(worker, domain);
        }
    }

    fn run(&mut self, step: &Step) {
        let worker = usize::from(step.worker);
        let first = slot(step.args[0]);
        let named =
            first.filter(|slot| self.qps[*slot].is_some_and(|qp| Some(qp.domain) == step.args[1]));
        let mut args = step.call.args().iter().zip(step.args);
        let domain = args.find(|((_, kind), _)| *kind == Kind::Domain);
        if let Some(domain) = domain
            .and_then(|(_, arg)| arg)
            .filter(|domain| *domain < DOMAINS as u64)
        {
            self.opened[worker][domain as usize] = true;
        }
        match step.call {
            Call::Alloc => {
                let (Some(domain), Some(qp)) = (step.args[1], first) else {
                    return;
                };
                let state = match step.args[3] {
                    None => 0,
                    Some(1) => 1,
                    Some(4) => 2,
                    Some(_) => return,
                };
                let flags = step.args[2].unwrap_or(0);
                let channel = slot(step.args[4]);
                if domain >= DOMAINS as u64 || flags > 1 || (channel.is_none() && flags == 0) {
                    return;
                }
                self.serial += 1;
                let mut registered = [[false; SLOTS]; WORKERS];
                if let Some(channel) = channel {
                    registered[worker][channel] = true;
                }
                self.qps[qp] = Some(Qp {
                    serial: self.serial,
                    domain,
                    maker: worker,
                    lives_on: flags == 1,
                    registered,
                    state,
                });
            }
            Call::Reg => {
                let qp = first.and_then(|at| self.qps[at].as_mut());
                if let (Some(channel), Some(qp)) = (slot(step.args[1]), qp) {
                    if domain_of(channel) as u64 == qp.domain {
                        qp.registered[worker][channel] = true;
                    }
                }
            }
            Call::Unreg => {
                let serial = first.and_then(|at| self.qps[at]).map(|qp| qp.serial);
                if let Some(channel) = slot(step.args[1]) {
                    self.unregister(worker, |slot, qp| {
                        slot == channel && Some(qp.serial) == serial
                    });
                }
            }
            Call::Modify => {
                let qp = named.and_then(|at| self.qps[at].as_mut());
                if let (Some(qp), Some(which)) = (qp, step.args[2]) {
                    if attrs(qp.state).contains(&which) {
                        qp.state = [0, 1, 2, 3, 2, 4, 5, 5][which as usize % 8];
                    }
                }
            }
            Call::Destroy => {
                if let Some(at) = named {
                    let serial = self.qps[at].map(|qp| qp.serial);
                    let forced = step.args[2] == Some(1);
                    self.gone(|qp| {
                        let unneeded = qp.lives_on && qp.registered == [[false; SLOTS]; WORKERS];
                        Some(qp.serial) == serial && (unneeded || forced)
                    });
                }
            }
            Call::Read => {
                if let Some(first) = first {
                    self.unread[worker][first] = false;
                }
            }
            Call::CloseChannel | Call::Channel => {
                if let Some(first) = first {
                    self.unread[worker][first] = false;
                    self.unregister(worker, |slot, _| slot == first);
                }
            }
            Call::CloseDomain => {
                self.close_domain(worker, step.args[0].unwrap_or(0) as usize % DOMAINS);
            }
            Call::CloseFile => self.close_file(worker),
            Call::Kill => {
                let victim = step.args[0].unwrap_or(0) as usize % WORKERS;
                self.close_file(victim);
                self.unread[victim] = Default::default();
            }
            Call::TakeFile => {
                let other = step.args[0].unwrap_or(0) as usize % WORKERS;
                if other != worker {
                    self.close_file(worker);
                    self.opened[worker] = self.opened[other];
                }
            }
            Call::Remove => *self = World::default(),
            _ => (),
        }
    }
}
