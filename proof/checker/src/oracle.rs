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
    /// XRC domains that are closed, by `Xrcd::id`.
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
