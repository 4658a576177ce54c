// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Packets between ports: requests and their answers. A message is one, however many packets it
//! would be on a cable; sequence numbers advance by those.

use std::time::Duration;

use serde::Serialize;

use crate::engine::headers::Grh;
use crate::engine::transport::Service;

/// Sequence numbers have 24 bits.
pub const PSN_MASK: u32 = 0xff_ffff;

/// The first multicast LID.
pub const LID_MULTICAST: u16 = 0xc000;

/// The LID of packets that go to the other end of the cable.
pub const LID_PERMISSIVE: u16 = 0xffff;

/// A request on the wire: the packets of one message.
#[derive(Clone)]
pub struct Packet {
    /// The port it left by.
    pub slid: u16,
    /// The destination's LID.
    pub dlid: u16,
    /// Service level.
    pub service_level: u8,
    /// Transport service.
    pub service: Service,
    /// The partition it belongs to.
    pub pkey: u16,
    /// Its GRH, if it has one.
    pub grh: Option<Grh>,
    /// The QP it is for.
    pub dqpn: u32,
    /// The sequence number of its first packet.
    pub psn: u32,
    /// Most bytes of data in one packet.
    pub mtu: u64,
    /// The SRQ it is for (XRC).
    pub srqn: u32,
    /// The sender does not wait for a path migration (MigReq in the base transport header).
    pub migration_request: bool,
    /// The receiver is to be woken.
    pub solicited: bool,
    /// The request.
    pub body: Body,
    /// For a datagram: its sender and its key.
    pub datagram: Option<DatagramHeader>,
}

/// The sequence number before `psn`.
pub fn previous_psn(psn: u32) -> u32 {
    psn.wrapping_sub(1) & PSN_MASK
}

/// Whether `psn` comes before `other`, by less than half of all numbers.
pub fn psn_is_before(psn: u32, other: u32) -> bool {
    psn != other && other.wrapping_sub(psn) & PSN_MASK < 1 << 23
}

impl Packet {
    /// Bytes of data that it brings, or asks for.
    pub fn length(&self) -> u64 {
        match &self.body {
            Body::Send { payload, .. } | Body::Write { payload, .. } => payload.len() as u64,
            Body::Read { length, .. } => *length,
            Body::Atomic { .. } => 0,
        }
    }

    /// The sequence number after those of its packets, or of the packets that answer a READ.
    pub fn next_psn(&self) -> u32 {
        let packets = self.length().div_ceil(self.mtu.max(1)).max(1);
        self.psn.wrapping_add(packets as u32) & PSN_MASK
    }
}

/// The fields that only a datagram has.
#[derive(Clone, Debug)]
pub struct DatagramHeader {
    /// The QP that sent it.
    pub sqpn: u32,
    /// The key that must match the receiver's.
    pub qkey: u32,
}

/// A field of the last packet of a message into a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// There is none.
    Nothing,
    /// Immediate data.
    Immediate([u8; 4]),
    /// The key that the message invalidates.
    Invalidate(u32),
}

/// The request and its payload.
#[derive(Clone)]
pub enum Body {
    /// Into the receive queue.
    Send {
        /// The message.
        payload: Vec<u8>,
        /// With it.
        extra: Extra,
    },
    /// Into memory.
    Write {
        /// Where.
        address: u64,
        /// The key.
        rkey: u32,
        /// The data.
        payload: Vec<u8>,
        /// With it.
        immediate: Option<[u8; 4]>,
    },
    /// Out of memory.
    Read {
        /// Where.
        address: u64,
        /// The key.
        rkey: u32,
        /// The number of bytes.
        length: u64,
    },
    /// An atomic operation.
    Atomic {
        /// Where.
        address: u64,
        /// The key.
        rkey: u32,
        /// Which.
        operation: Atomic,
    },
}

/// An atomic operation on a 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Replace by `swap` if equal to `compare`.
    CompareSwap {
        /// The new value.
        swap: u64,
        /// The expected one.
        compare: u64,
    },
    /// Add.
    FetchAdd(u64),
}

impl Atomic {
    /// The new value.
    pub fn apply(self, old: u64) -> u64 {
        match self {
            Self::CompareSwap { swap, compare } if old == compare => swap,
            Self::CompareSwap { .. } => old,
            Self::FetchAdd(add) => old.wrapping_add(add),
        }
    }
}

/// A response on the wire, to the requester that the responder is connected with.
pub struct Response {
    /// The port it left by.
    pub slid: u16,
    /// The destination's LID.
    pub dlid: u16,
    /// Service level.
    pub service_level: u8,
    /// The partition it belongs to.
    pub pkey: u16,
    /// Its GRH, if it has one.
    pub grh: Option<Grh>,
    /// The QP it is for.
    pub dqpn: u32,
    /// The responder does not wait for a path migration.
    pub migration_request: bool,
    /// The last sequence number it is about.
    pub psn: u32,
    /// Most bytes of data in one packet.
    pub mtu: u64,
    /// The reply.
    pub reply: Reply,
}

/// Replies.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; with the data read, if any.
    Ack {
        /// Data of a read, or the old value of an atomic.
        data: Vec<u8>,
        /// The responder is not in the migrated state.
        rearmed: bool,
    },
    /// An answer that cannot be one to this request.
    Bad,
    /// Nothing to receive into: ask again after this time.
    NotReady(Duration),
    /// Refused.
    Nak(Nak),
    /// Nothing.
    Silence,
}

/// The reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nak {
    /// Not possible with this QP.
    InvalidRequest,
    /// The key does not allow it.
    RemoteAccess,
    /// The responder has a problem of its own.
    RemoteOperational,
}

/// The reason why a packet is dropped without an answer: the sender times out and sends it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// There is no such QP.
    Qp,
    /// The QP has another transport service.
    Service,
    /// The QP does not receive in its state.
    State,
    /// A request to an XRC initiator, which has no responder.
    Initiator,
    /// It does not come from the other end of the QP's path, or not to ours.
    Path,
    /// Its P_Key is not the QP's.
    PKey,
    /// Its Q_Key is not the QP's.
    QKey,
    /// Its sequence number is not the next one, and it repeats nothing that can be answered again.
    Sequence,
    /// A datagram, or a message over an unreliable connection, found no receive.
    NoReceive,
    /// A message over an unreliable connection was refused.
    Refused,
    /// An answer that no request waits for.
    Response,
}
