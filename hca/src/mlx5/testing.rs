// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A bench for unit tests: one adapter on plain memory, with the objects of a connection that its
//! driver would make.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs
)]

use std::collections::BTreeMap;
use std::time::Instant;

use crate::engine::bytes::Fields;
use crate::engine::transport::Migration;
use crate::mlx5::card::Hca;
use crate::mlx5::command::Status;
use crate::mlx5::ifc::{
    ads, alloc_pd_out, alloc_uar_out, alloc_xrcd_out, cqc, create_cq_in, create_cq_out,
    create_eq_in, create_eq_out, create_mkey_in, create_mkey_out, create_qp_in, create_qp_out,
    create_xrc_srq_in, create_xrc_srq_out, eqc, init2rtr_qp_in, mkc, op, qpc, xrc_srqc, Bits,
    Field,
};
use crate::mlx5::wqe::TERMINATOR_LKEY;

const RAM: u64 = 0x10_0000;
const RAM_SIZE: usize = 1 << 20;
const PAGE: u64 = 0x1000;
/// Bytes of a place of the queues that the bench makes.
const STRIDE: u64 = 64;
/// log2 of the places of these queues.
const LOG_PLACES: u64 = 2;
/// The send queue lies behind the receive queue.
const SEND_QUEUE: u64 = STRIDE << LOG_PLACES;
/// The doorbell of sends in a UAR page.
const SEND_DOORBELL: u64 = 0x800;

/// MLX5_QP_ST_RC and MLX5_QP_ST_XRC.
pub const RC: u64 = 0;
pub const XRC: u64 = 3;
/// MLX5_OPCODE_SEND.
pub const SEND: u8 = 0x0a;
/// MLX5_OPCODE_RDMA_WRITE.
pub const WRITE: u8 = 0x08;

/// The memory of a queue: its places, its doorbell record, and the requests posted.
#[derive(Clone, Copy)]
struct Memory {
    ring: u64,
    record: u64,
    sends: u32,
}

pub struct Bench {
    pub hca: Hca,
    heap: u64,
    uar: u32,
    eqn: u32,
    pub pd: u32,
    pub xrcd: u32,
    /// A key of all memory.
    pub key: u32,
    /// The CQ of all queues.
    cqn: u32,
    /// By number, those of SRQs apart.
    queues: BTreeMap<(bool, u32), Memory>,
}

impl Bench {
    /// Adapter number `index`, initialised, with a CQ and a key.
    pub fn new(index: usize) -> Self {
        let mut hca = Hca::new(index);
        hca.dma.memory.add_ram(RAM, RAM_SIZE, true);
        hca.write_config(4, &[0x06, 0x04]);
        hca.change_port(1, |port| port.initialised = true);
        let pd = hca.alloc_pd().unwrap().bits32(alloc_pd_out::PD);
        let xrcd = hca.alloc_xrcd().unwrap().bits32(alloc_xrcd_out::XRCD);
        let uar = hca.alloc_uar().unwrap().bits32(alloc_uar_out::UAR);
        let mut bench = Self {
            hca,
            heap: RAM,
            uar,
            eqn: 0,
            pd,
            xrcd,
            key: 0,
            cqn: 0,
            queues: BTreeMap::new(),
        };
        bench.create_eq();
        bench.create_cq();
        bench.create_key();
        bench
    }

    /// A fresh page of guest RAM.
    pub fn page(&mut self) -> u64 {
        let page = self.heap;
        self.heap += PAGE;
        page
    }

    /// A command with these fields, and the page behind them.
    fn input(size: usize, fields: &[(Field, u64)], page: Option<u64>) -> Vec<u8> {
        let mut input = vec![0; size];
        for (field, value) in fields {
            input.set_bits(*field, *value);
        }
        input.extend(page.into_iter().flat_map(u64::to_be_bytes));
        input
    }

    fn create_eq(&mut self) {
        let page = self.page();
        let context = create_eq_in::EQ_CONTEXT_ENTRY;
        let fields = [
            (context.part(eqc::LOG_EQ_SIZE), 4),
            (context.part(eqc::UAR_PAGE), u64::from(self.uar)),
        ];
        let input = Self::input(create_eq_in::SIZE, &fields, Some(page));
        let out = self.hca.create_eq(&input).unwrap();
        self.eqn = out.bits32(create_eq_out::EQ_NUMBER);
    }

    fn create_cq(&mut self) {
        let (page, record) = (self.page(), self.page());
        let context = create_cq_in::CQ_CONTEXT;
        let fields = [
            (context.part(cqc::LOG_CQ_SIZE), 4),
            (context.part(cqc::UAR_PAGE), u64::from(self.uar)),
            (context.part(cqc::C_EQN_OR_APU_ELEMENT), self.eqn.into()),
            (context.part(cqc::DBR_ADDR), record),
        ];
        let input = Self::input(create_cq_in::SIZE, &fields, Some(page));
        let out = self.hca.create_cq(&input).unwrap();
        self.cqn = out.bits32(create_cq_out::CQN);
    }

    fn create_key(&mut self) {
        let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY;
        let rights = [mkc::LR, mkc::LW, mkc::RR, mkc::RW, mkc::LENGTH64];
        let mut fields: Vec<_> = rights.map(|right| (context.part(right), 1)).into();
        fields.push((context.part(mkc::PD), self.pd.into()));
        // The key is bound to no QP.
        fields.push((context.part(mkc::QPN), 0xff_ffff));
        let input = Self::input(create_mkey_in::SIZE, &fields, None);
        let out = self.hca.create_mkey(&input).unwrap();
        self.key = out.bits32(create_mkey_out::MKEY_INDEX) << 8;
    }

    /// An XRC SRQ of the domain.
    pub fn srq(&mut self) -> u32 {
        let memory = Memory {
            ring: self.page(),
            record: self.page(),
            sends: 0,
        };
        let context = create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY;
        let fields = [
            (xrc_srqc::LOG_XRC_SRQ_SIZE, LOG_PLACES),
            (xrc_srqc::LOG_RQ_STRIDE, 2),
            (xrc_srqc::XRCD, self.xrcd.into()),
            (xrc_srqc::PD, self.pd.into()),
            (xrc_srqc::CQN, self.cqn.into()),
            (xrc_srqc::DB_RECORD_ADDR_L, memory.record >> 2),
        ]
        .map(|(field, value)| (context.part(field), value));
        let input = Self::input(create_xrc_srq_in::SIZE, &fields, Some(memory.ring));
        let out = self.hca.create_xrc_srq(&input).unwrap();
        let srqn = out.bits32(create_xrc_srq_out::XRC_SRQN);
        self.queues.insert((true, srqn), memory);
        srqn
    }

    /// CREATE_QP of this service with these fields besides.
    pub fn create_qp(&mut self, service: u64, fields: &[(Field, u64)]) -> Result<u32, Status> {
        let memory = Memory {
            ring: self.page(),
            record: self.page(),
            sends: 0,
        };
        let common = [
            (qpc::ST, service),
            (qpc::PD, self.pd.into()),
            (qpc::LOG_RQ_SIZE, LOG_PLACES),
            (qpc::LOG_RQ_STRIDE, 2),
            (qpc::LOG_SQ_SIZE, LOG_PLACES),
            (qpc::UAR_PAGE, self.uar.into()),
            (qpc::CQN_SND, self.cqn.into()),
            (qpc::CQN_RCV, self.cqn.into()),
            (qpc::DBR_ADDR, memory.record),
        ];
        let fields: Vec<_> = [&common, fields]
            .concat()
            .into_iter()
            .map(|(field, value)| (create_qp_in::QPC.part(field), value))
            .collect();
        let input = Self::input(create_qp_in::SIZE, &fields, Some(memory.ring));
        let out = self.hca.create_qp(&input)?;
        let qpn = out.bits32(create_qp_out::QPN);
        self.queues.insert((false, qpn), memory);
        Ok(qpn)
    }

    /// An XRC target of the domain.
    pub fn target(&mut self) -> u32 {
        let fields = [
            (qpc::NO_SQ, 1),
            (qpc::RQ_TYPE, 1),
            (qpc::XRCD, self.xrcd.into()),
        ];
        self.create_qp(XRC, &fields).unwrap()
    }

    /// An XRC initiator.
    pub fn initiator(&mut self) -> u32 {
        self.create_qp(XRC, &[(qpc::RQ_TYPE, 3)]).unwrap()
    }

    /// One of the commands that change a QP, with these fields of its context.
    pub fn modify(&mut self, opcode: u16, qpn: u32, fields: &[(Field, u64)]) -> Result<(), Status> {
        let mut input = vec![0; init2rtr_qp_in::SIZE];
        input.set_bits(init2rtr_qp_in::QPN, u64::from(qpn));
        for (field, value) in fields {
            input.set_bits(init2rtr_qp_in::QPC.part(*field), *value);
        }
        self.hca
            .modify_qp(opcode, &input, Instant::now())
            .map(|_| ())
    }

    /// Takes a QP to RTS, with a peer behind this LID.
    pub fn connect(&mut self, qpn: u32, lid: u16, remote: u32) {
        let path = |field: Field| qpc::PRIMARY_ADDRESS_PATH.part(field);
        let start = [
            (path(ads::VHCA_PORT_NUM), 1),
            (qpc::RWE, 1),
            (qpc::PM_STATE, Migration::Migrated as u64),
        ];
        self.modify(op::RST2INIT_QP, qpn, &start).unwrap();
        let connect = [
            (qpc::MTU, 5),
            (qpc::LOG_MSG_MAX, 20),
            (qpc::REMOTE_QPN, remote.into()),
            (path(ads::RLID), lid.into()),
        ];
        self.modify(op::INIT2RTR_QP, qpn, &connect).unwrap();
        if !self.hca.qps.get(qpn).unwrap().context.has_no_sq() {
            self.modify(op::RTR2RTS_QP, qpn, &[]).unwrap();
        }
    }

    pub fn write(&self, address: u64, data: &[u8]) {
        self.hca.dma.memory.write(address, data).unwrap();
    }

    fn segment(&self, length: u32, address: u64) -> [u8; 16] {
        let mut segment = [0; 16];
        segment.set_be32(0, length);
        segment.set_be32(4, self.key);
        segment.set_be64(8, address);
        segment
    }

    /// Posts the first receive of a QP, or of an SRQ.
    pub fn post_receive(&self, number: u32, is_srq: bool, length: u32, address: u64) {
        let memory = self.queues[&(is_srq, number)];
        let mut end = [0; 16];
        end.set_be32(4, TERMINATOR_LKEY);
        let list = [self.segment(length, address), end].concat();
        let header = if is_srq { 16 } else { 0 };
        self.write(memory.ring + header, &list);
        self.write(memory.record, &1u32.to_be_bytes());
    }

    /// Posts a request to a QP, and rings: a SEND, for an SRQ if `srqn` names one, or a WRITE to
    /// `remote`.
    pub fn post_send(
        &mut self,
        qpn: u32,
        srqn: Option<u32>,
        remote: Option<(u64, u32)>,
        (length, address): (u32, u64),
    ) {
        let memory = self.queues[&(false, qpn)];
        let mut wqe = vec![0; 16];
        wqe[3] = if remote.is_some() { WRITE } else { SEND };
        // MLX5_WQE_CTRL_CQ_UPDATE.
        wqe[11] = 2 << 2;
        if let Some(srqn) = srqn {
            let mut segment = [0; 16];
            segment.set_be32(0, srqn);
            wqe.extend_from_slice(&segment);
        }
        if let Some((address, key)) = remote {
            let mut segment = [0; 16];
            segment.set_be64(0, address);
            segment.set_be32(8, key);
            wqe.extend_from_slice(&segment);
        }
        wqe.extend_from_slice(&self.segment(length, address));
        let ds = (wqe.len() / 16) as u32;
        wqe.set_be32(4, qpn << 8 | ds);
        // An SRQ takes the place of a receive queue, and an initiator has none.
        let queue = if self.hca.qps.get(qpn).unwrap().context.has_rq() {
            SEND_QUEUE
        } else {
            0
        };
        let place = u64::from(memory.sends) % (1 << LOG_PLACES) * STRIDE;
        self.write(memory.ring + queue + place, &wqe);
        let sends = memory.sends + 1;
        self.write(memory.record + 4, &sends.to_be_bytes());
        self.queues.get_mut(&(false, qpn)).unwrap().sends = sends;
        let doorbell = u64::from(self.uar) * PAGE + SEND_DOORBELL;
        self.hca.write_segment(doorbell, &wqe[..8], Instant::now());
    }
}
