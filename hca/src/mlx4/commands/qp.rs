// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about queue pairs.

use crate::engine::bytes::Fields;
use crate::engine::qp::Context as _;
use crate::engine::transport::{Migration, Service, State};
use crate::engine::violation::Violation;
use crate::mlx4::card::{Hca, Qp};
use crate::mlx4::command::{Command, Opcode, Outcome, Output, Status};
use crate::mlx4::icm::Object;
use crate::mlx4::qp::{
    Queues, CONTEXT, LOG_MAX_QPS, LOG_MAX_QP_WQES, LOG_MAX_READS, LOG_RESERVED_QPS, MAILBOX_SIZE,
    OPTPAR, SQD_EVENT, XRC_QPN_BIT,
};
use crate::mlx4::qpc::{optpar, Context};
use std::time::Instant;

/// A modify command: the states it is valid in, the state it leads to, and the parameters that it
/// takes over always and when requested.
struct Transition {
    from: &'static [State],
    to: State,
    required: u32,
    optional: u32,
}

fn transition(opcode: Opcode) -> Option<Transition> {
    use State::*;
    let (from, to, required, optional): (&[State], _, _, _) = match opcode {
        Opcode::INIT2INIT_QP => (
            &[Init],
            Init,
            0,
            optpar::RRE
                | optpar::RAE
                | optpar::RWE
                | optpar::Q_KEY
                | optpar::PKEY_INDEX
                | optpar::PRIMARY_ADDR_PATH
                | optpar::SCHED_QUEUE,
        ),
        Opcode::INIT2RTR_QP => (
            &[Init],
            Rtr,
            optpar::PRIMARY_ADDR_PATH | optpar::RRA_MAX | optpar::RNR_TIMEOUT,
            optpar::CONNECTED | optpar::PKEY_INDEX | optpar::SCHED_QUEUE,
        ),
        Opcode::RTR2RTS_QP => (
            &[Rtr],
            Rts,
            optpar::ACK_TIMEOUT | optpar::RETRY_COUNT | optpar::RNR_RETRY | optpar::SRA_MAX,
            optpar::CONNECTED,
        ),
        Opcode::RTS2RTS_QP => (&[Rts], Rts, 0, optpar::CONNECTED),
        Opcode::SQERR2RTS_QP => (&[Sqer], Rts, 0, optpar::CONNECTED),
        Opcode::RTS2SQD_QP => (&[Rts], Sqd, 0, 0),
        Opcode::SQD2SQD_QP => (
            &[Sqd, SqDraining],
            Sqd,
            0,
            optpar::CONNECTED
                | optpar::PRIMARY_ADDR_PATH
                | optpar::SCHED_QUEUE
                | optpar::PKEY_INDEX
                | optpar::ACK_TIMEOUT
                | optpar::RETRY_COUNT
                | optpar::RNR_RETRY
                | optpar::SRA_MAX
                | optpar::RRA_MAX,
        ),
        Opcode::SQD2RTS_QP => (&[Sqd, SqDraining], Rts, 0, optpar::CONNECTED),
        _ => return None,
    };
    Some(Transition {
        from,
        to,
        required,
        optional,
    })
}

impl Hca {
    /// CONF_SPECIAL_QP: which QPs are QP0 and QP1.
    pub fn conf_special_qp(&mut self, command: &Command) -> Outcome {
        self.card.specials.base = command.in_modifier & 0xff_ffff;
        Ok(Output::None)
    }

    /// QUERY_QP.
    pub fn query_qp(&mut self, command: &Command) -> Outcome {
        let qp = self
            .qps
            .get(command.in_modifier & 0xff_ffff)
            .ok_or(Status::BadIndex)?;
        let mut mailbox = vec![0; MAILBOX_SIZE];
        mailbox.set_field(CONTEXT, qp.context.bytes());
        Ok(Output::Mailbox(mailbox))
    }

    /// The commands that move a QP from state to state.
    pub fn modify_qp(&mut self, opcode: Opcode, command: &Command, now: Instant) -> Outcome {
        let qpn = command.in_modifier & 0xff_ffff;
        if qpn & !XRC_QPN_BIT >= 1 << LOG_MAX_QPS {
            return Err(Status::BadIndex);
        }
        match opcode {
            Opcode::RST2INIT_QP => return self.rst2init_qp(qpn, command),
            Opcode::_2RST_QP | Opcode::_2ERR_QP if self.qps.get(qpn).is_none() => {
                return self.refuse_command(
                    Violation::ModifyInReset,
                    Status::BadQpState,
                    format_args!("{} of QP {qpn:#x}", opcode.name()),
                );
            }
            Opcode::_2RST_QP => {
                self.qps.remove(qpn);
                return Ok(Output::None);
            }
            Opcode::_2ERR_QP => {
                self.enter_error(qpn, now);
                return Ok(Output::None);
            }
            _ => {}
        }
        let mailbox: [u8; MAILBOX_SIZE] = self.mailbox(command)?;
        let new = Context::new(mailbox.field(CONTEXT));
        let transition = transition(opcode).ok_or(Status::BadOp)?;
        let qp = self.qps.get(qpn).ok_or(Status::BadQpState)?;
        if !transition.from.contains(&qp.state) {
            return Err(Status::BadQpState);
        }
        let connects = opcode == Opcode::INIT2RTR_QP && qp.service.connected();
        if connects && (new.path_mtu().is_none() || !new.max_message_exists()) {
            return self.refuse_command(
                Violation::Mtu,
                Status::BadParam,
                format_args!("QP {qpn:#x}: {:#x}", new.mtu_msgmax()),
            );
        }
        let asked = mailbox.get_be32(OPTPAR);
        let parameters = transition.required | asked & transition.optional;
        self.check_reads(qpn, &new, parameters)?;
        let qp = self.qps.get_mut(qpn).ok_or(Status::BadQpState)?;
        let before = qp.context.migration();
        let foreign = asked & !(transition.required | transition.optional);
        if foreign != 0 {
            self.dma.violations.note(
                Violation::OptionalParameter,
                format_args!("{} of QP {qpn:#x}: {foreign:#x}", opcode.name()),
            );
        }
        let context = &mut qp.context;
        context.apply(&new, parameters);
        match opcode {
            Opcode::INIT2RTR_QP => context.connect(&new),
            Opcode::RTR2RTS_QP => context.start_sending(&new),
            _ => {}
        }
        let to = match opcode {
            // Requests in progress are ended first.
            Opcode::RTS2SQD_QP if qp.stall.is_some() => State::SqDraining,
            Opcode::SQD2SQD_QP => qp.state,
            _ => transition.to,
        };
        qp.set_state(to);
        if opcode == Opcode::RTS2SQD_QP {
            qp.sqd_event = command.in_modifier & SQD_EVENT != 0;
        }
        let migrate = matches!(qp.state, State::Rts | State::Sqd)
            && before == Migration::Armed
            && qp.context.migration() == Migration::Migrated;
        self.check_drained(qpn);
        if migrate {
            self.migrate(qpn);
        }
        self.schedule.queue(qpn);
        Ok(Output::None)
    }

    /// The device has places for the RDMA READs that a QP may have under way: those from the other
    /// end lie in ICM, where those of the next QP follow.
    fn check_reads(&self, qpn: u32, new: &Context, parameters: u32) -> Result<(), Status> {
        let most = u32::from(LOG_MAX_READS);
        for (parameter, log, most) in [
            (optpar::SRA_MAX, new.log_reads_out(), most),
            (
                optpar::RRA_MAX,
                new.log_reads_in(),
                most.min(self.dma.icm.layout()?.log_reads),
            ),
        ] {
            if parameters & parameter != 0 && log > most {
                return self.refuse_command(
                    Violation::ReadLimit,
                    Status::ExceedLim,
                    format_args!("QP {qpn:#x}: {} of {}", 1 << log, 1 << most),
                );
            }
        }
        Ok(())
    }

    /// RST2INIT: the QP becomes the device's.
    fn rst2init_qp(&mut self, qpn: u32, command: &Command) -> Outcome {
        if [qpn, qpn ^ XRC_QPN_BIT]
            .iter()
            .any(|qpn| self.qps.get(*qpn).is_some())
        {
            return Err(Status::BadQpState);
        }
        let mailbox: [u8; MAILBOX_SIZE] = self.mailbox(command)?;
        let mut context = Context::new(mailbox.field(CONTEXT));
        context.set_local_qpn(qpn);
        let service = context.service().ok_or(Status::BadParam)?;
        let queues = Queues::new(&context, service).ok_or(Status::BadParam)?;
        let qp = Qp::new(qpn, service, context, queues);
        let special = self.card.specials.is_special(qpn);
        if (qpn & !XRC_QPN_BIT) >> LOG_RESERVED_QPS == 0 && !special {
            return self.refuse_command(
                Violation::ReservedQpn,
                Status::BadResource,
                format_args!("QP {qpn:#x}"),
            );
        }
        if special != (qp.service == Service::Mlx) {
            return self.refuse_command(
                Violation::SpecialService,
                Status::BadParam,
                format_args!("QP {qpn:#x} is of service {:?}", qp.service),
            );
        }
        if qp.is_xrc_target() != (qpn & XRC_QPN_BIT != 0) {
            self.dma.violations.note(
                Violation::XrcQpnBit,
                format_args!("QP {qpn:#x} of XRC domain {}", qp.context.xrcd()),
            );
        }
        if qp.queues.most_entries() > 1 << LOG_MAX_QP_WQES {
            return self.refuse_command(
                Violation::QueueSize,
                Status::ExceedLim,
                format_args!("QP {qpn:#x}: {} WQEs", qp.queues.most_entries()),
            );
        }
        self.check_named(&qp)?;
        self.dma.check_context(Object::Qp, qpn & !XRC_QPN_BIT)?;
        self.qps.insert(qp);
        Ok(Output::None)
    }

    /// The objects that a QP names exist, and are of its kind.
    fn check_named(&self, qp: &Qp) -> Result<(), Status> {
        let qpn = qp.qpn;
        self.check_uar_page(Object::Qp, qpn, qp.context.uar_page())?;
        let cqs = [qp.context.cqn_send(), qp.context.cqn_recv()];
        let unknown_cq = cqs.into_iter().find(|cqn| !self.card.cqs.contains(*cqn));
        let srqn = qp.context.srqn();
        let unknown_srq = srqn.filter(|srqn| self.card.srqs.get(*srqn).is_none());
        if unknown_cq.is_some() || unknown_srq.is_some() {
            return self.refuse_command(
                Violation::UnknownObject,
                Status::BadResState,
                format_args!("QP {qpn:#x}: CQ {unknown_cq:x?}, SRQ {unknown_srq:x?}"),
            );
        }
        let srq = srqn.and_then(|srqn| self.card.srqs.get(srqn));
        if srq.is_some_and(|srq| qp.service == Service::Xrc || srq.xrcd() != 0) {
            return self.refuse_command(
                Violation::SrqService,
                Status::BadParam,
                format_args!("QP {qpn:#x} of service {:?}: SRQ {srqn:x?}", qp.service),
            );
        }
        Ok(())
    }
}
