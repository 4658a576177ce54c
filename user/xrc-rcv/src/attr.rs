// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Attributes of a QP, with the mask of those that are set.
//!
//! A [`QpAttr`] is the kernel's `struct ib_uverbs_qp_attr`: setting a value sets its bit, so the
//! two cannot disagree.

use bitflags::bitflags;

use crate::ffi;
use crate::uapi::{ib_uverbs_ah_attr, ib_uverbs_global_route, ib_uverbs_qp_attr};

bitflags! {
    /// The attributes that are given (`enum ibv_qp_attr_mask`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpAttrMask: u32 {
        /// [`QpAttr::state`].
        const STATE = 1 << 0;
        /// The state the QP is assumed to be in.
        const CUR_STATE = 1 << 1;
        /// [`QpAttr::access`].
        const ACCESS_FLAGS = 1 << 3;
        /// [`QpAttr::pkey_index`].
        const PKEY_INDEX = 1 << 4;
        /// [`QpAttr::port`].
        const PORT = 1 << 5;
        /// The Q_Key, which an XRC QP does not have.
        const QKEY = 1 << 6;
        /// [`QpAttr::path`].
        const AV = 1 << 7;
        /// [`QpAttr::path_mtu`].
        const PATH_MTU = 1 << 8;
        /// [`QpAttr::timeout`].
        const TIMEOUT = 1 << 9;
        /// [`QpAttr::retry_cnt`].
        const RETRY_CNT = 1 << 10;
        /// [`QpAttr::rnr_retry`].
        const RNR_RETRY = 1 << 11;
        /// [`QpAttr::rq_psn`].
        const RQ_PSN = 1 << 12;
        /// [`QpAttr::max_rd_atomic`].
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// [`QpAttr::alternate_path`].
        const ALT_PATH = 1 << 14;
        /// [`QpAttr::min_rnr_timer`].
        const MIN_RNR_TIMER = 1 << 15;
        /// [`QpAttr::sq_psn`].
        const SQ_PSN = 1 << 16;
        /// [`QpAttr::max_dest_rd_atomic`].
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// State of path migration.
        const PATH_MIG_STATE = 1 << 18;
        /// [`QpAttr::dest_qp_num`].
        const DEST_QPN = 1 << 20;

        // Other bits of the verbs API are passed to the kernel, which checks them.
        const _ = !0;
    }
}

bitflags! {
    /// Remote access to the memory behind the QP (`enum ibv_access_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u32 {
        /// RDMA writes.
        const REMOTE_WRITE = 1 << 1;
        /// RDMA reads.
        const REMOTE_READ = 1 << 2;
        /// Atomic operations.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

/// State of a QP (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum QpState {
    /// Just created.
    Reset,
    /// Has a port and a partition.
    Init,
    /// Ready to receive: connected, all that a receive QP needs.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error.
    Sqe,
    /// Error.
    Err,
}

impl QpState {
    pub(crate) fn from_raw(state: u32) -> Option<QpState> {
        use QpState::*;
        [Reset, Init, Rtr, Rts, Sqd, Sqe, Err]
            .get(state as usize)
            .copied()
    }

    /// The state's name as the InfiniBand specification spells it.
    pub fn name(self) -> &'static str {
        match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        }
    }
}

/// Largest payload of a packet (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512,
    /// 1024 bytes.
    Mtu1024,
    /// 2048 bytes.
    Mtu2048,
    /// 4096 bytes.
    Mtu4096,
}

impl Mtu {
    fn from_raw(mtu: u32) -> Option<Mtu> {
        use Mtu::*;
        let index = (mtu as usize).checked_sub(1)?;
        [Mtu256, Mtu512, Mtu1024, Mtu2048, Mtu4096]
            .get(index)
            .copied()
    }

    /// The number of bytes.
    pub fn bytes(self) -> u32 {
        128 << self as u32
    }
}

/// The way to the peer: its LID, its GID, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path(ib_uverbs_ah_attr);

impl Path {
    /// A path within an InfiniBand subnet, through local port `port`.
    pub fn lid(port: u8, dlid: u16) -> Path {
        Path(ib_uverbs_ah_attr {
            dlid,
            port_num: port,
            ..Default::default()
        })
    }

    /// A path by global identifier, as RoCE needs it: from entry `sgid_index` of the GID table of
    /// local port `port`.
    pub fn gid(port: u8, dgid: [u8; 16], sgid_index: u8) -> Path {
        Path::lid(port, 0).with_gid(dgid, sgid_index)
    }

    /// Adds a global route, with a hop limit of 64.
    pub fn with_gid(mut self, dgid: [u8; 16], sgid_index: u8) -> Path {
        self.0.is_global = 1;
        self.0.grh = ib_uverbs_global_route {
            dgid,
            sgid_index,
            hop_limit: 64,
            ..Default::default()
        };
        self
    }

    /// Sets the service level.
    pub fn with_sl(mut self, sl: u8) -> Path {
        self.0.sl = sl;
        self
    }

    /// Sets the traffic class of the global route: on RoCE v2, the DSCP in the upper six bits, and
    /// ECN in the lower two.
    pub fn with_traffic_class(mut self, traffic_class: u8) -> Path {
        self.0.grh.traffic_class = traffic_class;
        self
    }

    /// Sets the flow label of the global route, 20 bits. RoCE v2 derives its UDP source port from
    /// it.
    pub fn with_flow_label(mut self, flow_label: u32) -> Path {
        self.0.grh.flow_label = flow_label;
        self
    }

    /// Sets the hop limit of the global route.
    pub fn with_hop_limit(mut self, hop_limit: u8) -> Path {
        self.0.grh.hop_limit = hop_limit;
        self
    }

    /// Sets the lower bits of the source LID, where the port has several.
    pub fn with_src_path_bits(mut self, src_path_bits: u8) -> Path {
        self.0.src_path_bits = src_path_bits;
        self
    }

    /// Limits the rate at which packets are sent (`enum ibv_rate`; 0 is the port's own).
    pub fn with_static_rate(mut self, static_rate: u8) -> Path {
        self.0.static_rate = static_rate;
        self
    }

    /// The local port.
    pub fn port(&self) -> u8 {
        self.0.port_num
    }

    /// The service level.
    pub fn sl(&self) -> u8 {
        self.0.sl
    }

    /// The entry of the local port's GID table, if the path has a global route.
    pub fn sgid_index(&self) -> Option<u8> {
        self.global().map(|grh| grh.sgid_index)
    }

    /// The traffic class, if the path has a global route.
    pub fn traffic_class(&self) -> Option<u8> {
        self.global().map(|grh| grh.traffic_class)
    }

    /// The flow label, if the path has a global route.
    pub fn flow_label(&self) -> Option<u32> {
        self.global().map(|grh| grh.flow_label)
    }

    /// The hop limit, if the path has a global route.
    pub fn hop_limit(&self) -> Option<u8> {
        self.global().map(|grh| grh.hop_limit)
    }

    /// The lower bits of the source LID.
    pub fn src_path_bits(&self) -> u8 {
        self.0.src_path_bits
    }

    /// The limit of the rate at which packets are sent (`enum ibv_rate`).
    pub fn static_rate(&self) -> u8 {
        self.0.static_rate
    }

    fn global(&self) -> Option<&ib_uverbs_global_route> {
        (self.0.is_global != 0).then_some(&self.0.grh)
    }

    /// The peer's LID, 0 if it is reached by GID alone.
    pub fn dlid(&self) -> u16 {
        self.0.dlid
    }

    /// The peer's GID, if the path has a global route.
    pub fn dgid(&self) -> Option<[u8; 16]> {
        self.global().map(|grh| grh.dgid)
    }

    fn from_ibv(ah: &ffi::ibv_ah_attr) -> Path {
        Path(ib_uverbs_ah_attr {
            grh: ib_uverbs_global_route {
                dgid: ah.grh.dgid.raw.0,
                flow_label: ah.grh.flow_label,
                sgid_index: ah.grh.sgid_index,
                hop_limit: ah.grh.hop_limit,
                traffic_class: ah.grh.traffic_class,
                reserved: 0,
            },
            dlid: ah.dlid,
            sl: ah.sl,
            src_path_bits: ah.src_path_bits,
            static_rate: ah.static_rate,
            is_global: ah.is_global,
            port_num: ah.port_num,
            reserved: 0,
        })
    }

    fn to_ibv(self) -> ffi::ibv_ah_attr {
        let ah = self.0;
        ffi::ibv_ah_attr {
            grh: ffi::ibv_global_route {
                dgid: ffi::ibv_gid {
                    raw: ffi::ibv_gid_raw(ah.grh.dgid),
                },
                flow_label: ah.grh.flow_label,
                sgid_index: ah.grh.sgid_index,
                hop_limit: ah.grh.hop_limit,
                traffic_class: ah.grh.traffic_class,
            },
            dlid: ah.dlid,
            sl: ah.sl,
            src_path_bits: ah.src_path_bits,
            static_rate: ah.static_rate,
            is_global: ah.is_global,
            port_num: ah.port_num,
        }
    }
}

/// Attributes of a receive QP, or of an initiator.
///
/// # Examples
///
/// ```
/// use xrc_rcv::{Access, Mtu, Path, QpAttr, QpState};
///
/// let ready_to_receive = QpAttr::new()
///     .with_state(QpState::Rtr)
///     .with_pkey_index(0)
///     .with_port(1)
///     .with_access(Access::REMOTE_WRITE)
///     .with_path(Path::lid(1, 42))
///     .with_path_mtu(Mtu::Mtu1024)
///     .with_dest_qp_num(0x1234)
///     .with_rq_psn(0);
/// assert_eq!(ready_to_receive.mask().bits(), 0x1011b9);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr(pub(crate) ib_uverbs_qp_attr);

macro_rules! attribute {
    ($(#[$doc:meta])* $set:ident, $get:ident, $field:ident: $type:ty, $bit:ident) => {
        $(#[$doc])*
        pub fn $set(mut self, value: $type) -> Self {
            self.0.$field = value;
            self.give(QpAttrMask::$bit)
        }

        #[doc = concat!("Returns the value of [`", stringify!($set), "`](Self::", stringify!($set), ").")]
        pub fn $get(&self) -> $type {
            self.0.$field
        }
    };
}

impl QpAttr {
    /// Nothing given.
    pub fn new() -> QpAttr {
        QpAttr::default()
    }

    /// The attributes that are given.
    pub fn mask(&self) -> QpAttrMask {
        QpAttrMask::from_bits_retain(self.0.qp_attr_mask)
    }

    fn give(mut self, bits: QpAttrMask) -> Self {
        self.0.qp_attr_mask |= bits.bits();
        self
    }

    /// The new state.
    pub fn with_state(mut self, state: QpState) -> Self {
        self.0.qp_state = state as u32;
        self.give(QpAttrMask::STATE)
    }

    /// The state, if this version of the crate knows it.
    pub fn state(&self) -> Option<QpState> {
        QpState::from_raw(self.0.qp_state)
    }

    /// Remote access permitted to the peer; required for INIT.
    pub fn with_access(mut self, access: Access) -> Self {
        self.0.qp_access_flags = access.bits();
        self.give(QpAttrMask::ACCESS_FLAGS)
    }

    /// The largest packet; needed for RTR.
    pub fn with_path_mtu(mut self, mtu: Mtu) -> Self {
        self.0.path_mtu = mtu as u32;
        self.give(QpAttrMask::PATH_MTU)
    }

    /// The way to the peer; needed for RTR.
    pub fn with_path(mut self, path: Path) -> Self {
        self.0.ah_attr = path.0;
        self.give(QpAttrMask::AV)
    }

    /// Remote access permitted to the peer.
    pub fn access(&self) -> Access {
        Access::from_bits_retain(self.0.qp_access_flags)
    }

    /// The largest packet, if this version of the crate knows it.
    pub fn path_mtu(&self) -> Option<Mtu> {
        Mtu::from_raw(self.0.path_mtu)
    }

    /// The way to the peer.
    pub fn path(&self) -> Path {
        Path(self.0.ah_attr)
    }

    /// A second way to the peer, for automatic path migration.
    pub fn with_alternate_path(mut self, path: Path, pkey_index: u16, timeout: u8) -> Self {
        self.0.alt_ah_attr = path.0;
        self.0.alt_port_num = path.0.port_num;
        self.0.alt_pkey_index = pkey_index;
        self.0.alt_timeout = timeout;
        self.give(QpAttrMask::ALT_PATH)
    }

    /// The second way to the peer: its path, P_Key index and ACK timeout; its port is 0 if there is
    /// none.
    pub fn alternate_path(&self) -> (Path, u16, u8) {
        let path = Path(ib_uverbs_ah_attr {
            port_num: self.0.alt_port_num,
            ..self.0.alt_ah_attr
        });
        (path, self.0.alt_pkey_index, self.0.alt_timeout)
    }

    attribute!(
        /// Index into the port's partition table; needed for INIT.
        with_pkey_index, pkey_index, pkey_index: u16, PKEY_INDEX);
    attribute!(
        /// The local port, from 1; needed for INIT.
        with_port, port, port_num: u8, PORT);
    attribute!(
        /// The number of the peer's sending QP; needed for RTR.
        with_dest_qp_num, dest_qp_num, dest_qp_num: u32, DEST_QPN);
    attribute!(
        /// The first packet sequence number the peer sends; needed for RTR.
        with_rq_psn, rq_psn, rq_psn: u32, RQ_PSN);
    attribute!(
        /// The number of RDMA reads and atomics of the peer that may be outstanding.
        with_max_dest_rd_atomic, max_dest_rd_atomic, max_dest_rd_atomic: u8, MAX_DEST_RD_ATOMIC);
    attribute!(
        /// The least time that the peer waits after a receiver-not-ready NAK, as a code of five
        /// bits: 0 is 655.36 ms, 1 is 0.01 ms, 12 is 0.64 ms, 31 is 491.52 ms; see
        /// `ibv_modify_qp(3)`.
        with_min_rnr_timer, min_rnr_timer, min_rnr_timer: u8, MIN_RNR_TIMER);

    attribute!(
        /// The first packet sequence number to be sent, by an initiator; a receive QP sends
        /// nothing.
        with_sq_psn, sq_psn, sq_psn: u32, SQ_PSN);
    attribute!(
        /// The local ACK timeout of an initiator, as a code of five bits: 4.096 microseconds times
        /// two to the power of it; 0 is without an end.
        with_timeout, timeout, timeout: u8, TIMEOUT);
    attribute!(
        /// The retries of an initiator that gets no answer, 7 at most.
        with_retry_cnt, retry_cnt, retry_cnt: u8, RETRY_CNT);
    attribute!(
        /// The retries of an initiator whose receiver is not ready; 7 is without an end.
        with_rnr_retry, rnr_retry, rnr_retry: u8, RNR_RETRY);
    attribute!(
        /// The number of RDMA reads and atomics of an initiator that may be outstanding.
        with_max_rd_atomic, max_rd_atomic, max_rd_atomic: u8, MAX_QP_RD_ATOMIC);

    /// The attributes of `attr` that `mask` names, and the values of all others too, as
    /// `ibv_modify_qp()` hands them to the kernel.
    pub fn from_ibv(attr: &ffi::ibv_qp_attr, mask: u32) -> QpAttr {
        QpAttr(ib_uverbs_qp_attr {
            qp_attr_mask: mask,
            qp_state: attr.qp_state,
            cur_qp_state: attr.cur_qp_state,
            path_mtu: attr.path_mtu,
            path_mig_state: attr.path_mig_state,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num,
            qp_access_flags: attr.qp_access_flags,
            ah_attr: Path::from_ibv(&attr.ah_attr).0,
            alt_ah_attr: Path::from_ibv(&attr.alt_ah_attr).0,
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline_data: attr.cap.max_inline_data,
            pkey_index: attr.pkey_index,
            alt_pkey_index: attr.alt_pkey_index,
            en_sqd_async_notify: attr.en_sqd_async_notify,
            sq_draining: attr.sq_draining,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            alt_port_num: attr.alt_port_num,
            alt_timeout: attr.alt_timeout,
            reserved: [0; 5],
        })
    }

    /// All values in the form of the verbs API.
    pub fn to_ibv(&self) -> ffi::ibv_qp_attr {
        let attr = &self.0;
        ffi::ibv_qp_attr {
            qp_state: attr.qp_state,
            cur_qp_state: attr.cur_qp_state,
            path_mtu: attr.path_mtu,
            path_mig_state: attr.path_mig_state,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num,
            qp_access_flags: attr.qp_access_flags,
            cap: ffi::ibv_qp_cap {
                max_send_wr: attr.max_send_wr,
                max_recv_wr: attr.max_recv_wr,
                max_send_sge: attr.max_send_sge,
                max_recv_sge: attr.max_recv_sge,
                max_inline_data: attr.max_inline_data,
            },
            ah_attr: Path(attr.ah_attr).to_ibv(),
            alt_ah_attr: Path(attr.alt_ah_attr).to_ibv(),
            pkey_index: attr.pkey_index,
            alt_pkey_index: attr.alt_pkey_index,
            en_sqd_async_notify: attr.en_sqd_async_notify,
            sq_draining: attr.sq_draining,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            alt_port_num: attr.alt_port_num,
            alt_timeout: attr.alt_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_the_way_to_the_kernel_and_back() {
        let attr = QpAttr::new()
            .with_state(QpState::Rtr)
            .with_pkey_index(3)
            .with_port(2)
            .with_access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .with_path(Path::gid(2, [7; 16], 5).with_sl(4))
            .with_path_mtu(Mtu::Mtu4096)
            .with_dest_qp_num(0xabcdef)
            .with_rq_psn(0x123456)
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(12)
            .with_alternate_path(Path::lid(1, 77), 9, 14);
        let mask = attr.mask().bits();
        assert_eq!(QpAttr::from_ibv(&attr.to_ibv(), mask), attr);
        assert_eq!(attr.path().dgid(), Some([7; 16]));
        assert_eq!(attr.path().dlid(), 0);
        assert_eq!(attr.alternate_path(), (Path::lid(1, 77), 9, 14));
        assert_eq!(attr.state(), Some(QpState::Rtr));
        assert_eq!(attr.path_mtu(), Some(Mtu::Mtu4096));
        assert_eq!(attr.access(), Access::REMOTE_READ | Access::REMOTE_WRITE);
    }

    #[test]
    fn every_part_of_a_path_survives_the_way_through_the_verbs_api() {
        let path = Path::gid(1, [9; 16], 3)
            .with_traffic_class(0x6a)
            .with_flow_label(0xabcde)
            .with_hop_limit(7)
            .with_src_path_bits(5)
            .with_static_rate(2)
            .with_sl(6);
        let path = Path::from_ibv(&path.to_ibv());
        assert_eq!(path.traffic_class(), Some(0x6a));
        assert_eq!(path.flow_label(), Some(0xabcde));
        assert_eq!(path.hop_limit(), Some(7));
        assert_eq!((path.src_path_bits(), path.static_rate()), (5, 2));
        assert_eq!((path.sl(), path.port(), path.sgid_index()), (6, 1, Some(3)));
        assert_eq!(Path::lid(1, 2).with_traffic_class(3).traffic_class(), None);
        assert_eq!(Mtu::from_raw(5).map(Mtu::bytes), Some(4096));
        assert_eq!((Mtu::from_raw(0), Mtu::from_raw(6)), (None, None));
    }

    #[test]
    fn every_bit_of_the_mask_reaches_the_kernel() {
        let attr = QpAttr::from_ibv(&ffi::ibv_qp_attr::default(), 0x8000_0001);
        assert_eq!(attr.0.qp_attr_mask, 0x8000_0001);
    }

    #[test]
    fn unknown_states_have_no_name() {
        assert_eq!(QpState::from_raw(6), Some(QpState::Err));
        assert_eq!(QpState::from_raw(7), None);
    }
}
