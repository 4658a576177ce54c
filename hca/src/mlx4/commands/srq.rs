// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about shared receive queues.

use crate::engine::bytes::Fields;
use crate::engine::event::EventType;
use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Status};
use crate::mlx4::icm::Object;
use crate::mlx4::srq::{
    Srq, LOG_MAX_SRQS, LOG_RESERVED_SRQS, SRQC_LIMIT_WATERMARK, SRQC_WQE_CNT, SRQC_WQE_COUNTER,
};

impl Hca {
    /// SW2HW_SRQ.
    pub fn sw2hw_srq(&mut self, command: &Command) -> Outcome {
        let srqn = command.in_modifier;
        if srqn >> LOG_MAX_SRQS != 0 {
            return Err(Status::BadIndex);
        }
        if self.card.srqs.queues.contains_key(&srqn) {
            return Err(Status::BadResState);
        }
        if srqn >> LOG_RESERVED_SRQS == 0 {
            return self.refuse_command(
                Violation::ReservedSrqn,
                Status::BadResource,
                format_args!("SRQ {srqn:#x}"),
            );
        }
        let srq = Srq::new(self.mailbox(command)?).ok_or(Status::BadParam)?;
        if let Some(cqn) = srq.xrc_cqn().filter(|cqn| !self.card.cqs.contains(*cqn)) {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadResState,
                format_args!("CQ {cqn:#x} of SRQ {srqn:#x}"),
            );
        }
        self.dma.check_context(Object::Srq, srqn)?;
        self.card.srqs.queues.insert(srqn, srq);
        Ok(Output::None)
    }

    /// HW2SW_SRQ. With an output mailbox it returns the context.
    pub fn hw2sw_srq(&mut self, command: &Command) -> Outcome {
        let srqn = command.in_modifier;
        let user = self.qps.iter().find(|qp| qp.context.srqn() == Some(srqn));
        if let Some(qp) = user {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResourceBusy,
                format_args!("HW2SW_SRQ of {srqn:#x}, which QP {:#x} uses", qp.qpn),
            );
        }
        let srq = self
            .card
            .srqs
            .queues
            .remove(&srqn)
            .ok_or(Status::BadIndex)?;
        Ok(match command.opmod {
            0 if command.out_param != 0 => Output::Mailbox(srq.context.to_vec()),
            _ => Output::None,
        })
    }

    /// QUERY_SRQ.
    pub fn query_srq(&mut self, command: &Command) -> Outcome {
        let srq = self
            .card
            .srqs
            .queues
            .get(&command.in_modifier)
            .ok_or(Status::BadIndex)?;
        let mut context = srq.context;
        context.set_be16(SRQC_LIMIT_WATERMARK, srq.wqes.limit);
        context.set_be16(SRQC_WQE_CNT, srq.wqes.available(&self.dma)?);
        context.set_be16(SRQC_WQE_COUNTER, srq.wqes.taken);
        Ok(Output::Mailbox(context.to_vec()))
    }

    /// ARM_SRQ: the limit is in the low half of in_param.
    pub fn arm_srq(&mut self, command: &Command) -> Outcome {
        let srqn = command.in_modifier;
        let srq = self
            .card
            .srqs
            .queues
            .get_mut(&srqn)
            .ok_or(Status::BadIndex)?;
        let limit = command.in_param as u16;
        if limit > srq.wqes.places() {
            return self.refuse_command(
                Violation::SrqLimit,
                Status::BadParam,
                format_args!("{limit} of SRQ {srqn:#x}"),
            );
        }
        srq.wqes.limit = limit;
        self.check_srq_limit(srqn);
        Ok(Output::None)
    }

    /// Raises SRQ_LIMIT when SRQ `srqn` has passed its limit.
    pub fn check_srq_limit(&mut self, srqn: u32) {
        if let Some(srq) = self.card.srqs.queues.get_mut(&srqn) {
            if srq.wqes.limit_reached(&self.dma) {
                self.event(EventType::SrqLimit, srqn);
            }
        }
    }
}
