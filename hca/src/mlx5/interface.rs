// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The calls of the engine, as a ConnectX-6 answers them.

use std::time::Instant;

use serde_json::{json, Value};

use crate::engine::completion::{Cqe, Ended, LocalError, RecvOpcode};
use crate::engine::event::EventType;
use crate::engine::hca::{Card, Shared};
use crate::engine::key::{Access, KeyError, User};
use crate::engine::memory::DmaError;
use crate::engine::packet::Packet;
use crate::engine::pci::{Identity, Msix};
use crate::engine::qp::Context as _;
use crate::engine::transport::Service;
use crate::engine::work::{RecvWqe, SendWqe};
use crate::mlx5::card::{ConnectX6, Hca};
use crate::mlx5::command::{parse_opcode, parse_status, Phase, LOG_COMMANDS};
use crate::mlx5::cq::encode;
use crate::mlx5::eq::Events;
use crate::mlx5::identity::IDENTITY;
use crate::mlx5::ifc::{qpc, xrc_srqc, Bits};
use crate::mlx5::memory::Pages;
use crate::mlx5::mkey::Region;
use crate::mlx5::qpc::Context;
use crate::mlx5::queues::Queues;

/// MLX5_IB_DEFAULT_UIDX: the user index of an object whose consumer wants CQEs of version 0.
const DEFAULT_UIDX: u32 = 0xff_ffff;

impl Hca {
    /// Whose a completion is, for the consumer. In CQEs of version 1, the user index that it gave
    /// to the QP, or to the XRC SRQ; in those of version 0, the SRQ of a receive, or 0.
    fn owner(&self, cqe: &Cqe, received: bool) -> u32 {
        let Some(qp) = self.qps.get(cqe.qpn) else {
            return 0;
        };
        let xrc = received && qp.service == Service::Xrc;
        let srqn = match xrc {
            true => Some(cqe.remote),
            false => qp.context.srqn().filter(|_| received),
        };
        let srq = srqn.and_then(|srqn| self.card.srqs.queues.get(&srqn));
        let index = match srq.filter(|_| xrc) {
            Some(srq) => srq.context.bits32(xrc_srqc::USER_INDEX),
            None => qp.context.field(qpc::USER_INDEX) as u32,
        };
        match index {
            DEFAULT_UIDX => srqn.unwrap_or(0),
            index => index,
        }
    }
}

impl Card for ConnectX6 {
    type Icm = Pages;
    type Context = Context;
    type Queues = Queues;
    type Region = Region;

    const IDENTITY: Identity = IDENTITY;
    const PORTS: u8 = 1;
    const MAX_COMMANDS: usize = 1 << LOG_COMMANDS;
    const DESCRIPTION: &'static str = "modelled ConnectX-6";

    fn reset(hca: &mut Hca) {
        let old = std::mem::take(&mut hca.card);
        hca.card.start = old.start;
        hca.card.events = Events {
            msix: old.events.msix,
            raised: old.events.raised,
            lost: old.events.lost,
            ..Events::default()
        };
        hca.card.cqs.completions = old.cqs.completions;
    }

    fn msix(&mut self) -> &mut Msix {
        &mut self.events.msix
    }

    fn read_bar(hca: &mut Hca, bar: u32, offset: u64, data: &mut [u8], now: Instant) {
        match bar {
            0 => hca.read_segment(offset, data, now),
            _ => data.fill(0),
        }
    }

    fn write_bar(hca: &mut Hca, bar: u32, offset: u64, data: &[u8], now: Instant) {
        if bar == 0 {
            hca.write_segment(offset, data, now);
        }
    }

    fn command_due(hca: &mut Hca, id: u64, now: Instant) {
        // A reset takes the commands in flight with it.
        if let Some(command) = hca.card.commands.remove(&id) {
            hca.finish_command(&command, now);
        }
    }

    fn parse_opcode(text: &str) -> Result<u16, String> {
        parse_opcode(text)
    }

    fn parse_status(text: &str) -> Result<u8, String> {
        parse_status(text)
    }

    fn event(hca: &mut Hca, kind: EventType, number: u32) {
        match kind {
            EventType::CqError => hca.card.events.cq_error(&hca.dma, number, 1),
            _ => hca.card.events.object(&hca.dma, kind, number),
        }
    }

    fn port_changed(hca: &mut Hca, port: u8, up: bool) {
        hca.card.events.port_change(&hca.dma, port, up);
    }

    fn push(hca: &mut Hca, cqn: u32, cqe: &Cqe, solicited: bool) -> bool {
        let received = matches!(cqe.ended, Ended::Receive { .. } | Ended::ReceiveError(_));
        let srqn_uidx = hca.owner(cqe, received);
        let mut cqe = *cqe;
        if let (true, Some(qp)) = (received, hca.qps.get(cqe.qpn)) {
            let plain = Ended::Receive {
                opcode: RecvOpcode::Send,
                bytes: 0,
            };
            let plain = std::mem::discriminant(&plain) == std::mem::discriminant(&cqe.ended);
            if qp.service == Service::Mlx && plain {
                // In place of the index of the P_Key, this card has the key itself.
                let [.., index] = cqe.immediate;
                let pkey = hca.pkey(1, index).unwrap_or(0);
                cqe.immediate = u32::from(pkey).to_be_bytes();
            }
        }
        let solicited = solicited || cqe.is_error();
        let entry = encode(&cqe, srqn_uidx, solicited);
        let card = &mut hca.card;
        card.cqs
            .push(&hca.dma, &mut card.events, cqn, entry, solicited)
    }

    fn shared(hca: &Hca, srqn: u32) -> Option<Shared> {
        let srq = hca.card.srqs.queues.get(&srqn)?;
        Some(Shared {
            xrcd: srq.xrcd,
            pd: srq.pd,
            cqn: srq.cqn,
        })
    }

    fn take_shared(hca: &mut Hca, srqn: u32) -> Option<Result<Option<RecvWqe>, DmaError>> {
        let taken = hca.card.srqs.queues.get_mut(&srqn)?.take(&hca.dma);
        if taken.is_ok() {
            hca.check_srq_limit(srqn);
        }
        Some(taken)
    }

    fn open(
        hca: &Hca,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        hca.card.mkeys.open(key, user, address, length, access)
    }

    fn may_invalidate(hca: &Hca, key: u32, user: User) -> Result<(), KeyError> {
        hca.card.mkeys.may_invalidate(key, user)
    }

    fn invalidate(hca: &mut Hca, key: u32) {
        hca.card.mkeys.invalidate(key);
    }

    fn members(&self, gid: &[u8; 16]) -> Vec<u32> {
        let members = self.groups.range((*gid, 0)..=(*gid, u32::MAX));
        members.map(|(_, qpn)| *qpn).collect()
    }

    fn behind(&self, _port: u8, dqpn: u32) -> u32 {
        let special = self.specials.get(dqpn as usize).copied().flatten();
        special.unwrap_or(dqpn)
    }

    fn management_packet(_hca: &Hca, _qpn: u32, _wqe: &SendWqe) -> Result<Packet, LocalError> {
        // Its WQEs are those of datagrams.
        Err(LocalError::Operation)
    }

    fn execute_local(hca: &mut Hca, qpn: u32, wqe: &[u8]) -> Result<(), LocalError> {
        hca.update_mkey(qpn, wqe)
    }

    fn node_description(&self) -> Option<[u8; 64]> {
        self.node_description
    }

    fn status(hca: &Hca) -> Value {
        json!({
            "events": hca.card.events.raised,
            "events_lost": hca.card.events.lost,
            "completions": hca.card.cqs.completions,
            "commands_in_flight": hca.card.commands.len(),
            "initialised": hca.card.phase == Phase::Initialised,
            "pages": hca.dma.icm.0.len(),
            "objects": {
                "eqs": hca.card.events.queues.len(),
                "cqs": hca.card.cqs.queues.len(),
                "srqs": hca.card.srqs.queues.len(),
                "mkeys": hca.card.mkeys.0.len(),
                "pds": hca.card.pds.len(),
                "xrcds": hca.card.xrcds.len(),
                "uars": hca.card.uars.len(),
                "qps": hca.qps.iter().count(),
            },
        })
    }

    fn reset_counters(&mut self) {
        self.events.raised.clear();
        self.events.lost = 0;
        self.cqs.completions = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::bytes::Fields;
    use crate::engine::packet::{Body, Extra, Nak, Reply};
    use crate::engine::shared_queue::SharedQueue;
    use crate::engine::transport::State;
    use crate::mlx5::card::Qp;
    use crate::mlx5::cq::{Arm, Cq, Entries};
    use crate::mlx5::ifc::{ads, cqc, mkc};
    use crate::mlx5::memory::Buffer;
    use crate::mlx5::mkey::Mkey;
    use crate::mlx5::srq::{Kind, Srq};

    const QPN: u32 = 0x41;
    const SRQN: u32 = 3;
    const XRC_SRQN: u32 = 5;

    /// A card with a QP, and an SRQ and an XRC SRQ.
    fn card(service: Service, qp_index: u32, srq_index: u32) -> Hca {
        let mut hca = Hca::new(0);
        let mut context = vec![0; qpc::SIZE];
        context.set_bits(qpc::ST, if service == Service::Xrc { 3 } else { 0 });
        // MLX5_SRQ_RQ.
        context.set_bits(qpc::RQ_TYPE, 1);
        context.set_bits(qpc::NO_SQ, 1);
        context.set_bits(qpc::SRQN_RMPN_XRQN, u64::from(SRQN));
        context.set_bits(qpc::USER_INDEX, u64::from(qp_index));
        let context = Context::new(&context);
        let queues = Queues::new(&context, &[]).unwrap();
        hca.qps.insert(Qp::new(QPN, service, context, queues));
        for (srqn, kind) in [(SRQN, Kind::Rmp), (XRC_SRQN, Kind::Xrc)] {
            let mut context = vec![0; xrc_srqc::SIZE];
            context.set_bits(xrc_srqc::USER_INDEX, u64::from(srq_index));
            let srq = Srq {
                kind,
                context,
                buffer: Buffer::default(),
                wqes: SharedQueue::new(4, 32, 0),
                xrcd: 0,
                pd: 1,
                cqn: 1,
            };
            hca.card.srqs.queues.insert(srqn, srq);
        }
        hca
    }

    fn owners(hca: &Hca) -> [u32; 2] {
        let sent = Cqe::send(QPN, 0, 0, 8);
        let received = Cqe::receive(QPN, 0, RecvOpcode::Send, 8).remote(XRC_SRQN, false);
        [hca.owner(&sent, false), hca.owner(&received, true)]
    }

    #[test]
    fn completions_name_the_srq_where_there_is_no_user_index() {
        let hca = card(Service::Rc, DEFAULT_UIDX, 9);
        assert_eq!(owners(&hca), [0, SRQN]);
        let hca = card(Service::Xrc, 7, DEFAULT_UIDX);
        assert_eq!(owners(&hca), [7, XRC_SRQN]);
    }

    #[test]
    fn completions_have_the_user_index_of_the_qp_or_of_the_xrc_srq() {
        assert_eq!(owners(&card(Service::Rc, 7, 9)), [7, 7]);
        // 0 is an index, too.
        assert_eq!(owners(&card(Service::Rc, 0, 9)), [0, 0]);
        assert_eq!(owners(&card(Service::Xrc, DEFAULT_UIDX, 9)), [0, 9]);
    }

    #[test]
    fn the_index_lies_where_the_library_reads_it() {
        let entry = encode(&Cqe::send(QPN, 0, 0, 8), 0x12_3456, false);
        assert_eq!(entry[0x20..0x24], [0, 0x12, 0x34, 0x56]);
        assert_eq!(entry[0x38..0x3c], [0, 0, 0, QPN as u8]);
    }

    const RAM: u64 = 0x10_0000;
    /// The record of the doorbells of the QP, its receive queue, its CQ, and where it receives.
    const RECORD: u64 = RAM;
    const RECEIVES: u64 = RAM + 0x1000;
    const COMPLETIONS: u64 = RAM + 0x2000;
    const RECEIVED: u64 = RAM + 0x3000;
    const CQN: u32 = 1;
    const PD: u32 = 1;
    /// All memory, and a key that peers may invalidate.
    const ALL: u32 = 0x1000;
    const LENT: u32 = 0x1100;
    const PEER: u32 = 0x77;
    const PEER_LID: u16 = 3;

    /// A card with a QP that is connected, and has two receives.
    fn receiver() -> Hca {
        let mut hca = Hca::new(0);
        hca.dma.memory.add_ram(RAM, 0x4000, true);
        hca.write_config(4, &[0x06, 0x04]);
        let mut context = vec![0; cqc::SIZE];
        context.set_bits(cqc::LOG_CQ_SIZE, 3);
        let cq = Cq {
            ring: Entries::new(&context, &COMPLETIONS.to_be_bytes()).unwrap(),
            context,
            eqn: 1,
            uar: 4,
            doorbell: RECORD + 8,
            ignores_overrun: false,
            producer: 0,
            consumer: 0,
            arm: Arm::Nothing,
            broken: false,
        };
        hca.card.cqs.queues.insert(CQN, cq);
        for (key, fields) in [
            (ALL, [(mkc::LENGTH64, 1), (mkc::LW, 1)]),
            (LENT, [(mkc::EN_RINVAL, 1), (mkc::RR, 1)]),
        ] {
            let mut context = vec![0; mkc::SIZE];
            let common = [(mkc::PD, u64::from(PD)), (mkc::QPN, 0xff_ffff)];
            for (field, value) in common.into_iter().chain(fields) {
                context.set_bits(field, value);
            }
            let translations = Vec::new();
            let mkey = Mkey {
                context,
                translations,
            };
            hca.card.mkeys.0.insert(key >> 8, mkey);
        }
        let mut context = vec![0; qpc::SIZE];
        let path = qpc::PRIMARY_ADDRESS_PATH;
        for (field, value) in [
            (qpc::NO_SQ, 1),
            (qpc::LOG_RQ_SIZE, 1),
            (qpc::DBR_ADDR, RECORD),
            (qpc::PD, u64::from(PD)),
            (qpc::CQN_RCV, u64::from(CQN)),
            (qpc::MTU, 5),
            (qpc::LOG_MSG_MAX, 30),
            (qpc::PM_STATE, 3),
            (qpc::REMOTE_QPN, u64::from(PEER)),
            (path.part(ads::RLID), u64::from(PEER_LID)),
            (path.part(ads::VHCA_PORT_NUM), 1),
        ] {
            context.set_bits(field, value);
        }
        let context = Context::new(&context);
        let queues = Queues::new(&context, &RECEIVES.to_be_bytes()).unwrap();
        let mut qp = Qp::new(QPN, Service::Rc, context, queues);
        qp.set_state(State::Rtr);
        hca.qps.insert(qp);
        let mut receive = [0; 16];
        receive.set_be32(0, 64);
        receive.set_be32(4, ALL);
        receive.set_be64(8, RECEIVED);
        let memory = &hca.dma.memory;
        memory.write(RECEIVES, &[receive; 2].concat()).unwrap();
        memory.write(RECORD, &2u32.to_be_bytes()).unwrap();
        hca
    }

    fn reply(hca: &mut Hca, psn: u32, key: u32) -> Reply {
        let packet = Packet {
            slid: PEER_LID,
            dlid: hca.port(1).unwrap().lid,
            service_level: 0,
            service: Service::Rc,
            pkey: hca.pkey(1, 0).unwrap(),
            grh: None,
            dqpn: QPN,
            psn,
            mtu: 4096,
            srqn: 0,
            migration_request: true,
            solicited: false,
            body: Body::Send {
                payload: b"done".to_vec(),
                extra: Extra::Invalidate(key),
            },
            datagram: None,
        };
        hca.respond(&packet, Instant::now()).unwrap().reply
    }

    #[test]
    fn a_message_ends_a_key_of_its_receiver() {
        let mut hca = receiver();
        assert!(matches!(reply(&mut hca, 0, LENT), Reply::Ack { .. }));
        let memory = &hca.dma.memory;
        assert_eq!(&memory.block::<4>(RECEIVED).unwrap(), b"done");
        let entry: [u8; 64] = memory.block(COMPLETIONS).unwrap();
        // MLX5_CQE_RESP_SEND_INV, and the key in the place of immediate data.
        assert_eq!((entry.get_u8(0x3f) >> 4, entry.get_be32(0x24)), (4, LENT));
        assert!(hca.card.mkeys.0[&(LENT >> 8)].context.flag(mkc::FREE));
    }

    #[test]
    fn a_message_cannot_end_any_other_key() {
        for key in [ALL, LENT + 1, 0x1200] {
            let mut hca = receiver();
            assert_eq!(reply(&mut hca, 0, key), Reply::Nak(Nak::RemoteAccess));
            assert_eq!(hca.qps.get(QPN).unwrap().state, State::Err);
            assert!(!hca.card.mkeys.0[&(ALL >> 8)].context.flag(mkc::FREE));
        }
    }
}
