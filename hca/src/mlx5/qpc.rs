// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The QP context: the driver's own bytes, read through the names of their fields.

use std::time::Duration;

use crate::engine::headers::Grh;
use crate::engine::qp;
use crate::engine::transport::{ack_timeout, rnr_timer, Migration, Path, Service, State};
use crate::mlx5::ifc::{ads, op, qpc, Bits, Field};

/// log2 of the longest message.
pub const LOG_MAX_MESSAGE: u8 = 30;
/// log2 of the RDMA READs and atomics that a QP may have under way in each direction.
pub const LOG_MAX_READS: u32 = 4;
/// MLX5_SRQ_RQ: an SRQ takes the place of the receive queue.
const RQ_SRQ: u64 = 1;

/// Optional parameters of a transition (enum mlx5_qp_optpar).
mod optpar {
    pub const ALT_ADDR_PATH: u32 = 1 << 0;
    pub const RRE: u32 = 1 << 1;
    pub const RAE: u32 = 1 << 2;
    pub const RWE: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const Q_KEY: u32 = 1 << 5;
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    pub const PM_STATE: u32 = 1 << 10;
    pub const RETRY_COUNT: u32 = 1 << 12;
    pub const RNR_RETRY: u32 = 1 << 13;
    pub const ACK_TIMEOUT: u32 = 1 << 14;
    pub const LAG_TX_AFF: u32 = 1 << 15;
    pub const PRI_PORT: u32 = 1 << 16;
    pub const SRQN: u32 = 1 << 18;
    pub const CQN_RCV: u32 = 1 << 19;
    pub const PP_INDEX: u32 = 1 << 22;
    pub const COUNTER_SET_ID: u32 = 1 << 25;

    /// The rights of peers of a reliable service.
    pub const RIGHTS: u32 = RRE | RAE | RWE;
    /// A reliable service's while it sends.
    pub const RELIABLE: u32 = RIGHTS | RNR_TIMEOUT;
    /// Those of path migration.
    pub const MIGRATION: u32 = ALT_ADDR_PATH | PM_STATE;
    /// Those of the primary path.
    pub const PATH: u32 = PKEY_INDEX | LAG_TX_AFF;
}

/// The optional parameters of a command for a QP of this service, as the driver's table opt_mask
/// and its counters say.
fn optional(opcode: u16, service: Service) -> u32 {
    use optpar::*;
    let [reliable, uc, datagram] = match opcode {
        op::INIT2INIT_QP => [RIGHTS | PATH, RWE | PATH, PKEY_INDEX | Q_KEY].map(|of| of | PRI_PORT),
        op::INIT2RTR_QP => [
            ALT_ADDR_PATH | RIGHTS | PATH,
            ALT_ADDR_PATH | RWE | PATH,
            PKEY_INDEX | Q_KEY,
        ],
        op::RTR2RTS_QP => [
            MIGRATION | RELIABLE,
            MIGRATION | RWE | PP_INDEX,
            Q_KEY | PP_INDEX,
        ],
        op::RTS2RTS_QP => [
            MIGRATION | RELIABLE,
            MIGRATION | RWE | PP_INDEX,
            Q_KEY | SRQN | CQN_RCV | PP_INDEX,
        ]
        .map(|of| of | COUNTER_SET_ID),
        op::SQERR2RTS_QP | op::SQD_RTS_QP => [RELIABLE, RWE, Q_KEY],
        _ => [0; 3],
    };
    match service {
        Service::Rc | Service::Xrc => reliable,
        Service::Uc => uc,
        Service::Ud | Service::Mlx => datagram,
    }
}

/// A command that changes the state of a QP.
pub struct Step {
    /// The states that it begins from.
    pub from: &'static [State],
    /// The state that it ends in.
    pub to: State,
    /// The optional parameters that it has.
    pub optional: u32,
}

impl Step {
    /// That of the command `opcode` for a QP of this service. None: no such command.
    pub fn new(opcode: u16, service: Service) -> Option<Self> {
        let (from, to): (&[State], State) = match opcode {
            op::RST2INIT_QP => (&[State::Rst], State::Init),
            op::INIT2INIT_QP => (&[State::Init], State::Init),
            op::INIT2RTR_QP => (&[State::Init], State::Rtr),
            op::RTR2RTS_QP => (&[State::Rtr], State::Rts),
            op::RTS2RTS_QP => (&[State::Rts], State::Rts),
            op::SQERR2RTS_QP => (&[State::Sqer], State::Rts),
            op::SQD_RTS_QP => (&[State::Sqd, State::SqDraining], State::Rts),
            _ => return None,
        };
        Some(Self {
            from,
            to,
            optional: optional(opcode, service),
        })
    }
}

/// Returns the field of the primary path.
const fn primary(field: Field) -> Field {
    qpc::PRIMARY_ADDRESS_PATH.part(field)
}

/// The context.
#[derive(Clone)]
pub struct Context(Vec<u8>);

impl Context {
    /// A context as it came with a command.
    pub fn new(bytes: &[u8]) -> Self {
        let mut context = bytes.to_vec();
        context.resize(qpc::SIZE, 0);
        Self(context)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Transport service (MLX5_QP_ST_*).
    pub fn service(&self) -> Option<Service> {
        match self.0.bits(qpc::ST) {
            0x0 => Some(Service::Rc),
            0x1 => Some(Service::Uc),
            0x2 => Some(Service::Ud),
            0x3 => Some(Service::Xrc),
            0x7 | 0x8 => Some(Service::Mlx),
            // For registration of memory: it sends nothing.
            0xc => Some(Service::Rc),
            _ => None,
        }
    }

    /// MLX5_QP_ST_REG_UMR: the driver's QP for registrations.
    pub fn registers_memory(&self) -> bool {
        self.0.bits(qpc::ST) == 0xc
    }

    /// Which of QP0 and QP1 it is, if it is one of them.
    pub fn special(&self) -> Option<u32> {
        match self.0.bits(qpc::ST) {
            0x7 => Some(0),
            0x8 => Some(1),
            _ => None,
        }
    }

    /// A field of the context.
    pub fn field(&self, field: Field) -> u64 {
        self.0.bits(field)
    }

    /// There is no send queue.
    pub fn has_no_sq(&self) -> bool {
        self.0.flag(qpc::NO_SQ)
    }

    /// The QP has a receive queue of its own.
    pub fn has_rq(&self) -> bool {
        self.0.bits(qpc::RQ_TYPE) == 0
    }

    /// log2 of the size of the longer queue.
    pub fn log_most_wqes(&self) -> u32 {
        let receives = match self.has_rq() {
            true => self.0.bits32(qpc::LOG_RQ_SIZE),
            false => 0,
        };
        let sends = match self.has_no_sq() {
            true => 0,
            false => self.0.bits32(qpc::LOG_SQ_SIZE),
        };
        receives.max(sends)
    }

    /// log2 of the RDMA READs and atomics that the QP may have under way to the other end.
    pub fn log_reads_out(&self) -> u32 {
        self.0.bits32(qpc::LOG_SRA_MAX)
    }

    /// log2 of those that the other end may have under way to the QP.
    pub fn log_reads_in(&self) -> u32 {
        self.0.bits32(qpc::LOG_RRA_MAX)
    }

    /// The UAR page its doorbell must come from.
    pub fn uar_page(&self) -> u32 {
        self.0.bits32(qpc::UAR_PAGE)
    }

    /// The address at which the driver counts the receives and requests that it posts.
    pub fn doorbell_record(&self) -> u64 {
        self.0.bits(qpc::DBR_ADDR) & !3
    }

    /// The device supports the message size.
    pub fn max_message_exists(&self) -> bool {
        self.0.bits(qpc::LOG_MSG_MAX) <= u64::from(LOG_MAX_MESSAGE)
    }

    fn copy(&mut self, from: &Self, fields: &[Field]) {
        for field in fields {
            self.0.copy_bits(&from.0, *field);
        }
    }

    fn copy_path(&mut self, from: &Self, source: Field, path: Field) {
        let (source, path) = (source.byte(), path.byte());
        let bytes = from.0.get(source..source.saturating_add(ads::SIZE));
        let place = self.0.get_mut(path..path.saturating_add(ads::SIZE));
        if let (Some(bytes), Some(place)) = (bytes, place) {
            place.copy_from_slice(bytes);
        }
    }

    /// Takes over what every RST2INIT sets.
    pub fn initialise(&mut self, from: &Self) {
        self.copy(
            from,
            &[
                qpc::PM_STATE,
                qpc::RRE,
                qpc::RWE,
                qpc::RAE,
                qpc::ATOMIC_MODE,
                qpc::Q_KEY,
                qpc::MTU,
                qpc::LOG_MSG_MAX,
                qpc::RLKY,
                qpc::COUNTER_SET_ID,
                primary(ads::PKEY_INDEX),
                primary(ads::VHCA_PORT_NUM),
            ],
        );
    }

    /// Takes over what every INIT2RTR sets besides optional parameters.
    pub fn connect(&mut self, from: &Self) {
        let kept = self.clone();
        self.copy(
            from,
            &[
                qpc::MTU,
                qpc::LOG_MSG_MAX,
                qpc::REMOTE_QPN,
                qpc::NEXT_RCV_PSN,
                qpc::LOG_RRA_MAX,
                qpc::MIN_RNR_NAK,
            ],
        );
        self.copy_path(from, qpc::PRIMARY_ADDRESS_PATH, qpc::PRIMARY_ADDRESS_PATH);
        self.copy(
            &kept,
            &[
                primary(ads::PKEY_INDEX),
                primary(ads::VHCA_PORT_NUM),
                primary(ads::ACK_TIMEOUT),
            ],
        );
    }

    /// Takes over what every RTR2RTS sets besides optional parameters.
    pub fn start_sending(&mut self, from: &Self) {
        self.copy(
            from,
            &[
                qpc::LOG_SRA_MAX,
                qpc::RETRY_COUNT,
                qpc::RNR_RETRY,
                qpc::NEXT_SEND_PSN,
                primary(ads::ACK_TIMEOUT),
            ],
        );
    }

    /// The alternate path is one of `parameters`.
    pub fn changes_alternate_path(parameters: u32) -> bool {
        parameters & optpar::ALT_ADDR_PATH != 0
    }

    /// The P_Key of the primary path is one of `parameters`.
    pub fn changes_pkey(parameters: u32) -> bool {
        parameters & optpar::PKEY_INDEX != 0
    }

    /// The index of the P_Key of the primary path, which the table need not have.
    pub fn pkey_index(&self) -> u64 {
        self.field(primary(ads::PKEY_INDEX))
    }

    /// Likewise of the alternate path.
    pub fn alternate_pkey_index(&self) -> u64 {
        self.field(qpc::SECONDARY_ADDRESS_PATH.part(ads::PKEY_INDEX))
    }

    /// Takes over the fields that `parameters` names.
    pub fn apply(&mut self, from: &Self, parameters: u32) {
        for (parameter, field) in [
            (optpar::RRE, qpc::RRE),
            (optpar::RAE, qpc::RAE),
            (optpar::RAE, qpc::ATOMIC_MODE),
            (optpar::RWE, qpc::RWE),
            (optpar::PKEY_INDEX, primary(ads::PKEY_INDEX)),
            (optpar::PRI_PORT, primary(ads::VHCA_PORT_NUM)),
            (optpar::Q_KEY, qpc::Q_KEY),
            (optpar::RNR_TIMEOUT, qpc::MIN_RNR_NAK),
            (optpar::PM_STATE, qpc::PM_STATE),
            (optpar::RETRY_COUNT, qpc::RETRY_COUNT),
            (optpar::RNR_RETRY, qpc::RNR_RETRY),
            (optpar::ACK_TIMEOUT, primary(ads::ACK_TIMEOUT)),
        ] {
            if parameters & parameter != 0 {
                self.copy(from, &[field]);
            }
        }
        if parameters & optpar::ALT_ADDR_PATH != 0 {
            let path = qpc::SECONDARY_ADDRESS_PATH;
            self.copy_path(from, path, path);
        }
    }

    fn parse_path(&self, path: Field) -> Path {
        let get = |field| self.0.bits(path.part(field));
        let rgid = path.part(ads::RGID_RIP).byte();
        let rgid = self.0.get(rgid..).and_then(|bytes| bytes.first_chunk());
        let grh = (get(ads::GRH) != 0).then(|| {
            let grh = Grh {
                traffic_class: get(ads::TCLASS) as u8,
                flow_label: get(ads::FLOW_LABEL) as u32,
                hop_limit: get(ads::HOP_LIMIT) as u8,
                sgid: [0; 16],
                dgid: rgid.copied().unwrap_or_default(),
            };
            (get(ads::SRC_ADDR_INDEX) as u8, grh)
        });
        Path {
            port: get(ads::VHCA_PORT_NUM) as u8,
            remote_lid: get(ads::RLID) as u16,
            path_bits: get(ads::MLID) as u8,
            service_level: get(ads::SL) as u8,
            pkey_index: get(ads::PKEY_INDEX) as u8,
            grh,
        }
    }
}

impl qp::Context for Context {
    fn pd(&self) -> u32 {
        self.0.bits32(qpc::PD)
    }

    fn reserved_key_enabled(&self) -> bool {
        self.0.flag(qpc::RLKY)
    }

    fn max_message(&self) -> u64 {
        1 << self
            .0
            .bits(qpc::LOG_MSG_MAX)
            .min(u64::from(LOG_MAX_MESSAGE))
    }

    fn remote_qpn(&self) -> u32 {
        self.0.bits32(qpc::REMOTE_QPN)
    }

    fn path_mtu(&self) -> Option<u64> {
        match self.0.bits(qpc::MTU) {
            mtu @ 1..=5 => Some(1 << mtu.saturating_add(7)),
            _ => None,
        }
    }

    fn send_psn(&self) -> u32 {
        self.0.bits32(qpc::NEXT_SEND_PSN)
    }

    fn set_send_psn(&mut self, psn: u32) {
        self.0.set_bits(qpc::NEXT_SEND_PSN, u64::from(psn));
    }

    fn receive_psn(&self) -> u32 {
        self.0.bits32(qpc::NEXT_RCV_PSN)
    }

    fn set_receive_psn(&mut self, psn: u32) {
        self.0.set_bits(qpc::NEXT_RCV_PSN, u64::from(psn));
    }

    fn path(&self) -> Path {
        self.parse_path(qpc::PRIMARY_ADDRESS_PATH)
    }

    fn alternate_path(&self) -> Path {
        self.parse_path(qpc::SECONDARY_ADDRESS_PATH)
    }

    fn ack_timeout(&self) -> Option<Duration> {
        ack_timeout(self.0.bits(primary(ads::ACK_TIMEOUT)) as u8)
    }

    fn retry_count(&self) -> u8 {
        self.0.bits(qpc::RETRY_COUNT) as u8
    }

    fn rnr_retry(&self) -> u8 {
        self.0.bits(qpc::RNR_RETRY) as u8
    }

    fn rnr_timer(&self) -> Duration {
        rnr_timer(self.0.bits32(qpc::MIN_RNR_NAK))
    }

    fn remote_read_enabled(&self) -> bool {
        self.0.flag(qpc::RRE)
    }

    fn remote_write_enabled(&self) -> bool {
        self.0.flag(qpc::RWE)
    }

    fn remote_atomic_enabled(&self) -> bool {
        self.0.flag(qpc::RAE)
    }

    fn xrcd(&self) -> u32 {
        // An initiator has the driver's reserved domain; a target has no send queue.
        match self.has_no_sq() {
            true => self.0.bits32(qpc::XRCD),
            false => 0,
        }
    }

    fn cqn_send(&self) -> u32 {
        self.0.bits32(qpc::CQN_SND)
    }

    fn cqn_recv(&self) -> u32 {
        self.0.bits32(qpc::CQN_RCV)
    }

    fn qkey(&self) -> u32 {
        self.0.bits32(qpc::Q_KEY)
    }

    fn srqn(&self) -> Option<u32> {
        let attached = self.0.bits(qpc::RQ_TYPE) == RQ_SRQ && self.0.bits(qpc::ST) != 0x3;
        attached.then(|| self.0.bits32(qpc::SRQN_RMPN_XRQN))
    }

    fn source_qpn(&self) -> Option<u32> {
        let other = self.0.bits32(qpc::DETH_SQPN);
        self.special().or((other != 0).then_some(other))
    }

    fn migration(&self) -> Migration {
        match self.0.bits(qpc::PM_STATE) {
            0 => Migration::Armed,
            1 => Migration::Rearm,
            _ => Migration::Migrated,
        }
    }

    fn set_migration(&mut self, state: Migration) {
        self.0.set_bits(qpc::PM_STATE, state as u64);
    }

    fn set_state(&mut self, state: State) {
        self.0.set_bits(qpc::STATE, state as u64);
    }

    fn migrate(&mut self) {
        let from = self.clone();
        self.copy_path(
            &from,
            qpc::SECONDARY_ADDRESS_PATH,
            qpc::PRIMARY_ADDRESS_PATH,
        );
        qp::Context::set_migration(self, Migration::Migrated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::qp::Context as _;

    #[test]
    fn a_qp_may_send_as_qp1() {
        let source = |st: u64, sqpn: u64| {
            let mut context = vec![0; qpc::SIZE];
            context.set_bits(qpc::ST, st);
            context.set_bits(qpc::DETH_SQPN, sqpn);
            Context::new(&context).source_qpn()
        };
        const UD: u64 = 2;
        const QP1: u64 = 8;
        assert_eq!(source(UD, 0), None);
        assert_eq!(source(UD, 1), Some(1));
        assert_eq!(source(QP1, 0), Some(1));
    }
}
