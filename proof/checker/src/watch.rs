// SPDX-License-Identifier: GPL-2.0

//! The events that a registration was promised, and those that it got.

use crate::{
    event::{EventMask, EventType},
    rdma::device::{Counts, History, REPORTED},
    uapi::XRC_RCV_EVENT_QP_GONE,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc as StdArc, OnceLock};

pub(crate) struct Watch {
    pub(crate) cookie: u64,
    mask: EventMask,
    promise: OnceLock<Promise>,
    /// Events that were over before the registration began to end.
    over_at_end: OnceLock<Counts>,
    got: [AtomicU32; REPORTED.len()],
    gone: AtomicBool,
    /// It did not come into being, or its unread events were discarded: by UNREG, or its file or
    /// channel was closed.
    is_discarded: AtomicBool,
    /// UNREG has returned.
    is_over: AtomicBool,
}

/// The events of the QP, of which a registration gets each that happens while it exists.
struct Promise {
    history: StdArc<History>,
    /// Events that were over before REG began.
    over_before: Counts,
    /// Events that had begun when REG returned.
    begun_before: Counts,
}

impl Watch {
    pub(crate) fn new(cookie: u64, mask: EventMask) -> StdArc<Self> {
        StdArc::new(Self {
            cookie,
            mask,
            promise: OnceLock::new(),
            over_at_end: OnceLock::new(),
            got: Default::default(),
            gone: AtomicBool::new(false),
            is_discarded: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    /// REG has returned.
    pub(crate) fn begins(&self, history: StdArc<History>, over_before: Counts) {
        let promise = Promise {
            begun_before: history.begun(),
            history,
            over_before,
        };

        assert!(self.promise.set(promise).is_ok());
    }

    /// UNREG is called, or another end begins.
    pub(crate) fn ends(&self) {
        if let Some(promise) = self.promise.get() {
            let _ = self.over_at_end.set(promise.history.done());
        }
    }

    pub(crate) fn discard(&self) {
        self.is_discarded.store(true, Ordering::SeqCst);
    }

    /// UNREG has returned.
    pub(crate) fn is_over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether no call that begins now may get an event.
    pub(crate) fn is_silent(&self) -> bool {
        self.gone.load(Ordering::SeqCst) || self.is_over.load(Ordering::SeqCst)
    }

    /// `count` events are delivered to a handler, or read.
    pub(crate) fn got(&self, event: u32, count: u32) {
        let kind = EventType::all()
            .checked_shr(event)
            .is_some_and(|bits| bits & 1 == 1);

        assert!(kind, "an event of type {event}");
        assert!(
            self.wants(event),
            "an event of type {event}, which the mask excludes"
        );
        if event == XRC_RCV_EVENT_QP_GONE {
            assert_eq!(count, 1, "QP_GONE comes once");
            assert!(
                !self.gone.swap(true, Ordering::SeqCst),
                "QP_GONE comes again"
            );
        } else if let Some(index) = REPORTED.iter().position(|reported| *reported == event) {
            self.got[index].fetch_add(count, Ordering::SeqCst);
        } else {
            panic!("an event of type {event}, which the device did not report");
        }
    }

    fn wants(&self, event: u32) -> bool {
        if event == XRC_RCV_EVENT_QP_GONE {
            self.mask.has(EventType::QP_GONE)
        } else {
            EventType::from_ib_event(event).is_some_and(|kind| self.mask.has(kind))
        }
    }

    fn counts(&self) -> Counts {
        core::array::from_fn(|index| self.got[index].load(Ordering::SeqCst))
    }

    /// Returns how many events the registration has to get at least.
    fn least(&self) -> Counts {
        let Some(promise) = self.promise.get() else {
            return Counts::default();
        };
        let over = self.over_at_end.get().copied();
        let over = over.unwrap_or_else(|| promise.history.done());

        core::array::from_fn(|index| {
            if self.wants(REPORTED[index]) {
                over[index].saturating_sub(promise.begun_before[index])
            } else {
                0
            }
        })
    }

    /// Whether all has come that is to come. The QP has ended if `has_ended`.
    pub(crate) fn is_complete(&self, has_ended: bool) -> bool {
        let gone = has_ended && self.mask.has(EventType::QP_GONE);
        let (got, least) = (self.counts(), self.least());
        let is_waiting = got.iter().zip(least).any(|(got, least)| *got < least);

        self.is_discarded.load(Ordering::SeqCst)
            || !is_waiting && (!gone || self.gone.load(Ordering::SeqCst))
            || self.gone.load(Ordering::SeqCst)
    }

    /// Checks what the registration got, after the QP has ended.
    pub(crate) fn check(&self) {
        let got = self.counts();

        if let Some(promise) = self.promise.get() {
            let begun = promise.history.begun();

            for index in 0..got.len() {
                let most = begun[index] - promise.over_before[index];

                assert!(got[index] <= most, "{} events of {most}", got[index]);
            }
        }
        if self.is_discarded.load(Ordering::SeqCst) {
            return;
        }
        for (got, least) in got.into_iter().zip(self.least()) {
            assert!(got >= least, "{got} events of {least}");
        }
        if self.mask.has(EventType::QP_GONE) {
            assert!(self.gone.load(Ordering::SeqCst), "no QP_GONE");
        }
    }
}
