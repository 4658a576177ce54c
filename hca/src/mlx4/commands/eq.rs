// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about event queues.

use crate::engine::bytes::Fields;
use crate::engine::pci::VECTORS;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Status};
use crate::mlx4::eq::{
    Eq, EQC_FLAGS, EQC_INTR, EQC_LOG_EQ_SIZE, EQC_LOG_PAGE_SIZE, EQC_SIZE, EQE_OWNER, EQE_OWNER_HW,
    EQE_SIZE, EQ_STATE_ARMED, EQ_STATE_MASK, LOG_MAX_EQS, MAP_EQ_UNMAP,
};
use crate::mlx4::icm::{Buffer, Object};

impl Hca {
    /// MAP_EQ: maps asynchronous events to queues.
    pub fn map_eq(&mut self, command: &Command) -> Outcome {
        let eqn = command.in_modifier & 0x3ff;
        if !self.card.events.contains(eqn) {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadResState,
                format_args!("MAP_EQ to EQ {eqn}"),
            );
        }
        for kind in 0..64u8 {
            if command.in_param >> kind & 1 == 0 {
                continue;
            }
            if command.in_modifier & MAP_EQ_UNMAP != 0 {
                self.card.events.map.remove(&kind);
            } else {
                self.card.events.map.insert(kind, eqn);
            }
        }
        Ok(Output::None)
    }

    /// SW2HW_EQ: the queue becomes the device's, which stamps every entry as its own.
    pub fn sw2hw_eq(&mut self, command: &Command) -> Outcome {
        let eqn = command.in_modifier;
        if eqn >> LOG_MAX_EQS != 0 {
            return Err(Status::BadIndex);
        }
        if self.card.events.queues.contains_key(&eqn) {
            return Err(Status::BadResState);
        }
        let context: [u8; EQC_SIZE] = self.mailbox(command)?;
        let log_entries = context.get_u8(EQC_LOG_EQ_SIZE) & 0x1f;
        if log_entries > 22 {
            return Err(Status::BadParam);
        }
        let buffer = Buffer::of_context(&context, EQC_LOG_PAGE_SIZE).ok_or(Status::BadParam)?;
        let vector = context.get_u8(EQC_INTR);
        if u16::from(vector) >= VECTORS {
            return Err(Status::BadParam);
        }
        self.dma.check_context(Object::Eq, eqn)?;
        let entries = 1u32 << log_entries;
        let mut blank = [0; EQE_SIZE];
        blank.set_u8(EQE_OWNER, EQE_OWNER_HW);
        for index in 0..u64::from(entries) {
            buffer.write(&self.dma, index.wrapping_mul(EQE_SIZE as u64), &blank)?;
        }
        let eq = Eq {
            buffer,
            entries,
            vector,
            producer: 0,
            consumer: 0,
            armed: context.get_be32(EQC_FLAGS) & EQ_STATE_MASK == EQ_STATE_ARMED,
        };
        self.card.events.queues.insert(eqn, eq);
        Ok(Output::None)
    }

    /// HW2SW_EQ: the queue is the driver's again.
    pub fn hw2sw_eq(&mut self, command: &Command) -> Outcome {
        let eqn = command.in_modifier;
        let mapped = self.card.events.map.values().any(|queue| *queue == eqn);
        if mapped || self.card.cqs.of_eq(eqn).next().is_some() {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResourceBusy,
                format_args!("HW2SW_EQ of {eqn}, which CQs or events are mapped to"),
            );
        }
        match self.card.events.queues.remove(&eqn) {
            Some(_) => Ok(Output::None),
            None => Err(Status::BadIndex),
        }
    }
}
