// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The command queue, the time of commands in flight, and the table that sends each to the file of
//! its object.
//!
//! Entries have the first bytes of input and output; the rest lies in chains of blocks.

use std::fmt::Arguments;
use std::time::Instant;

use crate::engine::bytes::Fields;
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{opcode_name, phase, Command, Outcome, Phase, Status, LOG_ENTRY};
use crate::mlx5::ifc::op;

mod cq;
mod domain;
mod eq;
mod firmware;
mod mkey;
mod port;
mod qp;
mod srq;

// struct mlx5_cmd_layout.
const ENTRY_SIZE: usize = 1 << LOG_ENTRY;
const ENTRY_TYPE: usize = 0x00;
const ENTRY_INLEN: usize = 0x04;
const ENTRY_IN_PTR: usize = 0x08;
const ENTRY_IN: usize = 0x10;
const ENTRY_OUT: usize = 0x20;
const ENTRY_OUT_PTR: usize = 0x30;
const ENTRY_OUTLEN: usize = 0x38;
const ENTRY_TOKEN: usize = 0x3c;
const ENTRY_STATUS_OWN: usize = 0x3f;
/// Bytes of input and of output in the entry.
const INLINE_SIZE: usize = 16;
/// MLX5_PCI_CMD_XPORT.
const TRANSPORT_PCI: u8 = 7;
/// CMD_OWNER_HW.
const OWNER_HARDWARE: u8 = 1;

// struct mlx5_cmd_prot_block.
const BLOCK_SIZE: usize = 576;
const BLOCK_DATA: usize = 512;
const BLOCK_NEXT: usize = 0x230;
const BLOCK_NUMBER: usize = 0x238;
const BLOCK_TOKEN: usize = 0x23d;

/// Longest input or output.
const MAX_LENGTH: usize = 1 << 20;
/// Bytes of output that every command has: status and syndrome.
const STATUS_SIZE: usize = 8;

/// How a command was delivered, if not well (MLX5_CMD_DELIVERY_STAT_*).
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Delivery {
    Token = 0x2,
    BlockNumber = 0x3,
    Firmware = 0x6,
    InputLength = 0x7,
    OutputLength = 0x8,
    Descriptor = 0x10,
}

impl From<DmaError> for Delivery {
    fn from(_: DmaError) -> Self {
        Self::Firmware
    }
}

impl Hca {
    fn entry(&self, slot: u8) -> u64 {
        let offset = u64::from(slot) << LOG_ENTRY;
        self.card.command_queue.wrapping_add(offset)
    }

    /// The doorbell of entry `slot` was rung: executes its command, or lets it wait for its
    /// latency.
    pub fn post_command(&mut self, slot: u8, now: Instant) {
        if self.faults.is_dead() {
            return;
        }
        match self.fetch(slot) {
            Ok(command) => match self.faults.command_deadline(command.opcode(), now) {
                Some(deadline) => {
                    let id = self.schedule.command_at(deadline);
                    self.card.commands.insert(id, command);
                    let running = self.card.commands.len() as u64;
                    let counters = &mut self.counters;
                    counters.max_commands_in_flight = counters.max_commands_in_flight.max(running);
                    if running > 1 {
                        counters.overlapping_commands =
                            counters.overlapping_commands.saturating_add(1);
                    }
                }
                None => self.finish_command(&command, now),
            },
            Err(delivery) => {
                log::warn!("command in entry {slot}: {delivery:?}");
                let own = self.entry(slot).wrapping_add(ENTRY_STATUS_OWN as u64);
                let written = self.dma.memory.write(own, &[(delivery as u8) << 1]);
                if let Err(error) = written {
                    log::warn!("command queue: {error}");
                }
            }
        }
    }

    /// Reads a command from its entry and the blocks after it.
    fn fetch(&self, slot: u8) -> Result<Command, Delivery> {
        let entry: [u8; ENTRY_SIZE] = self.dma.memory.block(self.entry(slot))?;
        let owned = entry.get_u8(ENTRY_STATUS_OWN) & OWNER_HARDWARE != 0;
        if !owned || entry.get_u8(ENTRY_TYPE) != TRANSPORT_PCI {
            return Err(Delivery::Descriptor);
        }
        let length = entry.get_be32(ENTRY_INLEN) as usize;
        let output_length = entry.get_be32(ENTRY_OUTLEN) as usize;
        if !(2..=MAX_LENGTH).contains(&length) {
            return Err(Delivery::InputLength);
        }
        if !(STATUS_SIZE..=MAX_LENGTH).contains(&output_length) {
            return Err(Delivery::OutputLength);
        }
        let mut input = entry.field::<INLINE_SIZE>(ENTRY_IN).to_vec();
        let mut next = entry.get_be64(ENTRY_IN_PTR);
        let mut number = 0;
        while input.len() < length {
            let block: [u8; BLOCK_SIZE] = self.dma.memory.block(next)?;
            if block.get_u8(BLOCK_TOKEN) != entry.get_u8(ENTRY_TOKEN) {
                return Err(Delivery::Token);
            }
            if block.get_be32(BLOCK_NUMBER) != number {
                return Err(Delivery::BlockNumber);
            }
            input.extend_from_slice(&block.field::<BLOCK_DATA>(0));
            next = block.get_be64(BLOCK_NEXT);
            number = number.wrapping_add(1);
        }
        input.truncate(length);
        Ok(Command {
            slot,
            input,
            output_length,
            output_pointer: entry.get_be64(ENTRY_OUT_PTR),
            event: self.command_events(),
        })
    }

    /// A command ends.
    pub fn finish_command(&mut self, command: &Command, now: Instant) {
        let outcome = match self.faults.command_status(command.opcode()) {
            Some(number) => {
                self.counters.last_injected_failure = Some(opcode_name(command.opcode()));
                Err(Status::try_from(number).unwrap_or(Status::IntErr))
            }
            None => self.execute_command(command, now),
        };
        let name = opcode_name(command.opcode());
        let status = outcome.as_ref().err().copied().unwrap_or(Status::Ok);
        log::debug!("{name}: {status:?}");
        self.counters.count_command(name, status.into());
        if let Err(error) = self.write_output(command, outcome.unwrap_or_default(), status) {
            log::warn!("command queue: {error}");
        }
        if command.event {
            self.card.events.command(&self.dma, command.slot);
        }
    }

    fn write_output(
        &self,
        command: &Command,
        mut output: Vec<u8>,
        status: Status,
    ) -> Result<(), DmaError> {
        output.resize(command.output_length.max(INLINE_SIZE), 0);
        output.set_u8(0, status as u8);
        if status != Status::Ok {
            // The syndrome is for the vendor: it tells nothing here.
            output.set_be32(4, 0x10_0000 | status as u32);
        }
        let entry = self.entry(command.slot);
        let (first, rest) = output.split_at(INLINE_SIZE);
        self.dma
            .memory
            .write(entry.wrapping_add(ENTRY_OUT as u64), first)?;
        let mut next = command.output_pointer;
        for piece in rest.chunks(BLOCK_DATA) {
            self.dma.memory.write(next, piece)?;
            let link = next.wrapping_add(BLOCK_NEXT as u64);
            next = u64::from_be_bytes(self.dma.memory.block(link)?);
        }
        let own = entry.wrapping_add(ENTRY_STATUS_OWN as u64);
        self.dma.memory.write(own, &[0])
    }

    /// Refuses a command that no driver should give.
    pub fn refuse_command<T>(
        &self,
        violation: Violation,
        status: Status,
        details: Arguments<'_>,
    ) -> Result<T, Status> {
        self.dma.violations.note(violation, details);
        Err(status)
    }

    fn execute_command(&mut self, command: &Command, now: Instant) -> Outcome {
        let opcode = command.opcode();
        let input = command.input.as_slice();
        let here = self.card.phase;
        if here < phase(opcode) {
            return self.refuse_command(
                Violation::CommandOrder,
                Status::BadSysState,
                format_args!("{} of a card that is {here:?}", opcode_name(opcode)),
            );
        }
        match opcode {
            op::ENABLE_HCA => self.enter(Phase::Reset, Phase::Enabled),
            op::DISABLE_HCA => self.disable_hca(),
            op::INIT_HCA => self.init_hca(),
            op::TEARDOWN_HCA => self.teardown_hca(),
            op::QUERY_ISSI => self.query_issi(),
            op::SET_ISSI => self.set_issi(input),
            op::QUERY_PAGES => self.query_pages(input),
            op::MANAGE_PAGES => self.manage_pages(input),
            op::QUERY_HCA_CAP => self.query_hca_cap(input),
            op::QUERY_ADAPTER => self.query_adapter(),
            op::QUERY_SPECIAL_CONTEXTS => self.query_special_contexts(),
            op::SET_HCA_CAP => self.set_hca_cap(input),
            op::NOP | op::SET_DRIVER_VERSION => Ok(Vec::new()),
            op::ACCESS_REG => self.access_reg(input),
            op::MAD_IFC => self.mad_ifc(input),
            op::QUERY_HCA_VPORT_CONTEXT => self.query_hca_vport_context(),
            op::MODIFY_HCA_VPORT_CONTEXT => self.modify_hca_vport_context(input),
            op::QUERY_HCA_VPORT_GID => self.query_hca_vport_gid(input),
            op::QUERY_HCA_VPORT_PKEY => self.query_hca_vport_pkey(input),
            // Counters, which the model does not keep.
            op::QUERY_VPORT_COUNTER | op::QUERY_Q_COUNTER | op::QUERY_VPORT_STATE => {
                Ok(vec![0; command.output_length])
            }
            op::ALLOC_Q_COUNTER => self.alloc_q_counter(),
            op::DEALLOC_Q_COUNTER => Ok(Vec::new()),
            op::ALLOC_UAR => self.alloc_uar(),
            op::DEALLOC_UAR => self.dealloc_uar(input),
            op::ALLOC_PD => self.alloc_pd(),
            op::DEALLOC_PD => self.dealloc_pd(input),
            op::ALLOC_XRCD => self.alloc_xrcd(),
            op::DEALLOC_XRCD => self.dealloc_xrcd(input),
            op::CREATE_EQ => self.create_eq(input),
            op::DESTROY_EQ => self.destroy_eq(input),
            op::CREATE_CQ => self.create_cq(input),
            op::DESTROY_CQ => self.destroy_cq(input),
            op::QUERY_CQ => self.query_cq(input),
            op::MODIFY_CQ => self.modify_cq(input),
            op::CREATE_MKEY => self.create_mkey(input),
            op::DESTROY_MKEY => self.destroy_mkey(input),
            op::QUERY_MKEY => self.query_mkey(input),
            op::CREATE_XRC_SRQ => self.create_xrc_srq(input),
            op::CREATE_SRQ => self.create_srq(input),
            op::CREATE_RMP => self.create_rmp(input),
            op::DESTROY_XRC_SRQ | op::DESTROY_SRQ | op::DESTROY_RMP => self.destroy_srq(input),
            op::QUERY_XRC_SRQ => self.query_xrc_srq(input),
            op::QUERY_SRQ => self.query_srq(input),
            op::QUERY_RMP => self.query_rmp(input),
            op::ARM_XRC_SRQ | op::ARM_RQ => self.arm_srq(input),
            op::MODIFY_RMP => self.modify_rmp(input),
            op::CREATE_QP => self.create_qp(input),
            op::DESTROY_QP => self.destroy_qp(input),
            op::QUERY_QP => self.query_qp(input),
            op::RST2INIT_QP
            | op::INIT2INIT_QP
            | op::INIT2RTR_QP
            | op::RTR2RTS_QP
            | op::RTS2RTS_QP
            | op::SQERR2RTS_QP
            | op::SQD_RTS_QP
            | op::_2ERR_QP
            | op::_2RST_QP => self.modify_qp(opcode, input, now),
            op::ATTACH_TO_MCG => self.attach_to_mcg(input, true),
            op::DETACH_FROM_MCG => self.attach_to_mcg(input, false),
            _ => Err(Status::BadOp),
        }
    }
}
