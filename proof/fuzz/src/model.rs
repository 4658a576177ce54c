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
    files: BTreeSet<u64>,
}

#[derive(Default)]
struct File {
    domains: BTreeMap<u64, Domain>,
    /// The serial numbers of their QPs, by handle.
    registrations: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Model {
    files: BTreeMap<u64, File>,
    /// The files that processes have.
    held: [u64; WORKERS],
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
        let is_other = is_other(&step);
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
    step.spoil.is_some_and(|spoil| {
        !matches!(
            spoil.how,
            How::Attr | How::Length | How::Flags | How::Reserved
        )
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
        for serial in closed.registrations.into_values() {
            self.unregister(before, serial);
        }
        for domain in closed.domains.into_values() {
            self.domain_closed(domain);
        }
    }

    fn unregister(&mut self, file: u64, serial: u64) {
        if let Some(qp) = self.qps.get_mut(&serial) {
            qp.files.remove(&file);
            if qp.files.is_empty() && !qp.lives_on {
                self.qps.remove(&serial);
            }
        }
    }

    fn domain_closed(&mut self, domain: Domain) {
        let mut open = self.files.values().flat_map(|file| file.domains.values());
        if !open.any(|other| *other == domain) {
            self.qps.retain(|_, qp| qp.domain != domain);
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
        if let Some(which) = fact.opened.checked_sub(1) {
            let domain = match which {
                2 => Domain::OfFile(fact.file, fact.domain),
                inode => Domain::OfInode(inode),
            };
            file.domains.insert(fact.domain, domain);
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
        let registration = file.registrations.get(&fact.registration).copied();
        let qp = self.find(domain, fact.qp);
        let is_registered = qp.is_some_and(|qp| self.qps[&qp].files.contains(&fact.file));
        let is_whole = step.spoil.is_none();
        match step.call {
            Call::Alloc => {
                if !succeeded {
                    let is_simple =
                        arg(3).unwrap_or(0) <= 1 && [4, 5, 7].iter().all(|i| arg(*i).is_none());
                    return must(
                        domain.is_none() || !is_simple || !is_whole,
                        "nothing is wrong with it",
                    );
                }
                let domain = domain.ok_or("the file has no such domain")?;
                must(
                    self.find(Some(domain), fact.new_qp).is_none(),
                    "there is a QP with this number",
                )?;
                self.last_serial += 1;
                self.qps.insert(
                    self.last_serial,
                    Qp {
                        number: fact.new_qp,
                        domain,
                        lives_on: arg(3) == Some(1),
                        files: [fact.file].into(),
                    },
                );
                self.register(fact, self.last_serial);
            }
            Call::Reg => {
                if result == -libc::EEXIST {
                    return must(is_registered, "the file is not registered");
                }
                if !succeeded {
                    let is_simple = arg(3).is_none() && arg(5).is_none();
                    let is_wrong = qp.is_none() || is_registered || !is_simple || !is_whole;
                    return must(is_wrong, "nothing is wrong with it");
                }
                must(!is_registered, "the file is registered")?;
                let serial = qp.ok_or("the domain has no such QP")?;
                self.qps.entry(serial).and_modify(|qp| {
                    qp.files.insert(fact.file);
                });
                self.register(fact, serial);
            }
            Call::Unreg => {
                if !succeeded {
                    return must(
                        registration.is_none() || !is_whole,
                        "there is such a handle",
                    );
                }
                let serial = registration.ok_or("there is no such handle")?;
                file_of(&mut self.files, fact.file)
                    .registrations
                    .remove(&fact.registration);
                self.unregister(fact.file, serial);
            }
            Call::Modify if succeeded => must(qp.is_some(), "the domain has no such QP")?,
            // To RESET.
            Call::Modify if arg(2) == Some(0) && is_whole => {
                must(qp.is_none(), "each state may be left for RESET")?;
            }
            Call::Query if succeeded => must(qp.is_some(), "the domain has no such QP")?,
            Call::Destroy => {
                let others =
                    qp.is_some_and(|qp| self.qps[&qp].files.iter().any(|file| *file != fact.file));
                let lives_on = qp.is_some_and(|qp| self.qps[&qp].lives_on);
                let flags = arg(2).unwrap_or(0) as u32;
                let forced = flags == XRC_RCV_DESTROY_FORCE;
                if result == -libc::EBUSY {
                    return must(lives_on && others && !forced, "no other file is registered");
                }
                if !succeeded {
                    let is_refused = if forced {
                        qp.is_none()
                    } else {
                        !lives_on || others
                    };
                    let is_wrong = is_refused || flags > XRC_RCV_DESTROY_FORCE || !is_whole;
                    return must(is_wrong, "nothing is wrong with it");
                }
                must(
                    forced || lives_on,
                    "the domain has no such QP with lifetime DOMAIN",
                )?;
                must(forced || !others, "another file is registered")?;
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

    fn register(&mut self, fact: &Fact, serial: u64) {
        file_of(&mut self.files, fact.file)
            .registrations
            .insert(fact.new_handle, serial);
    }
}

fn file_of(files: &mut BTreeMap<u64, File>, file: u64) -> &mut File {
    files.entry(file).or_default()
}
