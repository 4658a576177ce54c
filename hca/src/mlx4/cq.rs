// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Completion queues. One lives from SW2HW_CQ to HW2SW_CQ or reset; MODIFY_CQ moves it to another
//! buffer. The consumer writes its index to memory only, so the device reads it there when it would
//! otherwise overrun.

use std::collections::BTreeMap;
use std::sync::atomic::{fence, Ordering};

use crate::engine::bytes::Fields;
use crate::engine::hca::Hca;
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx4::command::{Command, Outcome, Output, Status};
use crate::mlx4::eq::{EventType, Events};
use crate::mlx4::icm::{Buffer, Dma, Object};

/// Size of a CQE without the 64-byte capability.
pub const CQE_SIZE: usize = 0x20;

// struct mlx4_cqe and mlx4_err_cqe.
const CQE_MY_QPN: usize = 0x00;
const CQE_IMMED: usize = 0x04;
const CQE_G_MLPATH_RQPN: usize = 0x08;
const CQE_SL: usize = 0x0c;
const CQE_RLID: usize = 0x0e;
const CQE_BYTE_CNT: usize = 0x14;
const CQE_WQE_INDEX: usize = 0x18;
const CQE_SYNDROME: usize = 0x1b;
const CQE_OWNER_SR_OPCODE: usize = 0x1f;
/// Where the driver looks first: written last.
const CQE_TAIL: usize = 0x1c;
/// MLX4_CQE_OWNER_MASK.
const CQE_OWNER: u8 = 0x80;
/// MLX4_CQE_IS_SEND_MASK.
const CQE_IS_SEND: u8 = 0x40;
/// MLX4_CQE_OPCODE_ERROR.
const CQE_OPCODE_ERROR: u8 = 0x1e;
/// MLX4_CQE_OPCODE_RESIZE.
const CQE_OPCODE_RESIZE: u8 = 0x16;
/// The byte that firmware fills a new queue with.
const CQE_STAMP: u8 = 0xcc;
/// In CQE_G_MLPATH_RQPN: a GRH came with the message.
const CQE_GRH: u32 = 1 << 31;

// struct mlx4_cq_context.
const CQC_SIZE: usize = 0x40;
const CQC_LOGSIZE_USRPAGE: usize = 0x0c;
const CQC_COMP_EQN: usize = 0x17;
const CQC_LOG_PAGE_SIZE: usize = 0x18;
const CQC_CONSUMER_INDEX: usize = 0x28;
const CQC_PRODUCER_INDEX: usize = 0x2c;
const CQC_DB_REC_ADDR: usize = 0x38;

/// log2 of the CQs, as QUERY_DEV_CAP reports it.
pub const LOG_MAX_CQS: u8 = 16;
/// log2 of the CQEs of one.
pub const LOG_MAX_CQES: u8 = 22;

/// MODIFY_CQ: take another buffer.
const MODIFY_CQ_RESIZE: u8 = 0;
/// MODIFY_CQ: change the moderation of interrupts, which the model does not delay.
const MODIFY_CQ_MODERATION: u8 = 1;

/// Syndrome of a CQ error event: overrun.
const CQ_ERROR_OVERRUN: u8 = 1;
/// Syndrome of a CQ error event: access violation.
const CQ_ERROR_ACCESS: u8 = 2;

/// Completion syndromes (MLX4_CQE_SYNDROME_*).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    LocalLengthErr = 0x01,
    LocalQpOpErr = 0x02,
    LocalProtErr = 0x04,
    WrFlushErr = 0x05,
    BadRespErr = 0x10,
    RemoteInvalReqErr = 0x12,
    RemoteAccessErr = 0x13,
    RemoteOpErr = 0x14,
    TransportRetryExcErr = 0x15,
    RnrRetryExcErr = 0x16,
}

/// Opcodes of a receive completion (MLX4_RECV_OPCODE_*).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecvOpcode {
    RdmaWriteImm = 0x00,
    Send = 0x01,
    SendImm = 0x02,
}

/// A completion before it has a place in its queue.
pub struct Cqe([u8; CQE_SIZE]);

impl Cqe {
    /// A request of QP `qpn` was executed.
    pub fn send(qpn: u32, wqe_index: u16, opcode: u8, bytes: u32) -> Self {
        let mut cqe = Self::new(qpn, wqe_index, CQE_IS_SEND | opcode);
        cqe.0.set_be32(CQE_BYTE_CNT, bytes);
        cqe
    }

    /// A request of QP `qpn` failed.
    pub fn send_error(qpn: u32, wqe_index: u16, syndrome: Syndrome) -> Self {
        let mut cqe = Self::new(qpn, wqe_index, CQE_IS_SEND | CQE_OPCODE_ERROR);
        cqe.0.set_u8(CQE_SYNDROME, syndrome as u8);
        cqe
    }

    /// QP `qpn` received `bytes`.
    pub fn receive(qpn: u32, wqe_index: u16, opcode: RecvOpcode, bytes: u32) -> Self {
        let mut cqe = Self::new(qpn, wqe_index, opcode as u8);
        cqe.0.set_be32(CQE_BYTE_CNT, bytes);
        cqe
    }

    /// The message for QP `qpn` did not fit, or its receive WQE was flushed.
    pub fn receive_error(qpn: u32, wqe_index: u16, syndrome: Syndrome) -> Self {
        let mut cqe = Self::new(qpn, wqe_index, CQE_OPCODE_ERROR);
        cqe.0.set_u8(CQE_SYNDROME, syndrome as u8);
        cqe
    }

    fn new(qpn: u32, wqe_index: u16, opcode: u8) -> Self {
        let mut cqe = [0; CQE_SIZE];
        cqe.set_be32(CQE_MY_QPN, qpn);
        cqe.set_be16(CQE_WQE_INDEX, wqe_index);
        cqe.set_u8(CQE_OWNER_SR_OPCODE, opcode);
        Self(cqe)
    }

    /// With immediate data.
    pub fn immediate(mut self, immediate: [u8; 4]) -> Self {
        self.0.set_field(CQE_IMMED, &immediate);
        self
    }

    /// With the QP it came from, or for XRC its SRQ.
    pub fn remote(mut self, number: u32, grh: bool) -> Self {
        let flag = if grh { CQE_GRH } else { 0 };
        self.0
            .set_be32(CQE_G_MLPATH_RQPN, number & 0xff_ffff | flag);
        self
    }

    /// With the port and service level it came from.
    pub fn source(mut self, lid: u16, service_level: u8) -> Self {
        self.0.set_be16(CQE_RLID, lid);
        self.0
            .set_be16(CQE_SL, u16::from(service_level & 0xf) << 12);
        self
    }

    fn is_error(&self) -> bool {
        self.0.get_u8(CQE_OWNER_SR_OPCODE) & 0x1f == CQE_OPCODE_ERROR
    }
}

/// The completions that the consumer asked an event for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Nothing,
    Solicited,
    Next,
}

/// One completion queue.
pub struct Cq {
    context: [u8; CQC_SIZE],
    buffer: Buffer,
    entries: u32,
    eqn: u32,
    doorbell: u64,
    producer: u32,
    consumer: u32,
    arm: Arm,
    /// Overrun or unwritable; it takes no more entries.
    broken: bool,
}

impl Cq {
    fn new(context: [u8; CQC_SIZE]) -> Option<Self> {
        let (buffer, entries) = Self::buffer(&context)?;
        Some(Self {
            buffer,
            entries,
            eqn: u32::from(context.get_u8(CQC_COMP_EQN)),
            doorbell: context.get_be64(CQC_DB_REC_ADDR) & !7,
            producer: 0,
            consumer: 0,
            arm: Arm::Nothing,
            broken: false,
            context,
        })
    }

    fn buffer(context: &[u8; CQC_SIZE]) -> Option<(Buffer, u32)> {
        let log_entries = context.get_be32(CQC_LOGSIZE_USRPAGE) >> 24 & 0x1f;
        if log_entries > u32::from(LOG_MAX_CQES) {
            return None;
        }
        Some((
            Buffer::of_context(context, CQC_LOG_PAGE_SIZE)?,
            1 << log_entries,
        ))
    }

    /// The UAR page its arm doorbell must come from.
    fn uar_page(&self) -> u32 {
        self.context.get_be24(CQC_LOGSIZE_USRPAGE)
    }

    /// Marks every entry as the device's, seen from the entry the producer writes next.
    fn stamp(&self, dma: &Dma) -> Result<(), DmaError> {
        for step in 0..self.entries {
            let index = self.producer.wrapping_add(step);
            let mut blank = [CQE_STAMP; CQE_SIZE];
            let owner = if index & self.entries == 0 {
                CQE_OWNER
            } else {
                0
            };
            blank.set_u8(CQE_OWNER_SR_OPCODE, CQE_STAMP & !CQE_OWNER | owner);
            self.buffer.write(dma, self.offset(index), &blank)?;
        }
        Ok(())
    }

    fn offset(&self, index: u32) -> u64 {
        u64::from(index & self.entries.wrapping_sub(1)).wrapping_mul(CQE_SIZE as u64)
    }

    fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & 0xff_ffff
    }

    /// Reads the consumer's index from its doorbell record.
    fn update_consumer(&mut self, dma: &Dma) -> Result<(), DmaError> {
        let index = u32::from_be_bytes(dma.memory.block(self.doorbell)?);
        self.set_consumer(dma, index);
        Ok(())
    }

    fn set_consumer(&mut self, dma: &Dma, index: u32) {
        self.consumer = index & 0xff_ffff;
        if self.used() > self.entries {
            dma.violations.note(
                Violation::ConsumerAhead,
                format_args!("CQ: consumer {index:#x}, producer {:#x}", self.producer),
            );
        }
    }

    fn write(&mut self, dma: &Dma, cqe: &Cqe) -> Result<(), DmaError> {
        let mut entry = cqe.0;
        let owner = if self.producer & self.entries == 0 {
            0
        } else {
            CQE_OWNER
        };
        let opcode = entry.get_u8(CQE_OWNER_SR_OPCODE) & !CQE_OWNER;
        entry.set_u8(CQE_OWNER_SR_OPCODE, opcode | owner);
        let offset = self.offset(self.producer);
        let (body, tail) = entry.split_at(CQE_TAIL);
        self.buffer.write(dma, offset, body)?;
        fence(Ordering::Release);
        self.buffer
            .write(dma, offset.wrapping_add(CQE_TAIL as u64), tail)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }
}

/// All completion queues of an adapter.
#[derive(Default)]
pub struct Cqs {
    queues: BTreeMap<u32, Cq>,
    /// Completions written.
    pub completions: u64,
}

impl Cqs {
    /// Forgets the queues, as a reset does.
    pub fn reset(&mut self) {
        self.queues.clear();
    }

    /// Number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// There are no queues.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The numbers of the queues.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.keys().copied()
    }

    /// The queues that send events to EQ `eqn`.
    pub fn of_eq(&self, eqn: u32) -> impl Iterator<Item = u32> + '_ {
        let queues = self.queues.iter().filter(move |(_, cq)| cq.eqn == eqn);
        queues.map(|(cqn, _)| *cqn)
    }

    /// There is a queue of this number.
    pub fn contains(&self, cqn: u32) -> bool {
        self.queues.contains_key(&cqn)
    }

    /// Puts `cqe` into CQ `cqn` and reports an event if one was asked for. Returns whether there was a place.
    fn push(
        &mut self,
        dma: &Dma,
        events: &mut Events,
        cqn: u32,
        cqe: &Cqe,
        solicited: bool,
    ) -> bool {
        let Some(cq) = self.queues.get_mut(&cqn) else {
            log::debug!("completion for CQ {cqn:#x}, which does not exist");
            return false;
        };
        if cq.broken {
            return false;
        }
        let mut result = Ok(());
        if cq.used() >= cq.entries {
            result = cq.update_consumer(dma);
            if result.is_ok() && cq.used() >= cq.entries {
                log::warn!("CQ {cqn:#x} overrun");
                cq.broken = true;
                events.cq_error(dma, cqn, CQ_ERROR_OVERRUN);
                return false;
            }
        }
        if let Err(error) = result.and_then(|()| cq.write(dma, cqe)) {
            log::warn!("CQ {cqn:#x}: {error}");
            cq.broken = true;
            events.cq_error(dma, cqn, CQ_ERROR_ACCESS);
            return false;
        }
        self.completions = self.completions.saturating_add(1);
        // An error counts as solicited.
        let tell = match cq.arm {
            Arm::Nothing => false,
            Arm::Solicited => solicited || cqe.is_error(),
            Arm::Next => true,
        };
        if tell {
            cq.arm = Arm::Nothing;
            events.completion(dma, cq.eqn, cqn);
        }
        true
    }

    /// The CQ doorbell from UAR page `page`: `sn << 28 | command << 24 | cqn`, then the consumer
    /// index.
    pub fn doorbell(&mut self, dma: &Dma, events: &mut Events, page: u32, first: u32, index: u32) {
        let cqn = first & 0xff_ffff;
        let Some(cq) = self.queues.get_mut(&cqn) else {
            return;
        };
        if cq.uar_page() != page {
            dma.violations.note(
                Violation::ForeignPage,
                format_args!("CQ {cqn:#x} armed from UAR page {page}"),
            );
            return;
        }
        cq.set_consumer(dma, index);
        cq.arm = match first >> 24 & 3 {
            1 => Arm::Solicited,
            2 => Arm::Next,
            _ => Arm::Nothing,
        };
        if cq.arm != Arm::Nothing && cq.used() != 0 {
            cq.arm = Arm::Nothing;
            events.completion(dma, cq.eqn, cqn);
        }
    }
}

impl Hca {
    /// SW2HW_CQ: the queue becomes the device's. Modifier 1: the driver has stamped it already.
    pub fn sw2hw_cq(&mut self, command: &Command) -> Outcome {
        let cqn = command.in_modifier;
        if cqn >> LOG_MAX_CQS != 0 {
            return Err(Status::BadIndex);
        }
        if self.cqs.queues.contains_key(&cqn) {
            return Err(Status::BadResState);
        }
        let cq = Cq::new(self.mailbox(command)?).ok_or(Status::BadParam)?;
        if !self.events.contains(cq.eqn) {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadResState,
                format_args!("EQ {} of CQ {cqn:#x}", cq.eqn),
            );
        }
        self.dma.check_context(Object::Cq, cqn)?;
        if command.opmod == 0 {
            cq.stamp(&self.dma)?;
        }
        self.cqs.queues.insert(cqn, cq);
        Ok(Output::None)
    }

    /// HW2SW_CQ: the queue is the driver's again. Modifier 0 returns its context.
    pub fn hw2sw_cq(&mut self, command: &Command) -> Outcome {
        let cqn = command.in_modifier;
        if let Some((object, number)) = self.cq_users(cqn).next() {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResourceBusy,
                format_args!("HW2SW_CQ of {cqn:#x}, which {object:?} {number:#x} uses"),
            );
        }
        let cq = self.cqs.queues.remove(&cqn).ok_or(Status::BadIndex)?;
        Ok(match command.opmod {
            0 => Output::Mailbox(cq.context.to_vec()),
            _ => Output::None,
        })
    }

    /// QUERY_CQ.
    pub fn query_cq(&mut self, command: &Command) -> Outcome {
        let cq = self
            .cqs
            .queues
            .get(&command.in_modifier)
            .ok_or(Status::BadIndex)?;
        let mut context = cq.context;
        context.set_be32(CQC_CONSUMER_INDEX, cq.consumer);
        context.set_be32(CQC_PRODUCER_INDEX, cq.producer);
        Ok(Output::Mailbox(context.to_vec()))
    }

    /// MODIFY_CQ: another buffer, or another moderation.
    pub fn modify_cq(&mut self, command: &Command) -> Outcome {
        let context: [u8; CQC_SIZE] = self.mailbox(command)?;
        let cq = self
            .cqs
            .queues
            .get_mut(&command.in_modifier)
            .ok_or(Status::BadIndex)?;
        match command.opmod {
            MODIFY_CQ_MODERATION => Ok(Output::None),
            MODIFY_CQ_RESIZE => {
                let (buffer, entries) = Cq::buffer(&context).ok_or(Status::BadParam)?;
                cq.update_consumer(&self.dma)?;
                // The entry that says so takes a place of its own.
                if cq.used().saturating_add(1) > entries || cq.used() >= cq.entries {
                    return Err(Status::BadSize);
                }
                cq.write(&self.dma, &Cqe::new(0, 0, CQE_OPCODE_RESIZE))?;
                cq.buffer = buffer;
                cq.entries = entries;
                cq.stamp(&self.dma)?;
                Ok(Output::None)
            }
            _ => Err(Status::BadParam),
        }
    }

    /// Puts a completion of QP `qpn` into CQ `cqn`. Where there is no place for it, the QP breaks.
    pub fn complete(&mut self, qpn: u32, cqn: u32, cqe: Cqe, solicited: bool) {
        let taken = self
            .cqs
            .push(&self.dma, &mut self.events, cqn, &cqe, solicited);
        if let (false, Some(qp)) = (taken, self.qps.get_mut(qpn)) {
            qp.overrun = true;
            self.schedule.queue(qpn);
        }
    }

    /// The objects that put completions into CQ `cqn`.
    fn cq_users(&self, cqn: u32) -> impl Iterator<Item = (Object, u32)> + '_ {
        let qps = self
            .qps
            .iter()
            .filter(move |qp| qp.context.cqn_send() == cqn || qp.context.cqn_recv() == cqn);
        let srqs = self
            .srqs
            .iter()
            .filter(move |(_, srq)| srq.xrc_cqn() == Some(cqn));
        (qps.map(|qp| (Object::Qp, qp.qpn))).chain(srqs.map(|(srqn, _)| (Object::Srq, srqn)))
    }

    /// Raises an event about an object.
    pub fn event(&mut self, kind: EventType, number: u32) {
        self.events.object(&self.dma, kind, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx4::qpc::State;
    use crate::mlx4::testing::{Bench, QpSetup};

    const CQN: u32 = 0x81;

    fn bench() -> Bench {
        let mut bench = Bench::new();
        bench.eq(1, 4);
        bench.cq(CQN, 2);
        bench
    }

    fn push(bench: &mut Bench, index: u16) {
        bench
            .hca
            .complete(0x40, CQN, Cqe::send(0x40, index, 0x0a, 8), false);
    }

    fn owner(bench: &Bench, index: u64) -> u8 {
        bench.cqe(CQN, index)[CQE_OWNER_SR_OPCODE] & CQE_OWNER
    }

    #[test]
    fn a_new_queue_has_no_completion_in_it() {
        let bench = bench();
        for index in 0..4 {
            assert_eq!(bench.cqe(CQN, index), [CQE_STAMP; CQE_SIZE]);
        }
    }

    #[test]
    fn completions_look_as_the_driver_reads_them() {
        let mut bench = bench();
        bench.hca.complete(
            0x80_0208,
            CQN,
            Cqe::receive(0x80_0208, 3, RecvOpcode::SendImm, 4096)
                .immediate([1, 2, 3, 4])
                .remote(0x45, true)
                .source(2, 5),
            false,
        );
        let cqe = bench.cqe(CQN, 0);
        assert_eq!(cqe.get_be32(0), 0x80_0208);
        assert_eq!(cqe.get_be32(4), 0x0102_0304);
        assert_eq!(cqe.get_be32(8), 0x8000_0045);
        assert_eq!(cqe.get_be32(12), 0x5000_0002);
        assert_eq!(cqe.get_be32(0x14), 4096);
        assert_eq!(cqe.get_be16(0x18), 3);
        assert_eq!(cqe.get_u8(0x1f), 2);
    }

    #[test]
    fn the_owner_bit_changes_every_round() {
        let mut bench = bench();
        for index in 0..6 {
            push(&mut bench, index);
            bench.set_cq_consumer(CQN, u32::from(index) + 1);
        }
        assert_eq!(owner(&bench, 1), CQE_OWNER);
        assert_eq!(owner(&bench, 2), 0);
    }

    #[test]
    fn an_overrun_breaks_the_queue_and_says_so() {
        let mut bench = bench();
        for index in 0..5 {
            push(&mut bench, index);
        }
        assert_eq!(bench.last_event(), Some((EventType::CqError as u8, CQN)));
        bench.set_cq_consumer(CQN, 4);
        push(&mut bench, 9);
        assert_eq!(owner(&bench, 0), 0);
    }

    #[test]
    fn arming_raises_one_event_for_present_and_later_completions() {
        let mut bench = bench();
        push(&mut bench, 0);
        assert_eq!(bench.events(), 0);
        bench.arm_cq(CQN, 2, 0);
        assert_eq!(bench.events(), 1);
        bench.arm_cq(CQN, 2, 1);
        assert_eq!(bench.events(), 1);
        push(&mut bench, 1);
        push(&mut bench, 2);
        assert_eq!(bench.events(), 2);
    }

    #[test]
    fn a_solicited_arm_waits_for_a_solicited_or_failed_request() {
        let mut bench = bench();
        bench.arm_cq(CQN, 1, 0);
        push(&mut bench, 0);
        assert_eq!(bench.events(), 0);
        let error = Cqe::send_error(0x40, 1, Syndrome::WrFlushErr);
        bench.hca.complete(0x40, CQN, error, false);
        assert_eq!(bench.events(), 1);
    }

    #[test]
    fn only_its_own_uar_page_arms_a_queue() {
        let mut bench = bench();
        push(&mut bench, 0);
        let hca = &mut bench.hca;
        hca.cqs
            .doorbell(&hca.dma, &mut hca.events, 200, 2 << 24 | CQN, 0);
        assert_eq!(bench.events(), 0);
        assert_eq!(bench.violations(), [Violation::ForeignPage]);
    }

    #[test]
    fn resizing_marks_the_old_buffer_and_stamps_the_new() {
        let mut bench = bench();
        push(&mut bench, 0);
        let old = bench.cq_buffer(CQN);
        bench.resize_cq(CQN, 3).unwrap();
        let mut marker = [0; CQE_SIZE];
        old.read(&bench.hca.dma, CQE_SIZE as u64, &mut marker)
            .unwrap();
        assert_eq!(marker.get_u8(CQE_OWNER_SR_OPCODE), CQE_OPCODE_RESIZE);
        push(&mut bench, 1);
        assert_eq!(bench.cqe(CQN, 2).get_u8(CQE_OWNER_SR_OPCODE), 0x4a);
        assert_eq!(owner(&bench, 3), CQE_OWNER);
        // Two outstanding, the marker and one to come do not fit two places.
        assert_eq!(bench.resize_cq(CQN, 1), Err(Status::BadSize));
    }

    #[test]
    fn bad_queues_are_refused() {
        let mut bench = bench();
        assert_eq!(bench.create_cq(CQN, 2), Err(Status::BadResState));
        assert_eq!(bench.create_cq(1 << 16, 2), Err(Status::BadIndex));
        assert_eq!(bench.create_cq(5, 30), Err(Status::BadParam));
        assert_eq!(bench.create_cq(5, 22), Err(Status::IcmError));
        assert_eq!(bench.hca.cqs.len(), 1);
    }

    #[test]
    fn a_queue_names_an_eq_that_exists() {
        let mut bench = Bench::new();
        assert_eq!(bench.create_cq(CQN, 2), Err(Status::BadResState));
        assert_eq!(bench.violations(), [Violation::UnknownObject]);
    }

    #[test]
    fn a_queue_outlives_its_users() {
        const XRC: u32 = 6;
        const TARGET: u32 = 0x80_0208;
        let close = |bench: &mut Bench, cqn| bench.run(0x17, cqn, 0, &[]);
        let mut bench = Bench::connected();
        // The private CQ of an XRC domain, and that of an SRQ of the domain.
        bench.cq(0x83, 2);
        bench.cq(0x84, 2);
        let target = QpSetup {
            xrcd: 7,
            send_cqn: 0x83,
            recv_cqn: 0x83,
            ..QpSetup::new(XRC, 0x209)
        };
        bench.qp_init(TARGET, &target);
        bench.srq(0x45, 2, 7, 0x84);
        for cqn in [0x83, 0x84] {
            assert_eq!(close(&mut bench, cqn), Err(Status::ResourceBusy));
            assert_eq!(bench.violations(), [Violation::ObjectInUse]);
        }
        // 2RST and HW2SW_SRQ.
        bench.modify(0x21, TARGET, &[]).unwrap();
        bench.run(0x36, 0x45, 0, &[]).unwrap();
        assert_eq!(close(&mut bench, 0x83), Ok(None));
        assert_eq!(close(&mut bench, 0x84), Ok(None));
        // A QP uses both of its own, and its SRQ.
        bench.srq(0x46, 2, 0, 0);
        let setup = QpSetup {
            srqn: Some(0x46),
            ..QpSetup::new(0, 0x41)
        };
        bench.qp_init(0x40, &setup);
        for (opcode, number) in [
            (0x17, Bench::SEND_CQN),
            (0x17, Bench::RECV_CQN),
            (0x36, 0x46),
        ] {
            let refused = bench.run(opcode, number, 0, &[]);
            assert_eq!(refused, Err(Status::ResourceBusy));
            assert_eq!(bench.violations(), [Violation::ObjectInUse]);
        }
    }

    #[test]
    fn an_overrun_breaks_the_qps_that_use_the_queue() {
        let mut bench = Bench::connected();
        bench.cq(CQN + 3, 0);
        let setup = QpSetup {
            send_cqn: CQN + 3,
            ..QpSetup::new(0, 0x41)
        };
        bench.qp_rts(0x40, &setup);
        let back = QpSetup {
            path: (2, 1),
            ..QpSetup::new(0, 0x40)
        };
        bench.qp_rts(0x41, &back);
        let (key, _) = bench.region(0x10, 0x1_0000, 0x1000, 0x1f << 10);
        for _ in 0..2 {
            let remote = Some((0x1_0000, key));
            let wqe = Bench::wqe(0x08, 0, remote, (8, key, 0x1_0000));
            bench.post_send(0x40, wqe);
            bench.settle();
        }
        assert_eq!(bench.completion(CQN + 3, 0), Some(0));
        assert_eq!(bench.event_types(), [0x04, 0x05]);
        assert_eq!(bench.last_event(), Some((0x05, 0x40)));
        let state = |qpn| bench.hca.qps.get(qpn).unwrap().state;
        assert_eq!((state(0x40), state(0x41)), (State::Err, State::Rts));
    }

    #[test]
    fn a_consumer_ahead_of_the_device_is_noticed() {
        let mut bench = bench();
        push(&mut bench, 0);
        bench.arm_cq(CQN, 2, 2);
        assert_eq!(bench.violations(), [Violation::ConsumerAhead]);
    }
}
