// SPDX-License-Identifier: GPL-2.0

//! The events that a registration was promised, and the records that it got.

use crate::{
    event::{EventMask, EventType},
    rdma::device::{Counts, History, REPORTED},
    uapi::{xrc_rcv_record, xrc_rcv_reg_info, XRC_RCV_EVENT_QP_ADDED, XRC_RCV_EVENT_QP_GONE},
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kernel::runtime;
use std::{
    collections::BTreeSet,
    sync::{Arc as StdArc, Mutex as StdMutex, OnceLock},
};

pub(crate) struct Watch {
    mask: EventMask,
    /// The totals of the events before the registration, once ALLOC or REG has returned.
    before: StdMutex<Option<Counts>>,
    /// The events of the QP, of which a registration gets each that happens while it exists.
    history: OnceLock<StdArc<History>>,
    /// Events that were over before the registration began to end.
    over_at_end: OnceLock<Counts>,
    /// The totals of the records.
    got: StdMutex<[BTreeSet<u64>; REPORTED.len()]>,
    added: AtomicBool,
    /// When QP_GONE was read.
    gone: AtomicU64,
    /// Its unread events were discarded: by UNREG, or its file or channel was closed.
    is_discarded: AtomicBool,
    /// When UNREG has returned.
    over: AtomicU64,
}

/// The events of a QP that is found by its number, when REG is called.
pub(crate) struct Found {
    history: StdArc<History>,
    over: Counts,
}

impl Found {
    pub(crate) fn new(history: StdArc<History>) -> Self {
        Self {
            over: history.done(),
            history,
        }
    }

    /// The same QP, if it has the number when REG has returned. Otherwise the registration can be
    /// one with another QP that got it meanwhile.
    pub(crate) fn unless_other(self, after: Option<&StdArc<History>>) -> Option<Self> {
        after
            .is_some_and(|after| StdArc::ptr_eq(&self.history, after))
            .then_some(self)
    }
}

impl Watch {
    pub(crate) fn new(mask: EventMask) -> StdArc<Self> {
        StdArc::new(Self {
            mask,
            before: StdMutex::default(),
            history: OnceLock::new(),
            over_at_end: OnceLock::new(),
            got: StdMutex::default(),
            added: AtomicBool::new(false),
            gone: AtomicU64::new(0),
            is_discarded: AtomicBool::new(false),
            over: AtomicU64::new(0),
        })
    }

    /// ALLOC has returned.
    pub(crate) fn begins_with(&self, history: Option<StdArc<History>>) {
        *self.before.lock().unwrap() = Some(Counts::default());
        if let Some(history) = history {
            assert!(self.history.set(history).is_ok());
        }
    }

    /// REG has returned the totals: of several threads of a process, for one those before the
    /// registration, for the others later ones.
    pub(crate) fn begins(&self, info: &xrc_rcv_reg_info, found: Option<Found>) {
        let totals = REPORTED.map(|event| info.counts[event as usize]);

        if let Some(Found { history, over }) = found {
            for ((total, over), begun) in totals.into_iter().zip(over).zip(history.begun()) {
                assert!(
                    (over..=begun).contains(&total),
                    "a total of {total}, where {over} events were over and {begun} had begun"
                );
            }
            let _ = self.history.set(history);
        }

        let mut before = self.before.lock().unwrap();
        let earlier = before.unwrap_or(totals);

        *before = Some(core::array::from_fn(|index| {
            totals[index].min(earlier[index])
        }));
    }

    /// Whether ALLOC or REG has returned.
    pub(crate) fn has_begun(&self) -> bool {
        self.before.lock().unwrap().is_some()
    }

    /// UNREG is called, or another end begins.
    pub(crate) fn ends(&self) {
        if let Some(history) = self.history.get() {
            let _ = self.over_at_end.set(history.done());
        }
    }

    pub(crate) fn discard(&self) {
        self.is_discarded.store(true, Ordering::SeqCst);
    }

    /// UNREG has returned.
    pub(crate) fn is_over(&self) {
        self.over.store(runtime::monotonic_ns(), Ordering::SeqCst);
    }

    /// Whether QP_GONE was read.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst) != 0
    }

    /// Whether no call that began at a time may get an event.
    pub(crate) fn is_silent_at(&self, time: u64) -> bool {
        let mut ends = [&self.gone, &self.over].into_iter();

        ends.any(|end| (1..time).contains(&end.load(Ordering::SeqCst)))
    }

    /// A record is passed to a handler, or read.
    pub(crate) fn got(&self, record: &xrc_rcv_record) {
        let event = record.type_;
        let kind = EventType::all()
            .checked_shr(event)
            .is_some_and(|bits| bits & 1 == 1);

        assert!(kind, "an event of type {event}");
        assert!(
            self.wants(event),
            "an event of type {event}, which the mask excludes"
        );
        if event == XRC_RCV_EVENT_QP_ADDED {
            assert_eq!(record.count, 1, "QP_ADDED comes once");
            assert!(
                !self.added.swap(true, Ordering::SeqCst),
                "QP_ADDED comes again"
            );
            assert!(
                self.got.lock().unwrap().iter().all(BTreeSet::is_empty),
                "QP_ADDED comes first"
            );
            self.before.lock().unwrap().get_or_insert_default();
        } else if event == XRC_RCV_EVENT_QP_GONE {
            assert_eq!(record.count, 1, "QP_GONE comes once");
            let now = runtime::monotonic_ns();

            assert_eq!(
                self.gone.swap(now, Ordering::SeqCst),
                0,
                "QP_GONE comes again"
            );
        } else if let Some(index) = REPORTED.iter().position(|reported| *reported == event) {
            assert!(
                self.got.lock().unwrap()[index].insert(record.count),
                "two records with a total of {}",
                record.count
            );
        } else {
            panic!("an event of type {event}, which the device did not report");
        }
    }

    fn wants(&self, event: u32) -> bool {
        if event == XRC_RCV_EVENT_QP_ADDED {
            self.mask.has(EventType::QP_ADDED)
        } else if event == XRC_RCV_EVENT_QP_GONE {
            self.mask.has(EventType::QP_GONE)
        } else {
            EventType::from_ib_event(event).is_some_and(|kind| self.mask.has(kind))
        }
    }

    /// Returns the totals up to which the registration has got all events, or needs none.
    fn reached(&self) -> Counts {
        let before = self.before.lock().unwrap().unwrap_or_default();
        let got = self.got.lock().unwrap();

        core::array::from_fn(|index| {
            let last = got[index].last().copied().unwrap_or(0);

            if self.wants(REPORTED[index]) {
                last.max(before[index])
            } else {
                u64::MAX
            }
        })
    }

    /// Returns the totals that have to be reached.
    fn least(&self) -> Counts {
        let over = self.over_at_end.get().copied();

        over.or_else(|| self.history.get().map(|history| history.done()))
            .unwrap_or_default()
    }

    /// Whether all has come that is to come. The QP has ended if `has_ended`.
    pub(crate) fn is_complete(&self, has_ended: bool) -> bool {
        let gone = has_ended && self.mask.has(EventType::QP_GONE);
        let (reached, least) = (self.reached(), self.least());
        let is_waiting = reached
            .iter()
            .zip(least)
            .any(|(reached, least)| *reached < least);

        self.is_discarded.load(Ordering::SeqCst)
            || !is_waiting && (!gone || self.is_gone())
            || self.is_gone()
    }

    /// Checks the records that the registration got, after the QP has ended.
    pub(crate) fn check(&self) {
        let before = *self.before.lock().unwrap();
        let is_discarded = self.is_discarded.load(Ordering::SeqCst);

        // A member of all QPs gets QP_GONE even of a QP that was not listed to it.
        assert!(
            before.is_some() || is_discarded || self.is_gone(),
            "records of no registration of the channel"
        );
        for (index, got) in self.got.lock().unwrap().iter().enumerate() {
            let before = before.unwrap_or_default()[index];
            let begun = self.history.get().map(|history| history.begun()[index]);

            for total in got {
                assert!(
                    *total > before && *total <= begun.unwrap_or(u64::MAX),
                    "a total of {total}, which was {before} before and is {begun:?}"
                );
            }
        }
        if is_discarded {
            return;
        }
        for (reached, least) in self.reached().into_iter().zip(self.least()) {
            assert!(reached >= least, "events up to {reached} of {least}");
        }
        if self.mask.has(EventType::QP_GONE) {
            assert!(self.is_gone(), "no QP_GONE");
        }
    }
}
