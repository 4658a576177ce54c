// SPDX-License-Identifier: GPL-2.0

//! Which attributes an XRC target QP takes on its way through its states.
//!
//! Pure: masks and states in, masks and states out. What a transition needs and allows is ib_core's
//! table, which every provider consults; the rules here are those that come before it.

use crate::rdma::qp_attr::{
    QpAttrMask,
    QpState, //
};
use kernel::prelude::*;

/// What RESET to INIT needs.
const INIT: QpAttrMask = QpAttrMask::PKEY_INDEX
    .or(QpAttrMask::PORT)
    .or(QpAttrMask::ACCESS_FLAGS);

/// What INIT to RTR needs from the caller.
const RTR: QpAttrMask = QpAttrMask::AV
    .or(QpAttrMask::PATH_MTU)
    .or(QpAttrMask::DEST_QPN)
    .or(QpAttrMask::RQ_PSN);

/// What INIT to RTR needs, and is 0 if the caller does not give it.
const RTR_ZERO: QpAttrMask = QpAttrMask::MAX_DEST_RD_ATOMIC.or(QpAttrMask::MIN_RNR_TIMER);

/// What may come with INIT to RTR, and has an effect.
const RTR_OPTIONAL: QpAttrMask = QpAttrMask::ALT_PATH;

/// What callers of the old `alloc` pass, and what a QP that does not send has no use for. The
/// migration state is MIGRATED in RTR and cannot be set before RTS.
const IGNORED: QpAttrMask = QpAttrMask::QKEY
    .or(QpAttrMask::TIMEOUT)
    .or(QpAttrMask::RETRY_CNT)
    .or(QpAttrMask::RNR_RETRY);

/// What ib_core takes out of the requests of processes that modify an XRC target QP.
const SENDER_ONLY: QpAttrMask = QpAttrMask::MAX_QP_RD_ATOMIC
    .or(QpAttrMask::RETRY_CNT)
    .or(QpAttrMask::RNR_RETRY);

/// How far a new QP goes at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// It stays in RESET.
    Reset,
    /// It goes to INIT with these attributes.
    Init(QpAttrMask),
    /// It goes to INIT with the former attributes, and on to RTR with the latter.
    Rtr(QpAttrMask, QpAttrMask),
}

impl InitialState {
    /// Reads the caller's init_attr from what it gives. `EINVAL` if something is missing, or given
    /// without use.
    pub(crate) fn new(given: QpAttrMask, state: Option<QpState>) -> Result<Self> {
        let given = given.without(IGNORED | QpAttrMask::STATE);
        let migration = given.and(QpAttrMask::PATH_MIG_STATE);
        let given = given.without(QpAttrMask::PATH_MIG_STATE);
        let initial_state = if given.is_empty() {
            Self::Reset
        } else if given == INIT {
            Self::Init(INIT)
        } else if given.has(INIT | RTR)
            && given
                .without(INIT | RTR | RTR_ZERO | RTR_OPTIONAL)
                .is_empty()
        {
            Self::Rtr(INIT, RTR | RTR_ZERO | given.and(RTR_OPTIONAL))
        } else {
            return Err(EINVAL);
        };

        if !migration.is_empty() && !matches!(initial_state, Self::Rtr(..)) {
            return Err(EINVAL);
        }
        if state.is_some_and(|state| state != initial_state.state()) {
            return Err(EINVAL);
        }
        Ok(initial_state)
    }

    /// The state to end in.
    pub(crate) fn state(self) -> QpState {
        match self {
            Self::Reset => QpState::Reset,
            Self::Init(_) => QpState::Init,
            Self::Rtr(..) => QpState::Rtr,
        }
    }

    /// All attributes that are used.
    pub(crate) fn mask(self) -> QpAttrMask {
        match self {
            Self::Reset => QpAttrMask::NONE,
            Self::Init(init) => init,
            Self::Rtr(init, rtr) => init | rtr,
        }
    }
}

/// What is left of a request to modify an XRC target QP.
pub(crate) fn modification(given: QpAttrMask) -> QpAttrMask {
    given.without(SENDER_ONLY)
}

/// Where the port of a request to modify comes from, if it has an address vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Port {
    /// No address vector: as given, if at all.
    AsGiven,
    /// The port that the address vector names, which has to be that of the QP.
    MustBeOwn,
    /// The port that the address vector names, which has to be the one given.
    MustMatch,
    /// The port that the address vector names becomes that of the QP.
    FromPath,
}

/// How a request to modify treats the port: on the way to RTR the QP has one, from INIT; later,
/// in SQD, a new path takes the QP to its port.
pub(crate) fn port_rule(given: QpAttrMask, state: Option<QpState>) -> Port {
    if !given.has(QpAttrMask::AV) {
        Port::AsGiven
    } else if state == Some(QpState::Rtr) {
        Port::MustBeOwn
    } else if given.has(QpAttrMask::PORT) {
        Port::MustMatch
    } else {
        Port::FromPath
    }
}

#[kunit_tests(ib_xrc_rcv_attributes)]
mod tests {
    use super::*;

    fn initial_state(given: QpAttrMask, state: Option<QpState>) -> Option<InitialState> {
        InitialState::new(given, state).ok()
    }

    #[test]
    fn nothing_given_stays_in_reset() {
        assert!(initial_state(QpAttrMask::NONE, None) == Some(InitialState::Reset));
        assert!(
            initial_state(QpAttrMask::STATE, Some(QpState::Reset)) == Some(InitialState::Reset)
        );
        assert!(initial_state(IGNORED, None) == Some(InitialState::Reset));
    }

    #[test]
    fn init_needs_all_three() {
        assert!(initial_state(INIT, None) == Some(InitialState::Init(INIT)));
        for bit in [
            QpAttrMask::PKEY_INDEX,
            QpAttrMask::PORT,
            QpAttrMask::ACCESS_FLAGS,
        ] {
            assert!(initial_state(INIT.without(bit), None).is_none());
        }
    }

    #[test]
    fn rtr_needs_all_seven() {
        let rtr = Some(InitialState::Rtr(INIT, RTR | RTR_ZERO));

        assert!(initial_state(INIT | RTR, None) == rtr);
        assert!(initial_state(INIT | RTR | RTR_ZERO, None) == rtr);
        for bit in [
            QpAttrMask::AV,
            QpAttrMask::PATH_MTU,
            QpAttrMask::DEST_QPN,
            QpAttrMask::RQ_PSN,
        ] {
            assert!(initial_state((INIT | RTR).without(bit), None).is_none());
        }
        for bit in [
            QpAttrMask::PKEY_INDEX,
            QpAttrMask::PORT,
            QpAttrMask::ACCESS_FLAGS,
        ] {
            assert!(initial_state((INIT | RTR).without(bit), None).is_none());
        }
        assert!(initial_state(RTR, None).is_none());
    }

    #[test]
    fn optional_attributes_only_with_rtr() {
        let with_path = Some(InitialState::Rtr(
            INIT,
            RTR | RTR_ZERO | QpAttrMask::ALT_PATH,
        ));

        assert!(initial_state(INIT | RTR | QpAttrMask::ALT_PATH, None) == with_path);
        assert!(
            initial_state(
                INIT | RTR | QpAttrMask::ALT_PATH | QpAttrMask::PATH_MIG_STATE,
                None
            ) == with_path
        );
        for bit in [
            QpAttrMask::ALT_PATH,
            QpAttrMask::PATH_MIG_STATE,
            QpAttrMask::MIN_RNR_TIMER,
            QpAttrMask::MAX_DEST_RD_ATOMIC,
        ] {
            assert!(initial_state(INIT | bit, None).is_none());
            assert!(initial_state(bit, None).is_none());
        }
    }

    #[test]
    fn senders_attributes_are_refused_at_creation() {
        for bit in [
            QpAttrMask::SQ_PSN,
            QpAttrMask::MAX_QP_RD_ATOMIC,
            QpAttrMask::CUR_STATE,
            QpAttrMask::EN_SQD_ASYNC_NOTIFY,
        ] {
            assert!(initial_state(INIT | RTR | bit, None).is_none());
        }
    }

    #[test]
    fn state_must_be_the_one_that_is_reached() {
        assert!(initial_state(INIT | QpAttrMask::STATE, Some(QpState::Init)).is_some());
        assert!(initial_state(INIT | QpAttrMask::STATE, Some(QpState::Rtr)).is_none());
        assert!(initial_state(INIT | RTR | QpAttrMask::STATE, Some(QpState::Rtr)).is_some());
        assert!(initial_state(INIT | RTR | QpAttrMask::STATE, Some(QpState::Init)).is_none());
        assert!(initial_state(INIT | RTR | QpAttrMask::STATE, Some(QpState::Rts)).is_none());
        assert!(initial_state(QpAttrMask::STATE, Some(QpState::Error)).is_none());
    }

    #[test]
    fn modify_drops_what_only_senders_use() {
        assert!(modification(SENDER_ONLY | QpAttrMask::STATE) == QpAttrMask::STATE);
        assert!(
            modification(QpAttrMask::TIMEOUT | QpAttrMask::SQ_PSN)
                == QpAttrMask::TIMEOUT | QpAttrMask::SQ_PSN
        );
    }

    #[test]
    fn port_of_a_path() {
        let rtr = Some(QpState::Rtr);

        assert_eq!(port_rule(QpAttrMask::PORT, None), Port::AsGiven);
        assert_eq!(
            port_rule(QpAttrMask::STATE | QpAttrMask::AV, rtr),
            Port::MustBeOwn
        );
        assert_eq!(
            port_rule(QpAttrMask::AV | QpAttrMask::PORT, None),
            Port::MustMatch
        );
        assert_eq!(port_rule(QpAttrMask::AV, None), Port::FromPath);
    }
}
