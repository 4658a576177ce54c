// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Completions, before a card writes them into a queue.

use thiserror::Error;

use crate::engine::key::KeyError;
use crate::engine::memory::DmaError;

/// Completion syndromes (MLX4_CQE_SYNDROME_*; those of mlx5 are the same).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    LocalLengthErr = 0x01,
    LocalQpOpErr = 0x02,
    LocalProtErr = 0x04,
    WrFlushErr = 0x05,
    MwBindErr = 0x06,
    BadRespErr = 0x10,
    RemoteInvalReqErr = 0x12,
    RemoteAccessErr = 0x13,
    RemoteOpErr = 0x14,
    TransportRetryExcErr = 0x15,
    RnrRetryExcErr = 0x16,
}

/// Opcodes of a receive completion (`MLX4_RECV_OPCODE_*` of `include/linux/mlx4/device.h`).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecvOpcode {
    RdmaWriteImm = 0x00,
    Send = 0x01,
    SendImm = 0x02,
    SendInval = 0x03,
}

/// The request or receive that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A request with the card's `opcode`.
    Send {
        /// As it was in the WQE.
        opcode: u8,
        /// Its data.
        bytes: u32,
    },
    /// A request, badly.
    SendError(Syndrome),
    /// A receive.
    Receive {
        /// The request that it received.
        opcode: RecvOpcode,
        /// Its data.
        bytes: u32,
    },
    /// A receive, badly.
    ReceiveError(Syndrome),
}

/// A completion before it has a place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The QP.
    pub qpn: u32,
    /// Which WQE of its queue, or of the SRQ.
    pub wqe_index: u16,
    /// The request or receive that ended.
    pub ended: Ended,
    /// Immediate data, or the key that the message invalidated.
    pub immediate: [u8; 4],
    /// The QP it came from, or for XRC its SRQ.
    pub remote: u32,
    /// A GRH came with the message.
    pub grh: bool,
    /// The port it came from.
    pub slid: u16,
    /// Its service level.
    pub service_level: u8,
}

impl Cqe {
    /// A request of QP `qpn` was executed.
    pub fn send(qpn: u32, wqe_index: u16, opcode: u8, bytes: u32) -> Self {
        Self::new(qpn, wqe_index, Ended::Send { opcode, bytes })
    }

    /// A request of QP `qpn` failed.
    pub fn send_error(qpn: u32, wqe_index: u16, syndrome: Syndrome) -> Self {
        Self::new(qpn, wqe_index, Ended::SendError(syndrome))
    }

    /// QP `qpn` received `bytes`.
    pub fn receive(qpn: u32, wqe_index: u16, opcode: RecvOpcode, bytes: u32) -> Self {
        Self::new(qpn, wqe_index, Ended::Receive { opcode, bytes })
    }

    /// The message for QP `qpn` did not fit, or its receive WQE was flushed.
    pub fn receive_error(qpn: u32, wqe_index: u16, syndrome: Syndrome) -> Self {
        Self::new(qpn, wqe_index, Ended::ReceiveError(syndrome))
    }

    fn new(qpn: u32, wqe_index: u16, ended: Ended) -> Self {
        Self {
            qpn,
            wqe_index,
            ended,
            immediate: [0; 4],
            remote: 0,
            grh: false,
            slid: 0,
            service_level: 0,
        }
    }

    /// With immediate data.
    pub fn immediate(mut self, immediate: [u8; 4]) -> Self {
        self.immediate = immediate;
        self
    }

    /// With the QP it came from, or for XRC its SRQ.
    pub fn remote(mut self, number: u32, grh: bool) -> Self {
        self.remote = number;
        self.grh = grh;
        self
    }

    /// With the port and service level it came from.
    pub fn source(mut self, lid: u16, service_level: u8) -> Self {
        self.slid = lid;
        self.service_level = service_level;
        self
    }

    /// It ended badly.
    pub fn is_error(&self) -> bool {
        matches!(self.ended, Ended::SendError(_) | Ended::ReceiveError(_))
    }
}

/// The reason why a request cannot even leave.
#[derive(Debug, Error)]
pub enum LocalError {
    /// Its memory may not be used so.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Its memory cannot be reached.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// The path MTU or the longest message does not allow it.
    #[error("message of {0} bytes is too long")]
    Length(u64),
    /// A key does not change so.
    #[error("key {0:#x} does not change so")]
    Bind(u32),
    /// The QP has no such operation.
    #[error("not possible with this QP")]
    Operation,
}

impl LocalError {
    /// The syndrome of its completion.
    pub fn syndrome(&self) -> Syndrome {
        match self {
            Self::Key(_) | Self::Dma(_) => Syndrome::LocalProtErr,
            Self::Length(_) => Syndrome::LocalLengthErr,
            Self::Bind(_) => Syndrome::MwBindErr,
            Self::Operation => Syndrome::LocalQpOpErr,
        }
    }
}
