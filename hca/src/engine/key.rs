// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory keys: what a key can be used for, and why it cannot.

use thiserror::Error;

use crate::engine::memory::{Dma, DmaError};

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Gather of a send.
    LocalRead,
    /// Scatter of a receive or of a read's answer.
    LocalWrite,
    /// RDMA READ.
    RemoteRead,
    /// RDMA WRITE.
    RemoteWrite,
    /// Atomic operations.
    Atomic,
}

/// The queue that uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its protection domain.
    pub pd: u32,
    /// The QP, which some keys are bound to.
    pub qpn: u32,
}

/// The reason why a key does not permit an access.
#[derive(Debug, Error)]
pub enum KeyError {
    /// No region has this key.
    #[error("key {0:#x} is not valid")]
    Invalid(u32),
    /// The region belongs to another protection domain.
    #[error("key {key:#x} belongs to PD {theirs:#x}, not {ours:#x}")]
    Pd {
        /// The key.
        key: u32,
        /// The PD of the region.
        theirs: u32,
        /// The PD of the queue.
        ours: u32,
    },
    /// The key belongs to another QP.
    #[error("key {key:#x} belongs to QP {theirs:#x}, not {ours:#x}")]
    Qp {
        /// The key.
        key: u32,
        /// The QP of the key.
        theirs: u32,
        /// The QP that uses it.
        ours: u32,
    },
    /// Peers may not invalidate the key.
    #[error("key {0:#x} cannot be invalidated by a peer")]
    Lasting(u32),
    /// The region does not allow this access.
    #[error("key {0:#x} does not allow {1:?}")]
    Permission(u32, Access),
    /// The access runs out of the region.
    #[error("{1:#x}+{2:#x} is outside the region of key {0:#x}")]
    Bounds(u32, u64, u64),
    /// The region leads nowhere.
    #[error(transparent)]
    Dma(#[from] DmaError),
}

/// A stretch of memory that a key opened.
pub trait Region<I> {
    /// Reads it.
    fn read(&self, dma: &Dma<I>, data: &mut [u8]) -> Result<(), DmaError>;
    /// Writes it.
    fn write(&self, dma: &Dma<I>, data: &[u8]) -> Result<(), DmaError>;
    /// Updates its first 64-bit word atomically and returns the old value.
    fn fetch_update(&self, dma: &Dma<I>, update: impl Fn(u64) -> u64) -> Result<u64, DmaError>;
}
