// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The headers of a packet, as they travel.
//!
//! The device builds those of ordinary packets, as a capture shows them: [`Frame`]. Those of
//! management packets, which QP0 and QP1 send, are the driver's: [`RawDatagram`] reads them.

use crc::{Algorithm, Crc, CRC_32_ISO_HDLC};

use crate::engine::bytes::Fields;

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
/// It does not cover what a switch or a router may change, and ones take its place.
const ICRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
/// Variant CRC, of everything before it.
const VCRC: Crc<u16> = Crc::<u16>::new(&Algorithm {
    width: 16,
    poly: 0x100b,
    init: 0xffff,
    refin: true,
    refout: true,
    xorout: 0xffff,
    check: 0x2c4d,
    residue: 0x0000,
});

/// In an LRH: the next header is a base transport header.
const LNH_LOCAL: u8 = 2;
/// In an LRH: the next header is a GRH.
const LNH_GLOBAL: u8 = 3;
/// In a GRH: the next header is a base transport header.
const NEXT_HEADER_IBA: u8 = 0x1b;
/// In a GRH.
const IP_VERSION: u32 = 6;

/// The opcode of an unreliable datagram: Send Only.
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
    /// Reads one, with room for the invariant CRC behind it. None: the headers contradict each
    /// other, or are not those of a UD SEND.
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

/// A packet, before it is bytes.
#[derive(Clone, Debug, Default)]
pub struct Frame<'a> {
    /// Virtual lane.
    pub virtual_lane: u8,
    /// Service level.
    pub service_level: u8,
    /// The source's LID.
    pub slid: u16,
    /// The destination's LID.
    pub dlid: u16,
    /// The GRH, if there is one.
    pub grh: Option<Grh>,
    /// The opcode.
    pub opcode: u8,
    /// The receiver is to be woken.
    pub solicited: bool,
    /// The sender does not wait for a path migration.
    pub migration_request: bool,
    /// The partition.
    pub pkey: u16,
    /// The destination QP.
    pub dqpn: u32,
    /// The sender waits for an acknowledgement.
    pub acknowledge: bool,
    /// Sequence number.
    pub psn: u32,
    /// The extended transport headers.
    pub extended: Vec<u8>,
    /// The data.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Its bytes, from the LRH to the variant CRC.
    pub fn bytes(&self) -> Vec<u8> {
        let padded = self.payload.len().next_multiple_of(4);
        let padding = padded.saturating_sub(self.payload.len());
        let transport = BTH_SIZE
            .saturating_add(self.extended.len())
            .saturating_add(padded)
            .saturating_add(ICRC_SIZE);
        let (next, grh) = match &self.grh {
            Some(grh) => (LNH_GLOBAL, grh.bytes(transport).to_vec()),
            None => (LNH_LOCAL, Vec::new()),
        };
        let length = LRH_SIZE.saturating_add(grh.len()).saturating_add(transport);
        let mut lrh = [0; LRH_SIZE];
        lrh.set_u8(0, self.virtual_lane << 4);
        lrh.set_u8(1, self.service_level << 4 | next);
        lrh.set_be16(2, self.dlid);
        lrh.set_be16(4, (length / 4) as u16);
        lrh.set_be16(6, self.slid);
        let mut bth = [0; BTH_SIZE];
        let flags = u8::from(self.solicited) << 7 | u8::from(self.migration_request) << 6;
        bth.set_u8(0, self.opcode);
        bth.set_u8(1, flags | (padding as u8) << 4);
        bth.set_be16(2, self.pkey);
        bth.set_be32(4, self.dqpn & 0xff_ffff);
        bth.set_be32(8, u32::from(self.acknowledge) << 31 | self.psn & 0xff_ffff);
        let mut packet = [&lrh, grh.as_slice(), &bth, &self.extended, self.payload].concat();
        packet.resize(packet.len().saturating_add(padding), 0);
        packet.extend_from_slice(&invariant_crc(&packet).to_le_bytes());
        packet.extend_from_slice(&VCRC.checksum(&packet).to_le_bytes());
        packet
    }
}

/// The invariant CRC of a packet up to it.
fn invariant_crc(packet: &[u8]) -> u32 {
    let mut masked = packet.to_vec();
    let bth = match packet.get_u8(1) & 3 {
        LNH_GLOBAL => {
            // The LRH; traffic class, flow label and hop limit of the GRH.
            masked.set_be64(0, u64::MAX);
            let version = packet.get_u8(LRH_SIZE) | 0xf;
            masked.set_u8(LRH_SIZE, version);
            masked.set_field(LRH_SIZE + 1, &[0xff; 3]);
            masked.set_u8(LRH_SIZE + 7, 0xff);
            LRH_SIZE + GRH_SIZE
        }
        _ => {
            // The virtual lane.
            masked.set_u8(0, packet.get_u8(0) | 0xf0);
            LRH_SIZE
        }
    };
    // A reserved byte of the BTH.
    masked.set_u8(bth.saturating_add(4), 0xff);
    ICRC.checksum(&masked)
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests {
    use super::*;

    /// The bytes of a datagram as the driver writes them, and room for the CRC.
    pub fn raw(datagram: &RawDatagram) -> Vec<u8> {
        let mut deth = vec![0; DETH_SIZE];
        deth.set_be32(0, datagram.qkey);
        deth.set_be32(4, datagram.sqpn);
        let frame = Frame {
            virtual_lane: datagram.virtual_lane,
            service_level: datagram.service_level,
            dlid: datagram.dlid,
            grh: datagram.grh,
            opcode: UD_SEND_ONLY,
            solicited: datagram.solicited,
            pkey: datagram.pkey,
            dqpn: datagram.dqpn,
            psn: datagram.psn,
            extended: deth,
            payload: &datagram.payload,
            ..Frame::default()
        };
        let mut packet = frame.bytes();
        // Padding and CRCs are the device's.
        let padding = datagram.payload.len().next_multiple_of(4) - datagram.payload.len();
        packet.truncate(packet.len() - 2 - ICRC_SIZE - padding);
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
    fn a_frame_has_the_bytes_and_the_crc_of_the_specifications_example() {
        let mut reth = vec![0; 16];
        reth.set_be64(0, 0x0171_0a1c_015d_4002);
        reth.set_be32(8, 0x38f2_7a05);
        reth.set_be32(12, 14);
        let payload = [
            0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4,
        ];
        let frame = Frame {
            virtual_lane: 7,
            service_level: 1,
            slid: 0x17d2,
            dlid: 0x375c,
            opcode: 0x0a,
            pkey: 0x2487,
            dqpn: 0x87_b1b3,
            psn: 0x0d_ec2a,
            extended: reth,
            payload: &payload,
            ..Frame::default()
        };
        let bytes = frame.bytes();
        assert_eq!(
            bytes[..20],
            [
                0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00, 0x87,
                0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a
            ]
        );
        assert_eq!(bytes[36..50], payload);
        assert_eq!(bytes[50..56], [0, 0, 0x96, 0x25, 0xb7, 0x5a]);
        assert_eq!(bytes.len(), 58);
    }

    #[test]
    fn the_invariant_crc_survives_a_router() {
        let frame = |virtual_lane, traffic_class, flow_label, hop_limit| {
            let grh = Grh {
                traffic_class,
                flow_label,
                hop_limit,
                sgid: [1; 16],
                dgid: [2; 16],
            };
            let frame = Frame {
                virtual_lane,
                grh: Some(grh),
                payload: b"data",
                ..Frame::default()
            };
            let bytes = frame.bytes();
            bytes.last_chunk::<6>().unwrap().field::<4>(0)
        };
        assert_eq!(frame(0, 0, 0, 64), frame(3, 0x11, 0x2_3456, 63));
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
