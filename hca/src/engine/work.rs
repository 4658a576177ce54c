// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Work requests, whatever the layout that a card reads them in.

use crate::engine::headers::Grh;

/// Remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Virtual address at the remote side.
    pub address: u64,
    /// The key that opens it there.
    pub rkey: u32,
}

/// The destination of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The port of ours by which it leaves.
    pub port: u8,
    /// Destination port; 0xc000 and above are multicast.
    pub dlid: u16,
    /// The GRH, if there is one. The source GID is left to the port.
    pub grh: Option<Grh>,
    /// Service level.
    pub service_level: u8,
    /// Destination QP.
    pub dqpn: u32,
    /// Its key; bit 31 asks for the sender's own.
    pub qkey: u32,
}

/// One piece of local memory, or of the WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Local memory.
    Memory {
        /// Its length.
        length: u32,
        /// The key that opens it.
        lkey: u32,
        /// Its virtual address.
        address: u64,
    },
    /// Data that came in the WQE.
    Inline(Vec<u8>),
}

impl Segment {
    /// Bytes in it.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory { length, .. } => u64::from(*length),
            Self::Inline(data) => data.len() as u64,
        }
    }

    /// It holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The field of a SEND beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Immediate data.
    Immediate,
    /// A key of the receiver, which ends with the message.
    Invalidate,
}

/// The operation of a send WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    Nop,
    /// A request that stays inside the card: its whole WQE.
    Local(Vec<u8>),
    /// A message into the peer's receive queue.
    Send {
        /// With it, in the place of immediate data.
        beside: Beside,
    },
    /// Into the peer's memory.
    Write {
        /// Where.
        remote: RemoteAddress,
        /// With immediate data, which takes a receive WQE.
        immediate: bool,
    },
    /// Out of the peer's memory.
    Read {
        /// Where.
        remote: RemoteAddress,
    },
    /// Replace if equal.
    CompareSwap {
        /// Where.
        remote: RemoteAddress,
        /// The new value.
        swap: u64,
        /// The value that is replaced.
        compare: u64,
    },
    /// Add.
    FetchAdd {
        /// Where.
        remote: RemoteAddress,
        /// The summand.
        add: u64,
    },
}

/// The head of every send WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The card's opcode.
    pub opcode: u8,
    /// Bytes of the WQE.
    pub size: usize,
    /// The remote SRQ of an XRC request.
    pub srqn: u32,
    /// A completion is wanted.
    pub signaled: bool,
    /// The receiver is to be woken.
    pub solicited: bool,
    /// Immediate data, or the key that a SEND invalidates.
    pub immediate: [u8; 4],
}

/// A send WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Its head.
    pub control: Control,
    /// The operation.
    pub request: Request,
    /// The destination, for a datagram.
    pub datagram: Option<Datagram>,
    /// Local data.
    pub segments: Vec<Segment>,
    /// An inline segment crosses a 64-byte line.
    pub inline_across_line: bool,
}

impl SendWqe {
    /// Bytes of local data.
    pub fn length(&self) -> u64 {
        total(&self.segments)
    }
}

/// Bytes of a list.
pub fn total(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .fold(0u64, |sum, segment| sum.saturating_add(segment.len()))
}

/// A receive WQE taken from a queue.
pub struct RecvWqe {
    /// Its index, for the completion.
    pub index: u16,
    /// Its scatter list.
    pub scatter: Vec<Segment>,
}

impl Request {
    /// Its name in the counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Local(_) => "local",
            Self::Send { beside } => match beside {
                Beside::Nothing => "send",
                Beside::Immediate => "send_imm",
                Beside::Invalidate => "send_inval",
            },
            Self::Write {
                immediate: false, ..
            } => "rdma_write",
            Self::Write {
                immediate: true, ..
            } => "rdma_write_imm",
            Self::Read { .. } => "rdma_read",
            Self::CompareSwap { .. } => "atomic_cs",
            Self::FetchAdd { .. } => "atomic_fa",
        }
    }
}
