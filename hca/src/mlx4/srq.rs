// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Shared receive queues. An SRQ lives from SW2HW_SRQ to HW2SW_SRQ or reset. An XRC SRQ belongs to
//! a domain and names the CQ of its completions.

use crate::engine::bytes::Fields;
use crate::engine::memory::DmaError;
use crate::engine::shared_queue::SharedQueue;
use crate::engine::work::RecvWqe;
use crate::mlx4::icm::{Buffer, Dma};
use crate::mlx4::wqe::parse_scatter;
use std::collections::BTreeMap;

// struct mlx4_srq_context.
const SRQC_SIZE: usize = 0x30;
const SRQC_STATE_LOGSIZE_SRQN: usize = 0x00;
const SRQC_LOGSTRIDE: usize = 0x04;
const SRQC_XRCD: usize = 0x06;
const SRQC_PG_OFFSET_CQN: usize = 0x08;
const SRQC_LOG_PAGE_SIZE: usize = 0x10;
const SRQC_PD: usize = 0x18;
pub(super) const SRQC_LIMIT_WATERMARK: usize = 0x1c;
pub(super) const SRQC_WQE_CNT: usize = 0x1e;
pub(super) const SRQC_WQE_COUNTER: usize = 0x22;
const SRQC_DB_REC_ADDR: usize = 0x28;

/// log2 of the SRQs, as QUERY_DEV_CAP reports it.
pub const LOG_MAX_SRQS: u8 = 16;
/// log2 of the reserved ones.
pub const LOG_RESERVED_SRQS: u8 = 6;
/// log2 of the WQEs of one.
pub const LOG_MAX_SRQ_WQES: u8 = 14;

/// One shared receive queue.
pub struct Srq {
    pub(super) context: [u8; SRQC_SIZE],
    buffer: Buffer,
    /// Bytes of the buffer.
    bytes: u64,
    /// Its WQEs.
    pub wqes: SharedQueue,
}

impl Srq {
    pub(super) fn new(context: [u8; SRQC_SIZE]) -> Option<Self> {
        let log_wqes = context.get_be32(SRQC_STATE_LOGSIZE_SRQN) >> 24 & 0xf;
        if log_wqes > u32::from(LOG_MAX_SRQ_WQES) {
            return None;
        }
        let stride = 16 << (context.get_u8(SRQC_LOGSTRIDE) & 7);
        let doorbell = context.get_be64(SRQC_DB_REC_ADDR);
        Some(Self {
            buffer: Buffer::of_context(&context, SRQC_LOG_PAGE_SIZE)?,
            bytes: (stride as u64) << log_wqes,
            wqes: SharedQueue::new(log_wqes, stride, doorbell),
            context,
        })
    }

    /// The domain of an XRC SRQ; the reserved one otherwise.
    pub fn xrcd(&self) -> u16 {
        self.context.get_be16(SRQC_XRCD)
    }

    /// The CQ of the completions of an XRC SRQ.
    pub fn cqn(&self) -> u32 {
        self.context.get_be24(SRQC_PG_OFFSET_CQN)
    }

    /// The protection domain its buffers, and XRC's remote keys, belong to.
    pub fn pd(&self) -> u32 {
        self.context.get_be24(SRQC_PD)
    }

    /// The CQ of the completions of an XRC SRQ; another one has no CQ.
    pub fn xrc_cqn(&self) -> Option<u32> {
        (self.xrcd() != 0).then(|| self.cqn())
    }

    /// Takes the WQE at the head, if there is one.
    pub fn take(&mut self, dma: &Dma) -> Result<Option<RecvWqe>, DmaError> {
        let Self { buffer, wqes, .. } = self;
        wqes.take(dma, |at, wqe| buffer.read(dma, at, wqe), parse_scatter)
    }
}

/// All shared receive queues of an adapter.
#[derive(Default)]
pub struct Srqs {
    pub(super) queues: BTreeMap<u32, Srq>,
}

impl Srqs {
    /// Forgets the queues, as a reset does.
    pub fn reset(&mut self) {
        self.queues.clear();
    }

    /// Number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// There are no queues.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// SRQ `srqn`.
    pub fn get(&self, srqn: u32) -> Option<&Srq> {
        self.queues.get(&srqn)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Srq)> {
        self.queues.iter().map(|(srqn, srq)| (*srqn, srq))
    }

    /// The numbers of the queues.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.keys().copied()
    }

    /// Where their WQEs are, and the bytes of those.
    pub fn extents(&self) -> impl Iterator<Item = (u32, (Buffer, u64))> + '_ {
        self.iter()
            .map(|(srqn, srq)| (srqn, (srq.buffer, srq.bytes)))
    }

    /// SRQ `srqn`, to take from.
    pub fn get_mut(&mut self, srqn: u32) -> Option<&mut Srq> {
        self.queues.get_mut(&srqn)
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::event::EventType;
    use crate::engine::violation::Violation;
    use crate::mlx4::command::Status;
    use crate::mlx4::testing::Bench;

    const SRQN: u32 = 0x45;

    #[test]
    fn wqes_come_in_the_order_they_are_linked() {
        let mut bench = Bench::connected();
        bench.srq(SRQN, 2, 7, 0x81);
        let hca = &mut bench.hca;
        let srq = hca.card.srqs.get_mut(SRQN).unwrap();
        assert_eq!((srq.xrcd(), srq.cqn(), srq.pd()), (7, 0x81, Bench::PD));
        assert!(srq.take(&hca.dma).unwrap().is_none());

        bench.link_srq(SRQN, &[0, 2, 1, 3]);
        bench.post_srq(SRQN, 3);
        let hca = &mut bench.hca;
        let srq = hca.card.srqs.get_mut(SRQN).unwrap();
        let mut order = Vec::new();
        while let Some(wqe) = srq.take(&hca.dma).unwrap() {
            order.push(wqe.index);
        }
        assert_eq!(order, [0, 2, 1]);
    }

    #[test]
    fn a_wild_next_index_stays_inside_the_queue() {
        let mut bench = Bench::connected();
        bench.srq(SRQN, 2, 7, 0x81);
        bench.link_srq(SRQN, &[0, 0xfffe]);
        bench.post_srq(SRQN, 2);
        let hca = &mut bench.hca;
        let srq = hca.card.srqs.get_mut(SRQN).unwrap();
        srq.take(&hca.dma).unwrap();
        assert_eq!(srq.take(&hca.dma).unwrap().unwrap().index, 2);
    }

    #[test]
    fn the_limit_event_is_raised_once() {
        let mut bench = Bench::connected();
        bench.srq(SRQN, 2, 7, 0x81);
        bench.post_srq(SRQN, 3);
        bench.arm_srq(SRQN, 3);
        assert_eq!(bench.events(), 0);
        let hca = &mut bench.hca;
        hca.card.srqs.get_mut(SRQN).unwrap().take(&hca.dma).unwrap();
        hca.check_srq_limit(SRQN);
        hca.check_srq_limit(SRQN);
        assert_eq!(bench.events(), 1);
        assert_eq!(bench.last_event(), Some((EventType::SrqLimit as u8, SRQN)));
        // A limit above the number of WQEs raises the event at once.
        bench.arm_srq(SRQN, 3);
        assert_eq!(bench.events(), 2);
    }

    #[test]
    fn a_limit_is_one_that_the_srq_can_pass() {
        let mut bench = Bench::connected();
        bench.srq(SRQN, 2, 7, 0x81);
        bench.post_srq(SRQN, 3);
        let arm = |bench: &mut Bench, limit| bench.run_immediate(0x40, SRQN, 0, &[], limit);
        assert_eq!(arm(&mut bench, 4), Err(Status::BadParam));
        assert_eq!(bench.violations(), [Violation::SrqLimit]);
        assert_eq!(arm(&mut bench, 3), Ok(None));
        assert_eq!(arm(&mut bench, 0), Ok(None));
    }

    #[test]
    fn an_xrc_queue_names_a_cq_that_exists() {
        let mut bench = Bench::connected();
        let refused = bench.create_srq(SRQN, 2, 7, 0x90);
        assert_eq!(refused, Err(Status::BadResState));
        assert_eq!(bench.violations(), [Violation::UnknownObject]);
        // Another one has none.
        assert_eq!(bench.create_srq(SRQN, 2, 0, 0), Ok(()));
    }

    #[test]
    fn the_first_numbers_are_the_firmwares() {
        let mut bench = Bench::connected();
        for srqn in [0, 0x3f] {
            let refused = bench.create_srq(srqn, 2, 0, 0);
            assert_eq!(refused, Err(Status::BadResource));
            assert_eq!(bench.violations(), [Violation::ReservedSrqn]);
        }
        assert_eq!(bench.create_srq(0x40, 2, 0, 0), Ok(()));
    }

    #[test]
    fn more_receives_than_places_are_noticed() {
        let mut bench = Bench::connected();
        bench.srq(SRQN, 2, 7, 0x81);
        bench.post_srq(SRQN, 4);
        let hca = &mut bench.hca;
        hca.card.srqs.get_mut(SRQN).unwrap().take(&hca.dma).unwrap();
        assert_eq!(bench.violations(), [Violation::ReceiveOverrun]);
    }
}
