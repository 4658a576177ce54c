// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Completion queues. One lives from CREATE_CQ to DESTROY_CQ or reset.

use std::collections::BTreeMap;
use std::sync::atomic::{fence, Ordering};

use crate::engine::bytes::Fields;
use crate::engine::completion::{Cqe, Ended, RecvOpcode};
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx5::command::Status;
use crate::mlx5::eq::Events;
use crate::mlx5::ifc::{cqc, Bits};
use crate::mlx5::memory::{Buffer, Dma};

/// log2 of the most entries of a CQ.
pub const LOG_MAX_ENTRIES: u32 = 20;
/// What the driver reads of a completion (struct mlx5_cqe64), at the end of its place.
pub const CQE_SIZE: usize = 64;
const CQE_SLID: usize = 0x16;
const CQE_FLAGS_RQPN: usize = 0x18;
const CQE_SRQN_UIDX: usize = 0x20;
const CQE_IMMEDIATE: usize = 0x24;
const CQE_BYTE_CNT: usize = 0x2c;
const CQE_SYNDROME: usize = 0x37;
const CQE_SOP_DROP_QPN: usize = 0x38;
const CQE_WQE_COUNTER: usize = 0x3c;
const CQE_OP_OWN: usize = 0x3f;

/// MLX5_CQE_REQ.
const REQ: u8 = 0;
/// MLX5_CQE_RESP_WR_IMM.
const RESP_WR_IMM: u8 = 1;
/// MLX5_CQE_RESP_SEND.
const RESP_SEND: u8 = 2;
/// MLX5_CQE_RESP_SEND_IMM.
const RESP_SEND_IMM: u8 = 3;
/// MLX5_CQE_RESP_SEND_INV.
const RESP_SEND_INVAL: u8 = 4;
/// MLX5_CQE_RESIZE_CQ.
const RESIZE_CQ: u8 = 5;
/// MLX5_CQE_REQ_ERR.
const REQ_ERR: u8 = 13;
/// MLX5_CQE_RESP_ERR.
const RESP_ERR: u8 = 14;
/// In CQE_OP_OWN: the message was solicited.
const SOLICITED: u8 = 1 << 1;
/// In CQE_FLAGS_RQPN: a GRH is in the buffer.
const GRH: u32 = 1 << 28;

/// Syndrome of a CQ error event: overrun.
const CQ_ERROR_OVERRUN: u8 = 1;
/// Syndrome of a CQ error event: access violation.
const CQ_ERROR_ACCESS: u8 = 2;

/// The completions that the consumer asked an event for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// None.
    Nothing,
    /// Those that were solicited.
    Solicited,
    /// The next.
    Next,
}

/// One completion queue.
pub struct Cq {
    /// As the driver has sent it.
    pub context: Vec<u8>,
    /// Its entries.
    pub ring: Entries,
    /// The queue of its events.
    pub eqn: u32,
    /// The UAR page of its doorbell.
    pub uar: u32,
    /// The address to which the driver writes its consumer index.
    pub doorbell: u64,
    /// It may overrun.
    pub ignores_overrun: bool,
    /// Entries written.
    pub producer: u32,
    /// Entries read.
    pub consumer: u32,
    /// The event that is wanted.
    pub arm: Arm,
    /// Overrun or unwritable; it takes no more entries.
    pub broken: bool,
}

impl Cq {
    fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & 0xff_ffff
    }

    fn full(&self) -> bool {
        !self.ignores_overrun && self.used() >= 1 << self.ring.log_entries
    }

    fn set_consumer(&mut self, dma: &Dma, index: u32) {
        self.consumer = index & 0xff_ffff;
        if self.used() > 1 << self.ring.log_entries {
            dma.violations.note(
                Violation::ConsumerAhead,
                format_args!("CQ: consumer {index:#x}, producer {:#x}", self.producer),
            );
        }
    }

    fn write(&mut self, dma: &Dma, mut entry: [u8; CQE_SIZE]) -> Result<(), DmaError> {
        let owner = (self.producer >> self.ring.log_entries & 1) as u8;
        let op_own = entry.get_u8(CQE_OP_OWN) | owner;
        entry.set_u8(CQE_OP_OWN, op_own);
        let index = self.producer & (1u32 << self.ring.log_entries).wrapping_sub(1);
        let place = u64::from(index).wrapping_mul(self.ring.stride as u64);
        let offset = place.wrapping_add(self.ring.stride.saturating_sub(CQE_SIZE) as u64);
        let (body, owner) = entry.split_at(CQE_OP_OWN);
        self.ring.buffer.write(dma, offset, body)?;
        fence(Ordering::Release);
        self.ring
            .buffer
            .write(dma, offset.wrapping_add(CQE_OP_OWN as u64), owner)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }

    /// Moves to another ring, as MODIFY_CQ asks. The last entry in the old one says so: up to it
    /// the driver copies what it has not read, each entry to the place after its own, so that the
    /// last one counts in the new ring as well.
    pub fn resize(&mut self, dma: &Dma, ring: Entries) -> Result<(), Status> {
        let index = u32::from_be_bytes(dma.memory.block(self.doorbell)?);
        self.set_consumer(dma, index);
        if self.broken {
            return Err(Status::BadResState);
        }
        if self.full() || self.used() >= 1 << ring.log_entries {
            return Err(Status::BadSizeOutsCqes);
        }
        let mut last = [0; CQE_SIZE];
        last.set_u8(CQE_OP_OWN, RESIZE_CQ << 4);
        self.write(dma, last)?;
        self.ring = ring;
        Ok(())
    }
}

/// The ring of entries.
pub struct Entries {
    /// Their place.
    pub buffer: Buffer,
    /// How many, as log2.
    pub log_entries: u32,
    /// The bytes of one.
    pub stride: usize,
}

impl Entries {
    /// That of a context of a CQ, in the pages of `list`.
    pub fn new(context: &[u8], list: &[u8]) -> Option<Self> {
        let log_entries = context.bits32(cqc::LOG_CQ_SIZE);
        let stride = match context.bits(cqc::CQE_SZ) {
            0 => CQE_SIZE,
            1 => 2 * CQE_SIZE,
            _ => return None,
        };
        if log_entries > LOG_MAX_ENTRIES {
            return None;
        }
        let buffer = Buffer::of_queue(
            context.bits32(cqc::LOG_PAGE_SIZE),
            context.bits(cqc::PAGE_OFFSET),
            list,
            (stride as u64) << log_entries,
        )?;
        Some(Self {
            buffer,
            log_entries,
            stride,
        })
    }
}

/// A completion as the driver reads it, except its owner; `srqn_uidx` says whose it is.
pub fn encode(cqe: &Cqe, srqn_uidx: u32, solicited: bool) -> [u8; CQE_SIZE] {
    let (kind, opcode, bytes, syndrome) = match cqe.ended {
        Ended::Send { opcode, bytes } => (REQ, opcode, bytes, 0),
        Ended::SendError(syndrome) => (REQ_ERR, 0, 0, syndrome as u8),
        Ended::Receive { opcode, bytes } => {
            let kind = match opcode {
                RecvOpcode::RdmaWriteImm => RESP_WR_IMM,
                RecvOpcode::Send => RESP_SEND,
                RecvOpcode::SendImm => RESP_SEND_IMM,
                RecvOpcode::SendInval => RESP_SEND_INVAL,
            };
            (kind, 0, bytes, 0)
        }
        Ended::ReceiveError(syndrome) => (RESP_ERR, 0, 0, syndrome as u8),
    };
    let mut entry = [0; CQE_SIZE];
    let grh = if cqe.grh { GRH } else { 0 };
    let service_level = u32::from(cqe.service_level & 0xf) << 24;
    entry.set_be16(CQE_SLID, cqe.slid);
    entry.set_be32(CQE_FLAGS_RQPN, cqe.remote & 0xff_ffff | service_level | grh);
    entry.set_be32(CQE_SRQN_UIDX, srqn_uidx & 0xff_ffff);
    entry.set_field(CQE_IMMEDIATE, &cqe.immediate);
    entry.set_be32(CQE_BYTE_CNT, bytes);
    if cqe.is_error() {
        entry.set_u8(CQE_SYNDROME, syndrome);
    }
    entry.set_be32(
        CQE_SOP_DROP_QPN,
        u32::from(opcode) << 24 | cqe.qpn & 0xff_ffff,
    );
    entry.set_be16(CQE_WQE_COUNTER, cqe.wqe_index);
    let solicited = if solicited { SOLICITED } else { 0 };
    entry.set_u8(CQE_OP_OWN, kind << 4 | solicited);
    entry
}

/// All completion queues of a card.
#[derive(Default)]
pub struct Cqs {
    /// By number.
    pub queues: BTreeMap<u32, Cq>,
    /// Completions written.
    pub completions: u64,
}

impl Cqs {
    /// Puts `entry` into CQ `cqn`, and reports an event if one was asked for. Returns whether there
    /// was a place.
    pub fn push(
        &mut self,
        dma: &Dma,
        events: &mut Events,
        cqn: u32,
        entry: [u8; CQE_SIZE],
        solicited: bool,
    ) -> bool {
        let Some(cq) = self.queues.get_mut(&cqn) else {
            return false;
        };
        if cq.broken {
            return false;
        }
        let mut result = Ok(());
        if cq.full() {
            let index = dma.memory.block(cq.doorbell).map(u32::from_be_bytes);
            result = index.map(|index| cq.set_consumer(dma, index));
            if result.is_ok() && cq.full() {
                log::warn!("CQ {cqn:#x} overrun");
                cq.broken = true;
                events.cq_error(dma, cqn, CQ_ERROR_OVERRUN);
                return false;
            }
        }
        if let Err(error) = result.and_then(|()| cq.write(dma, entry)) {
            log::warn!("CQ {cqn:#x}: {error}");
            cq.broken = true;
            events.cq_error(dma, cqn, CQ_ERROR_ACCESS);
            return false;
        }
        self.completions = self.completions.saturating_add(1);
        let wanted = match cq.arm {
            Arm::Nothing => false,
            Arm::Solicited => solicited,
            Arm::Next => true,
        };
        if wanted {
            cq.arm = Arm::Nothing;
            events.completion(dma, cq.eqn, cqn);
        }
        true
    }

    /// The CQ doorbell from UAR page `page`: `sn << 28 | command << 24 | consumer index`, then the
    /// number.
    pub fn doorbell(&mut self, dma: &Dma, events: &mut Events, page: u32, first: u32, cqn: u32) {
        let cqn = cqn & 0xff_ffff;
        let Some(cq) = self.queues.get_mut(&cqn) else {
            dma.violations
                .note(Violation::UnknownDoorbell, format_args!("CQ {cqn:#x}"));
            return;
        };
        if cq.uar != page {
            dma.violations.note(
                Violation::ForeignPage,
                format_args!("CQ {cqn:#x} of UAR page {} armed from {page}", cq.uar),
            );
            return;
        }
        cq.set_consumer(dma, first);
        cq.arm = match first >> 24 & 1 {
            1 => Arm::Solicited,
            _ => Arm::Next,
        };
        if cq.used() != 0 {
            cq.arm = Arm::Nothing;
            events.completion(dma, cq.eqn, cqn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::completion::Syndrome;
    use crate::mlx5::card::Hca;
    use crate::mlx5::ifc::modify_cq_in;

    const CQN: u32 = 1;
    const RECORD: u64 = 0x10_0000;
    const OLD: u64 = 0x10_1000;
    const NEW: u64 = 0x10_2000;

    fn ring(log_entries: u32, page: u64) -> Entries {
        let mut context = vec![0; cqc::SIZE];
        context.set_bits(cqc::LOG_CQ_SIZE, u64::from(log_entries));
        Entries::new(&context, &page.to_be_bytes()).unwrap()
    }

    /// A card with a CQ of four entries.
    fn card() -> Hca {
        let mut hca = Hca::new(0);
        hca.dma.memory.add_ram(RECORD, 0x3000, true);
        hca.write_config(4, &[0x06, 0x04]);
        let cq = Cq {
            context: vec![0; cqc::SIZE],
            ring: ring(2, OLD),
            eqn: 1,
            uar: 4,
            doorbell: RECORD,
            ignores_overrun: false,
            producer: 0,
            consumer: 0,
            arm: Arm::Nothing,
            broken: false,
        };
        hca.card.cqs.queues.insert(CQN, cq);
        hca
    }

    fn push(hca: &mut Hca) -> bool {
        let cqe = Cqe::send_error(7, 0, Syndrome::WrFlushErr);
        let card = &mut hca.card;
        card.cqs.push(
            &hca.dma,
            &mut card.events,
            CQN,
            encode(&cqe, 0, false),
            false,
        )
    }

    /// The kind and the owner of the entry `index` of a ring.
    fn entry(hca: &Hca, ring: u64, index: u64) -> (u8, u8) {
        let [op_own] = hca.dma.memory.block(ring + index * 64 + 0x3f).unwrap();
        (op_own >> 4, op_own & 1)
    }

    fn resize(hca: &mut Hca, log_entries: u32) -> Result<Vec<u8>, Status> {
        let mut input = vec![0; modify_cq_in::SIZE];
        input.set_bits(modify_cq_in::OP_MOD, 1);
        input.set_bits(modify_cq_in::CQN, u64::from(CQN));
        let select = modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
        input.set_bits(select, 7);
        let size = modify_cq_in::CQ_CONTEXT.part(cqc::LOG_CQ_SIZE);
        input.set_bits(size, u64::from(log_entries));
        input.extend_from_slice(&NEW.to_be_bytes());
        hca.modify_cq(&input)
    }

    #[test]
    fn a_cq_goes_on_in_its_new_ring_after_a_last_entry_in_the_old_one() {
        let mut hca = card();
        for _ in 0..3 {
            assert!(push(&mut hca));
        }
        resize(&mut hca, 3).unwrap();
        assert_eq!(entry(&hca, OLD, 3), (RESIZE_CQ, 0));
        for _ in 0..4 {
            assert!(push(&mut hca));
        }
        assert_eq!(entry(&hca, NEW, 4), (REQ_ERR, 0));
        assert_eq!(entry(&hca, NEW, 7), (REQ_ERR, 0));
        // Eight entries are in use.
        assert!(!push(&mut hca));
    }

    #[test]
    fn a_cq_keeps_its_ring_where_entries_would_find_no_place() {
        let mut hca = card();
        for _ in 0..3 {
            assert!(push(&mut hca));
        }
        assert_eq!(resize(&mut hca, 1), Err(Status::BadSizeOutsCqes));
        // The driver has read two of them.
        hca.dma.memory.write(RECORD, &2u32.to_be_bytes()).unwrap();
        resize(&mut hca, 1).unwrap();
        assert_eq!(entry(&hca, OLD, 3), (RESIZE_CQ, 0));
        assert_eq!(hca.card.cqs.queues[&CQN].context.bits(cqc::LOG_CQ_SIZE), 1);
    }
}
