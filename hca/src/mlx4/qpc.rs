// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The QP context: the driver's own bytes, because QUERY_QP returns them, read through the names of
//! their fields. [`crate::mlx4::qp`] knows which of them a modify command may change.

use std::time::Duration;

use crate::engine::bytes::Fields;
use crate::engine::headers::Grh;
use crate::engine::qp::{self, Context as _};
use crate::engine::transport::{ack_timeout, rnr_timer, Migration, Path, Service, State};
use crate::mlx4::icm::Buffer;

/// Size of the context in a command's mailbox.
pub const CONTEXT_SIZE: usize = 0xf8;
/// log2 of the longest message.
pub const LOG_MAX_MESSAGE: u8 = 30;

// struct mlx4_qp_context.
const QPC_FLAGS: usize = 0x00;
const QPC_PD: usize = 0x04;
const QPC_MTU_MSGMAX: usize = 0x08;
const QPC_RQ_SIZE_STRIDE: usize = 0x09;
const QPC_SQ_SIZE_STRIDE: usize = 0x0a;
const QPC_RLKEY_ROCE_MODE: usize = 0x0b;
const QPC_USR_PAGE: usize = 0x0c;
const QPC_LOCAL_QPN: usize = 0x10;
const QPC_REMOTE_QPN: usize = 0x14;
const QPC_PRI_PATH: usize = 0x18;
const QPC_ALT_PATH: usize = 0x44;
const QPC_PARAMS1: usize = 0x70;
const QPC_NEXT_SEND_PSN: usize = 0x78;
const QPC_CQN_SEND: usize = 0x7c;
const QPC_PARAMS2: usize = 0x90;
const QPC_RNR_NEXTRECVPSN: usize = 0x94;
const QPC_XRCD: usize = 0x98;
const QPC_CQN_RECV: usize = 0x9c;
const QPC_DB_REC_ADDR: usize = 0xa0;
const QPC_QKEY: usize = 0xa8;
const QPC_SRQN: usize = 0xac;
const QPC_LOG_PAGE_SIZE: usize = 0xc8;

/// In [`QPC_RLKEY_ROCE_MODE`].
const RLKEY: u8 = 1 << 4;

// struct mlx4_qp_path.
const PATH_SIZE: usize = 0x2c;
const PATH_PKEY_INDEX: usize = 0x03;
const PATH_GRH_MYLMC: usize = 0x05;
const PATH_RLID: usize = 0x06;
const PATH_ACKTO: usize = 0x08;
const PATH_MGID_INDEX: usize = 0x09;
const PATH_HOP_LIMIT: usize = 0x0b;
const PATH_TCLASS_FLOWLABEL: usize = 0x0c;
const PATH_RGID: usize = 0x10;
const PATH_SCHED_QUEUE: usize = 0x20;
/// In PATH_SCHED_QUEUE: port 2.
const SCHED_QUEUE_PORT_2: u8 = 1 << 6;
/// In PATH_SCHED_QUEUE: the service level.
const SCHED_QUEUE_SL_SHIFT: u32 = 2;
/// In PATH_GRH_MYLMC: packets have a GRH; below it, path bits.
const GRH_PRESENT: u8 = 1 << 7;
/// In PATH_PKEY_INDEX.
const PKEY_INDEX_MASK: u8 = 0x7f;
/// In PATH_ACKTO: the timeout; below it, the link type.
const ACKTO_MASK: u8 = 0xf8;

/// In QPC_SRQN: there is one.
const SRQN_VALID: u32 = 1 << 24;
/// In QPC_FLAGS: path migration state.
const PM_SHIFT: u32 = 11;
const PM_MASK: u32 = 3 << PM_SHIFT;
/// In QPC_PARAMS1 and QPC_PARAMS2: log2 of outstanding RDMA READs and atomics.
const RD_ATOMIC_SHIFT: u32 = 21;
/// In QPC_PARAMS1.
const PARAMS1_RNR_RETRY: u32 = 7 << 13;
const PARAMS1_RETRY_CNT: u32 = 7 << 16;
const PARAMS1_SRA_MAX: u32 = 7 << RD_ATOMIC_SHIFT;
/// In QPC_PARAMS2, the remote operations that the QP executes: READ, WRITE and atomics
/// (`MLX4_QP_BIT_*` of `include/linux/mlx4/qp.h`).
const QP_BIT_RRE: u32 = 1 << 15;
const QP_BIT_RWE: u32 = 1 << 14;
const QP_BIT_RAE: u32 = 1 << 13;
const PARAMS2_RRA_MAX: u32 = 7 << RD_ATOMIC_SHIFT;
/// In QPC_RNR_NEXTRECVPSN.
const RNR_TIMER: u32 = 0x1f << 24;
const PSN: u32 = 0xff_ffff;

/// Optional parameters of a transition (enum mlx4_qp_optpar).
#[allow(missing_docs)]
pub mod optpar {
    pub const ALT_ADDR_PATH: u32 = 1 << 0;
    pub const RRE: u32 = 1 << 1;
    pub const RAE: u32 = 1 << 2;
    pub const RWE: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const Q_KEY: u32 = 1 << 5;
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    pub const SRA_MAX: u32 = 1 << 8;
    pub const RRA_MAX: u32 = 1 << 9;
    pub const PM_STATE: u32 = 1 << 10;
    pub const RETRY_COUNT: u32 = 1 << 12;
    pub const RNR_RETRY: u32 = 1 << 13;
    pub const ACK_TIMEOUT: u32 = 1 << 14;
    pub const SCHED_QUEUE: u32 = 1 << 16;

    /// The parameters that may change once the connection is up.
    pub const CONNECTED: u32 = ALT_ADDR_PATH | RRE | RAE | RWE | Q_KEY | RNR_TIMEOUT | PM_STATE;
}

fn parse_path(path: &[u8; PATH_SIZE]) -> Path {
    let queue = path.get_u8(PATH_SCHED_QUEUE);
    let second = queue & SCHED_QUEUE_PORT_2 != 0;
    let grh_mylmc = path.get_u8(PATH_GRH_MYLMC);
    let grh = grh_mylmc & GRH_PRESENT != 0;
    let tclass_flowlabel = path.get_be32(PATH_TCLASS_FLOWLABEL);
    Path {
        port: if second { 2 } else { 1 },
        remote_lid: path.get_be16(PATH_RLID),
        path_bits: grh_mylmc & !GRH_PRESENT,
        service_level: queue >> SCHED_QUEUE_SL_SHIFT & 0xf,
        pkey_index: path.get_u8(PATH_PKEY_INDEX) & PKEY_INDEX_MASK,
        grh: grh.then(|| {
            let grh = Grh {
                traffic_class: (tclass_flowlabel >> 20) as u8,
                flow_label: tclass_flowlabel & 0xf_ffff,
                hop_limit: path.get_u8(PATH_HOP_LIMIT),
                sgid: [0; 16],
                dgid: path.field(PATH_RGID),
            };
            (path.get_u8(PATH_MGID_INDEX), grh)
        }),
    }
}

/// The QP context.
#[derive(Clone)]
pub struct Context([u8; CONTEXT_SIZE]);

impl Context {
    /// A context as it came in a mailbox.
    pub fn new(bytes: [u8; CONTEXT_SIZE]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; CONTEXT_SIZE] {
        &self.0
    }

    /// The buffer of the queues, if the device can have such a buffer.
    pub fn buffer(&self) -> Option<Buffer> {
        Buffer::of_context(&self.0, QPC_LOG_PAGE_SIZE)
    }

    /// Size and stride of the send queue.
    pub fn sq_size_stride(&self) -> u8 {
        self.0.get_u8(QPC_SQ_SIZE_STRIDE)
    }

    /// Size and stride of the receive queue; of no meaning without one.
    pub fn rq_size_stride(&self) -> u8 {
        self.0.get_u8(QPC_RQ_SIZE_STRIDE)
    }

    /// The address at which the driver counts the receives that it posts.
    pub fn doorbell_record(&self) -> u64 {
        self.0.get_be64(QPC_DB_REC_ADDR) & !3
    }

    /// The device fills in the QP's number.
    pub fn set_local_qpn(&mut self, qpn: u32) {
        self.0.set_be32(QPC_LOCAL_QPN, qpn);
    }

    /// Takes over the fields that INIT2RTR always sets besides its parameters.
    pub fn connect(&mut self, from: &Self) {
        self.0.set_u8(QPC_MTU_MSGMAX, from.0.get_u8(QPC_MTU_MSGMAX));
        self.0.set_be32(QPC_REMOTE_QPN, from.remote_qpn());
        self.copy32(from, QPC_RNR_NEXTRECVPSN, PSN);
    }

    /// Takes over the fields that RTR2RTS always sets besides its parameters.
    pub fn start_sending(&mut self, from: &Self) {
        self.copy32(from, QPC_NEXT_SEND_PSN, PSN);
    }

    /// Transport service.
    pub fn service(&self) -> Option<Service> {
        // MLX4_QP_ST_*.
        let bits = (self.0.get_be32(QPC_FLAGS) >> 16 & 0xf) as u8;
        match bits {
            0x0 => Some(Service::Rc),
            0x1 => Some(Service::Uc),
            0x3 => Some(Service::Ud),
            0x6 => Some(Service::Xrc),
            0x7 => Some(Service::Mlx),
            _ => None,
        }
    }

    /// The UAR page its doorbell must come from.
    pub fn uar_page(&self) -> u32 {
        self.0.get_be24(QPC_USR_PAGE)
    }

    /// The path MTU and the message size, as they are encoded.
    pub fn mtu_msgmax(&self) -> u8 {
        self.0.get_u8(QPC_MTU_MSGMAX)
    }

    /// The device supports the message size.
    pub fn max_message_exists(&self) -> bool {
        self.0.get_u8(QPC_MTU_MSGMAX) & 0x1f <= LOG_MAX_MESSAGE
    }

    /// log2 of the RDMA READs and atomics that it may have under way to the other end.
    pub fn log_reads_out(&self) -> u32 {
        self.0.get_be32(QPC_PARAMS1) >> RD_ATOMIC_SHIFT & 7
    }

    /// log2 of those that the other end may have under way to it.
    pub fn log_reads_in(&self) -> u32 {
        self.0.get_be32(QPC_PARAMS2) >> RD_ATOMIC_SHIFT & 7
    }

    fn params2(&self, bit: u32) -> bool {
        self.0.get_be32(QPC_PARAMS2) & bit != 0
    }

    fn overlay32(&mut self, at: usize, mask: u32, value: u32) {
        let word = self.0.get_be32(at) & !mask | value & mask;
        self.0.set_be32(at, word);
    }

    fn copy32(&mut self, from: &Self, at: usize, mask: u32) {
        self.overlay32(at, mask, from.0.get_be32(at));
    }

    fn copy_path(&mut self, from: &[u8; PATH_SIZE], at: usize) {
        self.0.set_field(at, from);
    }

    /// Takes over from `from` the fields that `parameters` names.
    pub fn apply(&mut self, from: &Self, parameters: u32) {
        let has = |parameter| parameters & parameter != 0;
        if has(optpar::PRIMARY_ADDR_PATH) {
            let pkey_index = self.0.get_u8(QPC_PRI_PATH + PATH_PKEY_INDEX);
            let timeout = self.0.get_u8(QPC_PRI_PATH + PATH_ACKTO) & ACKTO_MASK;
            self.copy_path(&from.0.field(QPC_PRI_PATH), QPC_PRI_PATH);
            let link = self.0.get_u8(QPC_PRI_PATH + PATH_ACKTO) & !ACKTO_MASK;
            self.0.set_u8(QPC_PRI_PATH + PATH_PKEY_INDEX, pkey_index);
            self.0.set_u8(QPC_PRI_PATH + PATH_ACKTO, timeout | link);
        }
        if has(optpar::SCHED_QUEUE) {
            let queue = from.0.get_u8(QPC_PRI_PATH + PATH_SCHED_QUEUE);
            self.0.set_u8(QPC_PRI_PATH + PATH_SCHED_QUEUE, queue);
        }
        if has(optpar::PKEY_INDEX) {
            let pkey_index = from.0.get_u8(QPC_PRI_PATH + PATH_PKEY_INDEX);
            self.0.set_u8(QPC_PRI_PATH + PATH_PKEY_INDEX, pkey_index);
        }
        if has(optpar::ACK_TIMEOUT) {
            let timeout = from.0.get_u8(QPC_PRI_PATH + PATH_ACKTO) & ACKTO_MASK;
            let link = self.0.get_u8(QPC_PRI_PATH + PATH_ACKTO) & !ACKTO_MASK;
            self.0.set_u8(QPC_PRI_PATH + PATH_ACKTO, timeout | link);
        }
        if has(optpar::ALT_ADDR_PATH) {
            self.copy_path(&from.0.field(QPC_ALT_PATH), QPC_ALT_PATH);
        }
        for (parameter, at, mask) in [
            (optpar::RRE, QPC_PARAMS2, QP_BIT_RRE),
            (optpar::RAE, QPC_PARAMS2, QP_BIT_RAE),
            (optpar::RWE, QPC_PARAMS2, QP_BIT_RWE),
            (optpar::RRA_MAX, QPC_PARAMS2, PARAMS2_RRA_MAX),
            (optpar::SRA_MAX, QPC_PARAMS1, PARAMS1_SRA_MAX),
            (optpar::RETRY_COUNT, QPC_PARAMS1, PARAMS1_RETRY_CNT),
            (optpar::RNR_RETRY, QPC_PARAMS1, PARAMS1_RNR_RETRY),
            (optpar::RNR_TIMEOUT, QPC_RNR_NEXTRECVPSN, RNR_TIMER),
            (optpar::PM_STATE, QPC_FLAGS, PM_MASK),
            (optpar::Q_KEY, QPC_QKEY, u32::MAX),
        ] {
            if has(parameter) {
                self.copy32(from, at, mask);
            }
        }
    }
}

impl qp::Context for Context {
    fn pd(&self) -> u32 {
        self.0.get_be24(QPC_PD)
    }

    fn reserved_key_enabled(&self) -> bool {
        self.0.get_u8(QPC_RLKEY_ROCE_MODE) & RLKEY != 0
    }

    fn max_message(&self) -> u64 {
        1 << (self.0.get_u8(QPC_MTU_MSGMAX) & 0x1f).min(LOG_MAX_MESSAGE)
    }

    fn remote_qpn(&self) -> u32 {
        self.0.get_be24(QPC_REMOTE_QPN)
    }

    fn path_mtu(&self) -> Option<u64> {
        match self.0.get_u8(QPC_MTU_MSGMAX) >> 5 {
            mtu @ 1..=5 => Some(1 << u32::from(mtu).saturating_add(7)),
            _ => None,
        }
    }

    fn send_psn(&self) -> u32 {
        self.0.get_be32(QPC_NEXT_SEND_PSN) & PSN
    }

    fn set_send_psn(&mut self, psn: u32) {
        self.overlay32(QPC_NEXT_SEND_PSN, PSN, psn);
    }

    fn receive_psn(&self) -> u32 {
        self.0.get_be32(QPC_RNR_NEXTRECVPSN) & PSN
    }

    fn set_receive_psn(&mut self, psn: u32) {
        self.overlay32(QPC_RNR_NEXTRECVPSN, PSN, psn);
    }

    fn path(&self) -> Path {
        parse_path(&self.0.field(QPC_PRI_PATH))
    }

    fn alternate_path(&self) -> Path {
        parse_path(&self.0.field(QPC_ALT_PATH))
    }

    fn ack_timeout(&self) -> Option<Duration> {
        ack_timeout(self.0.get_u8(QPC_PRI_PATH + PATH_ACKTO) >> 3)
    }

    fn retry_count(&self) -> u8 {
        (self.0.get_be32(QPC_PARAMS1) >> 16 & 7) as u8
    }

    fn rnr_retry(&self) -> u8 {
        (self.0.get_be32(QPC_PARAMS1) >> 13 & 7) as u8
    }

    fn rnr_timer(&self) -> Duration {
        rnr_timer((self.0.get_be32(QPC_RNR_NEXTRECVPSN) & RNR_TIMER) >> 24)
    }

    fn remote_read_enabled(&self) -> bool {
        self.params2(QP_BIT_RRE)
    }

    fn remote_write_enabled(&self) -> bool {
        self.params2(QP_BIT_RWE)
    }

    fn remote_atomic_enabled(&self) -> bool {
        self.params2(QP_BIT_RAE)
    }

    fn xrcd(&self) -> u32 {
        self.0.get_be32(QPC_XRCD) & 0xffff
    }

    fn cqn_send(&self) -> u32 {
        self.0.get_be24(QPC_CQN_SEND)
    }

    fn cqn_recv(&self) -> u32 {
        self.0.get_be24(QPC_CQN_RECV)
    }

    fn qkey(&self) -> u32 {
        self.0.get_be32(QPC_QKEY)
    }

    fn srqn(&self) -> Option<u32> {
        let word = self.0.get_be32(QPC_SRQN);
        (word & SRQN_VALID != 0).then_some(word & 0xff_ffff)
    }

    fn migration(&self) -> Migration {
        match (self.0.get_be32(QPC_FLAGS) & PM_MASK) >> PM_SHIFT {
            0 => Migration::Armed,
            1 => Migration::Rearm,
            _ => Migration::Migrated,
        }
    }

    fn set_migration(&mut self, state: Migration) {
        self.overlay32(QPC_FLAGS, PM_MASK, (state as u32) << PM_SHIFT);
    }

    fn set_state(&mut self, state: State) {
        self.overlay32(QPC_FLAGS, 0xf << 28, (state as u32) << 28);
    }

    fn migrate(&mut self) {
        self.copy_path(&self.0.field(QPC_ALT_PATH), QPC_PRI_PATH);
        self.set_migration(Migration::Migrated);
    }
}
