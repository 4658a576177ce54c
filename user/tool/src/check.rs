// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv watch --check`: compares the trace with what `Documentation/semantics.rst` specifies,
//! of which the crate xrc-rcv-spec is the state machine.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use xrc_rcv::EventType;
use xrc_rcv_spec as spec;

use crate::snapshot::type_names;
use crate::trace::{Record, printable};

/// The devices of a trace.
#[derive(Default)]
pub(crate) struct Check {
    devices: BTreeMap<u64, spec::Device>,
    accepted: u64,
    /// Steps that another may come before, by time, and as they came.
    held: BTreeMap<(u64, u64), Held>,
    taken: u64,
}

struct Held {
    line: String,
    device: u64,
    step: spec::Record,
}

impl Check {
    /// Takes a line of the trace. Fails if the specification does not allow a step.
    ///
    /// The kernel has a buffer for each CPU, and returns the earliest record that it finds in any
    /// of them. It looks into one after the other: it may find one on a CPU, and none on a CPU
    /// before, where the record of an earlier step was written meanwhile. It finds that when it
    /// looks for the next. So a step is held back until a later one comes, or [all was
    /// read](Self::settle).
    pub(crate) fn take(&mut self, line: &[u8]) -> Result<()> {
        // A comment of the file `trace`.
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let Some(record) = Record::parse(line) else {
            bail!("no step, but: {}", printable(line));
        };
        let line = printable(line);
        let (device, step) = step(&record).with_context(|| format!("a field of: {line}"))?;
        let held = Held { line, device, step };
        self.taken += 1;
        self.held.insert((record.time_ns, self.taken), held);
        let later = self.held.split_off(&(record.time_ns, 0));
        let earlier = std::mem::replace(&mut self.held, later);
        self.step_all(earlier)
    }

    /// All that happened before the last line was taken.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        self.step_all(held)
    }

    fn step_all(&mut self, steps: BTreeMap<(u64, u64), Held>) -> Result<()> {
        for Held { line, device, step } in steps.into_values() {
            let device = self.devices.entry(device).or_default();
            if let Err(violation) = device.step(&step) {
                bail!("after {} steps: {violation}, but: {line}", self.accepted);
            }
            self.accepted += 1;
        }
        Ok(())
    }

    /// The result, if all steps were accepted.
    pub(crate) fn summary(&self) -> String {
        let left: usize = self.devices.values().map(spec::Device::len).sum();
        format!("{} steps accepted, {left} receive QPs left", self.accepted)
    }
}

/// The device of a record, and what happened.
fn step(record: &Record) -> Option<(u64, spec::Record)> {
    let number = |key| record.fields.get(key)?.as_u64();
    let short = |key| u32::try_from(number(key)?).ok();
    let device = number("ifindex")?;
    let domain = short("domain")?;
    if record.action == "close" {
        return Some((device, spec::Record::Close { domain }));
    }
    let registrations = spec::Registrations {
        number: short("registrations")?,
        // Not of events.
        keeping: short("keeping").unwrap_or(0),
        keeping_all: short("keeping_all").unwrap_or(0),
        changes: number("changes")?,
    };
    let delivery = |kind| {
        Some(spec::Delivery {
            kind,
            number: registrations.number,
            delivered: short("delivered")?,
            changes: registrations.changes,
        })
    };
    let what = match record.action.as_str() {
        "alloc" => spec::What::Alloc {
            lifetime: match record.fields.get("lifetime")?.as_str()? {
                "registrations" => spec::Lifetime::Registrations,
                "domain" => spec::Lifetime::Domain,
                _ => return None,
            },
            registers: registrations.number != 0,
            keeping_all: registrations.keeping_all,
        },
        "reg" => spec::What::Register(holder(record)?, registrations),
        "unreg" => spec::What::Unregister(holder(record)?, registrations),
        "destroy" => spec::What::End(registrations, number("forced")? != 0),
        "event" => spec::What::Event(delivery(kind(record.fields.get("type")?.as_str()?)?)?),
        "gone" => spec::What::Gone(delivery(EventType::QP_GONE.raw())?),
        _ => return None,
    };
    let step = spec::Record::Qp {
        domain,
        number: short("lqpn")?,
        serial: number("serial")?,
        what,
    };
    Some((device, step))
}

/// The holder of a registration, of which the kernel prints a hash of the address.
fn holder(record: &Record) -> Option<spec::Holder> {
    let file = record.fields.get("file")?.as_str()?;
    let mut mask = 0;
    for name in record.fields.get("mask")?.as_array()? {
        mask |= 1 << kind(name.as_str()?)?;
    }
    Some(spec::Holder {
        // Before the kernel has a key for the hash all are 0.
        channel: u64::from_str_radix(file, 16).ok().filter(|file| *file != 0),
        mask,
    })
}

/// The type of events that has a name.
fn kind(name: &str) -> Option<u32> {
    (0..u64::BITS).find(|kind| type_names(1 << kind) == [name])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes, of which the first creates a QP; the device breaks it.
    const TRACE: [&str; 8] = [
        "alloc: index=1 device=a domain=1 qpn=0x11 label=0x0 registrations=1 keeping=1 lifetime=registrations serial=1 changes=1",
        "reg: index=1 device=a domain=1 qpn=0x11 registrations=1 keeping=1 pid=7 file=00000000aaaaaaaa mask=0x80000000000100fe serial=1 changes=1",
        "reg: index=1 device=a domain=1 qpn=0x11 registrations=2 keeping=2 pid=8 file=00000000bbbbbbbb mask=0x80000000000100fe serial=1 changes=2",
        "event: index=1 device=a domain=1 qpn=0x11 type=QP_FATAL delivered=2 registrations=2 serial=1 changes=2",
        "unreg: index=1 device=a domain=1 qpn=0x11 registrations=1 keeping=1 pid=7 file=00000000aaaaaaaa mask=0x80000000000100fe serial=1 changes=3",
        "unreg: index=1 device=a domain=1 qpn=0x11 registrations=0 keeping=0 pid=8 file=00000000bbbbbbbb mask=0x80000000000100fe serial=1 changes=4",
        "destroy: index=1 device=a domain=1 qpn=0x11 label=0x0 registrations=0 keeping=0 lifetime=registrations forced=0 serial=1 changes=4",
        "gone: index=1 device=a domain=1 qpn=0x11 registrations=0 delivered=0 serial=1 changes=4",
    ];

    /// Takes the steps, and returns the summary, or the error.
    fn check(steps: &[&str]) -> Result<String> {
        let mut check = Check::default();
        for (second, step) in steps.iter().enumerate() {
            let line = format!("{:>16}-7 [000] {second}.000001: ib_xrc_rcv_{step}", "a");
            check.take(line.as_bytes())?;
        }
        check.settle()?;
        Ok(check.summary())
    }

    #[test]
    fn a_life_is_accepted() {
        assert_eq!(
            check(&TRACE).unwrap(),
            "8 steps accepted, 0 receive QPs left"
        );
        assert_eq!(
            check(&TRACE[..7]).unwrap(),
            "7 steps accepted, 1 receive QPs left"
        );
    }

    #[test]
    fn a_trace_may_begin_with_any_step() {
        for first in 1..TRACE.len() {
            check(&TRACE[first..]).unwrap();
        }
        let event = TRACE[3].replace("delivered=2", "delivered=3");
        assert!(check(&[&event]).is_err());
    }

    #[test]
    fn a_trace_without_one_of_its_steps_is_rejected() {
        // But for an event, which need not happen; and for the last step, after which there is
        // none.
        for left_out in [1, 2, 4, 5, 6] {
            let mut steps = TRACE.to_vec();
            steps.remove(left_out);
            let error = check(&steps).unwrap_err().to_string();
            assert!(error.contains(", but: a-7 [000]"), "{error}");
        }
    }

    #[test]
    fn a_step_that_comes_again_is_rejected() {
        for twice in [0, 1, 2, 4, 5, 6, 7] {
            let mut steps = TRACE.to_vec();
            steps.insert(twice, TRACE[twice]);
            assert!(check(&steps).is_err(), "{}", TRACE[twice]);
        }
    }

    #[test]
    fn numbers_are_compared() {
        for (at, from, to, because) in [
            (
                3,
                "registrations=2",
                "registrations=3",
                "an event is delivered to each",
            ),
            (
                3,
                "registrations=2",
                "registrations=1",
                "an event is delivered to each",
            ),
            (
                3,
                "delivered=2",
                "delivered=3",
                "an event is delivered to each",
            ),
            (
                3,
                "delivered=2",
                "delivered=1",
                "an event is delivered to each",
            ),
            (
                7,
                "delivered=0",
                "delivered=1",
                "an event is delivered to each",
            ),
            (3, "type=QP_FATAL", "type=SRQ_ERR", "a field of"),
            (2, "100fe", "100fc", "an event is delivered to each"),
            (4, "100fe", "100fc", "has one event mask"),
            (
                3,
                "changes=2",
                "changes=4",
                "another number of registrations",
            ),
            (
                4,
                "changes=3",
                "changes=4",
                "another number of registrations",
            ),
            (
                4,
                "registrations=1",
                "registrations=2",
                "another number of registrations",
            ),
            (4, "aaaaaaaa", "cccccccc", "the registration does not exist"),
            (2, "bbbbbbbb", "aaaaaaaa", "registers with a QP once"),
            // Nor is an event reported before ALLOC.
            (3, "serial=1", "serial=2", "there is no such QP"),
            (6, "serial=1", "serial=2", "there is no such QP"),
        ] {
            let doctored = TRACE[at].replace(from, to);
            let mut steps = TRACE.to_vec();
            steps[at] = &doctored;
            let error = check(&steps).unwrap_err().to_string();
            assert!(error.contains(because), "{error}");
        }
    }

    #[test]
    fn a_qp_ends_while_registered_with_its_domain_only() {
        let end = "destroy: index=1 device=a domain=1 qpn=0x11 label=0x0 registrations=2 keeping=2 \
                   lifetime=registrations forced=0 serial=1 changes=2";
        let mut steps = TRACE[..4].to_vec();
        steps.push(end);
        let error = check(&steps).unwrap_err().to_string();
        assert!(error.contains("its domain is open"), "{error}");
        let forced = end.replace("forced=0", "forced=1");
        steps[4] = &forced;
        assert!(check(&steps).is_ok());
        steps[4] = end;
        steps.insert(4, "close: index=1 device=a domain=1");
        assert!(check(&steps).is_ok());
        steps.push(TRACE[2]);
        assert!(check(&steps).is_err());
    }

    #[test]
    fn a_device_that_is_added_again_has_new_domains() {
        // The trace may have begun when the QP existed.
        for before in [0, 4] {
            let mut steps = TRACE[before..].to_vec();
            steps.push("close: index=1 device=a domain=1");
            steps.extend(TRACE);
            let result = check(&steps).map_err(|error| error.to_string());
            assert_eq!(
                result.unwrap(),
                format!("{} steps accepted, 0 receive QPs left", steps.len())
            );
        }
    }

    #[test]
    fn a_qp_that_is_added_to_a_closed_domain_is_rejected() {
        let later = TRACE.map(|step| step.replace("serial=1", "serial=2"));
        let mut steps = TRACE.to_vec();
        steps.push("close: index=1 device=a domain=1");
        steps.extend(later.iter().map(String::as_str));
        let error = check(&steps).unwrap_err().to_string();
        assert!(error.contains("cannot be found"), "{error}");
    }

    #[test]
    fn an_event_is_delivered_to_those_whose_masks_have_its_type() {
        // The first has QP_FATAL alone, the second all others, a user in the kernel COMM_EST.
        let all = "0x80000000000100fe";
        let with_masks = |step: &str| {
            step.replace(&format!("aaaaaaaa mask={all}"), "aaaaaaaa mask=0x2")
                .replace(all, "0x80000000000100fc")
        };
        let kernel = "index=1 device=a domain=1 qpn=0x11 registrations=3 keeping=2 pid=0 \
                      file=00000000cccccccc mask=0x10 serial=1 changes=3";
        let begin = format!("reg: {kernel}");
        let end = format!(
            "unreg: {}",
            kernel
                .replace("registrations=3", "registrations=2")
                .replace("changes=3", "changes=4")
        );
        let event = |kind: &str, delivered: u32| {
            TRACE[3]
                .replace(
                    "type=QP_FATAL delivered=2",
                    &format!("type={kind} delivered={delivered}"),
                )
                .replace(
                    "registrations=2 serial=1 changes=2",
                    "registrations=3 serial=1 changes=3",
                )
        };
        for (kind, right) in [
            ("QP_FATAL", 1),
            ("QP_ACCESS_ERR", 1),
            ("COMM_EST", 2),
            ("QP_LAST_WQE_REACHED", 1),
        ] {
            for delivered in 0..4 {
                let mut steps = TRACE[..3]
                    .iter()
                    .copied()
                    .map(with_masks)
                    .collect::<Vec<_>>();
                steps.extend([begin.clone(), event(kind, delivered), end.clone()]);
                let steps = steps.iter().map(String::as_str).collect::<Vec<_>>();
                assert_eq!(
                    check(&steps).is_ok(),
                    delivered == right,
                    "{kind}: {delivered}"
                );
                // A registration that was made before the trace began may have any mask.
                let known = u32::from(kind == "COMM_EST");
                assert_eq!(
                    check(&steps[3..]).is_ok(),
                    (known..=known + 2).contains(&delivered),
                    "{kind}: {delivered} of a QP that was there"
                );
            }
        }
        let other = end.replace("mask=0x10", "mask=0x20");
        let mut steps = TRACE[..3].to_vec();
        steps.extend([&*begin, &*other]);
        let error = check(&steps).unwrap_err().to_string();
        assert!(error.contains("has one event mask"), "{error}");
    }

    #[test]
    fn a_mutant_of_the_specification_rejects_a_right_trace() {
        // The first process excludes QP_FATAL.
        let steps = TRACE.map(|step| {
            step.replace(
                "aaaaaaaa mask=0x80000000000100fe",
                "aaaaaaaa mask=0x80000000000100fc",
            )
            .replace("delivered=2", "delivered=1")
        });
        let steps = steps.each_ref().map(String::as_str);
        assert!(check(&steps).is_ok());
        for mutant in [spec::Mutant::UnregNotCounted, spec::Mutant::MaskIgnored] {
            let result = spec::Mutant::during(Some(mutant), || check(&steps));
            assert!(result.is_err(), "{mutant:?}");
        }
    }

    #[test]
    fn an_event_is_for_the_registrations_at_its_time() {
        let event = |number: u32, changes: u64| {
            TRACE[3]
                .replace("delivered=2", &format!("delivered={number}"))
                .replace("registrations=2", &format!("registrations={number}"))
                .replace("changes=2", &format!("changes={changes}"))
        };
        let with = |at: usize, event: &str| {
            let mut steps = TRACE.to_vec();
            steps.remove(3);
            steps.insert(at, event);
            check(&steps).map_err(|error| error.to_string())
        };
        for (at, event, is_right) in [
            (3, event(2, 2), true),
            (3, event(1, 2), false),
            (3, event(0, 2), false),
            (3, event(1, 1), false),
            (4, event(1, 3), true),
            (4, event(2, 3), false),
            (4, event(2, 2), false),
            // The registration is reported after the event, but with the lock of the domain held.
            (2, event(2, 2), true),
            (2, event(1, 2), false),
            (3, event(1, 3), true),
            (3, event(0, 3), false),
            (2, event(1, 3), false),
        ] {
            assert_eq!(with(at, &event).is_ok(), is_right, "at {at}: {event}");
        }
    }

    #[test]
    fn records_of_several_cpus_are_sorted() {
        for (first, second) in [(1, 2), (4, 5), (6, 7)] {
            let mut check = Check::default();
            let mut times: Vec<_> = (0..TRACE.len()).collect();
            times.swap(first, second);
            for time in times {
                let (cpu, step) = (time % 2, TRACE[time]);
                let line = format!("{:>16}-7 [00{cpu}] {time}: ib_xrc_rcv_{step}", "a");
                check.take(line.as_bytes()).unwrap();
            }
            check.settle().unwrap();
            assert_eq!(check.summary(), "8 steps accepted, 0 receive QPs left");
        }
    }

    #[test]
    fn lost_records_end_it() {
        let error = Check::default()
            .take(b"CPU:1 [LOST 12 EVENTS]")
            .unwrap_err();
        assert_eq!(error.to_string(), "no step, but: CPU:1 [LOST 12 EVENTS]");
    }
}
