// SPDX-License-Identifier: GPL-2.0

//! The specification, to which each report of the module is a step, and XRC domains that are
//! closed.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};
use xrc_rcv_spec::{Device, Record};

#[derive(Default)]
pub(crate) struct Oracle(Mutex<State>);

#[derive(Default)]
struct State {
    device: Device,
    /// XRC domains that are closed, by their addresses.
    closed: BTreeSet<usize>,
}

impl Oracle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// The module reports a step.
    pub(crate) fn reported(&self, record: &Record) {
        let result = self.state().device.step(record);

        if let Err(violation) = result {
            panic!("{violation}, but: {record:?}");
        }
    }

    /// An XRC domain is closed: no QP of it may exist.
    pub(crate) fn closed(&self, xrcd: usize) {
        self.state().closed.insert(xrcd);
    }

    pub(crate) fn uses_xrcd(&self, xrcd: usize) {
        assert!(
            !self.state().closed.contains(&xrcd),
            "a verb on a QP of a domain that is closed"
        );
    }

    /// Whether a QP with a number can be found.
    pub(crate) fn is_live(&self, qpn: u32) -> bool {
        self.state().device.found().any(|(_, live)| live == qpn)
    }

    /// The numbers of the QPs that can be found, in order.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let state = self.state();
        let mut numbers: Vec<_> = state.device.found().map(|(_, number)| number).collect();

        numbers.sort_unstable();
        numbers
    }

    /// The device destroys a QP.
    pub(crate) fn destroys(&self, qpn: u32) {
        assert!(!self.is_live(qpn), "a QP is destroyed that can be found");
    }

    pub(crate) fn check_is_idle(&self) {
        assert!(
            self.state().device.is_empty(),
            "a QP was not destroyed, or a registration did not end"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use xrc_rcv_spec::{Holder, Lifetime, Mutant, Registrations, What};

    /// Reports the life of a QP with one registration.
    fn report_life() {
        let oracle = Oracle::default();
        let report = |what| {
            oracle.reported(&Record::Qp {
                domain: 1,
                number: 0x11,
                serial: 1,
                what,
            })
        };
        let registrations = |number, changes| Registrations {
            number,
            keeping: number,
            keeping_all: 0,
            changes,
        };
        let holder = Holder {
            channel: Some(1),
            mask: !0,
        };

        report(What::Alloc {
            lifetime: Lifetime::Registrations,
            registers: true,
            keeping_all: 0,
        });
        report(What::Register(holder, registrations(1, 1)));
        report(What::Unregister(holder, registrations(0, 2)));
        report(What::End(registrations(0, 2), false));
        assert_eq!(oracle.numbers(), []);
    }

    #[test]
    fn a_mutant_of_the_specification_is_noticed() {
        let mutant = Some(Mutant::UnregNotCounted);
        let report = || Mutant::during(mutant, report_life);

        report_life();
        assert!(catch_unwind(AssertUnwindSafe(report)).is_err());
    }
}
