// SPDX-License-Identifier: GPL-2.0

//! The records of channels as the contract has them, if one step was done after the other.
//!
//! The records of the module itself are exact. Without a peer, the device has one event more: the
//! last receive of a QP that is moved to ERR, which it reports at any time after that.

use std::collections::{BTreeMap, BTreeSet};

use crate::shared::RECORDS;
use crate::uapi::{XRC_RCV_EVENT_OVERRUN, xrc_rcv_record};
use xrc_rcv_spec::{Event, Id, OVERRUN, Objects, QP_ADDED, QP_GONE};

/// `IB_EVENT_QP_LAST_WQE_REACHED`
const LAST_WQE_REACHED: u32 = 16;

/// The domain and the serial number of a QP, which no other QP of a program has.
type QpId = (Id, u64);

/// A read of a channel.
pub struct Read {
    /// The number of records that there is room for.
    pub places: usize,
    /// The buffer is not memory of the process, or some of it.
    pub may_fault: bool,
    /// The records are long enough for labels.
    pub has_labels: bool,
    /// The number of records, or the error.
    pub result: Result<usize, i32>,
}

/// The members of records that the contract leaves out, and the times of their events.
#[derive(Default)]
pub struct Records {
    /// The labels of QPs. `None` if it is not known.
    labels: BTreeMap<QpId, Option<u64>>,
    /// The times of the last records, by channel and QP.
    times: BTreeMap<(Id, u64), u64>,
    /// The totals of the device's events, by channel and QP.
    totals: BTreeMap<(Id, u64), u64>,
    /// The positions of the last events of the steps, in order.
    steps: Vec<u64>,
    /// The channels of which records were read that are not known.
    unknown: BTreeSet<Id>,
}

impl Records {
    /// A QP is created.
    pub fn create(&mut self, qp: QpId, label: Option<u64>) {
        self.labels.insert(qp, label);
    }

    /// A step has ended.
    pub fn step_ends(&mut self, objects: &Objects) {
        self.steps.push(objects.position());
    }

    /// Forgets other channels than these.
    pub fn retain(&mut self, exists: impl Fn(Id) -> bool) {
        self.times.retain(|(channel, _), _| exists(*channel));
        self.unknown.retain(|channel| exists(*channel));
    }

    /// Records were read whose size is not known.
    pub fn lose_track(&mut self, channel: Id) {
        self.unknown.insert(channel);
    }

    /// Compares a read with the records that a channel has.
    pub fn read(
        &mut self,
        objects: &mut Objects,
        channel: Id,
        read: Read,
        records: &[xrc_rcv_record],
    ) -> Result<(), String> {
        if self.unknown.contains(&channel) {
            return Ok(());
        }
        let unread = objects.unread_at(channel);
        let number = match read.result {
            Ok(number) => number,
            Err(libc::EFAULT) if read.may_fault => return Ok(()),
            Err(libc::EINVAL) if read.places == 0 => return Ok(()),
            Err(libc::EAGAIN | libc::EIO) if unread.is_empty() => return Ok(()),
            Err(_) => return Err(format!("{} records are unread", unread.len())),
        };
        if read.may_fault {
            // Which records these are is not known, as the device may have reported events.
            self.lose_track(channel);
            return Ok(());
        }
        let places = read.places.min(RECORDS);
        let records = records.get(..number).filter(|_| number <= places);
        let records = records.ok_or("there is no room for so many")?;
        let (own, reported): (Vec<_>, Vec<_>) = records.iter().partition(|record| is_own(record));
        let is_full = number == places;
        if number == 0 || own.len() > unread.len() || own.len() < unread.len() && !is_full {
            return Err(format!("{} records are unread", unread.len()));
        }
        for record in reported {
            self.check_reported(channel, record)?;
        }
        let taken = self.compare(channel, &read, &own, &unread)?;
        objects.read_these(channel, &taken);
        Ok(())
    }

    /// Compares a record of an event that the device has reported.
    fn check_reported(&mut self, channel: Id, record: &xrc_rcv_record) -> Result<(), String> {
        let mut created = self.labels.keys();
        let is_known = created.any(|(_, serial)| *serial == record.serial);
        let total = self.totals.entry((channel, record.serial)).or_default();
        if record.type_ != LAST_WQE_REACHED || !is_known || record.count <= *total {
            return Err(format!("{record:?}: no device reports this without a peer"));
        }
        *total = record.count;
        Ok(())
    }

    /// Compares records with the first that are unread. Returns what they are.
    fn compare(
        &mut self,
        channel: Id,
        read: &Read,
        records: &[&xrc_rcv_record],
        unread: &[(Id, u64, Event)],
    ) -> Result<Vec<Event>, String> {
        let mut taken = Vec::new();
        for (record, (_, position, expected)) in records.iter().zip(unread) {
            let event = event(record);
            let found = unread.iter().find(|(.., unread)| *unread == event);
            let wrong = |what: &str| Err(format!("{record:?}: {what}"));
            let domain = match found {
                Some((domain, found, _)) if self.step_of(*found) == self.step_of(*position) => {
                    *domain
                }
                _ => return wrong(&format!("the next is {expected:?}")),
            };
            if taken.contains(&event) {
                return wrong("it comes twice");
            }
            if let Some(what) = self.is_wrong(domain, read, record) {
                return wrong(what);
            }
            let key = (channel, record.serial);
            let before = self.times.insert(key, record.last_ns);
            if before.is_some_and(|before| before > record.last_ns) {
                return wrong("the record before is younger");
            }
            taken.push(event);
        }
        Ok(taken)
    }

    /// Returns what is wrong with the members of a record that the contract does not have.
    fn is_wrong(&self, domain: Id, read: &Read, record: &xrc_rcv_record) -> Option<&'static str> {
        if record.type_ == XRC_RCV_EVENT_OVERRUN {
            return (record.last_ns != 0).then_some("it is of no time");
        }
        if record.last_ns == 0 {
            return Some("it is of no time");
        }
        let of_qp = self.labels.get(&(domain, record.serial));
        let label = of_qp.copied().flatten().filter(|_| read.has_labels);
        label
            .is_some_and(|label| label != record.label)
            .then_some("the QP has another label")
    }

    /// The step in which an event happened. QPs that end with the same step may be destroyed in any
    /// order.
    fn step_of(&self, position: u64) -> usize {
        self.steps.partition_point(|end| *end < position)
    }
}

/// Whether the module has made a record itself.
fn is_own(record: &xrc_rcv_record) -> bool {
    [QP_ADDED, QP_GONE, OVERRUN].contains(&record.type_)
}

/// Returns what the contract has of a record.
fn event(record: &xrc_rcv_record) -> Event {
    Event {
        number: record.qp_num,
        serial: record.serial,
        kind: record.type_,
        total: record.count,
    }
}
