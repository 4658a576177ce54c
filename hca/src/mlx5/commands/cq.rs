// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about completion queues.

use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::cq::{Arm, Cq, Entries};
use crate::mlx5::ifc::{
    cqc, create_cq_in, create_cq_out, destroy_cq_in, modify_cq_in, query_cq_in, query_cq_out, Bits,
};

const LIMIT: u32 = 1 << 16;
/// MODIFY_CQ: fields change, or the ring does (MLX5_CQ_OPMOD_RESIZE).
const MODIFY: u64 = 0;
const RESIZE: u64 = 1;
/// MLX5_MODIFY_CQ_MASK_LOG_SIZE, _PG_OFFSET and _PG_SIZE: what makes up a ring.
const RESIZE_FIELDS: u64 = 7;

impl Hca {
    /// CREATE_CQ.
    pub fn create_cq(&mut self, input: &[u8]) -> Outcome {
        let context = create_cq_in::CQ_CONTEXT.byte();
        let context = input.get(context..context.saturating_add(cqc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?;
        let list = input.get(create_cq_in::SIZE..).unwrap_or_default();
        let cq = Cq {
            ring: Entries::new(context, list).ok_or(Status::BadParam)?,
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

    /// MODIFY_CQ: moderation, which the model does not delay interrupts by, or resizing.
    pub fn modify_cq(&mut self, input: &[u8]) -> Outcome {
        let cqn = input.bits32(modify_cq_in::CQN);
        let cq = self.card.cqs.queues.get_mut(&cqn).ok_or(Status::Ix)?;
        match input.bits(modify_cq_in::OP_MOD) {
            MODIFY => return Ok(Vec::new()),
            RESIZE => {}
            _ => return Err(Status::BadOp),
        }
        let selected = input.bits(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT);
        let context = input.get(modify_cq_in::CQ_CONTEXT.byte()..);
        let context = context.ok_or(Status::BadInpLen)?;
        let list = input.get(modify_cq_in::SIZE..).unwrap_or_default();
        let ring = Entries::new(context, list).filter(|_| selected == RESIZE_FIELDS);
        cq.resize(&self.dma, ring.ok_or(Status::BadParam)?)?;
        for field in [
            cqc::LOG_CQ_SIZE,
            cqc::LOG_PAGE_SIZE,
            cqc::PAGE_OFFSET,
            cqc::CQE_SZ,
        ] {
            cq.context.copy_bits(context, field);
        }
        Ok(Vec::new())
    }
}
