// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Completion queues. One lives from SW2HW_CQ to HW2SW_CQ or reset; MODIFY_CQ moves it to another
//! buffer. The consumer writes its index to memory only, so the device reads it there when it would
//! otherwise overrun.

use crate::engine::bytes::Fields;
use crate::engine::completion::{Cqe, Ended};
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx4::eq::Events;
use crate::mlx4::icm::{Buffer, Dma};
use std::collections::BTreeMap;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;

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
/// The driver looks here first: written last.
const CQE_TAIL: usize = 0x1c;
/// MLX4_CQE_OWNER_MASK.
const CQE_OWNER: u8 = 0x80;
/// MLX4_CQE_IS_SEND_MASK.
const CQE_IS_SEND: u8 = 0x40;
/// MLX4_CQE_OPCODE_ERROR.
const CQE_OPCODE_ERROR: u8 = 0x1e;
/// MLX4_CQE_OPCODE_RESIZE.
pub(super) const CQE_OPCODE_RESIZE: u8 = 0x16;
/// The byte that firmware fills a new queue with.
const CQE_STAMP: u8 = 0xcc;
/// In CQE_G_MLPATH_RQPN: a GRH came with the message.
const CQE_GRH: u32 = 1 << 31;

// struct mlx4_cq_context.
pub(super) const CQC_SIZE: usize = 0x40;
const CQC_LOGSIZE_USRPAGE: usize = 0x0c;
const CQC_COMP_EQN: usize = 0x17;
const CQC_LOG_PAGE_SIZE: usize = 0x18;
pub(super) const CQC_CONSUMER_INDEX: usize = 0x28;
pub(super) const CQC_PRODUCER_INDEX: usize = 0x2c;
const CQC_DB_REC_ADDR: usize = 0x38;

/// log2 of the CQs, as QUERY_DEV_CAP reports it.
pub const LOG_MAX_CQS: u8 = 16;
/// log2 of the reserved ones.
pub const LOG_RESERVED_CQS: u8 = 7;
/// log2 of the CQEs of one.
pub const LOG_MAX_CQES: u8 = 22;

/// MODIFY_CQ: take another buffer.
pub(super) const MODIFY_CQ_RESIZE: u8 = 0;
/// MODIFY_CQ: change the moderation of interrupts, which the model does not delay.
pub(super) const MODIFY_CQ_MODERATION: u8 = 1;

/// Syndrome of a CQ error event: overrun.
const CQ_ERROR_OVERRUN: u8 = 1;
/// Syndrome of a CQ error event: access violation.
const CQ_ERROR_ACCESS: u8 = 2;

/// An entry with what both directions have.
pub(super) fn entry(qpn: u32, wqe_index: u16, opcode: u8) -> [u8; CQE_SIZE] {
    let mut entry = [0; CQE_SIZE];
    entry.set_be32(CQE_MY_QPN, qpn);
    entry.set_be16(CQE_WQE_INDEX, wqe_index);
    entry.set_u8(CQE_OWNER_SR_OPCODE, opcode);
    entry
}

/// A completion as the driver reads it, except its owner.
fn encode(cqe: &Cqe) -> [u8; CQE_SIZE] {
    let (opcode, bytes, syndrome) = match cqe.ended {
        Ended::Send { opcode, bytes } => (CQE_IS_SEND | opcode, bytes, 0),
        Ended::SendError(syndrome) => (CQE_IS_SEND | CQE_OPCODE_ERROR, 0, syndrome as u8),
        Ended::Receive { opcode, bytes } => (opcode as u8, bytes, 0),
        Ended::ReceiveError(syndrome) => (CQE_OPCODE_ERROR, 0, syndrome as u8),
    };
    let mut entry = entry(cqe.qpn, cqe.wqe_index, opcode);
    let grh = if cqe.grh { CQE_GRH } else { 0 };
    entry.set_field(CQE_IMMED, &cqe.immediate);
    entry.set_be32(CQE_G_MLPATH_RQPN, cqe.remote & 0xff_ffff | grh);
    entry.set_be16(CQE_SL, u16::from(cqe.service_level & 0xf) << 12);
    entry.set_be16(CQE_RLID, cqe.slid);
    entry.set_be32(CQE_BYTE_CNT, bytes);
    if cqe.is_error() {
        entry.set_u8(CQE_SYNDROME, syndrome);
    }
    entry
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
    pub(super) context: [u8; CQC_SIZE],
    pub(super) buffer: Buffer,
    pub(super) entries: u32,
    pub(super) eqn: u32,
    pub(super) doorbell: u64,
    pub(super) producer: u32,
    pub(super) consumer: u32,
    arm: Arm,
    /// Overrun or unwritable; it takes no more entries.
    pub(super) broken: bool,
}

impl Cq {
    pub(super) fn new(context: [u8; CQC_SIZE]) -> Option<Self> {
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

    pub(super) fn buffer(context: &[u8; CQC_SIZE]) -> Option<(Buffer, u32)> {
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
    pub(super) fn uar_page(&self) -> u32 {
        self.context.get_be24(CQC_LOGSIZE_USRPAGE)
    }

    /// Marks every entry as the device's, seen from the entry the producer writes next.
    pub(super) fn stamp(&self, dma: &Dma) -> Result<(), DmaError> {
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

    pub(super) fn offset(&self, index: u32) -> u64 {
        u64::from(index & self.entries.wrapping_sub(1)).wrapping_mul(CQE_SIZE as u64)
    }

    pub(super) fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & 0xff_ffff
    }

    /// Reads the consumer's index from its doorbell record.
    pub(super) fn update_consumer(&mut self, dma: &Dma) -> Result<(), DmaError> {
        let index = u32::from_be_bytes(dma.memory.block(self.doorbell)?);
        self.set_consumer(dma, index);
        Ok(())
    }

    pub(super) fn set_consumer(&mut self, dma: &Dma, index: u32) {
        self.consumer = index & 0xff_ffff;
        if self.used() > self.entries {
            dma.violations.note(
                Violation::ConsumerAhead,
                format_args!("CQ: consumer {index:#x}, producer {:#x}", self.producer),
            );
        }
    }

    pub(super) fn write(&mut self, dma: &Dma, mut entry: [u8; CQE_SIZE]) -> Result<(), DmaError> {
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
    pub(super) queues: BTreeMap<u32, Cq>,
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

    /// Where their entries are, and the bytes of those.
    pub fn extents(&self) -> impl Iterator<Item = (u32, (Buffer, u64))> + '_ {
        self.queues.iter().map(|(cqn, cq)| {
            let bytes = u64::from(cq.entries).saturating_mul(CQE_SIZE as u64);
            (*cqn, (cq.buffer, bytes))
        })
    }

    /// There is a queue of this number.
    pub fn contains(&self, cqn: u32) -> bool {
        self.queues.contains_key(&cqn)
    }

    /// Puts `cqe` into CQ `cqn` and reports an event if one was asked for. Returns whether there
    /// was a place.
    pub fn push(
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
        if let Err(error) = result.and_then(|()| cq.write(dma, encode(cqe))) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::completion::{RecvOpcode, Syndrome};
    use crate::engine::event::EventType;
    use crate::engine::transport::State;
    use crate::mlx4::command::Status;
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
        hca.card
            .cqs
            .doorbell(&hca.dma, &mut hca.card.events, 200, 2 << 24 | CQN, 0);
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
        assert_eq!(bench.create_cq(0x85, 30), Err(Status::BadParam));
        assert_eq!(bench.create_cq(0x85, 22), Err(Status::IcmError));
        assert_eq!(bench.hca.card.cqs.len(), 1);
    }

    #[test]
    fn the_first_numbers_are_the_firmwares() {
        let mut bench = bench();
        for cqn in [0, 0x7f] {
            assert_eq!(bench.create_cq(cqn, 2), Err(Status::BadResource));
            assert_eq!(bench.violations(), [Violation::ReservedCqn]);
        }
        bench.cq(0x80, 2);
    }

    #[test]
    fn a_queue_is_rung_from_a_page_for_queues() {
        let mut bench = bench();
        for page in [0, 127, 512] {
            let refused = bench.create_cq_of_page(0x90, page);
            assert_eq!(refused, Err(Status::BadResource));
            assert_eq!(bench.violations(), [Violation::UarPage]);
        }
        assert_eq!(bench.create_cq_of_page(0x90, 128), Ok(None));
        assert_eq!(bench.create_cq_of_page(0x91, 511), Ok(None));
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
