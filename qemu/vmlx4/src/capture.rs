// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Captures of the packets that the wire does not lose, as pcap files of ERF records, which Wireshark and NFStest
//! decode.
//!
//! A message of several packets is written as such, with the sequence numbers that it has. What the model
//! does not keep is constant: the message sequence number of an acknowledgement is 0, and data have no
//! virtual lane but the first.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::bytes::Fields;
use crate::fabric::{Atomic, Body, Nak, Packet, Reply, Response};
use crate::headers::{Frame, Grh, VL_MANAGEMENT};
use crate::qpc::{rnr_timer_code, Service};

/// Magic number of a file whose times are in microseconds.
const PCAP_MAGIC: u32 = 0xa1b2_c3d4;
const PCAP_VERSION: [u16; 2] = [2, 4];
/// Longest packet.
const PCAP_SNAPLEN: u32 = 0xffff;
const LINKTYPE_ERF: u32 = 197;
const ERF_HEADER_SIZE: usize = 16;
const ERF_TYPE_INFINIBAND: u8 = 21;

/// Operations, to which the service is added in the opcode of a base transport header.
mod operation {
    pub const SEND_FIRST: u8 = 0x00;
    pub const SEND_LAST_IMMEDIATE: u8 = 0x03;
    pub const WRITE_FIRST: u8 = 0x06;
    pub const READ_REQUEST: u8 = 0x0c;
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    pub const ACKNOWLEDGE: u8 = 0x11;
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub const COMPARE_SWAP: u8 = 0x13;
    pub const FETCH_ADD: u8 = 0x14;
}

/// Syndromes of an acknowledgement.
mod syndrome {
    /// Credits are not counted.
    pub const ACK: u8 = 0x1f;
    pub const RNR_NAK: u8 = 0x20;
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;
    pub const NAK_REMOTE_OPERATIONAL: u8 = 0x63;
}

/// Which packet of its message one is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    First,
    Middle,
    Last,
    Only,
}

/// The packets of a message, at least one.
fn parts(payload: &[u8], mtu: u64) -> impl Iterator<Item = (Part, &[u8])> {
    let mtu = usize::try_from(mtu).unwrap_or(usize::MAX).max(1);
    let count = payload.len().div_ceil(mtu).max(1);
    (0..count).map(move |index| {
        let rest = payload.get(index.saturating_mul(mtu)..).unwrap_or_default();
        let piece = rest.get(..mtu).unwrap_or(rest);
        let part = match (index == 0, index.saturating_add(1) == count) {
            (true, true) => Part::Only,
            (true, false) => Part::First,
            (false, true) => Part::Last,
            (false, false) => Part::Middle,
        };
        (part, piece)
    })
}

fn service_base(service: Service) -> u8 {
    match service {
        Service::Rc => 0x00,
        Service::Uc => 0x20,
        Service::Ud | Service::Mlx => 0x60,
        Service::Xrc => 0xa0,
    }
}

/// A file that packets are written to.
pub struct Capture(File);

impl Capture {
    /// A new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let mut header = Vec::new();
        header.extend_from_slice(&PCAP_MAGIC.to_le_bytes());
        for number in PCAP_VERSION {
            header.extend_from_slice(&number.to_le_bytes());
        }
        for number in [0, 0, PCAP_SNAPLEN, LINKTYPE_ERF] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        file.write_all(&header)?;
        Ok(Self(file))
    }

    /// Writes the packets of a request.
    pub fn request(&mut self, packet: &Packet) -> io::Result<()> {
        self.write(&request_frames(packet))
    }

    /// Writes the packets of the response to a request.
    pub fn response(&mut self, packet: &Packet, response: &Response) -> io::Result<()> {
        self.write(&response_frames(packet, response))
    }

    fn write(&mut self, frames: &[Frame<'_>]) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut records = Vec::new();
        for frame in frames {
            let bytes = frame.bytes();
            let length = ERF_HEADER_SIZE.saturating_add(bytes.len());
            for number in [
                now.as_secs() as u32,
                now.subsec_micros(),
                length as u32,
                length as u32,
            ] {
                records.extend_from_slice(&number.to_le_bytes());
            }
            let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
            records.extend_from_slice(&(now.as_secs() << 32 | fraction).to_le_bytes());
            let mut header = [0; 8];
            header.set_u8(0, ERF_TYPE_INFINIBAND);
            header.set_be16(2, length as u16);
            header.set_be16(6, bytes.len() as u16);
            records.extend_from_slice(&header);
            records.extend_from_slice(&bytes);
        }
        self.0.write_all(&records)
    }
}

fn reth(address: u64, rkey: u32, length: u64) -> [u8; 16] {
    let mut reth = [0; 16];
    reth.set_be64(0, address);
    reth.set_be32(8, rkey);
    reth.set_be32(12, length as u32);
    reth
}

/// The packets of a request.
fn request_frames(packet: &Packet) -> Vec<Frame<'_>> {
    let management = packet.datagram.is_some() && packet.dqpn == 0;
    let mut common = Frame {
        virtual_lane: if management { VL_MANAGEMENT } else { 0 },
        service_level: packet.service_level,
        slid: packet.slid,
        dlid: packet.dlid,
        grh: packet.grh,
        migration_request: packet.migration_request,
        pkey: packet.pkey,
        dqpn: packet.dqpn,
        ..Frame::default()
    };
    if packet.service == Service::Xrc {
        common
            .extended
            .extend_from_slice(&packet.srqn.to_be_bytes());
    }
    if let Some(header) = &packet.datagram {
        common
            .extended
            .extend_from_slice(&header.qkey.to_be_bytes());
        common
            .extended
            .extend_from_slice(&header.sqpn.to_be_bytes());
    }
    let base = service_base(packet.service);
    let (first, payload, immediate, extended): (u8, &[u8], _, _) = match &packet.body {
        Body::Send { payload, immediate } => {
            (operation::SEND_FIRST, payload, *immediate, Vec::new())
        }
        Body::Write {
            address,
            rkey,
            payload,
            immediate,
        } => {
            let reth = reth(*address, *rkey, payload.len() as u64).to_vec();
            (operation::WRITE_FIRST, payload, *immediate, reth)
        }
        Body::Read {
            address,
            rkey,
            length,
        } => {
            let mut frame = common;
            frame.opcode = base | operation::READ_REQUEST;
            frame.psn = packet.psn;
            frame.acknowledge = true;
            frame.solicited = packet.solicited;
            frame
                .extended
                .extend_from_slice(&reth(*address, *rkey, *length));
            return vec![frame];
        }
        Body::Atomic {
            address,
            rkey,
            operation,
        } => {
            let (opcode, first, second) = match *operation {
                Atomic::CompareSwap { swap, compare } => (operation::COMPARE_SWAP, swap, compare),
                Atomic::FetchAdd(add) => (operation::FETCH_ADD, add, 0),
            };
            let mut header = [0; 28];
            header.set_be64(0, *address);
            header.set_be32(8, *rkey);
            header.set_be64(12, first);
            header.set_be64(20, second);
            let mut frame = common;
            frame.opcode = base | opcode;
            frame.psn = packet.psn;
            frame.acknowledge = true;
            frame.solicited = packet.solicited;
            frame.extended.extend_from_slice(&header);
            return vec![frame];
        }
    };
    let mut psn = packet.psn;
    let frames = parts(payload, packet.mtu).map(|(part, piece)| {
        let mut frame = common.clone();
        let ends = matches!(part, Part::Last | Part::Only);
        let step = match part {
            Part::First => 0,
            Part::Middle => 1,
            Part::Last => 2,
            Part::Only => 4,
        };
        frame.opcode = base | first.saturating_add(step);
        if matches!(part, Part::First | Part::Only) {
            frame.extended.extend_from_slice(&extended);
        }
        if let (true, Some(immediate)) = (ends, immediate) {
            // One more than without.
            const WITH: u8 = operation::SEND_LAST_IMMEDIATE - 2;
            frame.opcode = frame.opcode.saturating_add(WITH);
            frame.extended.extend_from_slice(&immediate);
        }
        frame.psn = psn;
        psn = psn.wrapping_add(1) & 0xff_ffff;
        frame.solicited = ends && packet.solicited;
        frame.acknowledge = ends && packet.service.reliable();
        frame.payload = piece;
        frame
    });
    frames.collect()
}

/// The packets of a response.
fn response_frames<'a>(packet: &Packet, response: &'a Response) -> Vec<Frame<'a>> {
    let base = service_base(packet.service);
    let frame = |operation, syndrome: u8, psn| Frame {
        service_level: packet.service_level,
        slid: response.slid,
        dlid: response.dlid,
        grh: packet.grh.map(|grh| Grh {
            sgid: grh.dgid,
            dgid: grh.sgid,
            ..grh
        }),
        opcode: base | operation,
        migration_request: packet.migration_request,
        pkey: response.pkey,
        dqpn: response.dqpn,
        psn,
        extended: vec![syndrome, 0, 0, 0],
        ..Frame::default()
    };
    let syndrome = match &response.reply {
        Reply::Silence | Reply::Bad => return Vec::new(),
        Reply::NotReady(wait) => syndrome::RNR_NAK | rnr_timer_code(*wait),
        Reply::Nak(Nak::InvalidRequest) => syndrome::NAK_INVALID_REQUEST,
        Reply::Nak(Nak::RemoteAccess) => syndrome::NAK_REMOTE_ACCESS,
        Reply::Nak(Nak::RemoteOperational) => syndrome::NAK_REMOTE_OPERATIONAL,
        Reply::Ack { .. } => syndrome::ACK,
    };
    match (&packet.body, &response.reply) {
        (Body::Atomic { .. }, Reply::Ack { data, .. }) => {
            let mut answer = frame(operation::ATOMIC_ACKNOWLEDGE, syndrome, packet.psn);
            // The value is in the byte order of the memory that it comes from.
            let old = u64::from_ne_bytes(data.as_slice().field(0));
            answer.extended.extend_from_slice(&old.to_be_bytes());
            vec![answer]
        }
        (Body::Read { .. }, Reply::Ack { data, .. }) => {
            let mut psn = packet.psn;
            let frames = parts(data, response.mtu).map(|(part, piece)| {
                let step = match part {
                    Part::First => 0,
                    Part::Middle => 1,
                    Part::Last => 2,
                    Part::Only => 3,
                };
                let first = operation::READ_RESPONSE_FIRST;
                let mut answer = frame(first.saturating_add(step), syndrome, psn);
                if part == Part::Middle {
                    answer.extended.clear();
                }
                psn = psn.wrapping_add(1) & 0xff_ffff;
                answer.payload = piece;
                answer
            });
            frames.collect()
        }
        _ => vec![frame(operation::ACKNOWLEDGE, syndrome, response.psn)],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fabric::DatagramHeader;

    fn packet(service: Service, body: Body) -> Packet {
        Packet {
            slid: 1,
            dlid: 2,
            service_level: 0,
            service,
            pkey: 0xffff,
            grh: None,
            dqpn: 0x80_0208,
            psn: 0xff_fffe,
            mtu: 1024,
            srqn: 0x45,
            migration_request: true,
            solicited: true,
            body,
            datagram: None,
        }
    }

    fn opcodes(frames: &[Frame<'_>]) -> Vec<u8> {
        frames.iter().map(|frame| frame.opcode).collect()
    }

    #[test]
    fn a_message_is_cut_into_packets() {
        let message = |length| Body::Send {
            payload: vec![7; length],
            immediate: Some([1, 2, 3, 4]),
        };
        let long = packet(Service::Xrc, message(3000));
        let frames = request_frames(&long);
        assert_eq!(opcodes(&frames), [0xa0, 0xa1, 0xa3]);
        let numbers: Vec<u32> = frames.iter().map(|frame| frame.psn).collect();
        assert_eq!(numbers, [0xff_fffe, 0xff_ffff, 0]);
        assert_eq!(frames[1].extended, [0, 0, 0, 0x45]);
        assert_eq!(frames[2].extended, [0, 0, 0, 0x45, 1, 2, 3, 4]);
        assert_eq!(frames[2].payload.len(), 3000 - 2048);
        let flags: Vec<_> = frames
            .iter()
            .map(|f| (f.solicited, f.acknowledge))
            .collect();
        assert_eq!(flags, [(false, false), (false, false), (true, true)]);
        for (length, opcode) in [(0, 5), (1024, 5)] {
            assert_eq!(
                opcodes(&request_frames(&packet(Service::Rc, message(length)))),
                [opcode]
            );
        }
        assert_eq!(
            opcodes(&request_frames(&packet(Service::Uc, message(1025)))),
            [0x20, 0x23]
        );
    }

    #[test]
    fn each_operation_has_its_header() {
        let write = |length| Body::Write {
            address: 0x1000,
            rkey: 0x77,
            payload: vec![0; length],
            immediate: None,
        };
        let long = packet(Service::Rc, write(2048));
        let frames = request_frames(&long);
        assert_eq!(opcodes(&frames), [6, 8]);
        assert_eq!(frames[0].extended, reth(0x1000, 0x77, 2048));
        assert!(frames[1].extended.is_empty());
        let read = packet(
            Service::Xrc,
            Body::Read {
                address: 0x1000,
                rkey: 0x77,
                length: 9000,
            },
        );
        let frames = request_frames(&read);
        assert_eq!(
            (opcodes(&frames), frames[0].extended.len()),
            (vec![0xac], 20)
        );
        let atomic = packet(
            Service::Rc,
            Body::Atomic {
                address: 8,
                rkey: 0x77,
                operation: Atomic::FetchAdd(3),
            },
        );
        let frames = request_frames(&atomic);
        assert_eq!(
            (opcodes(&frames), frames[0].extended.len()),
            (vec![0x14], 28)
        );
        let datagram = Packet {
            datagram: Some(DatagramHeader {
                sqpn: 0,
                qkey: 0x1111,
            }),
            dqpn: 0,
            ..packet(
                Service::Ud,
                Body::Send {
                    payload: vec![0; 256],
                    immediate: None,
                },
            )
        };
        let frames = request_frames(&datagram);
        assert_eq!((opcodes(&frames), frames[0].virtual_lane), (vec![0x64], 15));
        assert_eq!(frames[0].extended, [0, 0, 0x11, 0x11, 0, 0, 0, 0]);
    }

    #[test]
    fn a_response_is_cut_by_the_responders_mtu() {
        let read = packet(
            Service::Xrc,
            Body::Read {
                address: 0,
                rkey: 0,
                length: 5000,
            },
        );
        let response = |reply| Response {
            slid: 2,
            dlid: 1,
            pkey: 0xffff,
            dqpn: 0x209,
            psn: 3,
            mtu: 2048,
            reply,
        };
        let ack = |length| Reply::Ack {
            data: vec![0; length],
            rearmed: false,
        };
        let whole = response(ack(5000));
        let frames = response_frames(&read, &whole);
        assert_eq!(opcodes(&frames), [0xad, 0xae, 0xaf]);
        assert!(frames[1].extended.is_empty());
        assert_eq!((frames[0].psn, frames[2].psn), (0xff_fffe, 0));
        let send = packet(
            Service::Rc,
            Body::Send {
                payload: Vec::new(),
                immediate: None,
            },
        );
        for (reply, syndrome) in [
            (ack(0), 0x1f),
            (Reply::Nak(Nak::RemoteAccess), 0x62),
            (Reply::NotReady(Duration::from_micros(640)), 0x20 | 12),
        ] {
            let response = response(reply);
            let frames = response_frames(&send, &response);
            assert_eq!((frames[0].opcode, frames[0].psn), (0x11, 3));
            assert_eq!(frames[0].extended, [syndrome, 0, 0, 0]);
        }
        assert!(response_frames(&send, &response(Reply::Silence)).is_empty());
    }
}
