// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about completion queues.

use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::cq::{Arm, Cq, CQE_SIZE};
use crate::mlx5::ifc::{
    cqc, create_cq_in, create_cq_out, destroy_cq_in, modify_cq_in, query_cq_in, query_cq_out, Bits,
};
use crate::mlx5::memory::Buffer;

const LIMIT: u32 = 1 << 16;
const LOG_MAX_ENTRIES: u32 = 20;

impl Hca {
    /// CREATE_CQ.
    pub fn create_cq(&mut self, input: &[u8]) -> Outcome {
        let context = create_cq_in::CQ_CONTEXT.byte();
        let context = input.get(context..context.saturating_add(cqc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?;
        let log_entries = context.bits32(cqc::LOG_CQ_SIZE);
        let stride = match context.bits(cqc::CQE_SZ) {
            0 => CQE_SIZE,
            1 => 2 * CQE_SIZE,
            _ => return Err(Status::BadParam),
        };
        if log_entries > LOG_MAX_ENTRIES {
            return Err(Status::BadParam);
        }
        let buffer = Buffer::of_queue(
            context.bits32(cqc::LOG_PAGE_SIZE),
            context.bits(cqc::PAGE_OFFSET),
            input.get(create_cq_in::SIZE..).unwrap_or_default(),
            (stride as u64) << log_entries,
        );
        let cq = Cq {
            buffer: buffer.ok_or(Status::BadParam)?,
            log_entries,
            stride,
            eqn: context.bits32(cqc::C_EQN_OR_APU_ELEMENT),
            uar: context.bits32(cqc::UAR_PAGE),
            doorbell: context.bits(cqc::DBR_ADDR) & !7,
            ignores_overrun: context.flag(cqc::OI),
            producer: 0,
            consumer: 0,
            arm: Arm::Nothing,
            broken: false,
            context: context.to_vec(),
        };
        if !self.card.events.queues.contains_key(&cq.eqn) || !self.card.uars.contains(&cq.uar) {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!("EQ {} or UAR page {} of a CQ", cq.eqn, cq.uar),
            );
        }
        let queues = std::mem::take(&mut self.card.cqs.queues);
        let cqn = self.card.number(1, LIMIT, |cqn| queues.contains_key(&cqn));
        self.card.cqs.queues = queues;
        let cqn = cqn.ok_or(Status::NoRes)?;
        self.card.cqs.queues.insert(cqn, cq);
        let mut out = vec![0; create_cq_out::SIZE];
        out.set_bits(create_cq_out::CQN, u64::from(cqn));
        Ok(out)
    }

    /// DESTROY_CQ.
    pub fn destroy_cq(&mut self, input: &[u8]) -> Outcome {
        let cqn = input.bits32(destroy_cq_in::CQN);
        let by_qp = (self.qps.iter())
            .any(|qp| qp.context.cqn_send() == cqn || qp.context.cqn_recv() == cqn);
        let mut srqs = self.card.srqs.queues.values();
        if by_qp || srqs.any(|srq| srq.xrcd != 0 && srq.cqn == cqn) {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResBusy,
                format_args!("DESTROY_CQ of {cqn:#x}, which queues use"),
            );
        }
        match self.card.cqs.queues.remove(&cqn) {
            Some(_) => Ok(Vec::new()),
            None => Err(Status::Ix),
        }
    }

    /// QUERY_CQ.
    pub fn query_cq(&mut self, input: &[u8]) -> Outcome {
        let cqn = input.bits32(query_cq_in::CQN);
        let cq = self.card.cqs.queues.get(&cqn).ok_or(Status::Ix)?;
        let mut out = vec![0; query_cq_out::CQ_CONTEXT.byte()];
        let mut context = cq.context.clone();
        context.set_bits(cqc::CONSUMER_COUNTER, u64::from(cq.consumer));
        context.set_bits(cqc::PRODUCER_COUNTER, u64::from(cq.producer));
        out.extend_from_slice(&context);
        Ok(out)
    }

    /// MODIFY_CQ: moderation, which the model does not delay interrupts by. Resizing is not
    /// announced.
    pub fn modify_cq(&mut self, input: &[u8]) -> Outcome {
        let cqn = input.bits32(modify_cq_in::CQN);
        if !self.card.cqs.queues.contains_key(&cqn) {
            return Err(Status::Ix);
        }
        match input.bits(modify_cq_in::OP_MOD) {
            0 => Ok(Vec::new()),
            _ => Err(Status::BadOp),
        }
    }
}
