// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Shared receive queues: XRC SRQs, and ordinary ones, which are RMPs. A linked list of receive
//! WQEs in the driver's buffer, whose head moves as messages arrive.

use std::collections::BTreeMap;

use crate::engine::bytes::Fields;
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;
use crate::engine::work::RecvWqe;
use crate::mlx5::memory::{Buffer, Dma};
use crate::mlx5::wqe::parse_scatter;

/// struct mlx5_wqe_srq_next_seg: index of the WQE after this one.
const NEXT_WQE_INDEX: usize = 0x02;
/// Its size; the scatter list follows.
const NEXT_SEG_SIZE: usize = 0x10;

/// By which commands a queue lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CREATE_XRC_SRQ.
    Xrc,
    /// CREATE_SRQ.
    Srq,
    /// CREATE_RMP.
    Rmp,
}

/// One shared receive queue.
pub struct Srq {
    /// The kind of its commands.
    pub kind: Kind,
    /// As the driver has sent it.
    pub context: Vec<u8>,
    /// Its WQEs.
    pub buffer: Buffer,
    /// Number of WQEs less one.
    pub mask: u16,
    /// Bytes of one.
    pub stride: usize,
    /// The address at which the driver counts those that it posts.
    pub doorbell: u64,
    /// The domain of an XRC SRQ; 0 otherwise.
    pub xrcd: u32,
    /// The protection domain.
    pub pd: u32,
    /// The CQ of the completions of an XRC SRQ.
    pub cqn: u32,
    /// The next WQE.
    pub head: u16,
    /// WQEs taken, as the doorbell record counts those posted.
    pub taken: u16,
    /// Fewer than this many WQEs raise SRQ_RQ_LIMIT, once.
    pub limit: u16,
}

impl Srq {
    /// WQEs posted and not yet taken.
    pub fn available(&self, dma: &Dma) -> Result<u16, DmaError> {
        let posted = u32::from_be_bytes(dma.memory.block(self.doorbell)?) as u16;
        let available = posted.wrapping_sub(self.taken);
        if available > self.mask {
            dma.violations.note(
                Violation::ReceiveOverrun,
                format_args!("SRQ of {} WQEs: {available} posted", self.mask),
            );
        }
        Ok(available)
    }

    /// Takes the WQE at the head, if there is one.
    pub fn take(&mut self, dma: &Dma) -> Result<Option<RecvWqe>, DmaError> {
        if self.available(dma)? == 0 {
            return Ok(None);
        }
        let index = self.head & self.mask;
        let mut wqe = vec![0; self.stride];
        let offset = u64::from(index).saturating_mul(self.stride as u64);
        self.buffer.read(dma, offset, &mut wqe)?;
        self.head = wqe.get_be16(NEXT_WQE_INDEX);
        self.taken = self.taken.wrapping_add(1);
        let scatter = parse_scatter(&wqe.split_off(NEXT_SEG_SIZE.min(wqe.len())));
        Ok(Some(RecvWqe { index, scatter }))
    }

    /// Whether the limit is passed now; it is disarmed by that.
    pub fn limit_reached(&mut self, dma: &Dma) -> bool {
        let below = self.limit != 0
            && self
                .available(dma)
                .is_ok_and(|available| available < self.limit);
        if below {
            self.limit = 0;
        }
        below
    }
}

/// All shared receive queues of a card, of one numbering.
#[derive(Default)]
pub struct Srqs {
    /// By number.
    pub queues: BTreeMap<u32, Srq>,
}
