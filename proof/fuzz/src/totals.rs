// SPDX-License-Identifier: GPL-2.0

//! The records of channels as semantics.rst has them, if one step was done after the other: each is
//! of a registration, and the total of a type grows with each record of it.

use std::collections::BTreeMap;

use crate::uapi::{
    XRC_RCV_EVENT_OVERRUN, XRC_RCV_EVENT_QP_ADDED, XRC_RCV_EVENT_QP_GONE, xrc_rcv_record,
};

/// The number of a channel, of a QP, and the serial number of that.
type Key = (u64, u32, u64);

/// A domain and a serial number, which no other QP of a program has.
type QpId = (u64, u64);

struct Registration {
    qp: QpId,
    /// The totals that are read already, by type.
    read: BTreeMap<u32, u64>,
}

/// A channel that is registered with all QPs of a domain.
struct Follower {
    domain: u64,
    /// The number of QPs that were created before.
    from: usize,
}

/// A QP that was created.
struct Created {
    number: u32,
    /// The number of QPs that were created before.
    index: usize,
}

/// The registrations of a program, and the totals that were read for them.
#[derive(Default)]
pub struct Totals {
    /// Those with all QPs come here with the first record of a QP.
    registrations: BTreeMap<Key, Registration>,
    followers: BTreeMap<u64, Follower>,
    qps: BTreeMap<QpId, Created>,
    /// The greatest totals that were read, by QP and type.
    greatest: BTreeMap<(QpId, u32), u64>,
}

impl Totals {
    /// A QP is created.
    pub fn create(&mut self, qp: QpId, number: u32) {
        let index = self.qps.len();
        self.qps.insert(qp, Created { number, index });
    }

    /// A channel is created that is registered with all QPs of a domain.
    pub fn follow(&mut self, channel: u64, domain: u64) {
        let from = self.qps.len();
        self.followers.insert(channel, Follower { domain, from });
    }

    /// A channel is registered with the QP that has a number; it may be already, with all QPs.
    pub fn register(&mut self, channel: u64, number: u32, qp: QpId) {
        if self.followers.contains_key(&channel) {
            return;
        }
        let key = (channel, number, qp.1);
        let of_qp = self.greatest.range((qp, 0)..=(qp, u32::MAX));
        let read = of_qp.map(|((_, type_), total)| (*type_, *total)).collect();
        self.registrations
            .entry(key)
            .or_insert(Registration { qp, read });
    }

    /// Ends the registrations of a channel with the QPs that have, or had, a number.
    pub fn unregister(&mut self, channel: u64, number: u32) {
        self.registrations
            .retain(|key, _| (key.0, key.1) != (channel, number));
    }

    /// Ends the registrations of other channels than these.
    pub fn retain(&mut self, exists: impl Fn(u64) -> bool) {
        self.registrations
            .retain(|(channel, ..), _| exists(*channel));
        self.followers.retain(|channel, _| exists(*channel));
    }

    /// The first record of a QP that a channel with all QPs reads: QP_ADDED, of a QP that is newer
    /// than the channel, unless its mask excludes that.
    fn begin(&mut self, channel: u64, record: &xrc_rcv_record) -> Result<(), &'static str> {
        let is_added = record.type_ == XRC_RCV_EVENT_QP_ADDED;
        let is_first = !self
            .registrations
            .contains_key(&(channel, record.qp_num, record.serial));
        let Some(follower) = self.followers.get(&channel).filter(|_| is_first) else {
            return if is_added {
                Err("QP_ADDED is the first record of a QP, and for members of all")
            } else {
                Ok(())
            };
        };
        let qp = (follower.domain, record.serial);
        match self.qps.get(&qp) {
            Some(created) if created.number == record.qp_num => {
                if is_added && created.index < follower.from {
                    return Err("the QP is older than the channel");
                }
                let key = (channel, record.qp_num, record.serial);
                let read = BTreeMap::new();
                self.registrations.insert(key, Registration { qp, read });
                Ok(())
            }
            _ => Err("the domain had no such QP"),
        }
    }

    /// Compares a record that was read from a channel.
    pub fn read(&mut self, channel: u64, record: &xrc_rcv_record) -> Result<(), String> {
        let xrc_rcv_record {
            serial,
            count,
            qp_num,
            type_,
            ..
        } = *record;
        let wrong = |what: &str| Err(format!("{record:?}: {what}"));
        if type_ == XRC_RCV_EVENT_OVERRUN {
            return if (qp_num, serial, count) == (0, 0, 1) {
                Ok(())
            } else {
                wrong("OVERRUN is of no QP")
            };
        }
        if let Err(what) = self.begin(channel, record) {
            return wrong(what);
        }
        let registration = self.registrations.get_mut(&(channel, qp_num, serial));
        let Some(Registration { qp, read }) = registration else {
            return wrong("the channel is not registered with this QP");
        };
        if read.contains_key(&XRC_RCV_EVENT_QP_GONE) {
            return wrong("QP_GONE was the last record");
        }
        if read.insert(type_, count).unwrap_or(0) >= count {
            return wrong("the registration had this total");
        }
        if type_ == XRC_RCV_EVENT_QP_GONE {
            return if count == 1 {
                Ok(())
            } else {
                wrong("a QP is destroyed once")
            };
        }
        let greatest = self.greatest.entry((*qp, type_)).or_default();
        if *greatest > count {
            return wrong("the total has gone back");
        }
        *greatest = count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS_ERR: u32 = 3;

    fn record(serial: u64, type_: u32, count: u64) -> xrc_rcv_record {
        xrc_rcv_record {
            serial,
            count,
            qp_num: 17,
            type_,
            ..Default::default()
        }
    }

    fn registered(channels: &[u64]) -> Totals {
        let mut totals = Totals::default();
        for channel in channels {
            totals.register(*channel, 17, (1, 4));
        }
        totals
    }

    #[test]
    fn totals_grow() {
        let mut totals = registered(&[1, 2]);
        assert!(totals.read(1, &record(4, ACCESS_ERR, 0)).is_err());
        assert!(totals.read(1, &record(4, ACCESS_ERR, 3)).is_ok());
        assert!(totals.read(1, &record(4, ACCESS_ERR, 3)).is_err());
        assert!(totals.read(2, &record(4, ACCESS_ERR, 2)).is_err());
        assert!(totals.read(2, &record(4, ACCESS_ERR, 4)).is_ok());
    }

    #[test]
    fn records_are_of_registrations() {
        let mut totals = registered(&[1]);
        assert!(totals.read(2, &record(4, ACCESS_ERR, 1)).is_err());
        assert!(totals.read(1, &record(5, ACCESS_ERR, 1)).is_err());
        totals.register(1, 17, (1, 5));
        assert!(totals.read(1, &record(5, ACCESS_ERR, 1)).is_ok());
        assert!(totals.read(1, &record(4, ACCESS_ERR, 1)).is_ok());
        totals.register(2, 17, (1, 5));
        // Both end.
        totals.unregister(1, 17);
        assert!(totals.read(1, &record(4, ACCESS_ERR, 2)).is_err());
        assert!(totals.read(1, &record(5, ACCESS_ERR, 2)).is_err());
        assert!(totals.read(2, &record(5, ACCESS_ERR, 2)).is_ok());
        totals.retain(|channel| channel != 2);
        assert!(totals.read(2, &record(5, ACCESS_ERR, 3)).is_err());
    }

    #[test]
    fn a_new_registration_begins_with_the_total() {
        let mut totals = registered(&[1]);
        assert!(totals.read(1, &record(4, ACCESS_ERR, 3)).is_ok());
        totals.register(2, 17, (1, 4));
        assert!(totals.read(2, &record(4, ACCESS_ERR, 3)).is_err());
        // It has been registered since.
        totals.register(1, 17, (1, 4));
        assert!(totals.read(1, &record(4, ACCESS_ERR, 4)).is_ok());
    }

    #[test]
    fn overrun_is_of_no_qp() {
        let mut totals = Totals::default();
        let overrun = |qp_num, count| xrc_rcv_record {
            qp_num,
            ..record(0, XRC_RCV_EVENT_OVERRUN, count)
        };
        assert!(totals.read(1, &overrun(17, 1)).is_err());
        assert!(totals.read(2, &overrun(0, 0)).is_err());
        assert!(totals.read(2, &overrun(0, 1)).is_ok());
        assert!(totals.read(2, &overrun(0, 1)).is_ok());
    }

    #[test]
    fn a_member_of_all_reads_of_all_qps() {
        let added = |serial| record(serial, XRC_RCV_EVENT_QP_ADDED, 1);
        let mut totals = registered(&[1]);
        totals.create((1, 4), 17);
        totals.follow(2, 1);
        totals.create((1, 5), 17);
        totals.create((3, 6), 17);
        assert!(totals.read(1, &added(4)).is_err());
        assert!(totals.read(2, &added(4)).is_err());
        assert!(totals.read(2, &record(4, ACCESS_ERR, 1)).is_ok());
        assert!(totals.read(2, &added(5)).is_ok());
        assert!(totals.read(2, &added(5)).is_err());
        assert!(totals.read(2, &record(5, XRC_RCV_EVENT_QP_GONE, 1)).is_ok());
        assert!(totals.read(2, &record(5, ACCESS_ERR, 1)).is_err());
        assert!(totals.read(2, &added(6)).is_err());
        totals.retain(|channel| channel != 2);
        assert!(totals.read(2, &record(4, ACCESS_ERR, 2)).is_err());
    }

    #[test]
    fn gone_is_the_last_record() {
        let mut totals = registered(&[1, 2]);
        assert!(totals.read(1, &record(4, XRC_RCV_EVENT_QP_GONE, 1)).is_ok());
        assert!(totals.read(1, &record(4, ACCESS_ERR, 1)).is_err());
        assert!(
            totals
                .read(2, &record(4, XRC_RCV_EVENT_QP_GONE, 2))
                .is_err()
        );
    }
}
