// SPDX-License-Identifier: GPL-2.0

//! What can happen to a receive QP.

use crate::{
    bindings,
    kernel_ext::monotonic_ns,
    uapi::XRC_RCV_EVENT_QP_GONE, //
};

/// A kind of event, as the table has it.
struct Kind {
    /// The number that processes know it by.
    raw: u32,
    origin: Origin,
    /// Whether the QP is in state ERR afterwards.
    is_error: bool,
}

/// Where events of a kind come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From the provider. The number is that of `enum ib_event_type`.
    Provider,
    /// From this module.
    Module,
}

impl Kind {
    const fn new(raw: u32, origin: Origin, is_error: bool) -> Self {
        Self {
            raw,
            origin,
            is_error,
        }
    }

    const fn provider(raw: u32) -> Self {
        Self::new(raw, Origin::Provider, false)
    }

    const fn error(raw: u32) -> Self {
        Self::new(raw, Origin::Provider, true)
    }

    const fn module(raw: u32) -> Self {
        Self::new(raw, Origin::Module, false)
    }
}

/// All kinds of events of receive QPs. A kind's place is its [`EventType::index`].
const KINDS: &[Kind] = &[
    Kind::error(bindings::ib_event_type_IB_EVENT_QP_FATAL),
    Kind::error(bindings::ib_event_type_IB_EVENT_QP_REQ_ERR),
    Kind::error(bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR),
    Kind::provider(bindings::ib_event_type_IB_EVENT_COMM_EST),
    Kind::provider(bindings::ib_event_type_IB_EVENT_SQ_DRAINED),
    Kind::provider(bindings::ib_event_type_IB_EVENT_PATH_MIG),
    Kind::provider(bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR),
    Kind::provider(bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED),
    Kind::module(XRC_RCV_EVENT_QP_GONE),
];

/// A kind of event that can be reported to holders of a registration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventType(u8);

impl EventType {
    /// The number of kinds.
    pub(crate) const COUNT: usize = KINDS.len();

    /// The QP was destroyed under its registrations. Nothing follows.
    pub(crate) const QP_GONE: Self = Self::from_raw(XRC_RCV_EVENT_QP_GONE);

    /// The kind that processes know by a number. For constants: there must be one.
    const fn from_raw(raw: u32) -> Self {
        let mut index = 0;

        while KINDS[index].raw != raw {
            index += 1;
        }
        Self(index as u8)
    }

    /// The kind with a number of `enum ib_event_type`; none if it is not about QPs.
    pub(crate) fn from_ib_event(number: u32) -> Option<Self> {
        let index = KINDS
            .iter()
            .position(|kind| kind.origin == Origin::Provider && kind.raw == number)?;

        Some(Self(index as u8))
    }

    /// Whether a QP with such an event is in state ERR.
    pub(crate) fn ends_in_error(number: u32) -> bool {
        Self::from_ib_event(number).is_some_and(|kind| KINDS[kind.index()].is_error)
    }

    /// The kind with an [`index`](Self::index).
    pub(crate) const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT {
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// Counts the kinds from 0.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number that processes know it by.
    pub(crate) const fn as_raw(self) -> u32 {
        KINDS[self.index()].raw
    }

    /// The bits of all kinds' numbers.
    pub(crate) const fn all() -> u64 {
        let mut bits = 0;
        let mut index = 0;

        while index < Self::COUNT {
            bits |= 1 << KINDS[index].raw;
            index += 1;
        }
        bits
    }
}

/// Something that happened.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) qpn: u32,
    pub(crate) kind: EventType,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub(crate) time: u64,
}

impl Event {
    /// An event that happens now. Any context.
    pub(crate) fn now(qpn: u32, kind: EventType) -> Self {
        Self {
            qpn,
            kind,
            time: monotonic_ns(),
        }
    }
}
