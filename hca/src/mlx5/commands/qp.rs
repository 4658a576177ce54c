// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about queue pairs.

use std::time::Instant;

use crate::engine::qp::Context as _;
use crate::engine::transport::{Migration, Service, State};
use crate::engine::violation::Violation;
use crate::mlx5::card::{Hca, Qp};
use crate::mlx5::command::{opcode_name, Outcome, Status};
use crate::mlx5::ifc::{
    attach_to_mcg_in, create_qp_in, create_qp_out, destroy_qp_in, init2rtr_qp_in, op, qpc,
    query_qp_in, query_qp_out, Bits,
};
use crate::mlx5::qpc::Context;
use crate::mlx5::queues::Queues;

const FIRST: u32 = 0x41;
const LIMIT: u32 = 1 << 17;

fn context(input: &[u8], at: usize) -> Result<Context, Status> {
    let bytes = input.get(at..at.saturating_add(qpc::SIZE));
    Ok(Context::new(bytes.ok_or(Status::BadInpLen)?))
}

impl Hca {
    /// CREATE_QP: the QP is in RESET.
    pub fn create_qp(&mut self, input: &[u8]) -> Outcome {
        let context = context(input, create_qp_in::QPC.byte())?;
        let service = context.service().ok_or(Status::BadParam)?;
        let list = input.get(create_qp_in::SIZE..).unwrap_or_default();
        let queues = Queues::new(&context, list).ok_or(Status::BadParam)?;
        // That for registrations has none.
        if !context.registers_memory() {
            self.check_pd(context.pd())?;
        }
        self.check_domain(service, &context)?;
        let cqs = [context.cqn_send(), context.cqn_recv()];
        let unknown_cq =
            (cqs.into_iter()).find(|cqn| *cqn != 0 && !self.card.cqs.queues.contains_key(cqn));
        let srqn = context.srqn();
        let unknown_srq = srqn.filter(|srqn| !self.card.srqs.queues.contains_key(srqn));
        if unknown_cq.is_some() || unknown_srq.is_some() {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!("a QP of CQ {unknown_cq:x?}, SRQ {unknown_srq:x?}"),
            );
        }
        let qps = std::mem::take(&mut self.qps);
        let qpn = self.card.number(FIRST, LIMIT, |qpn| qps.get(qpn).is_some());
        self.qps = qps;
        let qpn = qpn.ok_or(Status::NoRes)?;
        if let Some(special) = context.special() {
            if let Some(place) = self.card.specials.get_mut(special as usize) {
                *place = Some(qpn);
            }
        }
        let mut qp = Qp::new(qpn, service, context, queues);
        qp.set_state(State::Rst);
        self.qps.insert(qp);
        let mut out = vec![0; create_qp_out::SIZE];
        out.set_bits(create_qp_out::QPN, u64::from(qpn));
        Ok(out)
    }

    /// A target names an XRC domain that is there; any other QP, the UAR page of its doorbell.
    fn check_domain(&self, service: Service, context: &Context) -> Result<(), Status> {
        let (known, what, number) = match (service, context.has_no_sq()) {
            (Service::Xrc, true) => {
                let xrcd = context.xrcd();
                (self.card.xrcds.contains(&xrcd), "XRC domain", xrcd)
            }
            (_, true) => return Ok(()),
            (_, false) => {
                let page = context.uar_page();
                (self.card.uars.contains(&page), "UAR page", page)
            }
        };
        match known {
            true => Ok(()),
            false => self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!("a QP of {what} {number:#x}"),
            ),
        }
    }

    /// DESTROY_QP.
    pub fn destroy_qp(&mut self, input: &[u8]) -> Outcome {
        let qpn = input.bits32(destroy_qp_in::QPN);
        self.qps.remove(qpn).ok_or(Status::Ix)?;
        for special in &mut self.card.specials {
            *special = special.filter(|special| *special != qpn);
        }
        Ok(Vec::new())
    }

    /// QUERY_QP.
    pub fn query_qp(&mut self, input: &[u8]) -> Outcome {
        let qp = self.qps.get(input.bits32(query_qp_in::QPN));
        let mut out = vec![0; query_qp_out::QPC.byte()];
        out.extend_from_slice(qp.ok_or(Status::Ix)?.context.bytes());
        Ok(out)
    }

    /// The commands that move a QP from state to state.
    pub fn modify_qp(&mut self, opcode: u16, input: &[u8], now: Instant) -> Outcome {
        let qpn = input.bits32(init2rtr_qp_in::QPN);
        let qp = self.qps.get_mut(qpn).ok_or(Status::Ix)?;
        match opcode {
            op::_2RST_QP => {
                let mut fresh = Qp::new(qpn, qp.service, qp.context.clone(), qp.queues.emptied());
                fresh.set_state(State::Rst);
                *qp = fresh;
                return Ok(Vec::new());
            }
            op::_2ERR_QP => {
                self.enter_error(qpn, now);
                return Ok(Vec::new());
            }
            _ => {}
        }
        let (from, to): (&[State], State) = match opcode {
            op::RST2INIT_QP => (&[State::Rst], State::Init),
            op::INIT2INIT_QP => (&[State::Init], State::Init),
            op::INIT2RTR_QP => (&[State::Init], State::Rtr),
            op::RTR2RTS_QP => (&[State::Rtr], State::Rts),
            op::RTS2RTS_QP => (&[State::Rts], State::Rts),
            op::SQERR2RTS_QP => (&[State::Sqer], State::Rts),
            op::SQD_RTS_QP => (&[State::Sqd, State::SqDraining], State::Rts),
            _ => return Err(Status::BadOp),
        };
        if !from.contains(&qp.state) {
            return Err(Status::BadQpState);
        }
        let new = context(input, init2rtr_qp_in::QPC.byte())?;
        let connects = opcode == op::INIT2RTR_QP && qp.service.connected();
        if connects && (new.path_mtu().is_none() || !new.max_message_exists()) {
            return self.refuse_command(
                Violation::Mtu,
                Status::BadParam,
                format_args!("{} of QP {qpn:#x}", opcode_name(opcode)),
            );
        }
        let before = qp.context.migration();
        match opcode {
            op::RST2INIT_QP => qp.context.initialise(&new),
            op::INIT2RTR_QP => qp.context.connect(&new),
            op::RTR2RTS_QP => qp.context.start_sending(&new),
            _ => {}
        }
        qp.context
            .apply(&new, input.bits32(init2rtr_qp_in::OPT_PARAM_MASK));
        qp.set_state(to);
        let migrate = to == State::Rts
            && before == Migration::Armed
            && qp.context.migration() == Migration::Migrated;
        if migrate {
            self.migrate(qpn);
        }
        self.schedule.queue(qpn);
        Ok(Vec::new())
    }

    /// ATTACH_TO_MCG and DETACH_FROM_MCG.
    pub fn attach_to_mcg(&mut self, input: &[u8], attach: bool) -> Outcome {
        let qpn = input.bits32(attach_to_mcg_in::QPN);
        let gid = input.get(attach_to_mcg_in::MULTICAST_GID.byte()..);
        let gid = gid.and_then(|gid| gid.first_chunk());
        let member = (*gid.ok_or(Status::BadInpLen)?, qpn);
        let changed = match attach {
            true => self.card.groups.insert(member),
            false => self.card.groups.remove(&member),
        };
        match changed {
            true => Ok(Vec::new()),
            false => Err(Status::BadParam),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::ifc::Field;

    const PD: u32 = 1;
    const XRCD: u32 = 2;
    const PAGE: u32 = 5;

    fn create(fields: &[(Field, u32)]) -> (Result<(), Status>, Vec<Violation>) {
        let mut hca = Hca::new(0);
        hca.card.pds.insert(PD);
        hca.card.xrcds.insert(XRCD);
        hca.card.uars.insert(PAGE);
        let mut input = vec![0; create_qp_in::SIZE];
        for (field, value) in [&[(qpc::PD, PD), (qpc::RQ_TYPE, 3)], fields].concat() {
            input.set_bits(create_qp_in::QPC.part(field), u64::from(value));
        }
        // The page of its queues.
        input.extend_from_slice(&0x10_0000u64.to_be_bytes());
        let created = hca.create_qp(&input).map(|_| ());
        (created, hca.dma.violations.take())
    }

    #[test]
    fn a_target_names_a_domain_that_exists() {
        let target = |xrcd| create(&[(qpc::ST, 3), (qpc::NO_SQ, 1), (qpc::XRCD, xrcd)]);
        assert_eq!(target(XRCD), (Ok(()), vec![]));
        let refused = (Err(Status::BadRes), vec![Violation::UnknownObject]);
        assert_eq!(target(XRCD + 1), refused);
    }

    #[test]
    fn a_qp_that_sends_names_a_page_that_exists() {
        assert_eq!(create(&[(qpc::UAR_PAGE, PAGE)]), (Ok(()), vec![]));
        let refused = (Err(Status::BadRes), vec![Violation::UnknownObject]);
        assert_eq!(create(&[(qpc::UAR_PAGE, PAGE + 1)]), refused);
    }
}
