// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about event queues.

use crate::engine::event::EventType;
use crate::engine::pci::VECTORS;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::eq::{Eq, EQE_SIZE};
use crate::mlx5::ifc::{create_eq_in, create_eq_out, destroy_eq_in, eqc, Bits};
use crate::mlx5::memory::Buffer;

/// EQ 0 has no doorbell that differs from an empty one.
const FIRST: u32 = 1;
const LIMIT: u32 = 1 << 6;

impl Hca {
    /// There is a queue for the ends of commands.
    pub fn command_events(&self) -> bool {
        self.card.events.queue_of(EventType::Cmd).is_some()
    }

    /// CREATE_EQ.
    pub fn create_eq(&mut self, input: &[u8]) -> Outcome {
        let get = |field| input.bits(create_eq_in::EQ_CONTEXT_ENTRY.part(field));
        let log_entries = get(eqc::LOG_EQ_SIZE) as u32;
        let list = input.get(create_eq_in::SIZE..).unwrap_or_default();
        let size = (EQE_SIZE as u64) << log_entries;
        let buffer = Buffer::of_queue(get(eqc::LOG_PAGE_SIZE) as u32, 0, list, size);
        let vector = get(eqc::INTR);
        if log_entries > 22 || vector >= u64::from(VECTORS) {
            return Err(Status::BadParam);
        }
        let eq = Eq {
            buffer: buffer.ok_or(Status::BadParam)?,
            log_entries,
            uar: get(eqc::UAR_PAGE) as u32,
            vector: vector as u8,
            mask: input.bits(create_eq_in::EVENT_BITMASK),
            producer: 0,
            consumer: 0,
            armed: false,
        };
        if !self.card.uars.contains(&eq.uar) {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!("UAR page {} of an EQ", eq.uar),
            );
        }
        let queues = std::mem::take(&mut self.card.events.queues);
        let eqn = (self.card).number(FIRST, LIMIT, |eqn| queues.contains_key(&eqn));
        self.card.events.queues = queues;
        let eqn = eqn.ok_or(Status::NoRes)?;
        self.card.events.queues.insert(eqn, eq);
        let mut out = vec![0; create_eq_out::SIZE];
        out.set_bits(create_eq_out::EQ_NUMBER, u64::from(eqn));
        Ok(out)
    }

    /// DESTROY_EQ.
    pub fn destroy_eq(&mut self, input: &[u8]) -> Outcome {
        let eqn = input.bits32(destroy_eq_in::EQ_NUMBER);
        if self.card.cqs.queues.values().any(|cq| cq.eqn == eqn) {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResBusy,
                format_args!("DESTROY_EQ of {eqn}, which CQs use"),
            );
        }
        match self.card.events.queues.remove(&eqn) {
            Some(_) => Ok(Vec::new()),
            None => Err(Status::Ix),
        }
    }
}
