// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Queue pairs: the state machine of the modify commands, and the rings in the driver's buffer. A QP
//! lives from RST2INIT to 2RST or reset. The parameters that the driver sets are its context, [`crate::mlx4::qpc`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engine::bytes::Fields;
use crate::engine::hca::{Hca, PORTS};
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx4::command::{Command, Opcode, Outcome, Output, Status};
use crate::mlx4::cq::{Cqe, Syndrome};
use crate::mlx4::eq::EventType;
use crate::mlx4::icm::{Buffer, Dma, Object};
use crate::mlx4::qpc::{optpar, Context, Migration, Service, State, CONTEXT_SIZE};
use crate::mlx4::srq::RecvWqe;
use crate::mlx4::wqe::{ControlSegment, CONTROL_SIZE};

/// log2 of the QPs, as QUERY_DEV_CAP reports it.
pub const LOG_MAX_QPS: u8 = 18;
/// log2 of the reserved ones.
pub const LOG_RESERVED_QPS: u8 = 6;
/// MLX4_XRC_QPN_BIT: set in the number of an XRC target everywhere.
pub const XRC_QPN_BIT: u32 = 1 << 23;

// The command's mailbox: which optional parameters count, then the context.
const OPTPAR: usize = 0x00;
const CONTEXT: usize = 0x08;
const MAILBOX_SIZE: usize = CONTEXT + CONTEXT_SIZE;

/// In the modifier of RTS2SQD: report an event when the queue has drained.
const SQD_EVENT: u32 = 1 << 31;

/// How often a QP in error looks for newly posted receives, which ring no doorbell.
const FLUSH_POLL: Duration = Duration::from_millis(5);

/// A ring of WQEs in a QP's buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    offset: u64,
    entries: u32,
    stride: usize,
    /// The next WQE.
    pub index: u16,
}

impl Ring {
    /// The ring whose size byte in the context is `size_stride`.
    fn new(size_stride: u8) -> Self {
        Self {
            offset: 0,
            entries: 1 << (size_stride >> 3 & 0xf),
            stride: 16 << (size_stride & 7),
            index: 0,
        }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.entries).saturating_mul(self.stride as u64)
    }

    fn wqe_offset(&self) -> u64 {
        let index = u32::from(self.index) & self.entries.wrapping_sub(1);
        u64::from(index)
            .saturating_mul(self.stride as u64)
            .saturating_add(self.offset)
    }

    fn advance(&mut self) {
        self.index = self.index.wrapping_add(1);
    }
}

/// Why the head of a send queue waits.
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
pub struct Qp {
    /// Its number; an XRC target's with [`XRC_QPN_BIT`].
    pub qpn: u32,
    /// The parameters from the driver.
    pub context: Context,
    /// State, also in the context.
    pub state: State,
    /// Transport service.
    pub service: Service,
    /// Where its queues are.
    buffer: Buffer,
    /// The send queue.
    pub sq: Ring,
    /// The receive queue, unless an SRQ takes its place.
    rq: Option<Ring>,
    /// The doorbell was rung and the send queue not yet found empty. Without that it is not read:
    /// it: `mlx4_ib` leaves the send queue of a user's XRC target as it was allocated.
    pub rung: bool,
    /// COMM_EST has been reported.
    pub established: bool,
    /// The last atomic that was executed here: its sequence number, and the value it read.
    pub last_atomic: Option<(u32, Vec<u8>)>,
    /// A completion found no place in its CQ.
    pub overrun: bool,
    /// SQ_DRAINED is wanted.
    sqd_event: bool,
    /// Set while the head of the send queue waits.
    pub stall: Option<Stall>,
    /// In error: when it is next looked at for new receives.
    flush_at: Option<Instant>,
}

impl Qp {
    fn new(qpn: u32, mut context: Context) -> Option<Self> {
        let service = context.service()?;
        let mut sq = Ring::new(context.sq_size_stride());
        // Without a receive queue its size byte means nothing.
        let mut rq = (context.srqn().is_none() && service != Service::Xrc)
            .then(|| Ring::new(context.rq_size_stride()));
        // The queue with the larger stride comes first.
        if let Some(rq) = &mut rq {
            if rq.stride > sq.stride {
                sq.offset = rq.bytes();
            } else {
                rq.offset = sq.bytes();
            }
        }
        context.set_local_qpn(qpn);
        context.set_state(State::Init);
        Some(Self {
            qpn,
            buffer: context.buffer()?,
            context,
            state: State::Init,
            service,
            sq,
            rq,
            rung: false,
            established: false,
            last_atomic: None,
            overrun: false,
            sqd_event: false,
            stall: None,
            flush_at: None,
        })
    }

    /// Its place in the tables of contexts.
    pub fn index(&self) -> u32 {
        self.qpn & !XRC_QPN_BIT
    }

    /// The receiving end of an XRC connection.
    pub fn is_xrc_target(&self) -> bool {
        self.service == Service::Xrc && self.context.xrcd() != 0
    }

    fn set_state(&mut self, state: State) {
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

    /// The control segment at the head of the send queue, if the driver has posted one there.
    pub fn send_head(&mut self, dma: &Dma) -> Result<Option<ControlSegment>, DmaError> {
        if !self.rung {
            return Ok(None);
        }
        let mut segment = [0; CONTROL_SIZE];
        self.buffer.read(dma, self.sq.wqe_offset(), &mut segment)?;
        let control = ControlSegment::parse(&segment);
        let round = u32::from(self.sq.index) & self.sq.entries != 0;
        self.rung = control.owner == round;
        Ok(self.rung.then_some(control))
    }

    /// The whole WQE at the head: `None` if it claims to be longer than it can be.
    pub fn send_wqe(
        &self,
        dma: &Dma,
        control: &ControlSegment,
    ) -> Result<Option<Vec<u8>>, DmaError> {
        if control.size < CONTROL_SIZE || control.size > self.sq.stride {
            return Ok(None);
        }
        let mut wqe = vec![0; control.size];
        self.buffer.read(dma, self.sq.wqe_offset(), &mut wqe)?;
        Ok(Some(wqe))
    }

    /// Takes the WQE at the head of the QP's own receive queue, if there is one.
    pub fn take_receive(&mut self, dma: &Dma) -> Result<Option<RecvWqe>, DmaError> {
        let Some(rq) = &mut self.rq else {
            return Ok(None);
        };
        let doorbell = self.context.doorbell_record();
        let posted = u32::from_be_bytes(dma.memory.block(doorbell)?) as u16;
        let available = posted.wrapping_sub(rq.index);
        if available == 0 {
            return Ok(None);
        }
        if u32::from(available) > rq.entries {
            dma.violations.note(
                Violation::ReceiveOverrun,
                format_args!("QP {:#x}: {available} of {}", self.qpn, rq.entries),
            );
        }
        let index = rq.index;
        let mut scatter = vec![0; rq.stride];
        self.buffer.read(dma, rq.wqe_offset(), &mut scatter)?;
        rq.advance();
        Ok(Some(RecvWqe { index, scatter }))
    }
}

/// All queue pairs of an adapter.
#[derive(Default)]
pub struct Qps {
    table: BTreeMap<u32, Qp>,
    /// QP0 of port 1; QP0 of port 2 and the two QP1s follow.
    pub special_base: u32,
}

/// A QP as a test sees it.
#[derive(Serialize)]
#[allow(missing_docs)]
pub struct QpReport {
    pub qpn: u32,
    pub service: Service,
    pub state: State,
    pub pd: u32,
    pub xrcd: u16,
    pub srqn: Option<u32>,
    pub xrc_target: bool,
    pub reserved_key: bool,
    pub remote_qpn: u32,
    pub remote_lid: u16,
    pub port: u8,
    pub migration: Migration,
}

impl Qps {
    /// Forgets the QPs, as a reset does.
    pub fn reset(&mut self) {
        self.table.clear();
        self.special_base = 0;
    }

    /// QP `qpn`.
    pub fn get(&self, qpn: u32) -> Option<&Qp> {
        self.table.get(&qpn)
    }

    /// QP `qpn`, to change.
    pub fn get_mut(&mut self, qpn: u32) -> Option<&mut Qp> {
        self.table.get_mut(&qpn)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.table.values()
    }

    /// Where QP `qpn` is among the QP0s and QP1s of the ports, if it is one of them.
    fn special_offset(&self, qpn: u32) -> Option<u32> {
        const SPECIAL_QPS: u32 = 2 * PORTS as u32;
        let offset = qpn.checked_sub(self.special_base)?;
        (self.special_base != 0 && offset < SPECIAL_QPS).then_some(offset)
    }

    /// QP `qpn` is QP0 or QP1 of a port.
    pub fn is_special(&self, qpn: u32) -> bool {
        self.special_offset(qpn).is_some()
    }

    /// QP `qpn` is QP0 of a port.
    pub fn is_subnet_management(&self, qpn: u32) -> bool {
        let offset = self.special_offset(qpn);
        offset.is_some_and(|offset| offset < u32::from(PORTS))
    }

    /// The QP that packets for QP `dqpn` of `port` are for: QP0 and QP1 have other numbers inside
    /// the adapter.
    pub fn behind(&self, port: u8, dqpn: u32) -> u32 {
        if dqpn > 1 || self.special_base == 0 {
            return dqpn;
        }
        self.special_base
            .wrapping_add(dqpn.wrapping_mul(u32::from(PORTS)))
            .wrapping_add(u32::from(port).wrapping_sub(1))
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

/// A modify command: the states it is valid in, the state it leads to, and the parameters that it
/// takes over always and when requested.
struct Transition {
    from: &'static [State],
    to: State,
    required: u32,
    optional: u32,
}

fn transition(opcode: Opcode) -> Option<Transition> {
    use State::*;
    let (from, to, required, optional): (&[State], _, _, _) = match opcode {
        Opcode::INIT2INIT_QP => (
            &[Init],
            Init,
            0,
            optpar::RRE
                | optpar::RAE
                | optpar::RWE
                | optpar::Q_KEY
                | optpar::PKEY_INDEX
                | optpar::PRIMARY_ADDR_PATH
                | optpar::SCHED_QUEUE,
        ),
        Opcode::INIT2RTR_QP => (
            &[Init],
            Rtr,
            optpar::PRIMARY_ADDR_PATH | optpar::RRA_MAX | optpar::RNR_TIMEOUT,
            optpar::CONNECTED | optpar::PKEY_INDEX | optpar::SCHED_QUEUE,
        ),
        Opcode::RTR2RTS_QP => (
            &[Rtr],
            Rts,
            optpar::ACK_TIMEOUT | optpar::RETRY_COUNT | optpar::RNR_RETRY | optpar::SRA_MAX,
            optpar::CONNECTED,
        ),
        Opcode::RTS2RTS_QP => (&[Rts], Rts, 0, optpar::CONNECTED),
        Opcode::SQERR2RTS_QP => (&[Sqer], Rts, 0, optpar::CONNECTED),
        Opcode::RTS2SQD_QP => (&[Rts], Sqd, 0, 0),
        Opcode::SQD2SQD_QP => (
            &[Sqd, SqDraining],
            Sqd,
            0,
            optpar::CONNECTED
                | optpar::PRIMARY_ADDR_PATH
                | optpar::SCHED_QUEUE
                | optpar::PKEY_INDEX
                | optpar::ACK_TIMEOUT
                | optpar::RETRY_COUNT
                | optpar::RNR_RETRY
                | optpar::SRA_MAX
                | optpar::RRA_MAX,
        ),
        Opcode::SQD2RTS_QP => (&[Sqd, SqDraining], Rts, 0, optpar::CONNECTED),
        _ => return None,
    };
    Some(Transition {
        from,
        to,
        required,
        optional,
    })
}

impl Hca {
    /// CONF_SPECIAL_QP: which QPs are QP0 and QP1.
    pub fn conf_special_qp(&mut self, command: &Command) -> Outcome {
        self.qps.special_base = command.in_modifier & 0xff_ffff;
        Ok(Output::None)
    }

    /// QUERY_QP.
    pub fn query_qp(&mut self, command: &Command) -> Outcome {
        let qp = self
            .qps
            .get(command.in_modifier & 0xff_ffff)
            .ok_or(Status::BadIndex)?;
        let mut mailbox = vec![0; MAILBOX_SIZE];
        mailbox.set_field(CONTEXT, qp.context.bytes());
        Ok(Output::Mailbox(mailbox))
    }

    /// The commands that move a QP from state to state.
    pub fn modify_qp(&mut self, opcode: Opcode, command: &Command, now: Instant) -> Outcome {
        let qpn = command.in_modifier & 0xff_ffff;
        if qpn & !XRC_QPN_BIT >= 1 << LOG_MAX_QPS {
            return Err(Status::BadIndex);
        }
        match opcode {
            Opcode::RST2INIT_QP => return self.rst2init_qp(qpn, command),
            Opcode::_2RST_QP | Opcode::_2ERR_QP if self.qps.get(qpn).is_none() => {
                return self.refuse_command(
                    Violation::ModifyInReset,
                    Status::BadQpState,
                    format_args!("{} of QP {qpn:#x}", opcode.name()),
                );
            }
            Opcode::_2RST_QP => {
                self.qps.table.remove(&qpn);
                return Ok(Output::None);
            }
            Opcode::_2ERR_QP => {
                self.enter_error(qpn, now);
                return Ok(Output::None);
            }
            _ => {}
        }
        let mailbox: [u8; MAILBOX_SIZE] = self.mailbox(command)?;
        let new = Context::new(mailbox.field(CONTEXT));
        let transition = transition(opcode).ok_or(Status::BadOp)?;
        let qp = self.qps.get_mut(qpn).ok_or(Status::BadQpState)?;
        if !transition.from.contains(&qp.state) {
            return Err(Status::BadQpState);
        }
        let connects = opcode == Opcode::INIT2RTR_QP && qp.service.connected();
        if connects && (new.path_mtu().is_none() || !new.max_message_exists()) {
            return self.refuse_command(
                Violation::Mtu,
                Status::BadParam,
                format_args!("QP {qpn:#x}: {:#x}", new.mtu_msgmax()),
            );
        }
        let before = qp.context.migration();
        let asked = mailbox.get_be32(OPTPAR);
        let foreign = asked & !(transition.required | transition.optional);
        if foreign != 0 {
            self.dma.violations.note(
                Violation::OptionalParameter,
                format_args!("{} of QP {qpn:#x}: {foreign:#x}", opcode.name()),
            );
        }
        let context = &mut qp.context;
        context.apply(&new, transition.required | asked & transition.optional);
        match opcode {
            Opcode::INIT2RTR_QP => context.connect(&new),
            Opcode::RTR2RTS_QP => context.start_sending(&new),
            _ => {}
        }
        let to = match opcode {
            // Requests in progress are ended first.
            Opcode::RTS2SQD_QP if qp.stall.is_some() => State::SqDraining,
            Opcode::SQD2SQD_QP => qp.state,
            _ => transition.to,
        };
        qp.set_state(to);
        if opcode == Opcode::RTS2SQD_QP {
            qp.sqd_event = command.in_modifier & SQD_EVENT != 0;
        }
        let migrate = matches!(qp.state, State::Rts | State::Sqd)
            && before == Migration::Armed
            && qp.context.migration() == Migration::Migrated;
        self.check_drained(qpn);
        if migrate {
            self.migrate(qpn);
        }
        self.schedule.queue(qpn);
        Ok(Output::None)
    }

    /// RST2INIT: the QP becomes the device's.
    fn rst2init_qp(&mut self, qpn: u32, command: &Command) -> Outcome {
        if [qpn, qpn ^ XRC_QPN_BIT]
            .iter()
            .any(|qpn| self.qps.get(*qpn).is_some())
        {
            return Err(Status::BadQpState);
        }
        let mailbox: [u8; MAILBOX_SIZE] = self.mailbox(command)?;
        let context = Context::new(mailbox.field(CONTEXT));
        let qp = Qp::new(qpn, context).ok_or(Status::BadParam)?;
        let special = self.qps.is_special(qpn);
        if qp.index() >> LOG_RESERVED_QPS == 0 && !special {
            return self.refuse_command(
                Violation::ReservedQpn,
                Status::BadResource,
                format_args!("QP {qpn:#x}"),
            );
        }
        if special != (qp.service == Service::Mlx) {
            return self.refuse_command(
                Violation::SpecialService,
                Status::BadParam,
                format_args!("QP {qpn:#x} is of service {:?}", qp.service),
            );
        }
        if qp.is_xrc_target() != (qpn & XRC_QPN_BIT != 0) {
            self.dma.violations.note(
                Violation::XrcQpnBit,
                format_args!("QP {qpn:#x} of XRC domain {}", qp.context.xrcd()),
            );
        }
        let cqs = [qp.context.cqn_send(), qp.context.cqn_recv()];
        let unknown_cq = cqs.into_iter().find(|cqn| !self.cqs.contains(*cqn));
        let srqn = qp.context.srqn();
        let unknown_srq = srqn.filter(|srqn| self.srqs.get(*srqn).is_none());
        if unknown_cq.is_some() || unknown_srq.is_some() {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadResState,
                format_args!("QP {qpn:#x}: CQ {unknown_cq:x?}, SRQ {unknown_srq:x?}"),
            );
        }
        self.dma.check_context(Object::Qp, qp.index())?;
        self.qps.table.insert(qpn, qp);
        Ok(Output::None)
    }

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
            let Ok(Some(control)) = qp.send_head(&self.dma) else {
                return;
            };
            // An empty WQE is none: the ring would never end.
            if control.size == 0 {
                qp.rung = false;
                return;
            }
            let cqe = Cqe::send_error(qpn, qp.sq.index, Syndrome::WrFlushErr);
            let cqn = qp.context.cqn_send();
            qp.sq.advance();
            self.complete(qpn, cqn, cqe, false);
        }
    }

    /// Completes everything posted on QP `qpn`, which is in error, as flushed.
    pub fn flush(&mut self, qpn: u32, now: Instant) {
        self.flush_sends(qpn);
        while let Some(qp) = self.qps.get_mut(qpn) {
            let Ok(Some(wqe)) = qp.take_receive(&self.dma) else {
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
        if due && qp.rq.is_some() {
            let again = now.checked_add(FLUSH_POLL).unwrap_or(now);
            qp.flush_at = Some(again);
            self.schedule.queue_at(again, qpn);
        }
    }

    /// The request at the head of QP `qpn` was not answered. When its time is over, it is sent again or
    /// fails; without an ACK timeout it waits for ever.
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

    /// The request at the head of QP `qpn` is done: the next one may come, with this sequence number
    /// if the last one had any.
    pub fn advance_send(&mut self, qpn: u32, next_psn: Option<u32>) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.stall = None;
            qp.sq.advance();
            if let Some(psn) = next_psn {
                qp.context.set_send_psn(psn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx4::testing::{Bench, QpSetup};

    const RC: u32 = 0;
    const QPN: u32 = 0x40;
    const PEER: u32 = 0x41;
    const LOCAL: u64 = 0x1_0000;
    const ALL: u32 = 0x1f << 10;

    fn pair() -> (Bench, u32) {
        let mut bench = Bench::connected();
        bench.pair(RC, QPN, PEER);
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        (bench, key)
    }

    fn send(bench: &mut Bench, key: u32) {
        bench.post_send(QPN, Bench::wqe(0x0a, 0, None, (8, key, LOCAL)));
        bench.settle();
    }

    fn state(bench: &Bench, qpn: u32) -> State {
        bench.hca.qps.get(qpn).unwrap().state
    }

    fn migration(bench: &Bench, qpn: u32) -> Migration {
        bench.hca.qps.get(qpn).unwrap().context.migration()
    }

    #[test]
    fn the_context_comes_back_as_it_is() {
        let mut bench = Bench::connected();
        bench.qp_rtr(QPN, &QpSetup::new(RC, PEER));
        bench.run(0x22, QPN, 0, &[]).unwrap();
        let out = bench.output(0x100);
        let context = &out[8..];
        assert_eq!(context.get_be32(0) >> 28, State::Rtr as u32);
        assert_eq!(context.get_be32(0x10), QPN);
        assert_eq!(context.get_be32(0x14), PEER);
        assert_eq!(context.get_be16(0x1e), 2);
    }

    #[test]
    fn transitions_start_from_the_right_state() {
        let mut bench = Bench::connected();
        let setup = QpSetup::new(RC, PEER);
        let mailbox = setup.mailbox(None);
        assert_eq!(bench.modify(0x1b, QPN, &mailbox), Err(Status::BadQpState));
        bench.qp_init(QPN, &setup);
        assert_eq!(bench.modify(0x19, QPN, &mailbox), Err(Status::BadQpState));
        assert_eq!(bench.modify(0x1b, QPN, &mailbox), Err(Status::BadQpState));
        assert_eq!(bench.modify(0x1a, 1 << 20, &mailbox), Err(Status::BadIndex));
        assert_eq!(bench.modify(0x1e, QPN, &mailbox), Ok(()));
        assert_eq!(bench.modify(0x1a, QPN, &mailbox), Err(Status::BadQpState));
        assert_eq!(bench.modify(0x21, QPN, &mailbox), Ok(()));
        assert!(bench.hca.qps.get(QPN).is_none());
    }

    #[test]
    fn only_the_named_parameters_change() {
        let (mut bench, _) = pair();
        let mut mailbox = QpSetup {
            access: 0,
            rnr_timer: 3,
            retries: 5,
            ..QpSetup::new(RC, 99)
        }
        .mailbox(None);
        mailbox.set_be32(0, optpar::RWE | optpar::RNR_TIMEOUT | optpar::RETRY_COUNT);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        let context = &bench.hca.qps.get(QPN).unwrap().context;
        assert!(!context.remote_write_enabled());
        assert!(context.remote_read_enabled());
        assert_eq!(context.rnr_timer(), Duration::from_micros(30));
        // Not in RTS.
        assert_eq!(bench.violations(), [Violation::OptionalParameter]);
        assert_eq!(context.retry_count(), 1);
        assert_eq!(context.remote_qpn(), PEER);
    }

    #[test]
    fn a_missing_peer_means_retries_then_an_error() {
        const TICK: Duration = Duration::from_nanos(1);
        let timeout = Duration::from_nanos(4096 << 8) * 4;
        for retries in [0, 1, 7] {
            let mut bench = Bench::connected();
            let setup = QpSetup {
                retries,
                ..QpSetup::new(RC, PEER)
            };
            bench.qp_rts(QPN, &setup);
            let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
            send(&mut bench, key);
            for attempt in 1..=u64::from(retries) + 1 {
                assert_eq!(bench.hca.counters.requests["send"], attempt);
                assert_eq!(bench.next_timer(), Some(timeout));
                bench.wait(timeout - TICK);
                assert_eq!(bench.hca.counters.timeouts, attempt);
                assert_eq!(bench.completion(Bench::SEND_CQN, 0), None);
                bench.wait(TICK);
            }
            assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x15));
            assert_eq!(bench.hca.counters.requests["send"], u64::from(retries) + 1);
            assert_eq!(state(&bench, QPN), State::Err);
        }
    }

    #[test]
    fn without_a_timeout_a_request_waits_for_ever() {
        let mut bench = Bench::connected();
        let setup = QpSetup {
            timeout: 0,
            ..QpSetup::new(RC, PEER)
        };
        bench.qp_rts(QPN, &setup);
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        send(&mut bench, key);
        send(&mut bench, key);
        assert_eq!(bench.next_timer(), None);
        bench.wait(Duration::from_secs(3600));
        assert_eq!(bench.hca.counters.requests["send"], 1);
        bench.modify(0x1e, QPN, &setup.mailbox(None)).unwrap();
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x05));
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0x05));
    }

    #[test]
    fn an_error_flushes_present_and_later_requests() {
        let (mut bench, key) = pair();
        bench.post_receive(QPN, 8, key, LOCAL);
        bench
            .modify(0x1e, QPN, &QpSetup::new(RC, PEER).mailbox(None))
            .unwrap();
        assert_eq!(bench.completion(Bench::RECV_CQN, 0), Some(0x05));
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x05));
        // A receive rings nothing.
        bench.post_receive(QPN, 8, key, LOCAL);
        bench.wait(FLUSH_POLL);
        assert_eq!(bench.completion(Bench::RECV_CQN, 1), Some(0x05));
        assert_eq!(bench.events(), 0);
    }

    #[test]
    fn a_bad_key_is_our_own_error() {
        let (mut bench, key) = pair();
        send(&mut bench, key ^ 1);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x04));
        assert_eq!(state(&bench, PEER), State::Rts);
    }

    #[test]
    fn a_drained_queue_waits_and_tells() {
        let (mut bench, key) = pair();
        let mailbox = QpSetup::new(RC, PEER).mailbox(None);
        // The peer is not ready: the send is under way when draining begins.
        send(&mut bench, key);
        bench.modify(0x1f, SQD_EVENT | QPN, &mailbox).unwrap();
        assert_eq!(state(&bench, QPN), State::SqDraining);
        assert_eq!(bench.events(), 0);
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        bench.wait(Duration::from_millis(1));
        assert_eq!(state(&bench, QPN), State::Sqd);
        assert_eq!(bench.last_event(), Some((0x03, QPN)));
        // A request posted now waits for RTS.
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), None);
        bench.modify(0x20, QPN, &mailbox).unwrap();
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0));
    }

    fn armed() -> (Bench, u32) {
        let (mut bench, key) = pair();
        for (qpn, first, second) in [(QPN, (1, 2), (2, 1)), (PEER, (2, 1), (1, 2))] {
            let mut mailbox = QpSetup {
                path: first,
                alternate: second,
                migration: Migration::Rearm as u32,
                ..QpSetup::new(RC, 0)
            }
            .mailbox(None);
            mailbox.set_be32(0, optpar::ALT_ADDR_PATH | optpar::PM_STATE);
            bench.modify(0x1c, qpn, &mailbox).unwrap();
        }
        // The first exchange arms both.
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0));
        assert_eq!(migration(&bench, QPN), Migration::Armed);
        assert_eq!(migration(&bench, PEER), Migration::Armed);
        (bench, key)
    }

    #[test]
    fn asking_for_it_migrates_both_ends() {
        let (mut bench, key) = armed();
        let mut mailbox = QpSetup::new(RC, 0).mailbox(None);
        mailbox.set_be32(0, optpar::PM_STATE);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        assert_eq!(bench.last_event(), Some((0x01, QPN)));
        assert_eq!(bench.hca.qps.get(QPN).unwrap().context.path().remote_lid, 1);
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0));
        assert_eq!(bench.last_event(), Some((0x01, PEER)));
        assert_eq!(migration(&bench, PEER), Migration::Migrated);
    }

    #[test]
    fn a_peer_with_another_alternate_path_refuses_to_migrate() {
        let (mut bench, key) = armed();
        let mut mailbox = QpSetup::new(RC, 0).mailbox(None);
        mailbox.set_be32(0, optpar::PM_STATE);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        let mut wrong = QpSetup {
            alternate: (2, 9),
            ..QpSetup::new(RC, 0)
        }
        .mailbox(None);
        wrong.set_be32(0, optpar::ALT_ADDR_PATH);
        bench.modify(0x1c, PEER, &wrong).unwrap();
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.last_event(), Some((0x07, PEER)));
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), None);
    }

    #[test]
    fn a_pulled_cable_migrates_after_the_retries() {
        let mut bench = Bench::connected();
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        // Primary path to port 2, alternate from port 1 to itself.
        let setup = QpSetup {
            alternate: (1, 1),
            migration: Migration::Armed as u32,
            ..QpSetup::new(RC, PEER)
        };
        bench.qp_rts(QPN, &setup);
        let peer = QpSetup {
            path: (2, 1),
            alternate: (1, 1),
            migration: Migration::Armed as u32,
            ..QpSetup::new(RC, QPN)
        };
        bench.qp_rts(PEER, &peer);
        bench.hca.set_cable(2, false);
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), None);
        for _ in 0..3 {
            bench.wait(Duration::from_millis(5));
        }
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0));
        // Port change, and both ends migrated.
        assert_eq!(bench.event_types(), [0x09, 0x01, 0x01]);
    }

    #[test]
    fn a_wqe_longer_than_its_place_fails() {
        let (mut bench, key) = pair();
        let mut wqe = Bench::wqe(0x0a, 0, None, (8, key, LOCAL));
        wqe[7] = 9;
        bench.post_send(QPN, wqe);
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x02));
    }

    #[test]
    fn a_send_queue_is_not_looked_at_before_it_is_rung() {
        let (mut bench, _) = pair();
        let mailbox = QpSetup::new(RC, PEER).mailbox(None);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        bench.settle();
        assert_eq!(state(&bench, QPN), State::Rts);
    }

    #[test]
    fn a_qp_in_reset_is_not_the_devices() {
        let mut bench = Bench::connected();
        let mailbox = QpSetup::new(RC, PEER).mailbox(None);
        // 2ERR and 2RST.
        for opcode in [0x1e, 0x21] {
            let refused = bench.modify(opcode, QPN, &mailbox);
            assert_eq!(refused, Err(Status::BadQpState));
            assert_eq!(bench.violations(), [Violation::ModifyInReset]);
        }
    }

    #[test]
    fn a_qp_names_queues_that_exist() {
        let good = QpSetup::new(RC, PEER);
        let bad = [
            QpSetup {
                send_cqn: 0x90,
                ..good
            },
            QpSetup {
                recv_cqn: 0x90,
                ..good
            },
            QpSetup {
                srqn: Some(0x90),
                ..good
            },
        ];
        for setup in bad {
            let mut bench = Bench::connected();
            assert_eq!(bench.create_qp(QPN, &setup), Err(Status::BadResState));
            assert_eq!(bench.violations(), [Violation::UnknownObject]);
            assert_eq!(bench.create_qp(QPN, &good), Ok(()));
        }
    }

    #[test]
    fn numbers_show_the_type_of_a_qp() {
        const MLX: u32 = 7;
        const XRC: u32 = 6;
        let mut bench = Bench::connected();
        let setup = QpSetup::new(RC, PEER);
        assert_eq!(bench.create_qp(0x3f, &setup), Err(Status::BadResource));
        assert_eq!(bench.violations(), [Violation::ReservedQpn]);
        // CONF_SPECIAL_QP
        bench.run(0x23, 0x200, 0, &[]).unwrap();
        let special = QpSetup::new(MLX, 0);
        assert_eq!(bench.create_qp(0x203, &special), Ok(()));
        assert_eq!(bench.create_qp(0x204, &special), Err(Status::BadParam));
        assert_eq!(bench.create_qp(0x202, &setup), Err(Status::BadParam));
        assert_eq!(bench.violations(), [Violation::SpecialService]);
        let target = QpSetup {
            xrcd: 7,
            ..QpSetup::new(XRC, PEER)
        };
        for (qpn, setup) in [(0x210, target), (0x80_0211, setup)] {
            assert_eq!(bench.create_qp(qpn, &setup), Ok(()));
            assert_eq!(bench.violations(), [Violation::XrcQpnBit]);
        }
        // Both would have the same context.
        assert_eq!(bench.create_qp(0x211, &setup), Err(Status::BadQpState));
    }

    #[test]
    fn more_receives_than_places_are_noticed() {
        let (mut bench, key) = pair();
        for _ in 0..5 {
            bench.post_receive(PEER, 8, key, LOCAL + 64);
        }
        send(&mut bench, key);
        assert_eq!(bench.violations(), [Violation::ReceiveOverrun]);
    }
}
