// SPDX-License-Identifier: GPL-2.0

//! Which attributes an XRC target QP takes on its way through its states.
//!
//! Pure: masks and states in, masks and states out. What a transition needs and allows is ib_core's
//! table, which every provider consults; the rules here are those that come before it.

use crate::rdma::qp_attributes::{
    Mask,
    State, //
};
use kernel::prelude::*;

/// What RESET to INIT needs.
const INIT: Mask = Mask::PKEY_INDEX.or(Mask::PORT).or(Mask::ACCESS_FLAGS);

/// What INIT to RTR needs from the caller.
const RTR: Mask = Mask::AV
    .or(Mask::PATH_MTU)
    .or(Mask::DEST_QPN)
    .or(Mask::RQ_PSN);

/// What INIT to RTR needs, and is 0 if the caller does not give it.
const RTR_ZERO: Mask = Mask::MAX_DEST_RD_ATOMIC.or(Mask::MIN_RNR_TIMER);

/// What may come with INIT to RTR, and has an effect.
const RTR_OPTIONAL: Mask = Mask::ALT_PATH;

/// What callers of the old `alloc` pass, and what a QP that does not send has no use for. The
/// migration state is MIGRATED in RTR and cannot be set before RTS.
const IGNORED: Mask = Mask::QKEY
    .or(Mask::TIMEOUT)
    .or(Mask::RETRY_CNT)
    .or(Mask::RNR_RETRY);

/// What ib_core takes out of the requests of processes that modify an XRC target QP.
const SENDER_ONLY: Mask = Mask::MAX_QP_RD_ATOMIC
    .or(Mask::RETRY_CNT)
    .or(Mask::RNR_RETRY);

/// How far a new QP goes at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creation {
    /// It stays in RESET.
    Reset,
    /// It goes to INIT with these attributes.
    Init(Mask),
    /// It goes to INIT with the former attributes, and on to RTR with the latter.
    ReadyToReceive(Mask, Mask),
}

impl Creation {
    /// Reads the caller's wish from what it gives. `EINVAL` if something is missing, or given
    /// without use.
    pub(crate) fn new(given: Mask, state: Option<State>) -> Result<Self> {
        let given = given.without(IGNORED | Mask::STATE);
        let migration = given.and(Mask::PATH_MIG_STATE);
        let given = given.without(Mask::PATH_MIG_STATE);
        let creation = if given.is_empty() {
            Self::Reset
        } else if given == INIT {
            Self::Init(INIT)
        } else if given.has(INIT | RTR)
            && given
                .without(INIT | RTR | RTR_ZERO | RTR_OPTIONAL)
                .is_empty()
        {
            Self::ReadyToReceive(INIT, RTR | RTR_ZERO | given.and(RTR_OPTIONAL))
        } else {
            return Err(EINVAL);
        };

        if !migration.is_empty() && !matches!(creation, Self::ReadyToReceive(..)) {
            return Err(EINVAL);
        }
        if state.is_some_and(|state| state != creation.state()) {
            return Err(EINVAL);
        }
        Ok(creation)
    }

    /// The state to end in.
    pub(crate) fn state(self) -> State {
        match self {
            Self::Reset => State::Reset,
            Self::Init(_) => State::Init,
            Self::ReadyToReceive(..) => State::ReadyToReceive,
        }
    }

    /// All attributes that are used.
    pub(crate) fn mask(self) -> Mask {
        match self {
            Self::Reset => Mask::NONE,
            Self::Init(init) => init,
            Self::ReadyToReceive(init, rtr) => init | rtr,
        }
    }
}

/// What is left of a request to modify an XRC target QP.
pub(crate) fn modification(given: Mask) -> Mask {
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
pub(crate) fn port_rule(given: Mask, state: Option<State>) -> Port {
    if !given.has(Mask::AV) {
        Port::AsGiven
    } else if state == Some(State::ReadyToReceive) {
        Port::MustBeOwn
    } else if given.has(Mask::PORT) {
        Port::MustMatch
    } else {
        Port::FromPath
    }
}

#[kunit_tests(ib_xrc_rcv_attributes)]
mod tests {
    use super::*;

    fn creation(given: Mask, state: Option<State>) -> Option<Creation> {
        Creation::new(given, state).ok()
    }

    #[test]
    fn nothing_given_stays_in_reset() {
        assert!(creation(Mask::NONE, None) == Some(Creation::Reset));
        assert!(creation(Mask::STATE, Some(State::Reset)) == Some(Creation::Reset));
        assert!(creation(IGNORED, None) == Some(Creation::Reset));
    }

    #[test]
    fn init_needs_all_three() {
        assert!(creation(INIT, None) == Some(Creation::Init(INIT)));
        for bit in [Mask::PKEY_INDEX, Mask::PORT, Mask::ACCESS_FLAGS] {
            assert!(creation(INIT.without(bit), None).is_none());
        }
    }

    #[test]
    fn rtr_needs_all_seven() {
        let rtr = Some(Creation::ReadyToReceive(INIT, RTR | RTR_ZERO));

        assert!(creation(INIT | RTR, None) == rtr);
        assert!(creation(INIT | RTR | RTR_ZERO, None) == rtr);
        for bit in [Mask::AV, Mask::PATH_MTU, Mask::DEST_QPN, Mask::RQ_PSN] {
            assert!(creation((INIT | RTR).without(bit), None).is_none());
        }
        for bit in [Mask::PKEY_INDEX, Mask::PORT, Mask::ACCESS_FLAGS] {
            assert!(creation((INIT | RTR).without(bit), None).is_none());
        }
        assert!(creation(RTR, None).is_none());
    }

    #[test]
    fn optional_attributes_only_with_rtr() {
        let with_path = Some(Creation::ReadyToReceive(
            INIT,
            RTR | RTR_ZERO | Mask::ALT_PATH,
        ));

        assert!(creation(INIT | RTR | Mask::ALT_PATH, None) == with_path);
        assert!(creation(INIT | RTR | Mask::ALT_PATH | Mask::PATH_MIG_STATE, None) == with_path);
        for bit in [
            Mask::ALT_PATH,
            Mask::PATH_MIG_STATE,
            Mask::MIN_RNR_TIMER,
            Mask::MAX_DEST_RD_ATOMIC,
        ] {
            assert!(creation(INIT | bit, None).is_none());
            assert!(creation(bit, None).is_none());
        }
    }

    #[test]
    fn senders_attributes_are_refused_at_creation() {
        for bit in [
            Mask::SQ_PSN,
            Mask::MAX_QP_RD_ATOMIC,
            Mask::CUR_STATE,
            Mask::EN_SQD_ASYNC_NOTIFY,
        ] {
            assert!(creation(INIT | RTR | bit, None).is_none());
        }
    }

    #[test]
    fn state_must_be_the_one_that_is_reached() {
        assert!(creation(INIT | Mask::STATE, Some(State::Init)).is_some());
        assert!(creation(INIT | Mask::STATE, Some(State::ReadyToReceive)).is_none());
        assert!(creation(INIT | RTR | Mask::STATE, Some(State::ReadyToReceive)).is_some());
        assert!(creation(INIT | RTR | Mask::STATE, Some(State::Init)).is_none());
        assert!(creation(INIT | RTR | Mask::STATE, Some(State::ReadyToSend)).is_none());
        assert!(creation(Mask::STATE, Some(State::Error)).is_none());
    }

    #[test]
    fn modify_drops_what_only_senders_use() {
        assert!(modification(SENDER_ONLY | Mask::STATE) == Mask::STATE);
        assert!(modification(Mask::TIMEOUT | Mask::SQ_PSN) == Mask::TIMEOUT | Mask::SQ_PSN);
    }

    #[test]
    fn port_of_a_path() {
        let rtr = Some(State::ReadyToReceive);

        assert_eq!(port_rule(Mask::PORT, None), Port::AsGiven);
        assert_eq!(port_rule(Mask::STATE | Mask::AV, rtr), Port::MustBeOwn);
        assert_eq!(port_rule(Mask::AV | Mask::PORT, None), Port::MustMatch);
        assert_eq!(port_rule(Mask::AV, None), Port::FromPath);
    }
}
