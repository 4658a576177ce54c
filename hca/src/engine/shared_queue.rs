// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The WQEs of a shared receive queue: a linked list in the driver's buffer, whose head moves as
//! messages arrive. Both cards have it; buffers and scatter lists are the card's.

use crate::engine::bytes::Fields;
use crate::engine::memory::{Dma, DmaError};
use crate::engine::violation::Violation;
use crate::engine::work::{RecvWqe, Segment};

/// Index of the WQE after this one (struct mlx4_wqe_srq_next_seg, struct mlx5_wqe_srq_next_seg).
const NEXT_WQE_INDEX: usize = 0x02;
/// Its size; the scatter list follows.
const NEXT_SEG_SIZE: usize = 0x10;

/// The WQEs of a shared receive queue.
pub struct SharedQueue {
    /// Number of WQEs less one.
    mask: u16,
    /// Bytes of one.
    stride: usize,
    /// The address at which the driver counts those that it posts.
    doorbell: u64,
    /// The next WQE.
    head: u16,
    /// WQEs taken, as the doorbell record counts those posted.
    pub taken: u16,
    /// Fewer than this many WQEs raise an event, once.
    pub limit: u16,
}

impl SharedQueue {
    /// Creates a queue of `1 << log_wqes` WQEs of `stride` bytes, none of which is posted.
    pub fn new(log_wqes: u32, stride: usize, doorbell: u64) -> Self {
        Self {
            mask: 1u16.checked_shl(log_wqes).unwrap_or(0).wrapping_sub(1),
            stride,
            doorbell: doorbell & !3,
            head: 0,
            taken: 0,
            limit: 0,
        }
    }

    /// The WQEs that can be posted: one fewer than the queue has.
    pub fn places(&self) -> u16 {
        self.mask
    }

    /// WQEs posted and not yet taken.
    pub fn available<I>(&self, dma: &Dma<I>) -> Result<u16, DmaError> {
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

    /// Takes the WQE at the head, if there is one: `read` reads the driver's buffer, and `parse`
    /// the scatter list.
    pub fn take<I>(
        &mut self,
        dma: &Dma<I>,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), DmaError>,
        parse: impl FnOnce(&[u8]) -> Vec<Segment>,
    ) -> Result<Option<RecvWqe>, DmaError> {
        if self.available(dma)? == 0 {
            return Ok(None);
        }
        let index = self.head & self.mask;
        let mut wqe = vec![0; self.stride];
        let offset = u64::from(index).saturating_mul(self.stride as u64);
        read(offset, &mut wqe)?;
        self.head = wqe.get_be16(NEXT_WQE_INDEX);
        self.taken = self.taken.wrapping_add(1);
        let scatter = parse(&wqe.split_off(NEXT_SEG_SIZE.min(wqe.len())));
        Ok(Some(RecvWqe { index, scatter }))
    }

    /// Whether the limit is passed now; it is disarmed by that.
    pub fn limit_reached<I>(&mut self, dma: &Dma<I>) -> bool {
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
