// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about queue pairs.

use std::time::Instant;

use crate::engine::qp::Context as _;
use crate::engine::transport::{Migration, Service, State};
use crate::engine::violation::Violation;
use crate::mlx5::card::{Hca, Qp};
use crate::mlx5::command::{opcode_name, Outcome, Status};
use crate::mlx5::commands::port::{GIDS, PKEYS};
use crate::mlx5::ifc::{
    attach_to_mcg_in, create_qp_in, create_qp_out, destroy_qp_in, init2rtr_qp_in, op, qpc,
    query_qp_in, query_qp_out, Bits,
};
use crate::mlx5::qpc::{Context, Step, LOG_MAX_READS};
use crate::mlx5::queues::{Queues, LOG_MAX_WQES};
use crate::mlx5::srq::Kind;

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
        if context.log_most_wqes() > LOG_MAX_WQES {
            return self.refuse_command(
                Violation::QueueSize,
                Status::Lim,
                format_args!("a QP of 2^{} WQEs", context.log_most_wqes()),
            );
        }
        let list = input.get(create_qp_in::SIZE..).unwrap_or_default();
        let queues = Queues::new(&context, list).ok_or(Status::BadParam)?;
        // That for registrations has none.
        if !context.registers_memory() {
            self.check_pd(context.pd())?;
        }
        self.check_domain(service, &context)?;
        self.check_special(&context)?;
        self.check_queues(service, &context)?;
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

    /// A QP names CQs that are there, and an SRQ of its service.
    fn check_queues(&self, service: Service, context: &Context) -> Result<(), Status> {
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
        // The context of an XRC QP has an SRQ too (mlx5_ib sets one), but of no meaning.
        let srq = srqn.and_then(|srqn| self.card.srqs.queues.get(&srqn));
        if srq.is_some_and(|srq| srq.kind == Kind::Xrc) {
            return self.refuse_command(
                Violation::SrqService,
                Status::BadParam,
                format_args!("a QP of service {service:?}: SRQ {srqn:x?}"),
            );
        }
        Ok(())
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

    /// There is one QP0, and one QP1.
    fn check_special(&self, context: &Context) -> Result<(), Status> {
        let special = context.special();
        let place = special.and_then(|special| self.card.specials.get(special as usize));
        match place.copied().flatten() {
            None => Ok(()),
            Some(qpn) => self.refuse_command(
                Violation::SpecialService,
                Status::BadParam,
                format_args!("another QP{} than {qpn:#x}", special.unwrap_or_default()),
            ),
        }
    }

    /// DESTROY_QP.
    pub fn destroy_qp(&mut self, input: &[u8]) -> Outcome {
        let qpn = input.bits32(destroy_qp_in::QPN);
        self.qps.remove(qpn).ok_or(Status::Ix)?;
        let members = self.card.groups.len();
        self.card.groups.retain(|(_, member)| *member != qpn);
        if self.card.groups.len() != members {
            self.dma.violations.note(
                Violation::MemberDestroyed,
                format_args!("DESTROY_QP of {qpn:#x}, which is in a multicast group"),
            );
        }
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
        let step = Step::new(opcode, qp.service).ok_or(Status::BadOp)?;
        if !step.from.contains(&qp.state) {
            // A QP enters these by itself, before the driver knows it. And the driver believes a
            // process that names the state before the transition (IB_QP_CUR_STATE), which
            // ib_core allows with these commands alone.
            let is_claimed =
                !matches!(opcode, op::RST2INIT_QP | op::INIT2INIT_QP | op::INIT2RTR_QP);
            if is_claimed || matches!(qp.state, State::Err | State::Sqer) {
                return Err(Status::BadQpState);
            }
            let state = qp.state;
            return self.refuse_command(
                Violation::Transition,
                Status::BadQpState,
                format_args!("{} of QP {qpn:#x} in {state:?}", opcode_name(opcode)),
            );
        }
        let new = context(input, init2rtr_qp_in::QPC.byte())?;
        let asked = input.bits32(init2rtr_qp_in::OPT_PARAM_MASK);
        self.check_reads(opcode, qpn, &new)?;
        self.check_paths(opcode, qpn, &new, asked)?;
        let foreign = asked & !step.optional;
        if foreign != 0 {
            self.dma.violations.note(
                Violation::OptionalParameter,
                format_args!("{} of QP {qpn:#x}: {foreign:#x}", opcode_name(opcode)),
            );
        }
        let qp = self.qps.get_mut(qpn).ok_or(Status::Ix)?;
        let before = qp.context.migration();
        match opcode {
            op::RST2INIT_QP => qp.context.initialise(&new),
            op::INIT2RTR_QP => qp.context.connect(&new),
            op::RTR2RTS_QP => qp.context.start_sending(&new),
            _ => {}
        }
        qp.context.apply(&new, asked & step.optional);
        qp.set_state(step.to);
        let migrate = step.to == State::Rts
            && before == Migration::Armed
            && qp.context.migration() == Migration::Migrated;
        if migrate {
            self.migrate(qpn);
        }
        self.schedule.queue(qpn);
        Ok(Vec::new())
    }

    /// The card has places for the RDMA READs that a QP may have under way.
    fn check_reads(&self, opcode: u16, qpn: u32, new: &Context) -> Result<(), Status> {
        let log = match opcode {
            op::INIT2RTR_QP => new.log_reads_in(),
            op::RTR2RTS_QP => new.log_reads_out(),
            _ => 0,
        };
        match log > LOG_MAX_READS {
            false => Ok(()),
            true => self.refuse_command(
                Violation::ReadLimit,
                Status::Lim,
                format_args!("2^{log} of QP {qpn:#x}"),
            ),
        }
    }

    /// The path MTU of a connection exists, and what its paths have of the port's tables.
    fn check_paths(&self, opcode: u16, qpn: u32, new: &Context, asked: u32) -> Result<(), Status> {
        let connected = self.qps.get(qpn).is_some_and(|qp| qp.service.connected());
        let connects = opcode == op::INIT2RTR_QP && connected;
        if connects && (new.path_mtu().is_none() || !new.max_message_exists()) {
            return self.refuse_command(
                Violation::Mtu,
                Status::BadParam,
                format_args!("{} of QP {qpn:#x}", opcode_name(opcode)),
            );
        }
        let primary = (connects || opcode == op::RST2INIT_QP).then(|| new.path());
        let alternate = Context::changes_alternate_path(asked).then(|| new.alternate_path());
        let pkeys = [
            (primary.is_some() || Context::changes_pkey(asked)).then(|| new.pkey_index()),
            alternate.is_some().then(|| new.alternate_pkey_index()),
        ];
        let gid_is_missing = primary
            .into_iter()
            .chain(alternate)
            .any(|path| path.grh.is_some_and(|(index, _)| u64::from(index) >= GIDS));
        if gid_is_missing || pkeys.into_iter().flatten().any(|index| index >= PKEYS) {
            return self.refuse_command(
                Violation::TableIndex,
                Status::BadParam,
                format_args!("{} of QP {qpn:#x}", opcode_name(opcode)),
            );
        }
        Ok(())
    }

    /// ATTACH_TO_MCG and DETACH_FROM_MCG.
    pub fn attach_to_mcg(&mut self, input: &[u8], attach: bool) -> Outcome {
        let qpn = input.bits32(attach_to_mcg_in::QPN);
        let gid = input.get(attach_to_mcg_in::MULTICAST_GID.byte()..);
        let gid = gid.and_then(|gid| gid.first_chunk());
        let member = (*gid.ok_or(Status::BadInpLen)?, qpn);
        if self.qps.get(qpn).is_none() {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!("QP {qpn:#x} of a multicast group"),
            );
        }
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
    use crate::engine::shared_queue::SharedQueue;
    use crate::mlx5::ifc::{ads, dealloc_pd_in, Field};
    use crate::mlx5::memory::Buffer;
    use crate::mlx5::srq::Srq;

    const PD: u32 = 1;
    const XRCD: u32 = 2;
    const PAGE: u32 = 5;

    /// A card that has these.
    fn card() -> Hca {
        let mut hca = Hca::new(0);
        hca.card.pds.insert(PD);
        hca.card.xrcds.insert(XRCD);
        hca.card.uars.insert(PAGE);
        hca
    }

    /// CREATE_QP without a receive queue: the number.
    fn create_in(hca: &mut Hca, fields: &[(Field, u32)]) -> Result<u32, Status> {
        let mut input = vec![0; create_qp_in::SIZE];
        for (field, value) in [&[(qpc::PD, PD), (qpc::RQ_TYPE, 3)], fields].concat() {
            input.set_bits(create_qp_in::QPC.part(field), u64::from(value));
        }
        // The page of its queues.
        input.extend_from_slice(&0x10_0000u64.to_be_bytes());
        hca.create_qp(&input)
            .map(|out| out.bits32(create_qp_out::QPN))
    }

    fn create(fields: &[(Field, u32)]) -> (Result<(), Status>, Vec<Violation>) {
        let mut hca = card();
        let created = create_in(&mut hca, fields).map(|_| ());
        (created, hca.dma.violations.take())
    }

    /// A command of a QP of this service, in `state`, with optional parameters and fields.
    fn modify(
        opcode: u16,
        st: u32,
        state: State,
        optional: u64,
        fields: &[(Field, u32)],
    ) -> (Result<State, Status>, Vec<Violation>) {
        let mut hca = card();
        let qpn = create_in(&mut hca, &[(qpc::ST, st), (qpc::UAR_PAGE, PAGE)]).unwrap();
        hca.qps.get_mut(qpn).unwrap().set_state(state);
        let mut input = vec![0; init2rtr_qp_in::SIZE];
        input.set_bits(init2rtr_qp_in::QPN, u64::from(qpn));
        input.set_bits(init2rtr_qp_in::OPT_PARAM_MASK, optional);
        for (field, value) in fields {
            input.set_bits(init2rtr_qp_in::QPC.part(*field), u64::from(*value));
        }
        let done = hca.modify_qp(opcode, &input, Instant::now());
        let state = done.map(|_| hca.qps.get(qpn).unwrap().state);
        (state, hca.dma.violations.take())
    }

    const RC: u32 = 0;
    const UD: u32 = 2;
    const QP1: u32 = 8;
    const MTU: (Field, u32) = (qpc::MTU, 5);

    fn path(field: Field, value: u32) -> (Field, u32) {
        (qpc::PRIMARY_ADDRESS_PATH.part(field), value)
    }

    #[test]
    fn a_transition_begins_in_its_state() {
        let connect = |state| modify(op::INIT2RTR_QP, RC, state, 0, &[MTU]);
        assert_eq!(connect(State::Init), (Ok(State::Rtr), vec![]));
        let refused = (Err(Status::BadQpState), vec![Violation::Transition]);
        assert_eq!(connect(State::Rst), refused);
        assert_eq!(connect(State::Rts), refused);
        // The driver may not know of the error yet.
        assert_eq!(connect(State::Err), (Err(Status::BadQpState), vec![]));
        // A process may have said that the QP can send.
        let claimed = modify(op::RTS2RTS_QP, RC, State::Init, 0, &[]);
        assert_eq!(claimed, (Err(Status::BadQpState), vec![]));
    }

    #[test]
    fn a_transition_has_its_optional_parameters_only() {
        const RWE: u64 = 1 << 3;
        const Q_KEY: u64 = 1 << 5;
        const ACK_TIMEOUT: u64 = 1 << 14;
        let connect = |st, optional| modify(op::INIT2RTR_QP, st, State::Init, optional, &[MTU]).1;
        assert_eq!(connect(RC, RWE), []);
        assert_eq!(connect(RC, Q_KEY), [Violation::OptionalParameter]);
        assert_eq!(connect(RC, ACK_TIMEOUT), [Violation::OptionalParameter]);
        assert_eq!(connect(UD, Q_KEY), []);
        assert_eq!(connect(UD, RWE), [Violation::OptionalParameter]);
        let start = |optional| modify(op::RST2INIT_QP, RC, State::Rst, optional, &[]).1;
        assert_eq!(start(0), []);
        assert_eq!(start(RWE), [Violation::OptionalParameter]);
    }

    #[test]
    fn a_path_names_entries_of_the_tables() {
        let connect = |fields: &[_]| {
            let fields = [&[MTU], fields].concat();
            modify(op::INIT2RTR_QP, RC, State::Init, 0, &fields)
        };
        let connected = (Ok(State::Rtr), vec![]);
        let refused = (Err(Status::BadParam), vec![Violation::TableIndex]);
        let gid = |index| [path(ads::GRH, 1), path(ads::SRC_ADDR_INDEX, index)];
        assert_eq!(connect(&gid(7)), connected);
        assert_eq!(connect(&gid(8)), refused);
        // Without a GRH there is no GID.
        assert_eq!(connect(&[path(ads::SRC_ADDR_INDEX, 8)]), connected);
        assert_eq!(connect(&[path(ads::PKEY_INDEX, 128)]), refused);
        assert_eq!(connect(&[path(ads::PKEY_INDEX, 256)]), refused);
        let start = modify(
            op::RST2INIT_QP,
            UD,
            State::Rst,
            0,
            &[path(ads::PKEY_INDEX, 128)],
        );
        assert_eq!(start, refused);
        // The alternate path counts if it is a parameter.
        let alternate = [
            MTU,
            (qpc::SECONDARY_ADDRESS_PATH.part(ads::PKEY_INDEX), 128),
        ];
        let connect = |optional| modify(op::INIT2RTR_QP, RC, State::Init, optional, &alternate);
        assert_eq!(connect(0), connected);
        assert_eq!(connect(1), refused);
    }

    #[test]
    fn a_qp_has_places_for_its_reads() {
        let connect = |log| {
            let fields = [MTU, (qpc::LOG_RRA_MAX, log), (qpc::LOG_SRA_MAX, 7)];
            modify(op::INIT2RTR_QP, RC, State::Init, 0, &fields)
        };
        let refused = (Err(Status::Lim), vec![Violation::ReadLimit]);
        assert_eq!(connect(4), (Ok(State::Rtr), vec![]));
        assert_eq!(connect(5), refused);
        let start = |log| {
            let fields = [(qpc::LOG_SRA_MAX, log), (qpc::LOG_RRA_MAX, 7)];
            modify(op::RTR2RTS_QP, RC, State::Rtr, 0, &fields)
        };
        assert_eq!(start(4), (Ok(State::Rts), vec![]));
        assert_eq!(start(5), refused);
    }

    #[test]
    fn a_queue_is_no_longer_than_the_card_allows() {
        const OWN_RQ: (Field, u32) = (qpc::RQ_TYPE, 0);
        let page = (qpc::UAR_PAGE, PAGE);
        let refused = (Err(Status::Lim), vec![Violation::QueueSize]);
        assert_eq!(create(&[page, (qpc::LOG_SQ_SIZE, 15)]), refused);
        assert_eq!(create(&[page, OWN_RQ, (qpc::LOG_RQ_SIZE, 15)]), refused);
        // Its pages are fewer, but that is no rule of the card's capabilities.
        let no_room = (Err(Status::BadParam), vec![]);
        assert_eq!(create(&[page, (qpc::LOG_SQ_SIZE, 14)]), no_room);
        // Sizes of queues that the QP does not have mean nothing.
        assert_eq!(create(&[page, (qpc::LOG_RQ_SIZE, 15)]), (Ok(()), vec![]));
    }

    #[test]
    fn a_qp_receives_from_an_srq_of_its_service() {
        const SRQN: u32 = 3;
        let create = |kind, fields: &[_]| {
            let mut hca = card();
            let srq = Srq {
                kind,
                context: Vec::new(),
                buffer: Buffer::default(),
                wqes: SharedQueue::new(4, 32, 0),
                xrcd: XRCD,
                pd: PD,
                cqn: 0,
            };
            hca.card.srqs.queues.insert(SRQN, srq);
            let of_srq = [(qpc::RQ_TYPE, 1), (qpc::SRQN_RMPN_XRQN, SRQN)];
            let created = create_in(&mut hca, &[&of_srq, fields].concat());
            (created.map(|_| ()), hca.dma.violations.take())
        };
        let rc = [(qpc::UAR_PAGE, PAGE)];
        let target = [(qpc::ST, 3), (qpc::NO_SQ, 1), (qpc::XRCD, XRCD)];
        let refused = (Err(Status::BadParam), vec![Violation::SrqService]);
        assert_eq!(create(Kind::Xrc, &rc), refused);
        assert_eq!(create(Kind::Rmp, &rc), (Ok(()), vec![]));
        assert_eq!(create(Kind::Xrc, &target), (Ok(()), vec![]));
    }

    #[test]
    fn a_path_mtu_exists() {
        let connect = |mtu| modify(op::INIT2RTR_QP, RC, State::Init, 0, &[(qpc::MTU, mtu)]);
        assert_eq!(connect(1), (Ok(State::Rtr), vec![]));
        assert_eq!(connect(7), (Err(Status::BadParam), vec![Violation::Mtu]));
    }

    #[test]
    fn there_is_one_qp1() {
        let mut hca = card();
        let mut create = || create_in(&mut hca, &[(qpc::ST, QP1), (qpc::UAR_PAGE, PAGE)]);
        let first = create().unwrap();
        assert_eq!(create(), Err(Status::BadParam));
        assert_eq!(hca.dma.violations.take(), [Violation::SpecialService]);
        let mut input = vec![0; destroy_qp_in::SIZE];
        input.set_bits(destroy_qp_in::QPN, u64::from(first));
        hca.destroy_qp(&input).unwrap();
        create_in(&mut hca, &[(qpc::ST, QP1), (qpc::UAR_PAGE, PAGE)]).unwrap();
    }

    #[test]
    fn every_state_goes_to_reset_and_to_error() {
        let states = [
            State::Rst,
            State::Init,
            State::Rtr,
            State::Rts,
            State::Sqer,
            State::Sqd,
            State::Err,
        ];
        for state in states {
            let to = |opcode| modify(opcode, RC, state, 0, &[]);
            assert_eq!(to(op::_2RST_QP), (Ok(State::Rst), vec![]));
            assert_eq!(to(op::_2ERR_QP), (Ok(State::Err), vec![]));
        }
    }

    #[test]
    fn a_qp_leaves_its_groups_before_it_goes() {
        let mut hca = card();
        let fields = [(qpc::ST, UD), (qpc::UAR_PAGE, PAGE)];
        let group = |qpn: u32| {
            let mut input = vec![0; attach_to_mcg_in::SIZE];
            input.set_bits(attach_to_mcg_in::QPN, u64::from(qpn));
            input
        };
        let destroy = |hca: &mut Hca, qpn: u32| {
            let mut input = vec![0; destroy_qp_in::SIZE];
            input.set_bits(destroy_qp_in::QPN, u64::from(qpn));
            hca.destroy_qp(&input).unwrap();
            hca.dma.violations.take()
        };
        let first = create_in(&mut hca, &fields).unwrap();
        hca.attach_to_mcg(&group(first), true).unwrap();
        hca.attach_to_mcg(&group(first), false).unwrap();
        assert_eq!(destroy(&mut hca, first), []);
        let second = create_in(&mut hca, &fields).unwrap();
        hca.attach_to_mcg(&group(second), true).unwrap();
        assert_eq!(destroy(&mut hca, second), [Violation::MemberDestroyed]);
        assert!(hca.card.groups.is_empty());
        assert_eq!(hca.attach_to_mcg(&group(second), true), Err(Status::BadRes));
        assert_eq!(hca.dma.violations.take(), [Violation::UnknownObject]);
    }

    #[test]
    fn a_pd_outlives_its_qps() {
        let mut hca = card();
        create_in(&mut hca, &[(qpc::UAR_PAGE, PAGE)]).unwrap();
        let mut input = vec![0; dealloc_pd_in::SIZE];
        input.set_bits(dealloc_pd_in::PD, u64::from(PD));
        assert_eq!(hca.dealloc_pd(&input), Err(Status::ResBusy));
        assert_eq!(hca.dma.violations.take(), [Violation::ObjectInUse]);
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
