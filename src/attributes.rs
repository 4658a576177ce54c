// SPDX-License-Identifier: GPL-2.0

//! The attributes that XRC target QPs take in each transition.
//!
//! Pure functions of masks and states. ib_core's table of transitions, which every provider
//! consults, has the required and the optional attributes; the rules in this file apply before it.

use crate::rdma::qp_attr::{
    QpAttrMask,
    QpState, //
};
use kernel::prelude::*;

/// Required for RESET to INIT.
const INIT: QpAttrMask = QpAttrMask::PKEY_INDEX
    .or(QpAttrMask::PORT)
    .or(QpAttrMask::ACCESS_FLAGS);

/// Required for INIT to RTR, from the caller.
const RTR: QpAttrMask = QpAttrMask::AV
    .or(QpAttrMask::PATH_MTU)
    .or(QpAttrMask::DEST_QPN)
    .or(QpAttrMask::RQ_PSN);

/// Required for INIT to RTR, and 0 unless the caller passes a value.
const RTR_ZERO: QpAttrMask = QpAttrMask::MAX_DEST_RD_ATOMIC.or(QpAttrMask::MIN_RNR_TIMER);

/// Optional for INIT to RTR.
const RTR_OPTIONAL: QpAttrMask = QpAttrMask::ALT_PATH;

/// Accepted and ignored: callers of `ibv_alloc_xrc_rcv_qp()` pass them, and a QP that does not send
/// has no use for them. The migration state is MIGRATED in RTR and cannot be set before RTS.
const IGNORED: QpAttrMask = QpAttrMask::QKEY
    .or(QpAttrMask::TIMEOUT)
    .or(QpAttrMask::RETRY_CNT)
    .or(QpAttrMask::RNR_RETRY);

/// Ignored by ib_core when a process modifies an XRC target QP.
const SENDER_ONLY: QpAttrMask = QpAttrMask::MAX_QP_RD_ATOMIC
    .or(QpAttrMask::RETRY_CNT)
    .or(QpAttrMask::RNR_RETRY);

/// The state in which the creator of a QP gets it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// RESET.
    Reset,
    /// INIT, reached with these attributes.
    Init(QpAttrMask),
    /// RTR: the first mask has the attributes for INIT, the second those for RTR.
    Rtr(QpAttrMask, QpAttrMask),
}

impl InitialState {
    /// Derives the state from the attributes that the caller passes. `EINVAL` if a required
    /// attribute is missing, or one is passed that the transition does not take.
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

    /// Returns the state.
    pub(crate) fn state(self) -> QpState {
        match self {
            Self::Reset => QpState::Reset,
            Self::Init(_) => QpState::Init,
            Self::Rtr(..) => QpState::Rtr,
        }
    }

    /// Returns all attributes that the transitions use.
    pub(crate) fn mask(self) -> QpAttrMask {
        match self {
            Self::Reset => QpAttrMask::NONE,
            Self::Init(init) => init,
            Self::Rtr(init, rtr) => init | rtr,
        }
    }
}

/// Removes ignored attributes from a request to modify an XRC target QP.
pub(crate) fn modification(given: QpAttrMask) -> QpAttrMask {
    given.without(SENDER_ONLY)
}

/// The port of an address vector, beside the port of the QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Port {
    /// The request has no address vector.
    AsGiven,
    /// The port of the address vector must be that of the QP.
    MustBeOwn,
    /// The port of the address vector must be the port in the request.
    MustMatch,
    /// The port of the address vector becomes that of the QP.
    FromPath,
}

/// Returns the rule for the port in a request to modify. From INIT to RTR, the QP has its port
/// already; later, in SQD, a new path moves the QP to another port.
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
        assert!(initial_state(QpAttrMask::STATE, Some(QpState::Err)).is_none());
    }

    #[test]
    fn modify_ignores_attributes_of_senders() {
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
