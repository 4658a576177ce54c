// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about completion queues.

use crate::engine::bytes::Fields;
use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Status};
use crate::mlx4::cq::{
    entry, Cq, CQC_CONSUMER_INDEX, CQC_PRODUCER_INDEX, CQC_SIZE, CQE_OPCODE_RESIZE, LOG_MAX_CQS,
    LOG_RESERVED_CQS, MODIFY_CQ_MODERATION, MODIFY_CQ_RESIZE,
};
use crate::mlx4::icm::Object;

impl Hca {
    /// SW2HW_CQ: the queue becomes the device's. Modifier 1: the driver has stamped it already.
    pub fn sw2hw_cq(&mut self, command: &Command) -> Outcome {
        let cqn = command.in_modifier;
        if cqn >> LOG_MAX_CQS != 0 {
            return Err(Status::BadIndex);
        }
        if self.card.cqs.queues.contains_key(&cqn) {
            return Err(Status::BadResState);
        }
        if cqn >> LOG_RESERVED_CQS == 0 {
            return self.refuse_command(
                Violation::ReservedCqn,
                Status::BadResource,
                format_args!("CQ {cqn:#x}"),
            );
        }
        let cq = Cq::new(self.mailbox(command)?).ok_or(Status::BadParam)?;
        if !self.card.events.contains(cq.eqn) {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadResState,
                format_args!("EQ {} of CQ {cqn:#x}", cq.eqn),
            );
        }
        self.check_uar_page(Object::Cq, cqn, cq.uar_page())?;
        self.dma.check_context(Object::Cq, cqn)?;
        if command.opmod == 0 {
            cq.stamp(&self.dma)?;
        }
        self.card.cqs.queues.insert(cqn, cq);
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
        let cq = self.card.cqs.queues.remove(&cqn).ok_or(Status::BadIndex)?;
        Ok(match command.opmod {
            0 => Output::Mailbox(cq.context.to_vec()),
            _ => Output::None,
        })
    }

    /// QUERY_CQ.
    pub fn query_cq(&mut self, command: &Command) -> Outcome {
        let cq = self
            .card
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
            .card
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
                cq.write(&self.dma, entry(0, 0, CQE_OPCODE_RESIZE))?;
                cq.buffer = buffer;
                cq.entries = entries;
                cq.stamp(&self.dma)?;
                Ok(Output::None)
            }
            _ => Err(Status::BadParam),
        }
    }

    /// The objects that put completions into CQ `cqn`.
    fn cq_users(&self, cqn: u32) -> impl Iterator<Item = (Object, u32)> + '_ {
        let qps = self
            .qps
            .iter()
            .filter(move |qp| qp.context.cqn_send() == cqn || qp.context.cqn_recv() == cqn);
        let srqs = self
            .card
            .srqs
            .iter()
            .filter(move |(_, srq)| srq.xrc_cqn() == Some(cqn));
        (qps.map(|qp| (Object::Qp, qp.qpn))).chain(srqs.map(|(srqn, _)| (Object::Srq, srqn)))
    }
}
