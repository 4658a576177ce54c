// SPDX-License-Identifier: GPL-2.0

//! What can happen to a receive QP.

use crate::{
    kernel_ext::monotonic_ns,
    rdma::qp::{
        ERRORS,
        EVENTS, //
    },
    uapi::XRC_RCV_EVENT_QP_GONE, //
};

/// A kind of event that can be reported to holders of a registration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventType(u8);

impl EventType {
    /// How many kinds there are: those that verbs know, and [`Self::QP_GONE`].
    pub(crate) const COUNT: usize = EVENTS.len() + 1;

    /// The QP was destroyed under its registrations. Nothing follows.
    pub(crate) const QP_GONE: Self = Self(EVENTS.len() as u8);

    /// The kind with a number of `enum ib_event_type`; none if it is not about QPs.
    pub(crate) fn from_ib_event(number: u32) -> Option<Self> {
        let index = EVENTS.iter().position(|event| *event == number)?;

        Some(Self(index as u8))
    }

    /// Whether a QP with such an event is in state ERR.
    pub(crate) fn ends_in_error(number: u32) -> bool {
        ERRORS.contains(&number)
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
        if self.index() < EVENTS.len() {
            EVENTS[self.index()]
        } else {
            XRC_RCV_EVENT_QP_GONE
        }
    }

    /// The bits of all kinds' numbers.
    pub(crate) const fn all() -> u64 {
        let mut bits = 1 << XRC_RCV_EVENT_QP_GONE;
        let mut index = 0;

        while index < EVENTS.len() {
            bits |= 1 << EVENTS[index];
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
