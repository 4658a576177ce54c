// SPDX-License-Identifier: GPL-2.0

//! The last known state of a receive QP, for callers that must not query the device.
//!
//! It is known from modifications, from queries and from events that break the QP. Modifications
//! happen one at a time, but queries and events at the same time as these and as each other. What a
//! query returns can be older than a modification or an event that was noted meanwhile, and is
//! dropped then. An event during a modification can have broken the QP after it was modified.

use crate::rdma::qp_attr::{
    QpAttr,
    QpAttrMask,
    QpState, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// See the [module's documentation](self).
pub(crate) struct KnownState(Atomic<u64>);

/// The knowledge of one time: from bit 0, the QP number of the peer, the state, and from bit 32,
/// the number of modifications and breaks.
#[derive(Clone, Copy)]
struct Known(u64);

impl Known {
    fn new(state: QpState, destination: u32, changes: u32) -> Self {
        Self(
            (u64::from(changes) << 32)
                | ((state as u64) << 24)
                | u64::from(destination & 0xff_ffff),
        )
    }

    fn state(self) -> Result<QpState> {
        (self.0 as u32 >> 24).try_into()
    }

    fn destination(self) -> u32 {
        self.0 as u32 & 0xff_ffff
    }

    fn changes(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn with_state(self, state: QpState) -> Self {
        Self::new(state, self.destination(), self.changes())
    }

    fn changed(self) -> Self {
        Self(self.0.wrapping_add(1 << 32))
    }

    /// Returns what is known with `attributes`. A QP in RESET has no peer.
    fn with(self, attributes: &QpAttr) -> Self {
        let mask = attributes.mask();
        let state = match attributes.state() {
            Ok(state) if mask.has(QpAttrMask::STATE) => Some(state),
            _ => None,
        };
        let mut known = self;

        if state == Some(QpState::Reset) || mask.has(QpAttrMask::DEST_QPN) {
            known.0 = known.0 & !0xff_ffff | u64::from(attributes.destination() & 0xff_ffff);
        }
        match state {
            Some(state) => known.with_state(state),
            None => known,
        }
    }
}

impl KnownState {
    /// The state of a new QP.
    pub(crate) fn new() -> Self {
        Self(Atomic::new(Known::new(QpState::Reset, 0, 0).0))
    }

    fn load(&self) -> Known {
        Known(self.0.load(Relaxed))
    }

    fn update(&self, change: impl Fn(Known) -> Known) {
        let mut known = self.load();

        while let Err(now) = self.0.cmpxchg(known.0, change(known).0, Relaxed) {
            known = Known(now);
        }
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> Result<QpState> {
        self.load().state()
    }

    /// Returns the QP number of the peer, which is 0 in RESET.
    pub(crate) fn destination(&self) -> u32 {
        self.load().destination()
    }

    /// Calls a verb that queries the QP, and notes what it returns, unless the QP was modified,
    /// broken or queried meanwhile.
    pub(crate) fn note_query(&self, verb: impl FnOnce() -> Result<QpAttr>) -> Result<QpAttr> {
        let before = self.load();
        let attributes = verb()?;
        let _ = self
            .0
            .cmpxchg(before.0, before.with(&attributes).0, Relaxed);

        Ok(attributes)
    }

    /// Calls a verb that modifies the QP to `attributes`, and notes them if it succeeds. The caller
    /// calls one at a time. If an event breaks the QP during the call, its state stays ERR, unless
    /// it is RESET now: an event of a QP in RESET is one of before.
    pub(crate) fn note_modify(
        &self,
        attributes: &mut QpAttr,
        verb: impl FnOnce(&mut QpAttr) -> Result,
    ) -> Result {
        let before = self.load().changes();

        verb(attributes)?;
        self.update(|known| {
            let after = known.with(attributes);

            match (known.changes() == before, after.state()) {
                (true, _) | (false, Ok(QpState::Reset)) => after,
                (false, _) => after.with_state(QpState::Err),
            }
            .changed()
        });
        Ok(())
    }

    /// Notes that an event broke the QP. May be called in any context.
    pub(crate) fn note_break(&self) {
        self.update(|known| known.with_state(QpState::Err).changed());
    }
}

#[kunit_tests(ib_xrc_rcv_known_state)]
mod tests {
    use super::*;

    fn attributes(state: QpState) -> QpAttr {
        let mut attributes = QpAttr::new();

        attributes.towards(state, QpAttrMask::NONE);
        attributes
    }

    fn is(known: &KnownState, state: QpState) -> bool {
        known.state() == Ok(state)
    }

    #[test]
    fn an_event_breaks_a_qp_that_is_modified() -> Result {
        let known = KnownState::new();

        known.note_modify(&mut attributes(QpState::Rtr), |_| {
            known.note_break();
            Ok(())
        })?;
        assert!(is(&known, QpState::Err));
        Ok(())
    }

    #[test]
    fn an_event_does_not_break_a_qp_that_is_reset() -> Result {
        let known = KnownState::new();

        known.note_modify(&mut attributes(QpState::Reset), |_| {
            known.note_break();
            Ok(())
        })?;
        assert!(is(&known, QpState::Reset));
        Ok(())
    }

    #[test]
    fn a_failed_modification_is_not_noted() {
        let known = KnownState::new();
        let result = known.note_modify(&mut attributes(QpState::Init), |_| Err(EINVAL));

        assert!(result == Err(EINVAL));
        assert!(is(&known, QpState::Reset));
    }

    #[test]
    fn a_query_is_older_than_the_changes_during_it() -> Result {
        let known = KnownState::new();

        known.note_query(|| {
            known.note_break();
            Ok(attributes(QpState::Rtr))
        })?;
        assert!(is(&known, QpState::Err));
        known.note_query(|| {
            known.note_modify(&mut attributes(QpState::Reset), |_| Ok(()))?;
            Ok(attributes(QpState::Err))
        })?;
        assert!(is(&known, QpState::Reset));
        known.note_query(|| Ok(attributes(QpState::Rts)))?;
        assert!(is(&known, QpState::Rts));
        Ok(())
    }
}
