// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Queue pairs: what the two halves of a transport need of one. Its parameters are the driver's own
//! bytes ([`Context`]) and its rings lie in the driver's memory ([`Queues`]); a card reads both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engine::key::User;
use crate::engine::memory::{Dma, DmaError};
use crate::engine::transport::{Migration, Path, Service, State};
use crate::engine::work::{Control, RecvWqe, SendWqe};

/// The parameters of a QP, as the driver has set them.
pub trait Context: Clone {
    /// The protection domain.
    fn pd(&self) -> u32;
    /// Whether it may use the reserved L_Key, which is all memory.
    fn reserved_key_enabled(&self) -> bool;
    /// Longest message.
    fn max_message(&self) -> u64;
    /// The QP at the other end.
    fn remote_qpn(&self) -> u32;
    /// Bytes of data in a packet, if the driver has set a path MTU that exists.
    fn path_mtu(&self) -> Option<u64>;
    /// The sequence number of the next packet to send.
    fn send_psn(&self) -> u32;
    /// Sets the sequence number of the next packet to send.
    fn set_send_psn(&mut self, psn: u32);
    /// The sequence number of the next packet to receive.
    fn receive_psn(&self) -> u32;
    /// Sets the sequence number of the next packet to receive.
    fn set_receive_psn(&mut self, psn: u32);
    /// The primary path.
    fn path(&self) -> Path;
    /// The alternate path.
    fn alternate_path(&self) -> Path;
    /// The time to wait for an answer; none is forever.
    fn ack_timeout(&self) -> Option<Duration>;
    /// The number of times that a request without an answer is repeated.
    fn retry_count(&self) -> u8;
    /// The number of times that a receiver which is not ready is asked again; 7 is forever.
    fn rnr_retry(&self) -> u8;
    /// The time that a requester which finds us not ready shall wait.
    fn rnr_timer(&self) -> Duration;
    /// Peers may read.
    fn remote_read_enabled(&self) -> bool;
    /// Peers may write.
    fn remote_write_enabled(&self) -> bool;
    /// Peers may use atomics.
    fn remote_atomic_enabled(&self) -> bool;
    /// The XRC domain of a target; 0 otherwise.
    fn xrcd(&self) -> u32;
    /// The CQ of sends.
    fn cqn_send(&self) -> u32;
    /// The CQ of receives.
    fn cqn_recv(&self) -> u32;
    /// The key datagrams must carry.
    fn qkey(&self) -> u32;
    /// The SRQ, if one is attached.
    fn srqn(&self) -> Option<u32>;
    /// The number that its datagrams name as their source; none is its own.
    fn source_qpn(&self) -> Option<u32> {
        None
    }
    /// Path migration state.
    fn migration(&self) -> Migration;
    /// Sets the path migration state.
    fn set_migration(&mut self, state: Migration);
    /// Sets the state.
    fn set_state(&mut self, state: State);
    /// Makes the alternate path the primary one.
    fn migrate(&mut self);
}

/// The rings of a QP in the driver's memory.
pub trait Queues<I, X> {
    /// The QP has a receive queue of its own.
    fn receives(&self) -> bool;
    /// The index of the WQE at the head of the send queue.
    fn index(&self) -> u16;
    /// The head of the send queue, if the driver has posted one there.
    fn head(&mut self, dma: &Dma<I>, context: &X) -> Result<Option<Control>, DmaError>;
    /// The whole WQE at the head: none if there is no such request.
    fn request(&self, dma: &Dma<I>, control: &Control, service: Service) -> Option<SendWqe>;
    /// The WQE at the head is done.
    fn advance(&mut self);
    /// The WQE at the head is no WQE: no more is looked at until the next doorbell.
    fn stop(&mut self);
    /// Takes the WQE at the head of the QP's own receive queue, if there is one.
    fn take(&mut self, dma: &Dma<I>, context: &X, qpn: u32) -> Result<Option<RecvWqe>, DmaError>;
}

/// The reason why the head of a send queue waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    /// When that ends; none is never.
    pub until: Option<Instant>,
    /// Times the receiver was not ready.
    pub rnr: u8,
    /// Times it was sent, and not answered.
    pub attempts: u8,
}

/// A queue pair.
pub struct Qp<X, Q> {
    /// Its number, as the card has it.
    pub qpn: u32,
    /// The parameters from the driver.
    pub context: X,
    /// State, also in the context.
    pub state: State,
    /// Transport service.
    pub service: Service,
    /// Its send queue, and its receive queue unless an SRQ takes that place.
    pub queues: Q,
    /// COMM_EST has been reported.
    pub established: bool,
    /// The last atomic that was executed here: its sequence number, and the value it read.
    pub last_atomic: Option<(u32, Vec<u8>)>,
    /// A completion found no place in its CQ.
    pub overrun: bool,
    /// SQ_DRAINED is wanted.
    pub sqd_event: bool,
    /// Set while the head of the send queue waits.
    pub stall: Option<Stall>,
    /// In error: when it is next looked at for new receives.
    pub flush_at: Option<Instant>,
}

impl<X: Context, Q> Qp<X, Q> {
    /// QP `qpn` in the state INIT.
    pub fn new(qpn: u32, service: Service, mut context: X, queues: Q) -> Self {
        context.set_state(State::Init);
        Self {
            qpn,
            context,
            state: State::Init,
            service,
            queues,
            established: false,
            last_atomic: None,
            overrun: false,
            sqd_event: false,
            stall: None,
            flush_at: None,
        }
    }

    /// The receiving end of an XRC connection.
    pub fn is_xrc_target(&self) -> bool {
        self.service == Service::Xrc && self.context.xrcd() != 0
    }

    /// It, as a user of keys.
    pub fn user(&self) -> User {
        User {
            pd: self.context.pd(),
            qpn: self.qpn,
        }
    }

    /// Changes the state.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
        self.context.set_state(state);
    }

    /// Receives are possible.
    pub fn can_receive(&self) -> bool {
        matches!(
            self.state,
            State::Rtr | State::Rts | State::Sqer | State::Sqd | State::SqDraining
        )
    }
}

/// All queue pairs of an adapter.
pub struct Qps<X, Q> {
    table: BTreeMap<u32, Qp<X, Q>>,
}

impl<X, Q> Default for Qps<X, Q> {
    fn default() -> Self {
        Self {
            table: BTreeMap::new(),
        }
    }
}

/// A QP as a test sees it.
#[derive(Serialize)]
#[allow(missing_docs)]
pub struct QpReport {
    pub qpn: u32,
    pub service: Service,
    pub state: State,
    pub pd: u32,
    pub xrcd: u32,
    pub srqn: Option<u32>,
    pub xrc_target: bool,
    pub reserved_key: bool,
    pub remote_qpn: u32,
    pub remote_lid: u16,
    pub port: u8,
    pub migration: Migration,
}

impl<X: Context, Q> Qps<X, Q> {
    /// Forgets the QPs, as a reset does.
    pub fn reset(&mut self) {
        self.table.clear();
    }

    /// QP `qpn`.
    pub fn get(&self, qpn: u32) -> Option<&Qp<X, Q>> {
        self.table.get(&qpn)
    }

    /// QP `qpn`, to change.
    pub fn get_mut(&mut self, qpn: u32) -> Option<&mut Qp<X, Q>> {
        self.table.get_mut(&qpn)
    }

    /// Another one.
    pub fn insert(&mut self, qp: Qp<X, Q>) {
        self.table.insert(qp.qpn, qp);
    }

    /// QP `qpn` no longer is.
    pub fn remove(&mut self, qpn: u32) -> Option<Qp<X, Q>> {
        self.table.remove(&qpn)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Qp<X, Q>> {
        self.table.values()
    }

    /// All of them, for a test.
    pub fn report(&self) -> Vec<QpReport> {
        self.iter()
            .map(|qp| QpReport {
                qpn: qp.qpn,
                service: qp.service,
                state: qp.state,
                pd: qp.context.pd(),
                xrcd: qp.context.xrcd(),
                srqn: qp.context.srqn(),
                xrc_target: qp.is_xrc_target(),
                reserved_key: qp.context.reserved_key_enabled(),
                remote_qpn: qp.context.remote_qpn(),
                remote_lid: qp.context.path().remote_lid,
                port: qp.context.path().port,
                migration: qp.context.migration(),
            })
            .collect()
    }
}
