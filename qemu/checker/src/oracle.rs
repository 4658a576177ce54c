// SPDX-License-Identifier: GPL-2.0

//! What `Documentation/semantics.rst` promises of the life of receive QPs, checked at each report to
//! notifiers, which come in the order of the domain's lock, and at each verb.

use crate::bindings;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

#[derive(Default)]
pub(crate) struct Oracle(Mutex<State>);

#[derive(Default)]
struct State {
    /// The registrations of each QP that can be found, by domain and number.
    live: BTreeMap<(u32, u32), u32>,
    /// The registrations that QPs had when they ended.
    ended: Vec<((u32, u32), u32)>,
    /// Domains that are closed, by `Xrcd::id`.
    closed: BTreeSet<usize>,
    /// QPs may end with this many registrations: any number during the last close of a domain, one
    /// where DESTROY is called.
    may_end_with: u32,
}

impl Oracle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Allows QPs to end while they have `registrations`.
    pub(crate) fn may_end_with(&self, registrations: u32) {
        let mut state = self.state();

        state.may_end_with = state.may_end_with.max(registrations);
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

    pub(crate) fn notified(&self, action: u32, domain: u32, qpn: u32, registrations: u32) {
        let mut state = self.state();
        let qp = (domain, qpn);

        match action {
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_ALLOC => {
                assert!(
                    state.live.insert(qp, 0).is_none(),
                    "two QPs have number {qpn}"
                );
            }
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_REG => {
                let before = state
                    .live
                    .insert(qp, registrations)
                    .expect("REG on a QP that cannot be found");

                assert_eq!(registrations, before + 1, "registrations after REG");
            }
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_UNREG => {
                let live = state.live.get(&qp).copied();

                if live == Some(registrations + 1) {
                    state.live.insert(qp, registrations);
                } else {
                    let ended = (qp, registrations + 1);
                    let index = state
                        .ended
                        .iter()
                        .position(|known| *known == ended)
                        .expect("UNREG of a registration that does not exist");

                    state.ended[index].1 -= 1;
                }
            }
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_DESTROY => {
                let before = state
                    .live
                    .remove(&qp)
                    .expect("a QP ends twice, or before it can be found");

                assert_eq!(registrations, before, "registrations at the end");
                assert!(
                    registrations <= state.may_end_with,
                    "a QP ends while it has {registrations} registrations"
                );
                state.ended.push((qp, registrations));
            }
            other => panic!("action {other}"),
        }
    }

    /// Whether a QP with a number can be found.
    pub(crate) fn is_live(&self, qpn: u32) -> bool {
        self.state().live.keys().any(|(_, live)| *live == qpn)
    }

    /// The device destroys a QP.
    pub(crate) fn destroys(&self, qpn: u32) {
        assert!(!self.is_live(qpn), "a QP is destroyed that can be found");
    }

    pub(crate) fn check_is_idle(&self) {
        let state = self.state();

        assert!(state.live.is_empty(), "a QP can be found");
        assert!(
            state
                .ended
                .iter()
                .all(|(_, registrations)| *registrations == 0),
            "a registration did not end"
        );
    }
}
