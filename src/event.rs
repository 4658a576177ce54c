// SPDX-License-Identifier: GPL-2.0

//! Events of receive QPs.

use crate::{
    bindings,
    kernel_ext::monotonic_ns,
    uapi::{
        xrc_rcv_record,
        xrc_rcv_reg_info,
        XRC_RCV_EVENT_QP_ADDED,
        XRC_RCV_EVENT_QP_GONE, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// An entry of the table of event kinds.
struct Kind {
    /// The value in the interface to processes.
    raw: u32,
    origin: Origin,
    /// Whether the QP is in state ERR after the event.
    is_error: bool,
}

/// The origin of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The provider. The value is that of `enum ib_event_type`.
    Provider,
    /// This module.
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

/// All kinds of events of receive QPs, ordered by [`EventType::index`].
const KINDS: &[Kind] = &[
    Kind::error(bindings::ib_event_type_IB_EVENT_QP_FATAL),
    Kind::error(bindings::ib_event_type_IB_EVENT_QP_REQ_ERR),
    Kind::error(bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR),
    Kind::provider(bindings::ib_event_type_IB_EVENT_COMM_EST),
    Kind::provider(bindings::ib_event_type_IB_EVENT_SQ_DRAINED),
    Kind::provider(bindings::ib_event_type_IB_EVENT_PATH_MIG),
    Kind::provider(bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR),
    Kind::provider(bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED),
    Kind::module(XRC_RCV_EVENT_QP_ADDED),
    Kind::module(XRC_RCV_EVENT_QP_GONE),
];

/// A kind of event that can be reported to holders of a registration.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventType(u8);

impl EventType {
    /// The number of kinds.
    pub(crate) const COUNT: usize = KINDS.len();

    /// The QP was added to its domain. For members of all QPs.
    pub(crate) const QP_ADDED: Self = Self::from_raw(XRC_RCV_EVENT_QP_ADDED);

    /// The QP was destroyed while it had registrations. The last event of a QP.
    pub(crate) const QP_GONE: Self = Self::from_raw(XRC_RCV_EVENT_QP_GONE);

    /// Returns the kind with a value of the interface. For constants: fails to compile if there is
    /// none.
    const fn from_raw(raw: u32) -> Self {
        let mut index = 0;

        while KINDS[index].raw != raw {
            index += 1;
        }
        Self(index as u8)
    }

    /// Returns the kind of an `enum ib_event_type`, or `None` if that is not an event of a QP.
    pub(crate) fn from_ib_event(event: u32) -> Option<Self> {
        let index = KINDS
            .iter()
            .position(|kind| kind.origin == Origin::Provider && kind.raw == event)?;

        Some(Self(index as u8))
    }

    /// Whether a QP is in state ERR after an event of an `enum ib_event_type`.
    pub(crate) fn ends_in_error(event: u32) -> bool {
        Self::from_ib_event(event).is_some_and(|kind| KINDS[kind.index()].is_error)
    }

    /// Returns the kind with an [`index`](Self::index).
    pub(crate) const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT {
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// Returns all kinds.
    pub(crate) fn iter() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).filter_map(Self::from_index)
    }

    /// Returns the index of the kind, less than [`Self::COUNT`].
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the value in the interface to processes.
    pub(crate) const fn as_raw(self) -> u32 {
        KINDS[self.index()].raw
    }

    /// Returns a mask with the bits of all values.
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

/// A set of kinds of events.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventMask(u16);

const _: () = assert!(EventType::COUNT <= u16::BITS as usize);

impl EventMask {
    /// All kinds.
    pub(crate) const ALL: Self = Self((1 << EventType::COUNT) - 1);

    /// Returns the kinds of a mask of the interface, or `EINVAL` if a bit is that of no kind.
    pub(crate) fn from_raw(bits: u64) -> Result<Self> {
        if bits & !EventType::all() != 0 {
            return Err(EINVAL);
        }

        let mut mask = Self::default();
        let kinds = (0..EventType::COUNT).filter_map(EventType::from_index);

        for kind in kinds.filter(|kind| bits & (1 << kind.as_raw()) != 0) {
            mask.add(kind);
        }
        Ok(mask)
    }

    /// Returns the mask of the interface.
    pub(crate) fn as_raw(self) -> u64 {
        self.kinds()
            .fold(0, |bits, kind| bits | (1 << kind.as_raw()))
    }

    /// Returns the kinds of the set.
    pub(crate) fn kinds(self) -> impl Iterator<Item = EventType> {
        let mut left = self.0;

        core::iter::from_fn(move || {
            let kind = EventType::from_index(left.trailing_zeros() as usize)?;

            left &= left.wrapping_sub(1);
            Some(kind)
        })
    }

    /// Whether it is the empty set.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the kinds that are in both sets.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the kinds that are not in the set.
    pub(crate) fn others(self) -> Self {
        Self(Self::ALL.0 & !self.0)
    }

    /// Returns the set without a kind.
    pub(crate) fn without(self, kind: EventType) -> Self {
        Self(self.0 & !(1 << kind.index()))
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, kind: EventType) {
        self.0 |= 1 << kind.index();
    }

    /// Whether the set has a kind.
    pub(crate) fn has(self, kind: EventType) -> bool {
        self.0 & (1 << kind.index()) != 0
    }
}

/// Events of a kind of a receive QP.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) kind: EventType,
    /// The number of all occurrences.
    pub(crate) total: u64,
    /// The `CLOCK_MONOTONIC` time of the last occurrence, in nanoseconds.
    pub(crate) time: u64,
}

impl Event {
    /// Returns the record of an event of the QP that has, or had, a number, a serial number and a
    /// label.
    pub(crate) fn to_record(self, qpn: u32, serial: u64, label: u64) -> xrc_rcv_record {
        xrc_rcv_record {
            last_ns: self.time,
            serial,
            count: self.total,
            qp_num: qpn,
            type_: self.kind.as_raw(),
            label,
        }
    }
}

/// The numbers of all events of a receive QP, by kind, and the times and positions of the last.
/// Changed with the lock of the [`Log`](crate::log::Log) held.
pub(crate) struct Counts {
    totals: [Atomic<u64>; EventType::COUNT],
    times: [Atomic<u64>; EventType::COUNT],
    positions: [Atomic<u64>; EventType::COUNT],
    /// The kinds that have a position.
    logged: Atomic<u32>,
}

impl Counts {
    /// Creates the counts of a QP without events.
    pub(crate) const fn new() -> Self {
        Self {
            totals: [const { Atomic::new(0) }; EventType::COUNT],
            times: [const { Atomic::new(0) }; EventType::COUNT],
            positions: [const { Atomic::new(0) }; EventType::COUNT],
            logged: Atomic::new(0),
        }
    }

    /// Counts an event that happens now.
    pub(crate) fn add(&self, kind: EventType) {
        let index = kind.index();

        self.totals[index].store(self.total(kind).wrapping_add(1), Relaxed);
        self.times[index].store(monotonic_ns(), Relaxed);
    }

    /// Returns the number of events of a kind.
    pub(crate) fn total(&self, kind: EventType) -> u64 {
        self.totals[kind.index()].load(Relaxed)
    }

    /// Returns the time of the last event of a kind; 0 if there was none.
    pub(crate) fn time(&self, kind: EventType) -> u64 {
        self.times[kind.index()].load(Relaxed)
    }

    /// Returns the position of the last event of a kind; 0 if there was none.
    pub(crate) fn position(&self, kind: EventType) -> u64 {
        self.positions[kind.index()].load(Relaxed)
    }

    /// Whether there were events of a kind, which are not in the log yet.
    pub(crate) fn is_held_back(&self, kind: EventType) -> bool {
        self.total(kind) != 0 && self.position(kind) == 0
    }

    /// Sets the position of the last event of a kind, which is not in the log.
    pub(crate) fn set_position(&self, kind: EventType, position: u64) {
        let mut logged = self.logged();

        logged.add(kind);
        self.logged.store(logged.0.into(), Relaxed);
        self.positions[kind.index()].store(position, Relaxed);
    }

    /// Returns the kinds that have a position.
    pub(crate) fn logged(&self) -> EventMask {
        EventMask(self.logged.load(Relaxed) as u16)
    }

    /// Returns the events of a kind.
    pub(crate) fn event(&self, kind: EventType) -> Event {
        Event {
            kind,
            total: self.total(kind),
            time: self.time(kind),
        }
    }

    /// Returns the totals, and the serial number of the QP, for the holder of a registration.
    pub(crate) fn to_info(&self, serial: u64) -> xrc_rcv_reg_info {
        let mut info = no_totals();

        info.serial = serial;
        for kind in EventType::iter() {
            // Those of the module have no element: they come once.
            if let Some(count) = info.counts.get_mut(kind.as_raw() as usize) {
                *count = self.total(kind);
            }
        }
        info
    }
}

/// Returns the totals of a QP without events.
pub(crate) fn no_totals() -> xrc_rcv_reg_info {
    xrc_rcv_reg_info {
        serial: 0,
        counts: Default::default(),
    }
}

#[kunit_tests(ib_xrc_rcv_event)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_at_the_values_of_their_kinds() {
        let counts = Counts::new();

        for (number, kind) in (1..).zip(EventType::iter()) {
            for _ in 0..number {
                counts.add(kind);
            }
        }

        let info = counts.to_info(42);

        assert_eq!(info.serial, 42);
        for (raw, count) in (0..).zip(info.counts) {
            let kind = EventType::from_ib_event(raw);

            assert_eq!(count, kind.map_or(0, |kind| kind.index() as u64 + 1));
        }
        assert!(EventType::iter()
            .filter(|kind| *kind != EventType::QP_ADDED && *kind != EventType::QP_GONE)
            .all(|kind| (kind.as_raw() as usize) < info.counts.len()));
    }

    #[test]
    fn masks_have_the_kinds_of_their_bits() -> Result {
        for bit in 0..u64::BITS {
            let mask = EventMask::from_raw(1 << bit);

            if EventType::all() & (1 << bit) == 0 {
                assert_eq!(mask.err(), Some(EINVAL));
                continue;
            }
            for kind in (0..EventType::COUNT).filter_map(EventType::from_index) {
                assert_eq!(mask?.has(kind), kind.as_raw() == bit);
            }
            assert_eq!(mask?.as_raw(), 1 << bit);
        }
        Ok(())
    }

    #[test]
    fn masks_of_all_and_of_none() {
        assert!(EventMask::from_raw(EventType::all()) == Ok(EventMask::ALL));
        assert!(EventMask::from_raw(0) == Ok(EventMask::default()));
        assert_eq!(EventMask::ALL.as_raw(), EventType::all());
        assert_eq!(EventMask::default().as_raw(), 0);
        assert_eq!(EventMask::from_raw(u64::MAX).err(), Some(EINVAL));
        assert!(EventMask::default().is_empty() && !EventMask::ALL.is_empty());
        for kind in (0..EventType::COUNT).filter_map(EventType::from_index) {
            assert!(EventMask::ALL.has(kind));
            assert!(!EventMask::default().has(kind));
        }
    }
}
