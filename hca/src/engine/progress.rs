// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The progress of a QP: retries, path migration, draining, errors and flushing.

use std::time::{Duration, Instant};

use crate::engine::completion::{Cqe, Syndrome};
use crate::engine::event::EventType;
use crate::engine::hca::{Card, Hca};
use crate::engine::qp::{Context, Queues};
use crate::engine::transport::{Migration, State};

/// How often a QP in error looks for newly posted receives, which ring no doorbell.
pub const FLUSH_POLL: Duration = Duration::from_millis(5);

impl<C: Card> Hca<C> {
    /// The send queue of a draining QP is idle: reports the event if it was requested.
    pub fn check_drained(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        if qp.state == State::SqDraining && qp.stall.is_none() {
            qp.set_state(State::Sqd);
        }
        if qp.state == State::Sqd && std::mem::take(&mut qp.sqd_event) {
            self.event(EventType::SqDrained, qpn);
        }
    }

    /// Moves QP `qpn` to its alternate path.
    pub fn migrate(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.context.migrate();
            self.event(EventType::PathMig, qpn);
        }
    }

    /// The peer of QP `qpn` is rearmed: so are we, if we were waiting for that.
    pub fn peer_rearmed(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            if qp.context.migration() == Migration::Rearm {
                qp.context.set_migration(Migration::Armed);
            }
        }
    }

    /// Puts QP `qpn` into the error state, flushing its queues.
    pub fn enter_error(&mut self, qpn: u32, now: Instant) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        let first = qp.state != State::Err;
        qp.set_state(State::Err);
        qp.stall = None;
        let shared = qp.context.srqn().is_some() || qp.is_xrc_target();
        self.flush(qpn, now);
        if first && shared {
            self.event(EventType::SrqQpLastWqe, qpn);
        }
    }

    /// A datagram QP could not send: its send queue stops, it still receives.
    pub fn enter_send_error(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.set_state(State::Sqer);
            qp.stall = None;
            self.flush_sends(qpn);
        }
    }

    fn flush_sends(&mut self, qpn: u32) {
        while let Some(qp) = self.qps.get_mut(qpn) {
            // At most one round: the owner bit of the next one differs.
            let Ok(Some(control)) = qp.queues.head(&self.dma, &qp.context) else {
                return;
            };
            // An empty WQE is none: the ring would never end.
            if control.size == 0 {
                qp.queues.stop();
                return;
            }
            let cqe = Cqe::send_error(qpn, qp.queues.index(), Syndrome::WrFlushErr);
            let cqn = qp.context.cqn_send();
            qp.queues.advance();
            self.complete(qpn, cqn, cqe, false);
        }
    }

    /// Completes everything posted on QP `qpn`, which is in error, as flushed.
    pub fn flush(&mut self, qpn: u32, now: Instant) {
        self.flush_sends(qpn);
        while let Some(qp) = self.qps.get_mut(qpn) {
            let Ok(Some(wqe)) = qp.queues.take(&self.dma, &qp.context, qpn) else {
                break;
            };
            let cqn = qp.context.cqn_recv();
            let cqe = Cqe::receive_error(qpn, wqe.index, Syndrome::WrFlushErr)
                .remote(qp.context.remote_qpn(), false);
            self.complete(qpn, cqn, cqe, false);
        }
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        let due = qp.flush_at.is_none_or(|at| at <= now);
        if due && qp.queues.receives() {
            let again = now.checked_add(FLUSH_POLL).unwrap_or(now);
            qp.flush_at = Some(again);
            self.schedule.queue_at(again, qpn);
        }
    }

    /// The request at the head of QP `qpn` was not answered. When its time is over, it is sent
    /// again or fails; without an ACK timeout it waits for ever.
    pub fn stall_unanswered(&mut self, qpn: u32, now: Instant) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        let mut stall = qp.stall.unwrap_or_default();
        stall.attempts = stall.attempts.saturating_add(1);
        let timeout = qp.context.ack_timeout();
        stall.until = timeout.and_then(|timeout| now.checked_add(timeout));
        qp.stall = Some(stall);
        if let Some(until) = stall.until {
            self.schedule.queue_at(until, qpn);
        }
    }

    /// Lets QP `qpn` migrate, if it can, when its retries are used up on the primary path. Returns
    /// whether they are used up for good.
    pub fn gives_up(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        let retries = qp.context.retry_count();
        let Some(stall) = qp.stall.as_mut().filter(|stall| stall.attempts > retries) else {
            return false;
        };
        if qp.context.migration() != Migration::Armed {
            return true;
        }
        stall.attempts = 0;
        self.migrate(qpn);
        false
    }

    /// The receiver of the request at the head of QP `qpn` is not ready and asks to wait. Says
    /// whether to give up.
    pub fn stall_rnr(&mut self, qpn: u32, wait: Duration, now: Instant) -> bool {
        const FOREVER: u8 = 7;
        let Some(qp) = self.qps.get_mut(qpn) else {
            return false;
        };
        let mut stall = qp.stall.unwrap_or_default();
        let limit = qp.context.rnr_retry();
        if limit != FOREVER && stall.rnr >= limit {
            return true;
        }
        stall.rnr = stall.rnr.saturating_add(1);
        stall.attempts = 0;
        let until = now.checked_add(wait).unwrap_or(now);
        stall.until = Some(until);
        qp.stall = Some(stall);
        self.schedule.queue_at(until, qpn);
        false
    }

    /// The request at the head of QP `qpn` is done: the next one may come, with this sequence
    /// number if the last one had any.
    pub fn advance_send(&mut self, qpn: u32, next_psn: Option<u32>) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.stall = None;
            qp.queues.advance();
            if let Some(psn) = next_psn {
                qp.context.set_send_psn(psn);
            }
        }
    }
}
