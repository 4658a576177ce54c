// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Queue pairs: the state machine of the modify commands, and the rings in the driver's buffer. A
//! QP lives from RST2INIT to 2RST or reset. The parameters that the driver sets are its context,
//! [`crate::mlx4::qpc`].

use crate::engine::memory::DmaError;
use crate::engine::qp::{self, Context as _};
use crate::engine::transport::Service;
use crate::engine::violation::Violation;
use crate::engine::work::{Control, RecvWqe, SendWqe};
use crate::mlx4::icm::{Buffer, Dma, Icm};
use crate::mlx4::identity::PORTS;
use crate::mlx4::qpc::{Context, CONTEXT_SIZE};
use crate::mlx4::wqe::{owner, parse, parse_control, parse_scatter, CONTROL_SIZE};

/// log2 of the QPs, as QUERY_DEV_CAP reports it.
pub const LOG_MAX_QPS: u8 = 18;
/// log2 of the reserved ones.
pub const LOG_RESERVED_QPS: u8 = 6;
/// log2 of the WQEs of each queue.
pub const LOG_MAX_QP_WQES: u8 = 14;
/// log2 of the RDMA READs and atomics that a QP may have under way, to the other end and from it.
pub const LOG_MAX_READS: u8 = 4;
/// MLX4_XRC_QPN_BIT: set in the number of an XRC target everywhere.
pub const XRC_QPN_BIT: u32 = 1 << 23;

// The command's mailbox: which optional parameters count, then the context.
pub(super) const OPTPAR: usize = 0x00;
pub(super) const CONTEXT: usize = 0x08;
pub(super) const MAILBOX_SIZE: usize = CONTEXT + CONTEXT_SIZE;

/// In the modifier of RTS2SQD: report an event when the queue has drained.
pub(super) const SQD_EVENT: u32 = 1 << 31;

/// A ring of WQEs in a QP's buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    pub(super) offset: u64,
    pub(super) entries: u32,
    pub(super) stride: usize,
    /// The next WQE.
    pub index: u16,
}

impl Ring {
    /// The ring whose size byte in the context is `size_stride`.
    pub(super) fn new(size_stride: u8) -> Self {
        Self {
            offset: 0,
            entries: 1 << (size_stride >> 3 & 0xf),
            stride: 16 << (size_stride & 7),
            index: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.entries).saturating_mul(self.stride as u64)
    }

    pub(super) fn wqe_offset(&self) -> u64 {
        let index = u32::from(self.index) & self.entries.wrapping_sub(1);
        u64::from(index)
            .saturating_mul(self.stride as u64)
            .saturating_add(self.offset)
    }

    pub(super) fn advance(&mut self) {
        self.index = self.index.wrapping_add(1);
    }
}

/// The queues of a QP in the driver's buffer.
pub struct Queues {
    /// The memory that they are in.
    pub(super) buffer: Buffer,
    /// The send queue.
    pub(super) sq: Ring,
    /// The receive queue, unless an SRQ takes its place.
    pub(super) rq: Option<Ring>,
    /// The doorbell was rung and the send queue not yet found empty. Without that it is not read:
    /// `mlx4_ib` leaves the send queue of a user's XRC target as it was allocated.
    pub(super) rung: bool,
}

impl Queues {
    /// Those that a context describes.
    pub(super) fn new(context: &Context, service: Service) -> Option<Self> {
        let mut sq = Ring::new(context.sq_size_stride());
        // Without a receive queue its size byte means nothing.
        let mut rq = (context.srqn().is_none() && service != Service::Xrc)
            .then(|| Ring::new(context.rq_size_stride()));
        // The queue with the larger stride comes first.
        if let Some(rq) = &mut rq {
            if rq.stride > sq.stride {
                sq.offset = rq.bytes();
            } else {
                rq.offset = sq.bytes();
            }
        }
        Some(Self {
            buffer: context.buffer()?,
            sq,
            rq,
            rung: false,
        })
    }

    /// Where they are, and their bytes.
    pub(super) fn extent(&self) -> (Buffer, u64) {
        let receives = self.rq.map_or(0, |rq| rq.bytes());
        (self.buffer, self.sq.bytes().saturating_add(receives))
    }

    /// WQEs of the longer queue.
    pub(super) fn most_entries(&self) -> u32 {
        let receives = self.rq.map_or(0, |rq| rq.entries);
        self.sq.entries.max(receives)
    }

    /// The doorbell was rung.
    pub fn ring(&mut self) {
        self.rung = true;
    }
}

impl qp::Queues<Icm, Context> for Queues {
    fn receives(&self) -> bool {
        self.rq.is_some()
    }

    fn index(&self) -> u16 {
        self.sq.index
    }

    fn head(&mut self, dma: &Dma, _context: &Context) -> Result<Option<Control>, DmaError> {
        if !self.rung {
            return Ok(None);
        }
        let mut segment = [0; CONTROL_SIZE];
        self.buffer.read(dma, self.sq.wqe_offset(), &mut segment)?;
        let round = u32::from(self.sq.index) & self.sq.entries != 0;
        self.rung = owner(&segment) == round;
        Ok(self.rung.then(|| parse_control(&segment)))
    }

    fn request(&self, dma: &Dma, control: &Control, service: Service) -> Option<SendWqe> {
        // It may claim to be longer than it can be.
        if control.size < CONTROL_SIZE || control.size > self.sq.stride {
            return None;
        }
        let mut wqe = vec![0; control.size];
        let read = self.buffer.read(dma, self.sq.wqe_offset(), &mut wqe);
        read.ok().and_then(|()| parse(*control, &wqe, service))
    }

    fn advance(&mut self) {
        self.sq.advance();
    }

    fn stop(&mut self) {
        self.rung = false;
    }

    fn take(
        &mut self,
        dma: &Dma,
        context: &Context,
        qpn: u32,
    ) -> Result<Option<RecvWqe>, DmaError> {
        let Some(rq) = &mut self.rq else {
            return Ok(None);
        };
        let doorbell = context.doorbell_record();
        let posted = u32::from_be_bytes(dma.memory.block(doorbell)?) as u16;
        let available = posted.wrapping_sub(rq.index);
        if available == 0 {
            return Ok(None);
        }
        if u32::from(available) > rq.entries {
            dma.violations.note(
                Violation::ReceiveOverrun,
                format_args!("QP {qpn:#x}: {available} of {}", rq.entries),
            );
        }
        let index = rq.index;
        let mut scatter = vec![0; rq.stride];
        self.buffer.read(dma, rq.wqe_offset(), &mut scatter)?;
        rq.advance();
        let scatter = parse_scatter(&scatter);
        Ok(Some(RecvWqe { index, scatter }))
    }
}

/// The QPs that are QP0 and QP1 of the ports (CONF_SPECIAL_QP).
#[derive(Default)]
pub struct Specials {
    /// QP0 of port 1; QP0 of port 2 and the two QP1s follow.
    pub(super) base: u32,
}

impl Specials {
    /// Where QP `qpn` is among the QP0s and QP1s of the ports, if it is one of them.
    pub(super) fn special_offset(&self, qpn: u32) -> Option<u32> {
        const SPECIAL_QPS: u32 = 2 * PORTS as u32;
        let offset = qpn.checked_sub(self.base)?;
        (self.base != 0 && offset < SPECIAL_QPS).then_some(offset)
    }

    /// QP `qpn` is QP0 or QP1 of a port.
    pub fn is_special(&self, qpn: u32) -> bool {
        self.special_offset(qpn).is_some()
    }

    /// QP `qpn` is QP0 of a port.
    pub fn is_subnet_management(&self, qpn: u32) -> bool {
        let offset = self.special_offset(qpn);
        offset.is_some_and(|offset| offset < u32::from(PORTS))
    }

    /// The QP that packets for QP `dqpn` of `port` are for: QP0 and QP1 have other numbers inside
    /// the adapter.
    pub fn behind(&self, port: u8, dqpn: u32) -> u32 {
        if dqpn > 1 || self.base == 0 {
            return dqpn;
        }
        self.base
            .wrapping_add(dqpn.wrapping_mul(u32::from(PORTS)))
            .wrapping_add(u32::from(port).wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::bytes::Fields;
    use crate::engine::progress::FLUSH_POLL;
    use crate::engine::transport::Migration;
    use crate::engine::transport::State;
    use crate::mlx4::command::Status;
    use crate::mlx4::qpc::optpar;
    use crate::mlx4::testing::{Bench, QpSetup};

    const RC: u32 = 0;
    const QPN: u32 = 0x40;
    const PEER: u32 = 0x41;
    const LOCAL: u64 = 0x1_0000;
    const ALL: u32 = 0x1f << 10;

    fn pair() -> (Bench, u32) {
        let mut bench = Bench::connected();
        bench.pair(RC, QPN, PEER);
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        (bench, key)
    }

    fn send(bench: &mut Bench, key: u32) {
        bench.post_send(QPN, Bench::wqe(0x0a, 0, None, (8, key, LOCAL)));
        bench.settle();
    }

    fn state(bench: &Bench, qpn: u32) -> State {
        bench.hca.qps.get(qpn).unwrap().state
    }

    fn migration(bench: &Bench, qpn: u32) -> Migration {
        bench.hca.qps.get(qpn).unwrap().context.migration()
    }

    #[test]
    fn the_context_comes_back_as_it_is() {
        let mut bench = Bench::connected();
        bench.qp_rtr(QPN, &QpSetup::new(RC, PEER));
        bench.run(0x22, QPN, 0, &[]).unwrap();
        let out = bench.output(0x100);
        let context = &out[8..];
        assert_eq!(context.get_be32(0) >> 28, State::Rtr as u32);
        assert_eq!(context.get_be32(0x10), QPN);
        assert_eq!(context.get_be32(0x14), PEER);
        assert_eq!(context.get_be16(0x1e), 2);
    }

    #[test]
    fn transitions_start_from_the_right_state() {
        let mut bench = Bench::connected();
        let setup = QpSetup::new(RC, PEER);
        let mailbox = setup.mailbox(None);
        assert_eq!(bench.modify(0x1b, QPN, &mailbox), Err(Status::BadQpState));
        bench.qp_init(QPN, &setup);
        assert_eq!(bench.modify(0x19, QPN, &mailbox), Err(Status::BadQpState));
        assert_eq!(bench.modify(0x1b, QPN, &mailbox), Err(Status::BadQpState));
        assert_eq!(bench.modify(0x1a, 1 << 20, &mailbox), Err(Status::BadIndex));
        assert_eq!(bench.modify(0x1e, QPN, &mailbox), Ok(()));
        assert_eq!(bench.modify(0x1a, QPN, &mailbox), Err(Status::BadQpState));
        assert_eq!(bench.modify(0x21, QPN, &mailbox), Ok(()));
        assert!(bench.hca.qps.get(QPN).is_none());
    }

    #[test]
    fn only_the_named_parameters_change() {
        let (mut bench, _) = pair();
        let mut mailbox = QpSetup {
            access: 0,
            rnr_timer: 3,
            retries: 5,
            ..QpSetup::new(RC, 99)
        }
        .mailbox(None);
        mailbox.set_be32(0, optpar::RWE | optpar::RNR_TIMEOUT | optpar::RETRY_COUNT);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        let context = &bench.hca.qps.get(QPN).unwrap().context;
        assert!(!context.remote_write_enabled());
        assert!(context.remote_read_enabled());
        assert_eq!(context.rnr_timer(), Duration::from_micros(30));
        // Not in RTS.
        assert_eq!(bench.violations(), [Violation::OptionalParameter]);
        assert_eq!(context.retry_count(), 1);
        assert_eq!(context.remote_qpn(), PEER);
    }

    #[test]
    fn a_missing_peer_means_retries_then_an_error() {
        const TICK: Duration = Duration::from_nanos(1);
        let timeout = Duration::from_nanos(4096 << 8) * 4;
        for retries in [0, 1, 7] {
            let mut bench = Bench::connected();
            let setup = QpSetup {
                retries,
                ..QpSetup::new(RC, PEER)
            };
            bench.qp_rts(QPN, &setup);
            let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
            send(&mut bench, key);
            for attempt in 1..=u64::from(retries) + 1 {
                assert_eq!(bench.hca.counters.requests["send"], attempt);
                assert_eq!(bench.next_timer(), Some(timeout));
                bench.wait(timeout - TICK);
                assert_eq!(bench.hca.counters.timeouts, attempt);
                assert_eq!(bench.completion(Bench::SEND_CQN, 0), None);
                bench.wait(TICK);
            }
            assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x15));
            assert_eq!(bench.hca.counters.requests["send"], u64::from(retries) + 1);
            assert_eq!(state(&bench, QPN), State::Err);
        }
    }

    #[test]
    fn without_a_timeout_a_request_waits_for_ever() {
        let mut bench = Bench::connected();
        let setup = QpSetup {
            timeout: 0,
            ..QpSetup::new(RC, PEER)
        };
        bench.qp_rts(QPN, &setup);
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        send(&mut bench, key);
        send(&mut bench, key);
        assert_eq!(bench.next_timer(), None);
        bench.wait(Duration::from_secs(3600));
        assert_eq!(bench.hca.counters.requests["send"], 1);
        bench.modify(0x1e, QPN, &setup.mailbox(None)).unwrap();
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x05));
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0x05));
    }

    #[test]
    fn an_error_flushes_present_and_later_requests() {
        let (mut bench, key) = pair();
        bench.post_receive(QPN, 8, key, LOCAL);
        bench
            .modify(0x1e, QPN, &QpSetup::new(RC, PEER).mailbox(None))
            .unwrap();
        assert_eq!(bench.completion(Bench::RECV_CQN, 0), Some(0x05));
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x05));
        // A receive rings nothing.
        bench.post_receive(QPN, 8, key, LOCAL);
        bench.wait(FLUSH_POLL);
        assert_eq!(bench.completion(Bench::RECV_CQN, 1), Some(0x05));
        assert_eq!(bench.events(), 0);
    }

    #[test]
    fn a_bad_key_is_our_own_error() {
        let (mut bench, key) = pair();
        send(&mut bench, key ^ 1);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x04));
        assert_eq!(state(&bench, PEER), State::Rts);
    }

    #[test]
    fn a_drained_queue_waits_and_tells() {
        let (mut bench, key) = pair();
        let mailbox = QpSetup::new(RC, PEER).mailbox(None);
        // The peer is not ready: the send is under way when draining begins.
        send(&mut bench, key);
        bench.modify(0x1f, SQD_EVENT | QPN, &mailbox).unwrap();
        assert_eq!(state(&bench, QPN), State::SqDraining);
        assert_eq!(bench.events(), 0);
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        bench.wait(Duration::from_millis(1));
        assert_eq!(state(&bench, QPN), State::Sqd);
        assert_eq!(bench.last_event(), Some((0x03, QPN)));
        // A request posted now waits for RTS.
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), None);
        bench.modify(0x20, QPN, &mailbox).unwrap();
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0));
    }

    fn armed() -> (Bench, u32) {
        let (mut bench, key) = pair();
        for (qpn, first, second) in [(QPN, (1, 2), (2, 1)), (PEER, (2, 1), (1, 2))] {
            let mut mailbox = QpSetup {
                path: first,
                alternate: second,
                migration: Migration::Rearm as u32,
                ..QpSetup::new(RC, 0)
            }
            .mailbox(None);
            mailbox.set_be32(0, optpar::ALT_ADDR_PATH | optpar::PM_STATE);
            bench.modify(0x1c, qpn, &mailbox).unwrap();
        }
        // The first exchange arms both.
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0));
        assert_eq!(migration(&bench, QPN), Migration::Armed);
        assert_eq!(migration(&bench, PEER), Migration::Armed);
        (bench, key)
    }

    #[test]
    fn asking_for_it_migrates_both_ends() {
        let (mut bench, key) = armed();
        let mut mailbox = QpSetup::new(RC, 0).mailbox(None);
        mailbox.set_be32(0, optpar::PM_STATE);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        assert_eq!(bench.last_event(), Some((0x01, QPN)));
        assert_eq!(bench.hca.qps.get(QPN).unwrap().context.path().remote_lid, 1);
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0));
        assert_eq!(bench.last_event(), Some((0x01, PEER)));
        assert_eq!(migration(&bench, PEER), Migration::Migrated);
    }

    #[test]
    fn a_peer_with_another_alternate_path_refuses_to_migrate() {
        let (mut bench, key) = armed();
        let mut mailbox = QpSetup::new(RC, 0).mailbox(None);
        mailbox.set_be32(0, optpar::PM_STATE);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        let mut wrong = QpSetup {
            alternate: (2, 9),
            ..QpSetup::new(RC, 0)
        }
        .mailbox(None);
        wrong.set_be32(0, optpar::ALT_ADDR_PATH);
        bench.modify(0x1c, PEER, &wrong).unwrap();
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.last_event(), Some((0x07, PEER)));
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), None);
    }

    #[test]
    fn a_pulled_cable_migrates_after_the_retries() {
        let mut bench = Bench::connected();
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        // Primary path to port 2, alternate from port 1 to itself.
        let setup = QpSetup {
            alternate: (1, 1),
            migration: Migration::Armed as u32,
            ..QpSetup::new(RC, PEER)
        };
        bench.qp_rts(QPN, &setup);
        let peer = QpSetup {
            path: (2, 1),
            alternate: (1, 1),
            migration: Migration::Armed as u32,
            ..QpSetup::new(RC, QPN)
        };
        bench.qp_rts(PEER, &peer);
        bench.hca.set_cable(2, false);
        bench.post_receive(PEER, 8, key, LOCAL + 64);
        send(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), None);
        for _ in 0..3 {
            bench.wait(Duration::from_millis(5));
        }
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0));
        // Port change, and both ends migrated.
        assert_eq!(bench.event_types(), [0x09, 0x01, 0x01]);
    }

    #[test]
    fn a_wqe_longer_than_its_place_fails() {
        let (mut bench, key) = pair();
        let mut wqe = Bench::wqe(0x0a, 0, None, (8, key, LOCAL));
        wqe[7] = 9;
        bench.post_send(QPN, wqe);
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x02));
    }

    #[test]
    fn a_send_queue_is_not_looked_at_before_it_is_rung() {
        let (mut bench, _) = pair();
        let mailbox = QpSetup::new(RC, PEER).mailbox(None);
        bench.modify(0x1c, QPN, &mailbox).unwrap();
        bench.settle();
        assert_eq!(state(&bench, QPN), State::Rts);
    }

    #[test]
    fn a_qp_in_reset_is_not_the_devices() {
        let mut bench = Bench::connected();
        let mailbox = QpSetup::new(RC, PEER).mailbox(None);
        // 2ERR and 2RST.
        for opcode in [0x1e, 0x21] {
            let refused = bench.modify(opcode, QPN, &mailbox);
            assert_eq!(refused, Err(Status::BadQpState));
            assert_eq!(bench.violations(), [Violation::ModifyInReset]);
        }
    }

    #[test]
    fn a_qp_names_queues_that_exist() {
        let good = QpSetup::new(RC, PEER);
        let bad = [
            QpSetup {
                send_cqn: 0x90,
                ..good
            },
            QpSetup {
                recv_cqn: 0x90,
                ..good
            },
            QpSetup {
                srqn: Some(0x90),
                ..good
            },
        ];
        for setup in bad {
            let mut bench = Bench::connected();
            assert_eq!(bench.create_qp(QPN, &setup), Err(Status::BadResState));
            assert_eq!(bench.violations(), [Violation::UnknownObject]);
            assert_eq!(bench.create_qp(QPN, &good), Ok(()));
        }
    }

    #[test]
    fn a_qp_has_no_more_than_the_device_allows() {
        let good = QpSetup::new(RC, PEER);
        let (short, longest, too_long) = (2 << 3 | 3, 14 << 3 | 2, 15 << 3 | 2);
        let queues = |queues| QpSetup { queues, ..good };
        let uar = |uar| QpSetup { uar, ..good };
        for (setup, refused) in [
            (queues((short, too_long)), Some(Violation::QueueSize)),
            (queues((too_long, short)), Some(Violation::QueueSize)),
            (queues((longest, longest)), None),
            (uar(0), Some(Violation::UarPage)),
            (uar(127), Some(Violation::UarPage)),
            (uar(512), Some(Violation::UarPage)),
            (uar(128), None),
            (uar(511), None),
        ] {
            let mut bench = Bench::connected();
            let created = bench.create_qp(QPN, &setup);
            assert_eq!(created.is_err(), refused.is_some(), "{:?}", setup.queues);
            assert_eq!(bench.violations(), Vec::from_iter(refused));
        }
        // With an SRQ, the size of the receive queue means nothing.
        let mut bench = Bench::connected();
        bench.srq(0x45, 2, 0, 0);
        let setup = QpSetup {
            srqn: Some(0x45),
            queues: (0xfc, short),
            ..good
        };
        assert_eq!(bench.create_qp(QPN, &setup), Ok(()));
    }

    #[test]
    fn a_qp_has_places_for_its_reads() {
        let setup = |log_reads| QpSetup {
            log_reads,
            ..QpSetup::new(RC, PEER)
        };
        // INIT2RTR has the limit of the other end's, RTR2RTS that of ours.
        let mut bench = Bench::connected();
        bench.qp_init(QPN, &setup((4, 4)));
        let refused = bench.modify(0x1a, QPN, &setup((5, 4)).mailbox(None));
        assert_eq!(refused, Err(Status::ExceedLim));
        assert_eq!(bench.violations(), [Violation::ReadLimit]);
        bench
            .modify(0x1a, QPN, &setup((4, 7)).mailbox(None))
            .unwrap();
        let refused = bench.modify(0x1b, QPN, &setup((7, 5)).mailbox(None));
        assert_eq!(refused, Err(Status::ExceedLim));
        assert_eq!(bench.violations(), [Violation::ReadLimit]);
        bench
            .modify(0x1b, QPN, &setup((7, 4)).mailbox(None))
            .unwrap();
        // INIT_HCA gives each QP resources for two.
        let mut bench = Bench::new();
        bench.run(0x008, 0, 0, &[]).unwrap();
        let mut parameters = Bench::init_hca();
        let rdmarc = parameters.get_be64(0x90) & !0x1f;
        parameters.set_be64(0x90, rdmarc | 1);
        bench.run(0x007, 0, 0, &parameters).unwrap();
        bench.eq(1, 4);
        bench.cq(Bench::SEND_CQN, 4);
        bench.cq(Bench::RECV_CQN, 4);
        bench.qp_init(QPN, &setup((1, 4)));
        let refused = bench.modify(0x1a, QPN, &setup((2, 4)).mailbox(None));
        assert_eq!(refused, Err(Status::ExceedLim));
        assert_eq!(bench.violations(), [Violation::ReadLimit]);
        bench
            .modify(0x1a, QPN, &setup((1, 4)).mailbox(None))
            .unwrap();
    }

    #[test]
    fn a_qp_receives_from_an_srq_of_its_service() {
        const UD: u32 = 3;
        const XRC: u32 = 6;
        const ORDINARY: u32 = 0x45;
        const OF_DOMAIN: u32 = 0x46;
        let target = 1 << 23 | QPN;
        for (service, qpn, xrcd, srqn, allowed) in [
            (RC, QPN, 0, ORDINARY, true),
            (UD, QPN, 0, ORDINARY, true),
            (RC, QPN, 0, OF_DOMAIN, false),
            (UD, QPN, 0, OF_DOMAIN, false),
            (XRC, QPN, 0, ORDINARY, false),
            (XRC, QPN, 0, OF_DOMAIN, false),
            (XRC, target, 7, ORDINARY, false),
            (XRC, target, 7, OF_DOMAIN, false),
        ] {
            let mut bench = Bench::connected();
            bench.srq(ORDINARY, 2, 0, 0);
            bench.srq(OF_DOMAIN, 2, 7, Bench::RECV_CQN);
            let setup = QpSetup {
                xrcd,
                srqn: Some(srqn),
                ..QpSetup::new(service, PEER)
            };
            let created = bench.create_qp(qpn, &setup);
            if allowed {
                assert_eq!((created, bench.violations()), (Ok(()), vec![]));
            } else {
                assert_eq!(created, Err(Status::BadParam));
                assert_eq!(bench.violations(), [Violation::SrqService]);
            }
        }
    }

    #[test]
    fn numbers_show_the_type_of_a_qp() {
        const MLX: u32 = 7;
        const XRC: u32 = 6;
        let mut bench = Bench::connected();
        let setup = QpSetup::new(RC, PEER);
        assert_eq!(bench.create_qp(0x3f, &setup), Err(Status::BadResource));
        assert_eq!(bench.violations(), [Violation::ReservedQpn]);
        // CONF_SPECIAL_QP
        bench.run(0x23, 0x200, 0, &[]).unwrap();
        let special = QpSetup::new(MLX, 0);
        assert_eq!(bench.create_qp(0x203, &special), Ok(()));
        assert_eq!(bench.create_qp(0x204, &special), Err(Status::BadParam));
        assert_eq!(bench.create_qp(0x202, &setup), Err(Status::BadParam));
        assert_eq!(bench.violations(), [Violation::SpecialService]);
        let target = QpSetup {
            xrcd: 7,
            ..QpSetup::new(XRC, PEER)
        };
        for (qpn, setup) in [(0x210, target), (0x80_0211, setup)] {
            assert_eq!(bench.create_qp(qpn, &setup), Ok(()));
            assert_eq!(bench.violations(), [Violation::XrcQpnBit]);
        }
        // Both would have the same context.
        assert_eq!(bench.create_qp(0x211, &setup), Err(Status::BadQpState));
    }

    #[test]
    fn more_receives_than_places_are_noticed() {
        let (mut bench, key) = pair();
        for _ in 0..5 {
            bench.post_receive(PEER, 8, key, LOCAL + 64);
        }
        send(&mut bench, key);
        assert_eq!(bench.violations(), [Violation::ReceiveOverrun]);
    }
}
