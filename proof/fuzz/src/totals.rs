// SPDX-License-Identifier: GPL-2.0

//! The records of channels as semantics.rst has them, if one step was done after the other: each is
//! of a registration, and the total of a type grows with each record of it.

use std::collections::BTreeMap;

use crate::uapi::{XRC_RCV_EVENT_OVERRUN, XRC_RCV_EVENT_QP_GONE, xrc_rcv_record};

/// The number of a channel, of a QP, and the serial number of that.
type Key = (u64, u32, u64);

/// A domain and a serial number, which no other QP of a program has.
type QpId = (u64, u64);

struct Registration {
    qp: QpId,
    /// The totals that are read already, by type.
    read: BTreeMap<u32, u64>,
}

/// The registrations of a program, and the totals that were read for them.
#[derive(Default)]
pub struct Totals {
    registrations: BTreeMap<Key, Registration>,
    /// The greatest totals that were read, by QP and type.
    greatest: BTreeMap<(QpId, u32), u64>,
}

impl Totals {
    /// A channel is registered with the QP that has a number; it may be already.
    pub fn register(&mut self, channel: u64, number: u32, qp: QpId) {
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
