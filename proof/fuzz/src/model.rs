// SPDX-License-Identifier: GPL-2.0

//! What the results of a program have to be, if one step was done after the other: semantics.rst, for the objects
//! that the calls named.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::*;
use crate::uapi::XRC_RCV_DESTROY_FORCE;
use crate::worker::{Fact, NONE};

/// Of a file without an inode: that of a uverbs file and its handle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Domain {
    OfInode(u64),
    OfFile(u64, u64),
}

struct Qp {
    number: u64,
    domain: Domain,
    /// Lifetime DOMAIN.
    lives_on: bool,
    /// The channels that are registered.
    channels: BTreeSet<u64>,
}

#[derive(Default)]
struct File {
    domains: BTreeMap<u64, Domain>,
}

/// An event channel, until it or its file is closed.
struct Channel {
    file: u64,
    /// `None` after that was closed for the last time.
    domain: Option<Domain>,
}

#[derive(Default)]
struct Model {
    files: BTreeMap<u64, File>,
    /// The files that processes have.
    held: [u64; WORKERS],
    /// By number.
    channels: BTreeMap<u64, Channel>,
    /// The channels that processes have.
    held_channels: [[u64; SLOTS]; WORKERS],
    /// By serial number.
    qps: BTreeMap<u64, Qp>,
    last_serial: u64,
}

/// Compares results with the model, up to a step of which it does not know what it changed. How many steps it was.
/// `own_qps` is the number of the device's QPs that are not the module's.
pub fn check(
    program: &Program,
    results: &[i32],
    facts: impl Fn(usize) -> Fact,
    own_qps: u64,
) -> Result<u64, String> {
    let mut model = Model::default();
    let ends = (0..WORKERS).map(Step::end);
    let steps = program.steps.iter().copied().chain(ends);
    let mut compared = 0;
    for (index, (step, result)) in steps.zip(results).enumerate() {
        if *result == NONE || step.call == Call::Remove {
            break;
        }
        let is_other = is_other(&step) || names_another(&step);
        if is_other && *result >= 0 && changes_objects(&step) {
            break;
        }
        let fact = facts(index);
        let wrong = |what: String| {
            let result = result_name(*result);
            format!("step {}: {step}: {result}: {what}", index + 1)
        };
        if !is_other {
            model.step(&step, *result, &fact).map_err(wrong)?;
        } else {
            model.begin(&step, &fact);
        }
        model.end(&step, &fact);
        if let Some(counted) = fact.device_qps.checked_sub(1) {
            let expected = own_qps + model.qps.len() as u64;
            let what = &format!("the device has {counted} QPs, not {expected}");
            must(counted == expected, what).map_err(wrong)?;
        }
        compared += 1;
    }
    Ok(compared)
}

/// Whether the call may have been about other objects than those of its arguments.
fn is_other(step: &Step) -> bool {
    // Two QP numbers in an attribute may be taken for an address, see `spare_program()`.
    let has_array = matches!(step.call, Call::Reg | Call::Unreg);
    step.spoil.is_some_and(|spoil| {
        let may_only_fail = matches!(
            spoil.how,
            How::Attr | How::Length | How::Flags | How::Reserved
        );
        has_array || !may_only_fail
    })
}

/// Whether the channel is not one that the step's process has by a number.
fn names_another(step: &Step) -> bool {
    let args = step.call.args().iter().zip(step.args);
    args.into_iter().any(|((_, kind), value)| {
        *kind == Kind::Channel && value.is_some_and(|value| value >= SLOTS as u64)
    })
}

/// Whether a step that was spoiled may have changed which QPs and registrations there are.
fn changes_objects(step: &Step) -> bool {
    let is_change = matches!(
        step.call,
        Call::Alloc | Call::Reg | Call::Unreg | Call::Destroy
    );
    is_change || step.spoil.is_some_and(|spoil| spoil.makes_another())
}

fn must(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.into()) }
}

impl Model {
    /// The file of a process is another one from here on, or none: 0.
    fn holds(&mut self, worker: usize, file: u64) {
        let before = std::mem::replace(&mut self.held[worker], file);
        if file != 0 {
            self.files.entry(file).or_default();
        }
        if self.held.contains(&before) {
            return;
        }
        let Some(closed) = self.files.remove(&before) else {
            return;
        };
        self.end_channels(|_, channel| channel.file == before);
        for domain in closed.domains.into_values() {
            self.domain_closed(domain);
        }
    }

    /// Ends the registrations of channels, and these.
    fn end_channels(&mut self, ends: impl Fn(u64, &Channel) -> bool) {
        let ended: Vec<u64> = self
            .channels
            .iter()
            .filter(|(number, channel)| ends(**number, channel))
            .map(|(number, _)| *number)
            .collect();
        for number in ended {
            self.channels.remove(&number);
            self.unregister(number, |_| true);
        }
    }

    /// Ends the registrations of a channel with QPs.
    fn unregister(&mut self, channel: u64, of: impl Fn(&Qp) -> bool) {
        self.qps.retain(|_, qp| {
            let ends = of(qp) && qp.channels.remove(&channel);
            !ends || qp.lives_on || !qp.channels.is_empty()
        });
    }

    /// After a step: its process has these channels.
    fn end(&mut self, step: &Step, fact: &Fact) {
        self.held_channels[usize::from(step.worker)] = fact.channels;
        if step.call == Call::Kill {
            self.held_channels[step.args[0].unwrap_or(0) as usize % WORKERS] = [0; SLOTS];
        }
        let held: BTreeSet<u64> = self.held_channels.iter().flatten().copied().collect();
        self.end_channels(|number, _| !held.contains(&number));
    }

    fn domain_closed(&mut self, domain: Domain) {
        let mut open = self.files.values().flat_map(|file| file.domains.values());
        if open.any(|other| *other == domain) {
            return;
        }
        self.qps.retain(|_, qp| qp.domain != domain);
        // What is opened by the same name is another domain.
        for channel in self.channels.values_mut() {
            channel.domain.take_if(|of| *of == domain);
        }
    }

    fn find(&self, domain: Option<Domain>, number: u64) -> Option<u64> {
        let mut qps = self.qps.iter();
        qps.find(|(_, qp)| Some(qp.domain) == domain && qp.number == number)
            .map(|(serial, _)| *serial)
    }

    /// What the process does for any step: it opens what it has not.
    fn begin(&mut self, step: &Step, fact: &Fact) {
        self.holds(step.worker.into(), fact.file);
        let Some(file) = self.files.get_mut(&fact.file) else {
            return;
        };
        for (which, opened) in fact.opened.iter().enumerate() {
            let Some(handle) = opened.checked_sub(1) else {
                continue;
            };
            let domain = match which {
                2 => Domain::OfFile(fact.file, handle),
                inode => Domain::OfInode(inode as u64),
            };
            file.domains.insert(handle, domain);
        }
        if fact.new_channel != 0 {
            if let Some(domain) = file.domains.get(&fact.channel_domain) {
                let channel = Channel {
                    file: fact.file,
                    domain: Some(*domain),
                };
                self.channels.insert(fact.new_channel, channel);
            }
        }
    }

    fn step(&mut self, step: &Step, result: i32, fact: &Fact) -> Result<(), String> {
        let succeeded = result >= 0;
        let arg = |index: usize| step.args[index];
        self.begin(step, fact);
        if step.call == Call::Kill {
            self.holds(arg(0).unwrap_or(0) as usize % WORKERS, 0);
        }
        let Some(file) = self.files.get(&fact.file) else {
            return Ok(());
        };
        let domain = file.domains.get(&fact.domain).copied();
        let channel = self
            .channels
            .get(&fact.channel)
            .filter(|channel| channel.file == fact.file);
        let is_member = channel.is_some();
        let of_channel = channel.and_then(|channel| channel.domain);
        let is_whole = step.spoil.is_none();
        let qp = match step.call {
            Call::Reg | Call::Unreg => self.find(of_channel, fact.qp),
            _ => self.find(domain, fact.qp),
        };
        match step.call {
            Call::Alloc => {
                let lives_on = arg(2) == Some(1);
                let has_channel = arg(4).is_some();
                if !succeeded {
                    let is_wrong = domain.is_none() || !is_simple_alloc(step, of_channel == domain);
                    return must(is_wrong || !is_whole, "nothing is wrong with it");
                }
                let domain = domain.ok_or("the file has no such domain")?;
                must(
                    self.find(Some(domain), fact.new_qp).is_none(),
                    "there is a QP with this number",
                )?;
                must(
                    !has_channel || of_channel == Some(domain),
                    "the channel is not of the domain",
                )?;
                must(has_channel || lives_on, "nothing keeps it")?;
                self.last_serial += 1;
                self.qps.insert(
                    self.last_serial,
                    Qp {
                        number: fact.new_qp,
                        domain,
                        lives_on,
                        channels: has_channel.then_some(fact.channel).into_iter().collect(),
                    },
                );
            }
            Call::Reg => {
                if !succeeded {
                    let is_simple = arg(3).is_none() && arg(1).is_some();
                    let is_wrong = qp.is_none() || !is_simple || !is_whole;
                    return must(is_wrong, "nothing is wrong with it");
                }
                let serial = qp.ok_or("the channel's domain has no such QP")?;
                self.qps.entry(serial).and_modify(|qp| {
                    qp.channels.insert(fact.channel);
                });
            }
            Call::Unreg => {
                if !succeeded {
                    let is_wrong = !is_member || arg(1).is_none() || !is_whole;
                    return must(is_wrong, "nothing is wrong with it");
                }
                must(is_member, "the file has no such channel")?;
                self.unregister(fact.channel, |qp| qp.number == fact.qp);
            }
            Call::Modify if succeeded => must(qp.is_some(), "the domain has no such QP")?,
            // To RESET.
            Call::Modify if arg(2) == Some(0) && is_whole => {
                must(qp.is_none(), "each state may be left for RESET")?;
            }
            Call::Query if succeeded => must(qp.is_some(), "the domain has no such QP")?,
            Call::Destroy => {
                let is_kept = qp.is_some_and(|qp| !self.qps[&qp].channels.is_empty());
                let lives_on = qp.is_some_and(|qp| self.qps[&qp].lives_on);
                let flags = arg(2).unwrap_or(0) as u32;
                let forced = flags == XRC_RCV_DESTROY_FORCE;
                if result == -libc::EBUSY {
                    return must(lives_on && is_kept && !forced, "no channel is registered");
                }
                if !succeeded {
                    let is_refused = if forced {
                        qp.is_none()
                    } else {
                        !lives_on || is_kept
                    };
                    let is_wrong = is_refused || flags > XRC_RCV_DESTROY_FORCE || !is_whole;
                    return must(is_wrong, "nothing is wrong with it");
                }
                must(
                    forced || lives_on,
                    "the domain has no such QP with lifetime DOMAIN",
                )?;
                must(forced || !is_kept, "a channel is registered")?;
                let serial = qp.ok_or("the domain has no such QP")?;
                self.qps.remove(&serial);
            }
            Call::List if succeeded => {
                must(domain.is_some(), "the file has no such domain")?;
                let count = self
                    .qps
                    .values()
                    .filter(|qp| Some(qp.domain) == domain)
                    .count();
                if let Some(total) = fact.total.checked_sub(1) {
                    must(total == count as u64, &format!("{total} QPs, not {count}"))?;
                }
            }
            // write(2) to the file of another process is EACCES.
            Call::CloseDomain if fact.domain != u64::MAX && result != -libc::EACCES => {
                must(succeeded == domain.is_some(), "a handle is closed once")?;
                if let Some(domain) = domain {
                    file_of(&mut self.files, fact.file)
                        .domains
                        .remove(&fact.domain);
                    self.domain_closed(domain);
                }
            }
            _ => (),
        }
        Ok(())
    }
}

/// Whether ALLOC has no attributes that may be refused; `is_member`: its channel is of its domain.
fn is_simple_alloc(step: &Step, is_member: bool) -> bool {
    let arg = |index: usize| step.args[index];
    let is_kept = if arg(4).is_some() {
        is_member
    } else {
        arg(2) == Some(1)
    };
    is_kept && arg(2).unwrap_or(0) <= 1 && arg(3).is_none() && arg(6).is_none()
}

fn file_of(files: &mut BTreeMap<u64, File>, file: u64) -> &mut File {
    files.entry(file).or_default()
}
