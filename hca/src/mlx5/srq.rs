// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Shared receive queues: XRC SRQs, and ordinary ones, which are RMPs.

use std::collections::BTreeMap;

use crate::engine::memory::DmaError;
use crate::engine::shared_queue::SharedQueue;
use crate::engine::work::RecvWqe;
use crate::mlx5::memory::{Buffer, Dma};
use crate::mlx5::wqe::parse_scatter;

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
    /// The place of its WQEs.
    pub buffer: Buffer,
    /// Its WQEs.
    pub wqes: SharedQueue,
    /// The domain of an XRC SRQ; 0 otherwise.
    pub xrcd: u32,
    /// The protection domain.
    pub pd: u32,
    /// The CQ of the completions of an XRC SRQ.
    pub cqn: u32,
}

impl Srq {
    /// Takes the WQE at the head, if there is one.
    pub fn take(&mut self, dma: &Dma) -> Result<Option<RecvWqe>, DmaError> {
        let Self { buffer, wqes, .. } = self;
        wqes.take(dma, |at, wqe| buffer.read(dma, at, wqe), parse_scatter)
    }
}

/// All shared receive queues of a card, of one numbering.
#[derive(Default)]
pub struct Srqs {
    /// By number.
    pub queues: BTreeMap<u32, Srq>,
}
