// SPDX-License-Identifier: GPL-2.0

//! What exists at each step of a program, as far as its calls succeed: most steps should name objects that do.

use crate::choose::Dice;
use crate::program::*;
use crate::uapi::{ib_uverbs_qp_attr, xrc_rcv_qp_info};

#[derive(Clone, Copy)]
struct Qp {
    serial: usize,
    domain: u64,
    /// The process that allocated it: no other one can open its domain, if that has no file.
    maker: usize,
    /// Until DESTROY or the end of its domain, else until its last registration ends or DESTROY with FORCE.
    lives_on: bool,
    registered: [bool; WORKERS],
    state: u64,
}

#[derive(Clone, Copy)]
struct Registration {
    /// The serial of its QP.
    of: usize,
    channel: Option<usize>,
}

#[derive(Default)]
pub struct World {
    serial: usize,
    qps: [Option<Qp>; SLOTS],
    registrations: [[Option<Registration>; SLOTS]; WORKERS],
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

    /// Makes the step's QP one that suits, if any does, and its domain that of the QP.
    fn connect_qp(
        &self,
        dice: &mut impl Dice,
        step: &mut Step,
        [qp_arg, domain_arg]: [usize; 2],
        suits: impl Fn(&Qp) -> bool,
    ) -> Option<Qp> {
        let worker = usize::from(step.worker);
        let good = |qp: &Qp| self.can_use(worker, qp) && suits(qp);
        let named =
            slot(step.args[qp_arg]).filter(|slot| self.qps[*slot].is_some_and(|qp| good(&qp)));
        let found = named.or_else(|| {
            choose(
                dice,
                (0..SLOTS).filter(|slot| self.qps[*slot].is_some_and(|qp| good(&qp))),
            )
        })?;
        let qp = self.qps[found]?;
        step.args[qp_arg] = Some(found as u64);
        step.args[domain_arg] = Some(qp.domain);
        Some(qp)
    }

    fn connect(&self, dice: &mut impl Dice, step: &mut Step) {
        let worker = usize::from(step.worker);
        if matches!(step.call, Call::Alloc | Call::Reg) {
            // A handle that is forgotten is of no use.
            let empty = |slot: &usize| self.registrations[worker][*slot].is_none();
            if slot(step.args[0]).is_some_and(|slot| !empty(&slot)) {
                let found = choose(dice, (0..SLOTS).filter(empty));
                step.args[0] = found.map(|slot| slot as u64).or(step.args[0]);
            }
        }
        match step.call {
            Call::Alloc => {
                let empty = |slot: &usize| self.qps[*slot].is_none();
                if let Some(slot) = choose(dice, (0..SLOTS).filter(empty)) {
                    step.args[1] = Some(slot as u64);
                }
                if step.args[4].is_some() {
                    step.args[4] = Some(attrs(0)[dice.roll(3)]);
                }
            }
            Call::Reg => {
                self.connect_qp(dice, step, [1, 2], |qp| !qp.registered[worker]);
            }
            Call::Unreg => {
                let filled = |slot: &usize| self.registrations[worker][*slot].is_some();
                if !slot(step.args[0]).is_some_and(|slot| filled(&slot)) {
                    let found = choose(dice, (0..SLOTS).filter(filled));
                    step.args[0] = found.map(|slot| slot as u64).or(step.args[0]);
                }
            }
            Call::Modify => {
                if let Some(qp) = self.connect_qp(dice, step, [0, 1], |_| true) {
                    let attrs = attrs(qp.state);
                    step.args[2] = Some(attrs[dice.roll(attrs.len())]);
                }
            }
            Call::Query => {
                self.connect_qp(dice, step, [0, 1], |_| true);
                step.args[2] = step.args[2].map(|_| size_of::<ib_uverbs_qp_attr>() as u64);
                step.args[3] = step.args[3].map(|_| size_of::<xrc_rcv_qp_info>() as u64);
            }
            Call::Destroy => {
                self.connect_qp(dice, step, [0, 1], |qp| {
                    let mut others = (0..WORKERS).filter(|other| *other != worker);
                    qp.lives_on && !others.any(|other| qp.registered[other])
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
            for (registrations, unread) in self.registrations.iter().zip(&mut self.unread) {
                for registration in registrations.iter().flatten() {
                    if let (true, Some(channel)) =
                        (registration.of == ended.serial, registration.channel)
                    {
                        unread[channel] = true;
                    }
                }
            }
        }
    }

    fn unregister(&mut self, worker: usize, serial: usize) {
        for qp in &mut self.qps {
            if let Some(found) = qp.as_mut().filter(|qp| qp.serial == serial) {
                found.registered[worker] = false;
                qp.take_if(|qp| !qp.lives_on && qp.registered == [false; WORKERS]);
            }
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
        for registration in std::mem::take(&mut self.registrations[worker])
            .into_iter()
            .flatten()
        {
            self.unregister(worker, registration.of);
        }
        for domain in 0..DOMAINS {
            self.close_domain(worker, domain);
        }
    }

    fn run(&mut self, step: &Step) {
        let worker = usize::from(step.worker);
        let (first, second) = (slot(step.args[0]), slot(step.args[1]));
        let named = |args: [usize; 2]| {
            slot(step.args[args[0]]).filter(|slot| {
                self.qps[*slot].is_some_and(|qp| Some(qp.domain) == step.args[args[1]])
            })
        };
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
                let (Some(domain), Some(qp)) = (step.args[2], second) else {
                    return;
                };
                let state = match step.args[4] {
                    None => 0,
                    Some(1) => 1,
                    Some(4) => 2,
                    Some(_) => return,
                };
                let flags = step.args[3].unwrap_or(0);
                if domain >= DOMAINS as u64 || flags > 1 {
                    return;
                }
                self.serial += 1;
                let mut registered = [false; WORKERS];
                registered[worker] = true;
                self.qps[qp] = Some(Qp {
                    serial: self.serial,
                    domain,
                    maker: worker,
                    lives_on: flags == 1,
                    registered,
                    state,
                });
                if let Some(first) = first {
                    self.registrations[worker][first] = Some(Registration {
                        of: self.serial,
                        channel: slot(step.args[5]),
                    });
                }
            }
            Call::Reg => {
                let qp = named([1, 2]).and_then(|at| self.qps[at].as_mut());
                if let (Some(first), Some(qp)) = (first, qp.filter(|qp| !qp.registered[worker])) {
                    qp.registered[worker] = true;
                    self.registrations[worker][first] = Some(Registration {
                        of: qp.serial,
                        channel: slot(step.args[3]),
                    });
                }
            }
            Call::Unreg => {
                if let Some(registration) =
                    first.and_then(|slot| self.registrations[worker][slot].take())
                {
                    self.unregister(worker, registration.of);
                }
            }
            Call::Modify => {
                let qp = named([0, 1]).and_then(|at| self.qps[at].as_mut());
                if let (Some(qp), Some(which)) = (qp, step.args[2]) {
                    if attrs(qp.state).contains(&which) {
                        qp.state = [0, 1, 2, 3, 2, 4, 5, 5][which as usize % 8];
                    }
                }
            }
            Call::Destroy => {
                if let Some(at) = named([0, 1]) {
                    let mut alone = [false; WORKERS];
                    alone[worker] = self.qps[at].is_some_and(|qp| qp.registered[worker]);
                    let serial = self.qps[at].map(|qp| qp.serial);
                    let forced = step.args[2] == Some(1);
                    self.gone(|qp| {
                        let unneeded = qp.lives_on && qp.registered == alone;
                        Some(qp.serial) == serial && (unneeded || forced)
                    });
                }
            }
            Call::Read => {
                if let Some(first) = first {
                    self.unread[worker][first] = false;
                }
            }
            Call::CloseChannel => {
                if let Some(first) = first {
                    self.unread[worker][first] = false;
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
                    self.registrations[worker] = self.registrations[other];
                    for qp in self.qps.iter_mut().flatten() {
                        qp.registered[worker] = qp.registered[other];
                    }
                }
            }
            Call::Remove => *self = World::default(),
            _ => (),
        }
    }
}
