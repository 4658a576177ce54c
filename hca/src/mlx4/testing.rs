// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A bench for unit tests: one adapter on plain memory, brought up and used as a driver would. A
//! test that ends with violations it has not asked for fails.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::engine::administration::Administration;
use crate::engine::bytes::Fields;
use crate::engine::fabric::Fabric;
use crate::engine::headers::{tests::raw, RawDatagram};
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Status};
use crate::mlx4::cq::CQE_SIZE;
use crate::mlx4::eq::EQE_SIZE;
use crate::mlx4::icm::Buffer;

const RAM: u64 = 0x10_0000;
const RAM_SIZE: usize = 8 << 20;
pub const INBOX: u64 = RAM;
pub const OUTBOX: u64 = RAM + 0x1000;
/// A MiB of ICM: MTTs, then dMPTs.
pub const ICM_GUEST: u64 = RAM + 0x10_0000;
const DMPT_BASE: u64 = 0x8_0000;
/// The place of contexts: 4 GiB of ICM for those of objects, and as much for control MPTs. The
/// model never looks inside.
const CONTEXTS: u64 = 1 << 32;
const CMPT_BASE: u64 = 2 << 32;
/// Its parts, by the offset of their base in the INIT_HCA mailbox, with log2 of their entries.
const CONTEXT_TABLES: [(usize, u64); 8] = [
    (0x30, CONTEXTS + 18),
    (0x48, CONTEXTS + 0x1000_0000 + 16),
    (0x50, CONTEXTS + 0x2000_0000 + 16),
    (0x60, CONTEXTS + 0x3000_0000),
    (0x70, CONTEXTS + 0x4000_0000),
    (0x80, CONTEXTS + 0x5000_0000 + 7),
    // Sixteen entries for each QP.
    (0x90, CONTEXTS + 0x6000_0000 + 4),
    // Of multicast groups, whose number has a place of its own.
    (0xc0, CONTEXTS + 0x7000_0000),
];
/// Pages of the host's that the model only counts: those for firmware, those for auxiliary ICM,
/// and those for contexts.
pub const LENT: [u64; 4] = [1 << 40, 2 << 40, 3 << 40, 4 << 40];
/// Everything else.
pub const HEAP: u64 = RAM + 0x30_0000;

/// The driver's memory for a QP's queues: four sends and four receives of 128 bytes.
struct QpMemory {
    buffer: Buffer,
    doorbell: u64,
    sends: u32,
    receives: u32,
}

/// The parameters of a QP and of its connection.
#[derive(Clone, Copy)]
pub struct QpSetup {
    pub service: u32,
    pub pd: u32,
    pub xrcd: u32,
    pub srqn: Option<u32>,
    pub send_cqn: u32,
    pub recv_cqn: u32,
    pub remote_qpn: u32,
    /// Our port and the other's LID.
    pub path: (u8, u16),
    pub alternate: (u8, u16),
    /// MLX4_QP_BIT_*.
    pub access: u32,
    pub timeout: u8,
    pub retries: u32,
    pub rnr_retries: u32,
    pub rnr_timer: u32,
    pub migration: u32,
    pub mtu: u8,
    pub qkey: u32,
    pub pkey_index: u8,
    pub uar: u32,
    /// Sizes and strides of the receive queue and the send queue.
    pub queues: (u8, u8),
    /// log2 of the RDMA READs under way: from the other end, and to it.
    pub log_reads: (u32, u32),
    pub send_psn: u32,
    pub receive_psn: u32,
    /// The other's GID, when there is a GRH.
    pub remote_gid: Option<[u8; 16]>,
    pub path_bits: u8,
    pub service_level: u8,
}

impl QpSetup {
    /// A QP of this service to `remote_qpn` at port 2, with every access, one retry of each kind
    /// and a short timeout.
    pub fn new(service: u32, remote_qpn: u32) -> Self {
        Self {
            service,
            pd: Bench::PD,
            xrcd: 0,
            srqn: None,
            send_cqn: Bench::SEND_CQN,
            recv_cqn: Bench::RECV_CQN,
            remote_qpn,
            path: (1, 2),
            alternate: (2, 1),
            access: 7 << 13,
            timeout: 8,
            retries: 1,
            rnr_retries: 1,
            rnr_timer: 12,
            migration: 3,
            mtu: 5,
            qkey: Bench::QKEY,
            pkey_index: 0,
            uar: Bench::UAR,
            queues: (2 << 3 | 3, 2 << 3 | 3),
            log_reads: (4, 4),
            send_psn: 0,
            receive_psn: 0,
            remote_gid: None,
            path_bits: 0,
            service_level: 0,
        }
    }

    /// The mailbox of every modify command at once.
    pub fn mailbox(&self, memory: Option<(u64, u64)>) -> [u8; 0x100] {
        let mut mailbox = [0; 0x100];
        let context = &mut mailbox[8..];
        let port = |port: u8| 0x83 | (port - 1) << 6;
        context.set_be32(0x00, self.service << 16 | self.migration << 11);
        context.set_be32(0x04, self.pd);
        context.set_u8(0x08, self.mtu << 5 | 20);
        context.set_u8(0x09, self.queues.0);
        context.set_u8(0x0a, self.queues.1);
        context.set_be32(0x0c, self.uar);
        context.set_be32(0x14, self.remote_qpn);
        for (at, (ours, theirs)) in [(0x18, self.path), (0x44, self.alternate)] {
            context.set_be16(at + 0x06, theirs);
            context.set_u8(at + 0x08, self.timeout << 3);
            context.set_u8(at + 0x05, self.path_bits);
            context.set_u8(at + 0x20, port(ours) | self.service_level << 2);
            context.set_u8(at + 0x03, self.pkey_index);
            if let Some(gid) = self.remote_gid {
                context.set_u8(at + 0x05, 0x80 | self.path_bits);
                context.set_field(at + 0x10, &gid);
            }
        }
        let (reads_in, reads_out) = self.log_reads;
        context.set_be32(
            0x70,
            reads_out << 21 | self.retries << 16 | self.rnr_retries << 13,
        );
        context.set_be32(0x7c, self.send_cqn);
        context.set_be32(0x90, reads_in << 21 | self.access);
        context.set_be32(0x94, self.rnr_timer << 24 | self.receive_psn);
        context.set_be32(0x78, self.send_psn);
        context.set_be32(0x98, self.xrcd);
        context.set_be32(0x9c, self.recv_cqn);
        context.set_be32(0xa8, self.qkey);
        if let Some(srqn) = self.srqn {
            context.set_be32(0xac, 1 << 24 | srqn);
        }
        if let Some((mtt, doorbell)) = memory {
            context.set_be32(0xcc, mtt as u32);
            context.set_be64(0xa0, doorbell);
        }
        mailbox
    }
}

pub struct Bench {
    pub hca: Hca,
    pub administration: Administration,
    heap: u64,
    mtt: u64,
    eqs: BTreeMap<u32, Buffer>,
    cqs: BTreeMap<u32, (Buffer, u64)>,
    srqs: BTreeMap<u32, (Buffer, u64)>,
    qps: BTreeMap<u32, QpMemory>,
    pub now: Instant,
}

impl Bench {
    pub const PD: u32 = 0x8001;
    pub const UAR: u32 = 130;
    pub const QKEY: u32 = 0x1111_1111;
    /// QP0 and QP1 of port 1; those of port 2 follow.
    pub const QP0: u32 = 8;
    pub const QP1: u32 = 10;
    pub const SEND_CQN: u32 = 0x81;
    pub const RECV_CQN: u32 = 0x82;

    /// A device that the driver has enabled, but not talked to.
    pub fn reset() -> Self {
        let mut hca = Hca::new(0);
        hca.dma.memory.add_ram(RAM, RAM_SIZE, true);
        hca.write_config(4, &[0x06, 0x04]);
        Self {
            hca,
            administration: Administration::default(),
            heap: HEAP,
            mtt: 0,
            eqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            now: Instant::now(),
        }
    }

    /// A device with its HCA and both ports initialised.
    pub fn new() -> Self {
        let mut bench = Self::reset();
        bench.run(0x004, 0, 0, &[]).unwrap();
        bench.lend(0xfff, &[(0, LENT[0], 4)]).unwrap();
        bench.run(0xff6, 0, 0, &[]).unwrap();
        bench.run(0xffd, 0, 0, &[]).unwrap();
        bench.lend(0xffc, &[(0, LENT[1], 5)]).unwrap();
        let icm = [
            (0, ICM_GUEST, 8),
            (CONTEXTS, LENT[2], 20),
            (CMPT_BASE, LENT[3], 20),
        ];
        bench.lend(0xffa, &icm).unwrap();
        bench.run(0x007, 0, 0, &Self::init_hca()).unwrap();
        for port in [1, 2] {
            bench.run(0x009, port, 0, &[]).unwrap();
        }
        bench.hca.counters = Default::default();
        bench.hca.card.events.raised.clear();
        bench
    }

    /// The mailbox of INIT_HCA.
    pub fn init_hca() -> [u8; 0x200] {
        let mut mailbox = [0; 0x200];
        for (at, base) in CONTEXT_TABLES {
            mailbox.set_be64(at, base);
        }
        mailbox.set_u8(0xd3, 10);
        mailbox.set_u8(0xdb, 13);
        mailbox.set_be64(0xf0, DMPT_BASE);
        mailbox.set_u8(0xfb, 19);
        mailbox.set_be64(0x108, CMPT_BASE);
        mailbox
    }

    /// MAP_FA, MAP_ICM_AUX or MAP_ICM of chunks: ICM address, guest address, log2 of pages.
    pub fn lend(&mut self, opcode: u16, chunks: &[(u64, u64, u64)]) -> Result<(), Status> {
        let mut mailbox = vec![0; chunks.len() * 16];
        for (entry, (icm, guest, log_pages)) in mailbox.chunks_exact_mut(16).zip(chunks) {
            entry.set_be64(0, *icm);
            entry.set_be64(8, guest | log_pages);
        }
        self.run(opcode, chunks.len() as u32, 0, &mailbox)
            .map(|_| ())
    }

    /// The violations so far, which the test has meant to cause.
    pub fn violations(&self) -> Vec<Violation> {
        self.hca.dma.violations.take()
    }

    /// Fresh pages of guest RAM.
    pub fn pages(&mut self, count: u64) -> u64 {
        let page = self.heap;
        self.heap += count << 12;
        page
    }

    /// MTTs for `count` fresh pages: their offset, and the first page.
    pub fn buffer(&mut self, count: u64) -> (u64, u64) {
        let mtt = self.mtt;
        let first = self.pages(count);
        for index in 0..count {
            let entry = (first + (index << 12)) | 1;
            let at = ICM_GUEST + self.mtt;
            self.hca.dma.memory.write(at, &entry.to_be_bytes()).unwrap();
            self.mtt += 8;
        }
        // A hole, so that running over the end is noticed.
        self.mtt += 8;
        (mtt, first)
    }

    pub fn command(opcode: u16, in_modifier: u32) -> Command {
        Command {
            opcode,
            opmod: 0,
            in_param: INBOX,
            in_modifier,
            out_param: OUTBOX,
            token: 1,
            event: false,
        }
    }

    /// Posts a command through the HCR and waits for it.
    pub fn run(
        &mut self,
        opcode: u16,
        modifier: u32,
        opmod: u8,
        mailbox: &[u8],
    ) -> Result<Option<u64>, Status> {
        self.run_immediate(opcode, modifier, opmod, mailbox, INBOX)
    }

    pub fn run_immediate(
        &mut self,
        opcode: u16,
        modifier: u32,
        opmod: u8,
        mailbox: &[u8],
        in_param: u64,
    ) -> Result<Option<u64>, Status> {
        self.hca.dma.memory.write(INBOX, mailbox).unwrap();
        let status_before = self.hca.counters.commands.clone();
        let word = 1 << 23 | u32::from(opmod) << 12 | u32::from(opcode);
        for (index, value) in [
            (in_param >> 32) as u32,
            in_param as u32,
            modifier,
            (OUTBOX >> 32) as u32,
            OUTBOX as u32,
            1 << 16,
            word,
        ]
        .into_iter()
        .enumerate()
        {
            let at = 0x80680 + 4 * index as u64;
            self.hca.write_registers(at, &value.to_be_bytes(), self.now);
        }
        assert_ne!(status_before, self.hca.counters.commands);
        let mut status = [0; 4];
        self.hca.read_registers(0x80698, &mut status);
        match status[0] {
            0 => Ok(None),
            number => Err(Status::try_from(number).unwrap()),
        }
    }

    /// The mailbox that the last command wrote.
    pub fn output(&self, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        self.hca.dma.memory.read(OUTBOX, &mut data).unwrap();
        data
    }

    pub fn create_eq(&mut self, eqn: u32, log_entries: u8) -> Result<Option<u64>, Status> {
        let (mtt, _) = self.buffer(1);
        let mut context = [0; 0x40];
        context.set_be32(0x00, 9 << 8);
        context.set_u8(0x0c, log_entries);
        context.set_u8(0x17, eqn as u8);
        context.set_be32(0x1c, mtt as u32);
        self.eqs.insert(eqn, Buffer::new(mtt, 12).unwrap());
        self.run(0x13, eqn, 0, &context)
    }

    /// An EQ that takes every asynchronous event, and asks for interrupts on vector `eqn`.
    pub fn eq(&mut self, eqn: u32, log_entries: u8) {
        self.create_eq(eqn, log_entries).unwrap();
        self.run_immediate(0x12, eqn, 0, &[], u64::MAX).unwrap();
    }

    pub fn eqe(&self, eqn: u32, index: u64) -> [u8; EQE_SIZE] {
        let mut entry = [0; EQE_SIZE];
        let at = index * EQE_SIZE as u64;
        self.eqs[&eqn].read(&self.hca.dma, at, &mut entry).unwrap();
        entry
    }

    /// Entries the driver would find in EQ 1, of at most one round.
    pub fn events(&self) -> usize {
        (0..16).filter(|&index| self.eqe(1, index)[31] == 0).count()
    }

    /// Type and object of the last of them.
    pub fn last_event(&self) -> Option<(u8, u32)> {
        let last = (0..16).rfind(|&index| self.eqe(1, index)[31] == 0)?;
        let entry = self.eqe(1, last);
        Some((entry[1], entry.get_be32(4)))
    }

    /// All of them.
    pub fn event_types(&self) -> Vec<u8> {
        (0..16)
            .map(|index| self.eqe(1, index))
            .filter(|entry| entry[31] == 0)
            .map(|entry| entry[1])
            .collect()
    }

    /// A CQ that is rung from this page.
    pub fn create_cq_of_page(&mut self, cqn: u32, page: u32) -> Result<Option<u64>, Status> {
        let (mut context, _, _) = self.cq_context(2);
        context.set_be32(0x0c, 2 << 24 | page);
        self.run(0x16, cqn, 0, &context)
    }

    fn cq_context(&mut self, log_entries: u8) -> ([u8; 0x40], Buffer, u64) {
        let (mtt, _) = self.buffer(1);
        let doorbell = self.pages(1);
        let mut context = [0; 0x40];
        context.set_be32(0x0c, u32::from(log_entries) << 24 | Self::UAR);
        context.set_u8(0x17, 1);
        context.set_be32(0x1c, mtt as u32);
        context.set_be64(0x38, doorbell);
        (context, Buffer::new(mtt, 12).unwrap(), doorbell)
    }

    pub fn create_cq(&mut self, cqn: u32, log_entries: u8) -> Result<Option<u64>, Status> {
        let (context, buffer, doorbell) = self.cq_context(log_entries);
        let result = self.run(0x16, cqn, 0, &context);
        if result.is_ok() {
            self.cqs.insert(cqn, (buffer, doorbell));
        }
        result
    }

    pub fn cq(&mut self, cqn: u32, log_entries: u8) {
        self.create_cq(cqn, log_entries).unwrap();
    }

    pub fn resize_cq(&mut self, cqn: u32, log_entries: u8) -> Result<Option<u64>, Status> {
        let (context, buffer, _) = self.cq_context(log_entries);
        let result = self.run(0x2c, cqn, 0, &context);
        if result.is_ok() {
            self.cqs.get_mut(&cqn).unwrap().0 = buffer;
        }
        result
    }

    pub fn cq_buffer(&self, cqn: u32) -> Buffer {
        self.cqs[&cqn].0
    }

    pub fn cqe(&self, cqn: u32, index: u64) -> [u8; CQE_SIZE] {
        let mut entry = [0; CQE_SIZE];
        let at = index * CQE_SIZE as u64;
        let buffer = self.cqs[&cqn].0;
        buffer.read(&self.hca.dma, at, &mut entry).unwrap();
        entry
    }

    pub fn set_cq_consumer(&mut self, cqn: u32, index: u32) {
        let doorbell = self.cqs[&cqn].1;
        let index = index.to_be_bytes();
        self.hca.dma.memory.write(doorbell, &index).unwrap();
    }

    /// Rings the doorbell of an EQ: its consumer index, and whether to interrupt.
    pub fn ring_eq(&mut self, eqn: u32, value: u32) {
        let at = u64::from(eqn / 4) << 12 | 0x800 | u64::from(eqn % 4) << 3;
        self.hca.write_doorbell(at, &value.to_be_bytes());
    }

    pub fn arm_cq(&mut self, cqn: u32, command: u32, index: u32) {
        let page = u64::from(Self::UAR) << 12;
        let mut doorbell = [0; 8];
        doorbell.set_be32(0, command << 24 | cqn);
        doorbell.set_be32(4, index);
        self.hca.write_doorbell(page | 0x20, &doorbell);
    }

    /// An SRQ of WQEs with three scatter entries.
    pub fn srq(&mut self, srqn: u32, log_wqes: u8, xrcd: u16, cqn: u32) {
        self.create_srq(srqn, log_wqes, xrcd, cqn).unwrap();
        let order: Vec<u16> = (0..1 << log_wqes).collect();
        self.link_srq(srqn, &order);
    }

    pub fn create_srq(
        &mut self,
        srqn: u32,
        log_wqes: u8,
        xrcd: u16,
        cqn: u32,
    ) -> Result<(), Status> {
        let (mtt, _) = self.buffer(1);
        let doorbell = self.pages(1);
        let mut context = [0; 0x30];
        context.set_be32(0x00, u32::from(log_wqes) << 24 | srqn);
        context.set_u8(0x04, 2);
        context.set_be16(0x06, xrcd);
        context.set_be32(0x08, cqn);
        context.set_be32(0x14, mtt as u32);
        context.set_be32(0x18, Self::PD);
        context.set_be64(0x28, doorbell);
        let buffer = Buffer::new(mtt, 12).unwrap();
        self.run(0x35, srqn, 0, &context)?;
        self.srqs.insert(srqn, (buffer, doorbell));
        Ok(())
    }

    /// Returns the address of the first MTT of an SRQ's buffer.
    pub fn srq_mtt(&self, srqn: u32) -> u64 {
        ICM_GUEST + self.srqs[&srqn].0.mtt()
    }

    /// Chains the WQEs in this order.
    pub fn link_srq(&mut self, srqn: u32, order: &[u16]) {
        let buffer = self.srqs[&srqn].0;
        for pair in order.windows(2) {
            let at = u64::from(pair[0]) * 64 + 2;
            buffer
                .write(&self.hca.dma, at, &pair[1].to_be_bytes())
                .unwrap();
        }
    }

    /// Fills the first scatter entry of SRQ WQE `index`, and ends the list there.
    pub fn fill_srq(&mut self, srqn: u32, index: u64, length: u32, lkey: u32, address: u64) {
        let buffer = self.srqs[&srqn].0;
        let mut list = [0; 32];
        list.set_be32(0, length);
        list.set_be32(4, lkey);
        list.set_be64(8, address);
        list.set_be32(20, 0x100);
        buffer.write(&self.hca.dma, index * 64 + 16, &list).unwrap();
    }

    /// Writes the doorbell record; `count` is the number of all WQEs that were posted.
    pub fn post_srq(&mut self, srqn: u32, count: u32) {
        let doorbell = self.srqs[&srqn].1;
        let count = count.to_be_bytes();
        self.hca.dma.memory.write(doorbell, &count).unwrap();
    }

    pub fn arm_srq(&mut self, srqn: u32, limit: u64) {
        self.run_immediate(0x40, srqn, 0, &[], limit).unwrap();
    }

    /// A region over fresh pages: its key, and the first page.
    pub fn region(&mut self, index: u32, start: u64, length: u64, flags: u32) -> (u32, u64) {
        self.region_of(Self::PD, index, start, length, flags)
    }

    pub fn region_of(
        &mut self,
        pd: u32,
        index: u32,
        start: u64,
        length: u64,
        flags: u32,
    ) -> (u32, u64) {
        self.create_region(pd, index, start, length, flags).unwrap()
    }

    pub fn try_region(
        &mut self,
        index: u32,
        start: u64,
        length: u64,
        flags: u32,
    ) -> Result<(u32, u64), Status> {
        self.create_region(Self::PD, index, start, length, flags)
    }

    fn create_region(
        &mut self,
        pd: u32,
        index: u32,
        start: u64,
        length: u64,
        flags: u32,
    ) -> Result<(u32, u64), Status> {
        let (mtt, page) = self.buffer((length >> 12) + 2);
        let mut entry = [0; 0x40];
        entry.set_be32(0x00, 0xf << 28 | 1 << 8 | flags);
        entry.set_be32(0x08, 0xab << 24 | index);
        entry.set_be32(0x0c, 3 << 24 | pd);
        entry.set_be64(0x10, start);
        entry.set_be64(0x18, length);
        entry.set_be64(0x2c, mtt);
        entry.set_be32(0x38, 12);
        self.run(0x0d, index, 0, &entry)?;
        Ok((index << 8 | 0xab, page))
    }

    pub fn close_region(&mut self, index: u32) -> Result<Option<u64>, Status> {
        self.run(0x0f, index, 1, &[])
    }

    pub fn edit_region(&mut self, index: u32, edit: impl FnOnce(&mut [u8; 0x40])) {
        let at = ICM_GUEST + DMPT_BASE + u64::from(index) * 0x40;
        let mut entry = self.hca.dma.memory.block(at).unwrap();
        edit(&mut entry);
        self.hca.dma.memory.write(at, &entry).unwrap();
    }

    pub fn sync_tpt(&mut self) {
        self.run(0x2f, 0, 0, &[]).unwrap();
    }

    /// A bench with the queues that connections need: EQ 1, a CQ for sends and one for receives.
    pub fn connected() -> Self {
        let mut bench = Self::new();
        bench.eq(1, 4);
        bench.cq(Self::SEND_CQN, 4);
        bench.cq(Self::RECV_CQN, 4);
        bench
    }

    pub fn modify(&mut self, opcode: u16, qpn: u32, mailbox: &[u8]) -> Result<(), Status> {
        self.run(opcode, qpn, 0, mailbox).map(|_| ())
    }

    /// A QP in INIT, as `mlx4_ib` leaves it: every send WQE belongs to software.
    pub fn qp_init(&mut self, qpn: u32, setup: &QpSetup) {
        self.create_qp(qpn, setup).unwrap();
    }

    pub fn create_qp(&mut self, qpn: u32, setup: &QpSetup) -> Result<(), Status> {
        let (mtt, _) = self.buffer(1);
        let doorbell = self.pages(1);
        let buffer = Buffer::new(mtt, 12).unwrap();
        let memory = QpMemory {
            buffer,
            doorbell,
            sends: 0,
            receives: 0,
        };
        for index in 0..4 {
            let owner = 0x80;
            buffer.write(&self.hca.dma, index * 128, &[owner]).unwrap();
        }
        self.qps.insert(qpn, memory);
        let mailbox = setup.mailbox(Some((mtt, doorbell)));
        self.modify(0x19, qpn, &mailbox)
    }

    pub fn qp_rtr(&mut self, qpn: u32, setup: &QpSetup) {
        self.qp_init(qpn, setup);
        let mut mailbox = setup.mailbox(None);
        // Alternate path, access rights and migration state.
        mailbox.set_be32(0, 1 | 0xe | 1 << 10);
        self.modify(0x1a, qpn, &mailbox).unwrap();
    }

    pub fn qp_rts(&mut self, qpn: u32, setup: &QpSetup) {
        self.qp_rtr(qpn, setup);
        self.modify(0x1b, qpn, &setup.mailbox(None)).unwrap();
    }

    /// Two QPs of this service that talk to each other, the second at port 2.
    pub fn pair(&mut self, service: u32, first: u32, second: u32) {
        self.qp_rts(first, &QpSetup::new(service, second));
        let back = QpSetup {
            path: (2, 1),
            alternate: (1, 2),
            ..QpSetup::new(service, first)
        };
        self.qp_rts(second, &back);
    }

    /// Posts a send WQE whose first byte this completes with the owner bit, and rings.
    pub fn post_send(&mut self, qpn: u32, wqe: Vec<u8>) {
        self.try_post_send(qpn, wqe).unwrap();
    }

    /// The same where the guest may have lost its own buffer.
    pub fn try_post_send(&mut self, qpn: u32, mut wqe: Vec<u8>) -> Result<(), DmaError> {
        let memory = self.qps.get_mut(&qpn).unwrap();
        let owner = if memory.sends & 4 != 0 { 0x80 } else { 0 };
        wqe[0] = wqe[0] & 0x7f | owner;
        let at = u64::from(memory.sends & 3) * 128;
        memory.buffer.write(&self.hca.dma, at, &wqe)?;
        memory.sends += 1;
        let page = u64::from(Self::UAR) << 12;
        let number = qpn << 8;
        self.hca.write_doorbell(page | 0x14, &number.to_be_bytes());
        Ok(())
    }

    /// Posts a receive of one scatter entry. The receive queue follows the sends.
    pub fn post_receive(&mut self, qpn: u32, length: u32, lkey: u32, address: u64) {
        let memory = self.qps.get_mut(&qpn).unwrap();
        let at = 512 + u64::from(memory.receives & 3) * 128;
        let mut list = [0; 128];
        list.set_be32(0, length);
        list.set_be32(4, lkey);
        list.set_be64(8, address);
        list.set_be32(20, 0x100);
        memory.buffer.write(&self.hca.dma, at, &list).unwrap();
        memory.receives += 1;
        let count = memory.receives.to_be_bytes();
        self.hca.dma.memory.write(memory.doorbell, &count).unwrap();
    }

    /// Receives posted to a QP.
    pub fn receives(&self, qpn: u32) -> u32 {
        self.qps[&qpn].receives
    }

    /// The device has written completion `index`, counted over all rounds, into the CQ for receives
    /// of 16 entries.
    pub fn received(&self, index: u32) -> bool {
        let cqe = self.cqe(Self::RECV_CQN, u64::from(index % 16));
        cqe[31] != 0xcc && (cqe[31] & 0x80 != 0) == (index & 16 != 0)
    }

    /// A send WQE: opcode, immediate data, remote address and key, one gather entry.
    pub fn wqe(
        opcode: u8,
        srqn: u32,
        remote: Option<(u64, u32)>,
        local: (u32, u32, u64),
    ) -> Vec<u8> {
        let mut wqe = vec![0; 16];
        wqe[3] = opcode;
        wqe.set_be32(8, srqn << 8 | 3 << 2);
        wqe.set_be32(12, 0xcafe_f00d);
        if let Some((address, rkey)) = remote {
            let mut segment = [0; 16];
            segment.set_be64(0, address);
            segment.set_be32(8, rkey);
            wqe.extend_from_slice(&segment);
        }
        let mut segment = [0; 16];
        segment.set_be32(0, local.0);
        segment.set_be32(4, local.1);
        segment.set_be64(8, local.2);
        wqe.extend_from_slice(&segment);
        wqe[7] = (wqe.len() / 16) as u8;
        wqe
    }

    /// Does all that is due now.
    pub fn settle(&mut self) {
        let hca = std::mem::replace(&mut self.hca, Hca::new(7));
        let mut fabric = Fabric::new(vec![Box::new(hca)]);
        fabric.administration = std::mem::take(&mut self.administration);
        while fabric
            .run(self.now)
            .is_some_and(|deadline| deadline <= self.now)
        {}
        self.hca = *fabric.hcas.pop().unwrap();
        self.administration = fabric.administration;
    }

    /// QP0 and QP1 of both ports.
    pub fn special_qps(&mut self) {
        const MLX: u32 = 7;
        self.run(0x23, Self::QP0, 0, &[]).unwrap();
        for (qpn, port, qkey) in [
            (Self::QP0, 1, 0),
            (Self::QP0 + 1, 2, 0),
            (Self::QP1, 1, 0x8001_0000),
            (Self::QP1 + 1, 2, 0x8001_0000),
        ] {
            let setup = QpSetup {
                path: (port, 0),
                qkey,
                ..QpSetup::new(MLX, 0)
            };
            self.qp_rts(qpn, &setup);
        }
    }

    /// The WQE of QP0 or QP1 that sends `datagram`, as `build_mlx_header()` makes it: the headers
    /// inline, the payload in memory, room for the CRC inline.
    pub fn management_wqe(datagram: &RawDatagram, lkey: u32, address: u64) -> Vec<u8> {
        const SEND: u8 = 0x0a;
        const LINE: usize = 64;
        const INLINE: u32 = 1 << 31;
        let packet = raw(datagram);
        let length = datagram.payload.len();
        let mut headers = &packet[..packet.len() - length - 4];
        let mut wqe = vec![0; 16];
        wqe[3] = SEND;
        wqe.set_be32(8, 3 << 2);
        wqe.set_be16(12, datagram.dlid);
        while !headers.is_empty() {
            let room = LINE - wqe.len() % LINE - 4;
            let (now, later) = headers.split_at(room.min(headers.len()));
            wqe.extend_from_slice(&(INLINE | now.len() as u32).to_be_bytes());
            wqe.extend_from_slice(now);
            headers = later;
        }
        wqe.resize(wqe.len().next_multiple_of(16), 0);
        let mut rest = [0; 32];
        rest.set_be32(0, length as u32);
        rest.set_be32(4, lkey);
        rest.set_be64(8, address);
        rest.set_be32(16, INLINE | 4);
        wqe.extend_from_slice(&rest);
        wqe[7] = (wqe.len() / 16) as u8;
        wqe
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    /// The next thing that would happen by itself, from now.
    pub fn next_timer(&self) -> Option<Duration> {
        let deadline = self.hca.schedule.deadline(self.now)?;
        Some(deadline.saturating_duration_since(self.now))
    }

    /// Status of completion `index` of a CQ: None is not there, 0 is success.
    pub fn completion(&self, cqn: u32, index: u64) -> Option<u8> {
        let cqe = self.cqe(cqn, index);
        match cqe[31] {
            0xcc => None,
            opcode if opcode & 0x1f == 0x1e => Some(cqe[27]),
            _ => Some(0),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.violations(), []);
        }
    }
}
