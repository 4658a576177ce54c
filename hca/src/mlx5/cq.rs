// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Completion queues. One lives from CREATE_CQ to DESTROY_CQ or reset.

use std::collections::BTreeMap;
use std::sync::atomic::{fence, Ordering};

use crate::engine::bytes::Fields;
use crate::engine::completion::{Cqe, Ended, RecvOpcode};
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx5::eq::Events;
use crate::mlx5::memory::{Buffer, Dma};

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
    pub buffer: Buffer,
    /// How many, as log2.
    pub log_entries: u32,
    /// The bytes of one.
    pub stride: usize,
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
        !self.ignores_overrun && self.used() >= 1 << self.log_entries
    }

    fn set_consumer(&mut self, dma: &Dma, index: u32) {
        self.consumer = index & 0xff_ffff;
        if self.used() > 1 << self.log_entries {
            dma.violations.note(
                Violation::ConsumerAhead,
                format_args!("CQ: consumer {index:#x}, producer {:#x}", self.producer),
            );
        }
    }

    fn write(&mut self, dma: &Dma, mut entry: [u8; CQE_SIZE]) -> Result<(), DmaError> {
        let owner = (self.producer >> self.log_entries & 1) as u8;
        let op_own = entry.get_u8(CQE_OP_OWN) | owner;
        entry.set_u8(CQE_OP_OWN, op_own);
        let index = self.producer & (1u32 << self.log_entries).wrapping_sub(1);
        let place = u64::from(index).wrapping_mul(self.stride as u64);
        let offset = place.wrapping_add(self.stride.saturating_sub(CQE_SIZE) as u64);
        let (body, owner) = entry.split_at(CQE_OP_OWN);
        self.buffer.write(dma, offset, body)?;
        fence(Ordering::Release);
        self.buffer
            .write(dma, offset.wrapping_add(CQE_OP_OWN as u64), owner)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(())
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
