// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The rings of a QP in the driver's buffer: the receive queue, then the send queue in basic
//! blocks.

use crate::engine::memory::DmaError;
use crate::engine::qp;
use crate::engine::transport::Service;
use crate::engine::violation::Violation;
use crate::engine::work::{Control, RecvWqe, SendWqe};
use crate::mlx5::ifc::qpc;
use crate::mlx5::memory::{Buffer, Dma, Pages};
use crate::mlx5::qpc::Context;
use crate::mlx5::wqe::{parse, parse_control, parse_scatter, BASIC_BLOCK, CONTROL_SIZE};

/// log2 of the most receives of a queue, and of the basic blocks of a send queue.
pub const LOG_MAX_WQES: u32 = 14;
/// In a doorbell record: where requests are counted (MLX5_SND_DBR).
const SEND_RECORD: u64 = 4;

/// The queues of a QP.
#[derive(Clone)]
pub struct Queues {
    buffer: Buffer,
    /// Basic blocks of the send queue; 0 is none.
    sq_blocks: u32,
    /// The offset of the send queue.
    sq_offset: u64,
    /// The block at the head.
    sq_index: u16,
    /// Blocks of the WQE at the head, as it was last seen.
    sq_step: u16,
    /// The doorbell was rung and the send queue not yet found empty.
    rung: bool,
    /// Entries of the receive queue, if there is one.
    rq_entries: Option<u32>,
    rq_stride: usize,
    rq_index: u16,
}

impl Queues {
    /// Those that a context describes, in the pages of `list`. None: they do not fit there.
    pub fn new(context: &Context, list: &[u8]) -> Option<Self> {
        let rq_entries = context
            .has_rq()
            .then(|| 1u32 << context.field(qpc::LOG_RQ_SIZE));
        let rq_stride = 16usize << context.field(qpc::LOG_RQ_STRIDE);
        let sq_blocks = match context.has_no_sq() {
            true => 0,
            false => 1u32 << context.field(qpc::LOG_SQ_SIZE),
        };
        let rq_bytes = u64::from(rq_entries.unwrap_or(0)).checked_mul(rq_stride as u64)?;
        let sq_bytes = u64::from(sq_blocks).checked_mul(BASIC_BLOCK as u64)?;
        let buffer = Buffer::of_queue(
            context.field(qpc::LOG_PAGE_SIZE) as u32,
            context.field(qpc::PAGE_OFFSET),
            list,
            rq_bytes.checked_add(sq_bytes)?,
        )?;
        Some(Self {
            buffer,
            sq_blocks,
            sq_offset: rq_bytes,
            sq_index: 0,
            sq_step: 1,
            rung: false,
            rq_entries,
            rq_stride,
            rq_index: 0,
        })
    }

    /// The same, empty.
    pub fn emptied(&self) -> Self {
        Self {
            sq_index: 0,
            sq_step: 1,
            rung: false,
            rq_index: 0,
            ..self.clone()
        }
    }

    /// The doorbell was rung. It counts if the queue has places for as many requests as were
    /// posted.
    pub fn ring(&mut self, dma: &Dma, context: &Context, qpn: u32) {
        let waiting = self.posted(dma, context).map(|posted| {
            // A counter behind the hardware's is far ahead of it.
            u32::from(posted.wrapping_sub(self.sq_index))
        });
        match waiting {
            Ok(waiting) if waiting > self.sq_blocks => dma.violations.note(
                Violation::SendOverrun,
                format_args!("QP {qpn:#x}: {waiting} of {}", self.sq_blocks),
            ),
            // The head of a record that cannot be read cannot be either.
            _ => self.rung = true,
        }
    }

    /// The blocks of requests that the driver has posted, as it counts them.
    fn posted(&self, dma: &Dma, context: &Context) -> Result<u16, DmaError> {
        let record = context.doorbell_record().wrapping_add(SEND_RECORD);
        Ok(u32::from_be_bytes(dma.memory.block(record)?) as u16)
    }

    /// Reads the WQE at the head of the send queue, which may go on at the queue's begin.
    fn read_head(&self, dma: &Dma, wqe: &mut [u8]) -> Result<(), DmaError> {
        let ring = u64::from(self.sq_blocks).saturating_mul(BASIC_BLOCK as u64);
        let index = u32::from(self.sq_index) & self.sq_blocks.wrapping_sub(1);
        let at = u64::from(index).saturating_mul(BASIC_BLOCK as u64);
        let room = usize::try_from(ring.saturating_sub(at)).unwrap_or(usize::MAX);
        let (first, rest) = wqe.split_at_mut(room.min(wqe.len()));
        self.buffer
            .read(dma, self.sq_offset.saturating_add(at), first)?;
        self.buffer.read(dma, self.sq_offset, rest)
    }
}

impl qp::Queues<Pages, Context> for Queues {
    fn receives(&self) -> bool {
        self.rq_entries.is_some()
    }

    fn index(&self) -> u16 {
        self.sq_index
    }

    fn head(&mut self, dma: &Dma, context: &Context) -> Result<Option<Control>, DmaError> {
        if !self.rung || self.sq_blocks == 0 {
            return Ok(None);
        }
        let waiting = self.posted(dma, context)?.wrapping_sub(self.sq_index);
        if waiting == 0 {
            self.rung = false;
            return Ok(None);
        }
        let mut segment = [0; CONTROL_SIZE];
        self.read_head(dma, &mut segment)?;
        let control = parse_control(&segment);
        // The head does not pass the counter: it would not meet it again. A request that is longer
        // than was posted is none.
        let blocks = control.size.div_ceil(BASIC_BLOCK).max(1) as u16;
        self.sq_step = blocks.min(waiting);
        Ok(Some(control))
    }

    fn request(&self, dma: &Dma, control: &Control, service: Service) -> Option<SendWqe> {
        let room = usize::from(self.sq_step).saturating_mul(BASIC_BLOCK);
        let fits = (CONTROL_SIZE..=room).contains(&control.size);
        let mut parsed = None;
        if fits && u32::from(self.sq_step) <= self.sq_blocks {
            let mut wqe = vec![0; control.size];
            self.read_head(dma, &mut wqe).ok()?;
            parsed = parse(*control, &wqe, service);
        }
        if parsed.is_none() {
            dma.violations.note(
                Violation::UnknownRequest,
                format_args!(
                    "opcode {:#x} of a {service:?} QP, {} bytes",
                    control.opcode, control.size
                ),
            );
        }
        parsed
    }

    fn advance(&mut self) {
        self.sq_index = self.sq_index.wrapping_add(self.sq_step);
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
        let Some(entries) = self.rq_entries else {
            return Ok(None);
        };
        let posted = u32::from_be_bytes(dma.memory.block(context.doorbell_record())?) as u16;
        let available = posted.wrapping_sub(self.rq_index);
        if available == 0 {
            return Ok(None);
        }
        if u32::from(available) > entries {
            dma.violations.note(
                Violation::ReceiveOverrun,
                format_args!("QP {qpn:#x}: {available} of {entries}"),
            );
        }
        let index = self.rq_index;
        let place = u64::from(u32::from(index) & entries.wrapping_sub(1));
        let mut scatter = vec![0; self.rq_stride];
        let offset = place.saturating_mul(self.rq_stride as u64);
        self.buffer.read(dma, offset, &mut scatter)?;
        self.rq_index = index.wrapping_add(1);
        let scatter = parse_scatter(&scatter);
        Ok(Some(RecvWqe { index, scatter }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::bytes::Fields;
    use crate::engine::qp::Queues as _;
    use crate::mlx5::card::Hca;
    use crate::mlx5::ifc::Bits;

    const RECORD: u64 = 0x10_0000;
    const BUFFER: u64 = 0x10_1000;
    const QPN: u32 = 0x41;

    /// A card, and a QP that has a send queue of four blocks.
    fn queues() -> (Hca, Context, Queues) {
        let mut hca = Hca::new(0);
        hca.dma.memory.add_ram(RECORD, 0x2000, true);
        hca.write_config(4, &[0x06, 0x04]);
        let mut context = vec![0; qpc::SIZE];
        context.set_bits(qpc::RQ_TYPE, 3);
        context.set_bits(qpc::LOG_SQ_SIZE, 2);
        context.set_bits(qpc::DBR_ADDR, RECORD);
        let context = Context::new(&context);
        let queues = Queues::new(&context, &BUFFER.to_be_bytes()).unwrap();
        (hca, context, queues)
    }

    #[test]
    fn a_doorbell_counts_if_its_requests_have_places() {
        let ring = |done: u16, posted: u32| {
            let (hca, context, mut queues) = queues();
            queues.sq_index = done;
            let record = RECORD + SEND_RECORD;
            hca.dma.memory.write(record, &posted.to_be_bytes()).unwrap();
            queues.ring(&hca.dma, &context, QPN);
            (queues.rung, hca.dma.violations.take())
        };
        assert_eq!(ring(0, 4), (true, vec![]));
        assert_eq!(ring(0xfffe, 2), (true, vec![]));
        let ignored = (false, vec![Violation::SendOverrun]);
        assert_eq!(ring(0, 5), ignored);
        // It has gone back.
        assert_eq!(ring(3, 2), ignored);
    }

    #[test]
    fn the_head_does_not_pass_what_was_posted() {
        let (mut hca, context, mut queues) = queues();
        let mut wqe = [0; 64];
        // A SEND of two blocks.
        wqe[3] = 0x0a;
        wqe[7] = 8;
        for block in [BUFFER, BUFFER + 0x80] {
            hca.dma.memory.write(block, &wqe).unwrap();
        }
        let post = |hca: &mut Hca, posted: u32| {
            let record = RECORD + SEND_RECORD;
            hca.dma.memory.write(record, &posted.to_be_bytes()).unwrap();
        };
        post(&mut hca, 1);
        queues.ring(&hca.dma, &context, QPN);
        let control = queues.head(&hca.dma, &context).unwrap().unwrap();
        assert!(queues.request(&hca.dma, &control, Service::Rc).is_none());
        assert_eq!(hca.dma.violations.take(), [Violation::UnknownRequest]);
        queues.advance();
        assert!(queues.head(&hca.dma, &context).unwrap().is_none());
        // As long as was posted.
        queues.sq_index = 0;
        post(&mut hca, 2);
        queues.ring(&hca.dma, &context, QPN);
        let control = queues.head(&hca.dma, &context).unwrap().unwrap();
        assert!(queues.request(&hca.dma, &control, Service::Rc).is_some());
        assert_eq!(hca.dma.violations.take(), []);
        queues.advance();
        assert!(queues.head(&hca.dma, &context).unwrap().is_none());
    }

    #[test]
    fn a_request_is_one_of_its_service() {
        let request = |opcode: u8, service| {
            let (hca, _, queues) = queues();
            let mut wqe = [0; 64];
            wqe[3] = opcode;
            wqe[7] = 4;
            hca.dma.memory.write(BUFFER, &wqe).unwrap();
            let mut queues = queues;
            let control = parse_control(&wqe.field(0));
            queues.sq_step = 1;
            let parsed = queues.request(&hca.dma, &control, service);
            (parsed.is_some(), hca.dma.violations.take())
        };
        let (send, write, read, unknown) = (0x0a, 0x08, 0x10, 0x3f);
        let refused = (false, vec![Violation::UnknownRequest]);
        assert_eq!(request(send, Service::Ud), (true, vec![]));
        assert_eq!(request(write, Service::Ud), refused);
        assert_eq!(request(write, Service::Uc), (true, vec![]));
        assert_eq!(request(read, Service::Uc), refused);
        assert_eq!(request(read, Service::Rc), (true, vec![]));
        assert_eq!(request(unknown, Service::Rc), refused);
        let invalidate = 0x01;
        assert_eq!(request(invalidate, Service::Rc), (true, vec![]));
        assert_eq!(request(invalidate, Service::Uc), refused);
        assert_eq!(request(invalidate, Service::Ud), refused);
    }
}
