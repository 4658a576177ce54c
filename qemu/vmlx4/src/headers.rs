// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The headers of a packet, as they travel.
//!
//! The device builds those of ordinary packets. Those of management packets, which QP0 and QP1 send,
//! are the driver's: [`RawDatagram`] reads them.

use crate::bytes::Fields;

/// Local route header.
const LRH_SIZE: usize = 8;
/// Global route header. A receiver leaves room for one before every datagram.
pub const GRH_SIZE: usize = 40;
/// Base transport header.
const BTH_SIZE: usize = 12;
/// Datagram extended transport header.
const DETH_SIZE: usize = 8;
/// Invariant CRC.
const ICRC_SIZE: usize = 4;

/// In an LRH: the next header is a base transport header.
const LNH_LOCAL: u8 = 2;
/// In an LRH: the next header is a GRH.
const LNH_GLOBAL: u8 = 3;
/// In a GRH: the next header is a base transport header.
const NEXT_HEADER_IBA: u8 = 0x1b;
/// In a GRH.
const IP_VERSION: u32 = 6;

/// Of an unreliable datagram: Send Only.
const UD_SEND_ONLY: u8 = 0x64;

/// The virtual lane of subnet management packets.
pub const VL_MANAGEMENT: u8 = 15;

/// A global route header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// The sender's GID.
    pub sgid: [u8; 16],
    /// The destination's GID: a port, or a multicast group.
    pub dgid: [u8; 16],
}

impl Grh {
    /// Its bytes before a datagram with this payload.
    pub fn of_datagram(&self, payload: usize) -> [u8; GRH_SIZE] {
        let headers = BTH_SIZE + DETH_SIZE + ICRC_SIZE;
        self.bytes(payload.next_multiple_of(4).saturating_add(headers))
    }

    /// Its bytes before `length` others.
    fn bytes(&self, length: usize) -> [u8; GRH_SIZE] {
        let mut grh = [0; GRH_SIZE];
        let class = u32::from(self.traffic_class) << 20;
        grh.set_be32(0, IP_VERSION << 28 | class | self.flow_label & 0xf_ffff);
        grh.set_be16(4, length as u16);
        grh.set_u8(6, NEXT_HEADER_IBA);
        grh.set_u8(7, self.hop_limit);
        grh.set_field(8, &self.sgid);
        grh.set_field(24, &self.dgid);
        grh
    }

    /// Reads one with this many bytes after it.
    fn parse(grh: &[u8; GRH_SIZE], length: usize) -> Option<Self> {
        let word = grh.get_be32(0);
        let is_one = word >> 28 == IP_VERSION
            && usize::from(grh.get_be16(4)) == length
            && grh.get_u8(6) == NEXT_HEADER_IBA;
        is_one.then(|| Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            hop_limit: grh.get_u8(7),
            sgid: grh.field(8),
            dgid: grh.field(24),
        })
    }
}

/// A datagram whose headers the driver has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDatagram {
    /// Virtual lane.
    pub virtual_lane: u8,
    /// Service level.
    pub service_level: u8,
    /// The destination's LID.
    pub dlid: u16,
    /// The GRH, if there is one.
    pub grh: Option<Grh>,
    /// The receiver is to be woken.
    pub solicited: bool,
    /// The partition.
    pub pkey: u16,
    /// The destination QP.
    pub dqpn: u32,
    /// Its sequence number.
    pub psn: u32,
    /// The destination's key.
    pub qkey: u32,
    /// The source QP.
    pub sqpn: u32,
    /// The data.
    pub payload: Vec<u8>,
}

impl RawDatagram {
    /// Reads one, with room for the invariant CRC behind it. None: the headers contradict each other,
    /// or are not those of a UD SEND.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (lrh, rest) = packet.split_first_chunk::<LRH_SIZE>()?;
        let words = usize::from(lrh.get_be16(4) & 0x7ff);
        if lrh.get_u8(0) & 0xf != 0 || words != packet.len().div_ceil(4) {
            return None;
        }
        let (grh, rest) = match lrh.get_u8(1) & 3 {
            LNH_LOCAL => (None, rest),
            LNH_GLOBAL => {
                let (grh, rest) = rest.split_first_chunk::<GRH_SIZE>()?;
                (Some(Grh::parse(grh, rest.len().next_multiple_of(4))?), rest)
            }
            _ => return None,
        };
        let (bth, rest) = rest.split_first_chunk::<BTH_SIZE>()?;
        let (deth, rest) = rest.split_first_chunk::<DETH_SIZE>()?;
        let (payload, _icrc) = rest.split_last_chunk::<ICRC_SIZE>()?;
        let flags = bth.get_u8(1);
        let padding = payload
            .len()
            .next_multiple_of(4)
            .checked_sub(payload.len())?;
        if bth.get_u8(0) != UD_SEND_ONLY || usize::from(flags >> 4 & 3) != padding {
            return None;
        }
        Some(Self {
            virtual_lane: lrh.get_u8(0) >> 4,
            service_level: lrh.get_u8(1) >> 4,
            dlid: lrh.get_be16(2),
            grh,
            solicited: flags >> 7 != 0,
            pkey: bth.get_be16(2),
            dqpn: bth.get_be24(4),
            psn: bth.get_be24(8),
            qkey: deth.get_be32(0),
            sqpn: deth.get_be24(4),
            payload: payload.to_vec(),
        })
    }
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests {
    use super::*;

    /// The bytes of a datagram as `ib_ud_header_pack()` writes them, and room for the CRC.
    pub fn raw(datagram: &RawDatagram) -> Vec<u8> {
        let payload = &datagram.payload;
        let padded = payload.len().next_multiple_of(4);
        let transport = BTH_SIZE + DETH_SIZE + padded + ICRC_SIZE;
        let mut packet = vec![0; LRH_SIZE];
        let (next, grh) = match &datagram.grh {
            Some(_) => (LNH_GLOBAL, GRH_SIZE),
            None => (LNH_LOCAL, 0),
        };
        packet.set_u8(0, datagram.virtual_lane << 4);
        packet.set_u8(1, datagram.service_level << 4 | next);
        packet.set_be16(2, datagram.dlid);
        packet.set_be16(4, ((LRH_SIZE + grh + transport) / 4) as u16);
        if let Some(grh) = &datagram.grh {
            packet.extend_from_slice(&grh.of_datagram(payload.len()));
        }
        let mut headers = [0; BTH_SIZE + DETH_SIZE];
        headers.set_u8(0, UD_SEND_ONLY);
        let padding = (padded - payload.len()) as u8;
        headers.set_u8(1, u8::from(datagram.solicited) << 7 | padding << 4);
        headers.set_be16(2, datagram.pkey);
        headers.set_be32(4, datagram.dqpn);
        headers.set_be32(8, datagram.psn);
        headers.set_be32(12, datagram.qkey);
        headers.set_be32(16, datagram.sqpn);
        packet.extend_from_slice(&headers);
        packet.extend_from_slice(payload);
        packet.extend_from_slice(&[0; ICRC_SIZE]);
        packet
    }

    /// A management datagram from QP1 to QP1.
    pub fn general(dlid: u16, payload: &[u8]) -> RawDatagram {
        RawDatagram {
            virtual_lane: 0,
            service_level: 0,
            dlid,
            grh: None,
            solicited: false,
            pkey: 0xffff,
            dqpn: 1,
            psn: 0,
            qkey: 0x8001_0000,
            sqpn: 1,
            payload: payload.to_vec(),
        }
    }

    #[test]
    fn a_datagram_is_read_with_its_headers() {
        let datagram = RawDatagram {
            virtual_lane: 3,
            service_level: 5,
            grh: Some(Grh {
                traffic_class: 0x12,
                flow_label: 0x3_4567,
                hop_limit: 64,
                sgid: [1; 16],
                dgid: [2; 16],
            }),
            solicited: true,
            pkey: 0x8001,
            psn: 0xab_cdef,
            ..general(7, b"twelve bytes")
        };
        assert_eq!(RawDatagram::parse(&raw(&datagram)), Some(datagram));
        let short = general(7, b"three");
        assert_eq!(RawDatagram::parse(&raw(&short)), Some(short));
    }

    #[test]
    fn headers_that_contradict_each_other_are_none() {
        let global = RawDatagram {
            grh: Some(Grh::default()),
            ..general(7, &[0; 16])
        };
        let packet = raw(&global);
        assert!(RawDatagram::parse(&packet).is_some());
        // Version and length of the LRH, of the GRH, its next header, opcode and padding.
        for (at, value) in [
            (0, 1),
            (5, 1),
            (8, 0x40),
            (13, 1),
            (14, 6),
            (48, 4),
            (49, 1 << 4),
        ] {
            let mut wrong = packet.clone();
            wrong[at] = value;
            assert_eq!(RawDatagram::parse(&wrong), None, "byte {at}");
        }
        for length in 0..packet.len() {
            assert_eq!(RawDatagram::parse(&packet[..length]), None);
        }
    }
}
