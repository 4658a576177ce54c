// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about shared receive queues.

use crate::engine::event::EventType;
use crate::engine::qp::Context;
use crate::engine::shared_queue::SharedQueue;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::ifc::{
    arm_xrc_srq_in, create_rmp_in, create_srq_in, create_xrc_srq_in, create_xrc_srq_out,
    destroy_xrc_srq_in, modify_rmp_in, query_rmp_out, query_srq_out, query_xrc_srq_in,
    query_xrc_srq_out, rmpc, srqc, wq, xrc_srqc, Bits,
};
use crate::mlx5::memory::Buffer;
use crate::mlx5::srq::{Kind, Srq};

const LIMIT: u32 = 1 << 16;
const LOG_MAX_WQES: u32 = 15;

/// The members that the contexts of all kinds have.
struct Layout {
    kind: Kind,
    context: Vec<u8>,
    log_wqes: u32,
    log_stride: u32,
    log_page: u32,
    offset: u64,
    doorbell: u64,
    xrcd: u32,
    pd: u32,
    cqn: u32,
}

impl Hca {
    fn add_srq(&mut self, layout: Layout, list: &[u8]) -> Outcome {
        if layout.log_wqes > LOG_MAX_WQES || layout.log_stride > 12 {
            return Err(Status::BadParam);
        }
        let stride = 1usize << layout.log_stride;
        let size = (stride as u64) << layout.log_wqes;
        let buffer = Buffer::of_queue(layout.log_page, layout.offset, list, size);
        self.check_pd(layout.pd)?;
        let xrc = layout.kind == Kind::Xrc;
        let known = self.card.cqs.queues.contains_key(&layout.cqn)
            && self.card.xrcds.contains(&layout.xrcd);
        if xrc && !known {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!(
                    "CQ {:#x} or XRC domain {} of an SRQ",
                    layout.cqn, layout.xrcd
                ),
            );
        }
        let srq = Srq {
            kind: layout.kind,
            buffer: buffer.ok_or(Status::BadParam)?,
            wqes: SharedQueue::new(layout.log_wqes, stride, layout.doorbell),
            xrcd: if xrc { layout.xrcd } else { 0 },
            pd: layout.pd,
            cqn: layout.cqn,
            context: layout.context,
        };
        let queues = std::mem::take(&mut self.card.srqs.queues);
        let srqn = self
            .card
            .number(1, LIMIT, |srqn| queues.contains_key(&srqn));
        self.card.srqs.queues = queues;
        let srqn = srqn.ok_or(Status::NoRes)?;
        self.card.srqs.queues.insert(srqn, srq);
        let mut out = vec![0; create_xrc_srq_out::SIZE];
        // The number is at the same place for all kinds.
        out.set_bits(create_xrc_srq_out::XRC_SRQN, u64::from(srqn));
        Ok(out)
    }

    /// CREATE_XRC_SRQ.
    pub fn create_xrc_srq(&mut self, input: &[u8]) -> Outcome {
        let at = create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY.byte();
        let context = input.get(at..at.saturating_add(xrc_srqc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?;
        let high = context.bits(xrc_srqc::DB_RECORD_ADDR_H);
        let layout = Layout {
            kind: Kind::Xrc,
            log_wqes: context.bits32(xrc_srqc::LOG_XRC_SRQ_SIZE),
            log_stride: context.bits32(xrc_srqc::LOG_RQ_STRIDE).saturating_add(4),
            log_page: context.bits32(xrc_srqc::LOG_PAGE_SIZE),
            offset: context.bits(xrc_srqc::PAGE_OFFSET),
            doorbell: high << 32 | context.bits(xrc_srqc::DB_RECORD_ADDR_L) << 2,
            xrcd: context.bits32(xrc_srqc::XRCD),
            pd: context.bits32(xrc_srqc::PD),
            cqn: context.bits32(xrc_srqc::CQN),
            context: context.to_vec(),
        };
        self.add_srq(
            layout,
            input.get(create_xrc_srq_in::SIZE..).unwrap_or_default(),
        )
    }

    /// CREATE_SRQ, of drivers that have set no ISSI.
    pub fn create_srq(&mut self, input: &[u8]) -> Outcome {
        let at = create_srq_in::SRQ_CONTEXT_ENTRY.byte();
        let context = input.get(at..at.saturating_add(srqc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?;
        let layout = Layout {
            kind: Kind::Srq,
            log_wqes: context.bits32(srqc::LOG_SRQ_SIZE),
            log_stride: context.bits32(srqc::LOG_RQ_STRIDE).saturating_add(4),
            log_page: context.bits32(srqc::LOG_PAGE_SIZE),
            offset: context.bits(srqc::PAGE_OFFSET),
            doorbell: context.bits(srqc::DBR_ADDR),
            xrcd: 0,
            pd: context.bits32(srqc::PD),
            cqn: 0,
            context: context.to_vec(),
        };
        self.add_srq(layout, input.get(create_srq_in::SIZE..).unwrap_or_default())
    }

    /// CREATE_RMP.
    pub fn create_rmp(&mut self, input: &[u8]) -> Outcome {
        let at = create_rmp_in::CTX.byte();
        let context = input.get(at..at.saturating_add(rmpc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?;
        let get = |field| context.bits(rmpc::WQ.part(field));
        let layout = Layout {
            kind: Kind::Rmp,
            log_wqes: get(wq::LOG_WQ_SZ) as u32,
            log_stride: get(wq::LOG_WQ_STRIDE) as u32,
            log_page: get(wq::LOG_WQ_PG_SZ) as u32,
            offset: get(wq::PAGE_OFFSET),
            doorbell: get(wq::DBR_ADDR),
            xrcd: 0,
            pd: get(wq::PD) as u32,
            cqn: 0,
            context: context.to_vec(),
        };
        self.add_srq(layout, input.get(create_rmp_in::SIZE..).unwrap_or_default())
    }

    /// DESTROY_XRC_SRQ, DESTROY_SRQ and DESTROY_RMP, whose number is at the same place.
    pub fn destroy_srq(&mut self, input: &[u8]) -> Outcome {
        let srqn = input.bits32(destroy_xrc_srq_in::XRC_SRQN);
        if self.qps.iter().any(|qp| qp.context.srqn() == Some(srqn)) {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResBusy,
                format_args!("SRQ {srqn:#x} is destroyed, which QPs use"),
            );
        }
        match self.card.srqs.queues.remove(&srqn) {
            Some(_) => Ok(Vec::new()),
            None => Err(Status::Ix),
        }
    }

    fn srq(&self, input: &[u8], kind: Kind) -> Result<&Srq, Status> {
        let srqn = input.bits32(query_xrc_srq_in::XRC_SRQN);
        let srq = self.card.srqs.queues.get(&srqn);
        srq.filter(|srq| srq.kind == kind).ok_or(Status::Ix)
    }

    /// QUERY_XRC_SRQ.
    pub fn query_xrc_srq(&mut self, input: &[u8]) -> Outcome {
        let srq = self.srq(input, Kind::Xrc)?;
        let mut out = vec![0; query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY.byte()];
        let mut context = srq.context.clone();
        context.set_bits(xrc_srqc::LWM, u64::from(srq.wqes.limit));
        context.set_bits(xrc_srqc::WQE_CNT, u64::from(srq.wqes.available(&self.dma)?));
        out.extend_from_slice(&context);
        Ok(out)
    }

    /// QUERY_SRQ.
    pub fn query_srq(&mut self, input: &[u8]) -> Outcome {
        let srq = self.srq(input, Kind::Srq)?;
        let mut out = vec![0; query_srq_out::SRQ_CONTEXT_ENTRY.byte()];
        let mut context = srq.context.clone();
        context.set_bits(srqc::LWM, u64::from(srq.wqes.limit));
        context.set_bits(srqc::WQE_CNT, u64::from(srq.wqes.available(&self.dma)?));
        out.extend_from_slice(&context);
        Ok(out)
    }

    /// QUERY_RMP.
    pub fn query_rmp(&mut self, input: &[u8]) -> Outcome {
        let srq = self.srq(input, Kind::Rmp)?;
        let mut out = vec![0; query_rmp_out::RMP_CONTEXT.byte()];
        let mut context = srq.context.clone();
        context.set_bits(rmpc::WQ.part(wq::LWM), u64::from(srq.wqes.limit));
        out.extend_from_slice(&context);
        Ok(out)
    }

    /// ARM_XRC_SRQ and ARM_RQ, whose fields are at the same place.
    pub fn arm_srq(&mut self, input: &[u8]) -> Outcome {
        let srqn = input.bits32(arm_xrc_srq_in::XRC_SRQN);
        self.set_limit(srqn, input.bits(arm_xrc_srq_in::LWM) as u16)
    }

    /// MODIFY_RMP: the limit is all that changes.
    pub fn modify_rmp(&mut self, input: &[u8]) -> Outcome {
        let srqn = input.bits32(modify_rmp_in::RMPN);
        let lwm = modify_rmp_in::CTX.part(rmpc::WQ).part(wq::LWM);
        self.set_limit(srqn, input.bits(lwm) as u16)
    }

    fn set_limit(&mut self, srqn: u32, limit: u16) -> Outcome {
        let srq = self.card.srqs.queues.get_mut(&srqn).ok_or(Status::Ix)?;
        if limit > srq.wqes.places() {
            return self.refuse_command(
                Violation::SrqLimit,
                Status::BadParam,
                format_args!("{limit} of SRQ {srqn:#x}"),
            );
        }
        srq.wqes.limit = limit;
        self.check_srq_limit(srqn);
        Ok(Vec::new())
    }

    /// Raises SRQ_RQ_LIMIT when SRQ `srqn` has passed its limit.
    pub fn check_srq_limit(&mut self, srqn: u32) {
        if let Some(srq) = self.card.srqs.queues.get_mut(&srqn) {
            if srq.wqes.limit_reached(&self.dma) {
                self.event(EventType::SrqLimit, srqn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRQN: u32 = 3;

    #[test]
    fn a_limit_is_one_that_the_srq_can_pass() {
        let arm = |limit: u16| {
            let mut hca = Hca::new(0);
            hca.write_config(4, &[0x06, 0x04]);
            let srq = Srq {
                kind: Kind::Xrc,
                context: Vec::new(),
                buffer: Buffer::default(),
                wqes: SharedQueue::new(4, 32, 0),
                xrcd: 1,
                pd: 1,
                cqn: 1,
            };
            hca.card.srqs.queues.insert(SRQN, srq);
            let mut input = vec![0; arm_xrc_srq_in::SIZE];
            input.set_bits(arm_xrc_srq_in::XRC_SRQN, u64::from(SRQN));
            input.set_bits(arm_xrc_srq_in::LWM, u64::from(limit));
            let armed = hca.arm_srq(&input).map(|_| ());
            (armed, hca.dma.violations.take())
        };
        assert_eq!(arm(15), (Ok(()), vec![]));
        let refused = (Err(Status::BadParam), vec![Violation::SrqLimit]);
        assert_eq!(arm(16), refused);
    }
}
