// SPDX-License-Identifier: GPL-2.0

//! What `Documentation/semantics.rst` promises of the life of receive QPs, checked at each report to
//! notifiers, which come in the order of the domain's lock, and at each verb.

use crate::{bindings, receive_qp::Lifetime, uapi::XRC_RCV_LIFETIME_REGISTRATIONS};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

#[derive(Default)]
pub(crate) struct Oracle(Mutex<State>);

/// A QP by its label, which is unique in the checker: numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label(u64);

impl Label {
    /// The label of the `number`th QP.
    pub(crate) fn new(number: u64, lifetime: Lifetime) -> Self {
        Self(number << 1 | u64::from(lifetime.as_raw()))
    }

    pub(crate) fn from_raw(label: u64) -> Self {
        Self(label)
    }

    pub(crate) fn as_raw(self) -> u64 {
        self.0
    }

    fn ends_with_registrations(self) -> bool {
        self.0 & 1 == u64::from(XRC_RCV_LIFETIME_REGISTRATIONS)
    }
}

#[derive(Default)]
struct State {
    /// The number of each QP that can be found, and its registrations.
    live: BTreeMap<Label, (u32, u32)>,
    /// QPs without a registration, which is what they exist for: each ends before anything else happens
    /// to it.
    unneeded: BTreeSet<Label>,
    /// The registrations that QPs have which ended.
    ended: BTreeMap<Label, u32>,
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

    pub(crate) fn notified(&self, action: u32, qp: Label, qpn: u32, registrations: u32) {
        let mut state = self.state();
        let is_unneeded = state.unneeded.remove(&qp);

        assert!(
            !is_unneeded || action == bindings::ib_xrc_rcv_action_IB_XRC_RCV_DESTROY,
            "the last UNREG and the end are two steps"
        );
        match action {
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_ALLOC => {
                assert!(
                    state.live.values().all(|(number, _)| *number != qpn),
                    "two QPs have number {qpn}"
                );
                state.live.insert(qp, (qpn, 0));
            }
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_REG => {
                let (_, before) = state
                    .live
                    .insert(qp, (qpn, registrations))
                    .expect("REG on a QP that cannot be found");

                assert_eq!(registrations, before + 1, "registrations after REG");
            }
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_UNREG => {
                let before = match state.live.get_mut(&qp) {
                    Some((_, live)) => core::mem::replace(live, registrations),
                    None => {
                        let ended = state.ended.get_mut(&qp).expect("UNREG of a QP");

                        core::mem::replace(ended, registrations)
                    }
                };

                assert_eq!(registrations + 1, before, "registrations before UNREG");
                if registrations == 0
                    && qp.ends_with_registrations()
                    && state.live.contains_key(&qp)
                {
                    state.unneeded.insert(qp);
                }
            }
            bindings::ib_xrc_rcv_action_IB_XRC_RCV_DESTROY => {
                let (_, before) = state
                    .live
                    .remove(&qp)
                    .expect("a QP ends twice, or before it can be found");

                assert_eq!(registrations, before, "registrations at the end");
                assert!(
                    registrations <= state.may_end_with,
                    "a QP ends while it has {registrations} registrations"
                );
                state.ended.insert(qp, registrations);
            }
            other => panic!("action {other}"),
        }
    }

    /// Whether a QP with a number can be found.
    pub(crate) fn is_live(&self, qpn: u32) -> bool {
        self.state().live.values().any(|(live, _)| *live == qpn)
    }

    /// The device destroys a QP.
    pub(crate) fn destroys(&self, qpn: u32) {
        assert!(!self.is_live(qpn), "a QP is destroyed that can be found");
    }

    pub(crate) fn check_is_idle(&self) {
        let state = self.state();

        assert!(state.live.is_empty(), "a QP can be found");
        assert!(
            state.unneeded.is_empty(),
            "a QP without registrations is left"
        );
        assert!(
            state
                .ended
                .values()
                .all(|registrations| *registrations == 0),
            "a registration did not end"
        );
    }
}
