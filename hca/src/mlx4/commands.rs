// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The time of commands in flight, and the table that sends each to the file of its object.
//!
//! A command takes effect when it ends. Without injected latency that is inside the register write
//! that posts it; with latency it waits on the [`crate::engine::schedule`], and in event mode
//! several wait at once.

use std::fmt::Arguments;
use std::time::Instant;

use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{
    opcode_name, Command, Opcode, Outcome, Output, Status, LOG_MAX_COMMANDS,
};
use crate::mlx4::icm::Object;
use crate::mlx4::uar::page_is_for_queues;

mod cq;
mod eq;
mod firmware;
mod mad;
mod mcg;
mod mpt;
mod qp;
mod srq;

impl Hca {
    /// Takes a command from the HCR: executes it, or lets it wait for its injected latency.
    pub fn post_command(&mut self, command: Command, now: Instant) {
        if self.faults.is_dead() {
            return;
        }
        let running = self.card.commands.len();
        if running >> LOG_MAX_COMMANDS != 0 {
            log::warn!("{running} commands in flight, refusing another");
            self.complete_command(&command, Err(Status::ResourceBusy));
            return;
        }
        match self.faults.command_deadline(command.opcode, now) {
            Some(deadline) => {
                let id = self.schedule.command_at(deadline);
                self.card.commands.insert(id, command);
                let running = self.card.commands.len() as u64;
                self.counters.max_commands_in_flight =
                    self.counters.max_commands_in_flight.max(running);
                if running > 1 {
                    self.counters.overlapping_commands =
                        self.counters.overlapping_commands.saturating_add(1);
                }
            }
            None => self.finish_command(&command, now),
        }
    }

    /// The latency of a waiting command has passed.
    pub fn command_due(&mut self, id: u64, now: Instant) {
        // A reset takes the commands in flight with it.
        if let Some(command) = self.card.commands.remove(&id) {
            self.finish_command(&command, now);
        }
    }

    fn finish_command(&mut self, command: &Command, now: Instant) {
        let outcome = match self.faults.command_status(command.opcode) {
            Some(number) => {
                self.counters.last_injected_failure = Some(opcode_name(command.opcode));
                Err(Status::try_from(number).unwrap_or(Status::InternalErr))
            }
            None => self.execute_command(command, now),
        };
        self.complete_command(command, outcome);
    }

    fn complete_command(&mut self, command: &Command, outcome: Outcome) {
        let outcome = outcome.and_then(|output| match output {
            Output::Mailbox(data) => {
                self.dma.memory.write(command.out_param, &data)?;
                Ok(None)
            }
            Output::Immediate(value) => Ok(Some(value)),
            Output::None => Ok(None),
        });
        let status = outcome.err().unwrap_or(Status::Ok);
        let immediate = outcome.ok().flatten();
        let name = opcode_name(command.opcode);
        log::debug!(
            "{name} mod {:#x}/{} param {:#x}: {status:?}",
            command.in_modifier,
            command.opmod,
            command.in_param
        );
        self.counters.count_command(name, status.into());
        if command.event {
            self.card
                .events
                .command(&self.dma, command.token, status, immediate);
        } else {
            self.card.hcr.finish(status, immediate);
        }
    }

    /// The input mailbox, as much of it as the command defines.
    pub fn mailbox<const N: usize>(&self, command: &Command) -> Result<[u8; N], Status> {
        Ok(self.dma.memory.block(command.in_param)?)
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

    /// The device is given an object that is rung from this doorbell page.
    pub fn check_uar_page(&self, object: Object, number: u32, page: u32) -> Result<(), Status> {
        if page_is_for_queues(page) {
            return Ok(());
        }
        self.refuse_command(
            Violation::UarPage,
            Status::BadResource,
            format_args!("{object:?} {number:#x} of UAR page {page}"),
        )
    }

    fn execute_command(&mut self, command: &Command, now: Instant) -> Outcome {
        use Opcode::*;
        let opcode = Opcode::try_from(command.opcode).map_err(|_| Status::BadOp)?;
        let phase = self.phase();
        if !opcode.phases().contains(&phase) {
            return self.refuse_command(
                Violation::CommandOrder,
                Status::BadSysState,
                format_args!("{} of a device that is {phase:?}", opcode.name()),
            );
        }
        match opcode {
            QUERY_FW => self.query_fw(),
            QUERY_DEV_CAP => self.query_dev_cap(),
            QUERY_ADAPTER => self.query_adapter(),
            QUERY_PORT => self.query_port(command),
            MOD_STAT_CFG => self.mod_stat_cfg(command),
            SET_ICM_SIZE => self.set_icm_size(command),
            INIT_HCA => self.init_hca(command),
            CLOSE_HCA => self.close_hca(),
            QUERY_HCA => self.query_hca(),
            MAP_ICM => self.map_icm(command),
            UNMAP_ICM => self.unmap_icm(command),
            MAP_FA => self.map_fa(command),
            UNMAP_FA => self.unmap_fa(),
            RUN_FW => self.run_fw(),
            MAP_ICM_AUX => self.map_icm_aux(command),
            UNMAP_ICM_AUX => self.unmap_icm_aux(),
            INIT_PORT => self.init_port(command),
            CLOSE_PORT => self.close_port(command),
            SET_PORT => self.set_port_attributes(command),
            NOP => Ok(Output::None),
            SET_NODE => self.set_node(command),
            CONF_SPECIAL_QP => self.conf_special_qp(command),
            DIAG_RPRT => self.diag_rprt(),
            MAD_IFC => self.mad_ifc(command),
            MAP_EQ => self.map_eq(command),
            SW2HW_EQ => self.sw2hw_eq(command),
            HW2SW_EQ => self.hw2sw_eq(command),
            SW2HW_CQ => self.sw2hw_cq(command),
            HW2SW_CQ => self.hw2sw_cq(command),
            QUERY_CQ => self.query_cq(command),
            MODIFY_CQ => self.modify_cq(command),
            SW2HW_SRQ => self.sw2hw_srq(command),
            HW2SW_SRQ => self.hw2sw_srq(command),
            QUERY_SRQ => self.query_srq(command),
            ARM_SRQ => self.arm_srq(command),
            SW2HW_MPT => self.sw2hw_mpt(command),
            HW2SW_MPT => self.hw2sw_mpt(command),
            QUERY_MPT => self.query_mpt(command),
            SYNC_TPT => self.sync_tpt(),
            READ_MCG => self.read_mcg(command),
            WRITE_MCG => self.write_mcg(command),
            MGID_HASH => self.mgid_hash(command),
            QUERY_QP => self.query_qp(command),
            RST2INIT_QP | INIT2INIT_QP | INIT2RTR_QP | RTR2RTS_QP | RTS2RTS_QP | SQERR2RTS_QP
            | RTS2SQD_QP | SQD2SQD_QP | SQD2RTS_QP | _2ERR_QP | _2RST_QP => {
                self.modify_qp(opcode, command, now)
            }
        }
    }
}
