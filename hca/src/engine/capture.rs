// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Captures of the packets that the wire does not lose, as pcap files of ERF records, which
//! Wireshark and NFStest decode.
//!
//! Packets are made one at a time, whatever the length of their message, and a file that has
//! reached [`MAX_SIZE`] is complete.
//!
//! A message of several packets is written as such, with the sequence numbers that it has. Fields
//! that the model does not keep are constant: the message sequence number of an acknowledgement is
//! 0, and data have no virtual lane but the first.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::iter;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::bytes::Fields;
use crate::engine::headers::{Frame, VL_MANAGEMENT};
use crate::engine::packet::{Atomic, Body, Extra, Nak, Packet, Reply, Response, PSN_MASK};
use crate::engine::transport::{rnr_timer_code, Service};

/// Magic number of a file whose times are in microseconds.
const PCAP_MAGIC: u32 = 0xa1b2_c3d4;
const PCAP_VERSION: [u16; 2] = [2, 4];
/// Longest packet.
const PCAP_SNAPLEN: u32 = 0xffff;
const LINKTYPE_ERF: u32 = 197;
const ERF_HEADER_SIZE: usize = 16;
const ERF_TYPE_INFINIBAND: u8 = 21;

/// Most bytes of a file: a guest with a loop shall not fill the host's disk.
pub const MAX_SIZE: u64 = 4 << 30;

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
    pub const SEND_LAST_INVALIDATE: u8 = 0x16;
    pub const SEND_ONLY_INVALIDATE: u8 = 0x17;
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

/// The place of a packet in its message.
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
pub struct Capture<W: Write = File> {
    file: BufWriter<W>,
    /// Bytes that it has room for.
    left: u64,
}

impl Capture {
    /// A new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::new(File::create(path)?, MAX_SIZE)
    }
}

impl<W: Write> Capture<W> {
    fn new(file: W, size: u64) -> io::Result<Self> {
        let mut capture = Self {
            file: BufWriter::new(file),
            left: size,
        };
        let mut header = Vec::new();
        header.extend_from_slice(&PCAP_MAGIC.to_le_bytes());
        for number in PCAP_VERSION {
            header.extend_from_slice(&number.to_le_bytes());
        }
        for number in [0, 0, PCAP_SNAPLEN, LINKTYPE_ERF] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        capture.append(&header)?;
        capture.file.flush()?;
        Ok(capture)
    }

    /// Writes the packets of a request.
    pub fn request(&mut self, packet: &Packet) -> io::Result<()> {
        self.write(request_frames(packet))
    }

    /// Writes the packets of the response to a request.
    pub fn response(&mut self, packet: &Packet, response: &Response) -> io::Result<()> {
        self.write(response_frames(packet, response))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.write_all(bytes)
    }

    fn write<'a>(&mut self, frames: impl Iterator<Item = Frame<'a>>) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
        for frame in frames {
            let bytes = frame.bytes();
            let length = ERF_HEADER_SIZE.saturating_add(bytes.len());
            let mut record = Vec::new();
            for number in [
                now.as_secs() as u32,
                now.subsec_micros(),
                length as u32,
                length as u32,
            ] {
                record.extend_from_slice(&number.to_le_bytes());
            }
            record.extend_from_slice(&(now.as_secs() << 32 | fraction).to_le_bytes());
            let mut header = [0; 8];
            header.set_u8(0, ERF_TYPE_INFINIBAND);
            header.set_be16(2, length as u16);
            header.set_be16(6, bytes.len() as u16);
            record.extend_from_slice(&header);
            record.extend_from_slice(&bytes);
            self.append(&record)?;
        }
        self.file.flush()
    }
}

fn reth(address: u64, rkey: u32, length: u64) -> [u8; 16] {
    let mut reth = [0; 16];
    reth.set_be64(0, address);
    reth.set_be32(8, rkey);
    reth.set_be32(12, length as u32);
    reth
}

/// Packets of one message, made one at a time.
type Frames<'a> = Box<dyn Iterator<Item = Frame<'a>> + 'a>;

/// The number of packet `index` of a message.
fn psn_of(first: u32, index: usize) -> u32 {
    first.wrapping_add(index as u32) & PSN_MASK
}

/// Adds the field of the last packet of a message, and names it in the opcode.
fn add_extra(frame: &mut Frame<'_>, base: u8, part: Part, extra: Extra) {
    match extra {
        Extra::Nothing => {}
        Extra::Immediate(immediate) => {
            // One more than without.
            const WITH: u8 = operation::SEND_LAST_IMMEDIATE - 2;
            frame.opcode = frame.opcode.saturating_add(WITH);
            frame.extended.extend_from_slice(&immediate);
        }
        Extra::Invalidate(key) => {
            let operation = match part {
                Part::Only => operation::SEND_ONLY_INVALIDATE,
                _ => operation::SEND_LAST_INVALIDATE,
            };
            frame.opcode = base | operation;
            frame.extended.extend_from_slice(&key.to_be_bytes());
        }
    }
}

/// The packets of a request.
fn request_frames(packet: &Packet) -> Frames<'_> {
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
    let (first, payload, extra, extended): (u8, &[u8], _, _) = match &packet.body {
        Body::Send { payload, extra } => (operation::SEND_FIRST, payload, *extra, Vec::new()),
        Body::Write {
            address,
            rkey,
            payload,
            immediate,
        } => {
            let reth = reth(*address, *rkey, payload.len() as u64).to_vec();
            let extra = immediate.map_or(Extra::Nothing, Extra::Immediate);
            (operation::WRITE_FIRST, payload, extra, reth)
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
            return Box::new(iter::once(frame));
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
            return Box::new(iter::once(frame));
        }
    };
    let parts = parts(payload, packet.mtu).enumerate();
    Box::new(parts.map(move |(index, (part, piece))| {
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
        if ends {
            add_extra(&mut frame, base, part, extra);
        }
        frame.psn = psn_of(packet.psn, index);
        frame.solicited = ends && packet.solicited;
        frame.acknowledge = ends && packet.service.reliable();
        frame.payload = piece;
        frame
    }))
}

/// The packets of a response.
fn response_frames<'a>(packet: &'a Packet, response: &'a Response) -> Frames<'a> {
    let base = service_base(packet.service);
    let frame = move |operation, syndrome: u8, psn| Frame {
        service_level: response.service_level,
        slid: response.slid,
        dlid: response.dlid,
        grh: response.grh,
        opcode: base | operation,
        migration_request: response.migration_request,
        pkey: response.pkey,
        dqpn: response.dqpn,
        psn,
        extended: vec![syndrome, 0, 0, 0],
        ..Frame::default()
    };
    let syndrome = match &response.reply {
        Reply::Silence | Reply::Bad => return Box::new(iter::empty()),
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
            Box::new(iter::once(answer))
        }
        (Body::Read { .. }, Reply::Ack { data, .. }) => {
            let parts = parts(data, response.mtu).enumerate();
            Box::new(parts.map(move |(index, (part, piece))| {
                let step = match part {
                    Part::First => 0,
                    Part::Middle => 1,
                    Part::Last => 2,
                    Part::Only => 3,
                };
                let first = operation::READ_RESPONSE_FIRST;
                let psn = psn_of(packet.psn, index);
                let mut answer = frame(first.saturating_add(step), syndrome, psn);
                if part == Part::Middle {
                    answer.extended.clear();
                }
                answer.payload = piece;
                answer
            }))
        }
        _ => {
            let answer = frame(operation::ACKNOWLEDGE, syndrome, response.psn);
            Box::new(iter::once(answer))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::headers::Grh;
    use crate::engine::packet::DatagramHeader;

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

    fn requests(packet: &Packet) -> Vec<Frame<'_>> {
        request_frames(packet).collect()
    }

    #[test]
    fn a_message_is_cut_into_packets() {
        let message = |length| Body::Send {
            payload: vec![7; length],
            extra: Extra::Immediate([1, 2, 3, 4]),
        };
        let long = packet(Service::Xrc, message(3000));
        let frames = requests(&long);
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
                opcodes(&requests(&packet(Service::Rc, message(length)))),
                [opcode]
            );
        }
        assert_eq!(
            opcodes(&requests(&packet(Service::Uc, message(1025)))),
            [0x20, 0x23]
        );
    }

    #[test]
    fn a_message_names_the_key_that_it_invalidates() {
        let message = |length| Body::Send {
            payload: vec![7; length],
            extra: Extra::Invalidate(0x1234_5678),
        };
        let long = packet(Service::Xrc, message(2000));
        let frames = requests(&long);
        assert_eq!(opcodes(&frames), [0xa0, 0xb6]);
        assert_eq!(frames[0].extended, [0, 0, 0, 0x45]);
        let extended = [0, 0, 0, 0x45, 0x12, 0x34, 0x56, 0x78];
        assert_eq!(frames[1].extended, extended);
        assert_eq!(opcodes(&requests(&packet(Service::Rc, message(8)))), [0x17]);
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
        let frames = requests(&long);
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
        let frames = requests(&read);
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
        let frames = requests(&atomic);
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
                    extra: Extra::Nothing,
                },
            )
        };
        let frames = requests(&datagram);
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
            service_level: 0,
            pkey: 0xffff,
            grh: None,
            dqpn: 0x209,
            migration_request: true,
            psn: 3,
            mtu: 2048,
            reply,
        };
        let ack = |length| Reply::Ack {
            data: vec![0; length],
            rearmed: false,
        };
        let whole = response(ack(5000));
        let frames: Vec<_> = response_frames(&read, &whole).collect();
        assert_eq!(opcodes(&frames), [0xad, 0xae, 0xaf]);
        assert!(frames[1].extended.is_empty());
        assert_eq!((frames[0].psn, frames[2].psn), (0xff_fffe, 0));
        let send = packet(
            Service::Rc,
            Body::Send {
                payload: Vec::new(),
                extra: Extra::Nothing,
            },
        );
        for (reply, syndrome) in [
            (ack(0), 0x1f),
            (Reply::Nak(Nak::RemoteAccess), 0x62),
            (Reply::NotReady(Duration::from_micros(640)), 0x20 | 12),
        ] {
            let response = response(reply);
            let frames: Vec<_> = response_frames(&send, &response).collect();
            assert_eq!((frames[0].opcode, frames[0].psn), (0x11, 3));
            assert_eq!(frames[0].extended, [syndrome, 0, 0, 0]);
        }
        let silence = response(Reply::Silence);
        assert_eq!(response_frames(&send, &silence).count(), 0);
    }

    #[test]
    fn a_response_has_the_headers_of_the_responders_path() {
        let grh = |hop_limit| Grh {
            hop_limit,
            ..Grh::default()
        };
        let request = Packet {
            service_level: 1,
            grh: Some(grh(1)),
            ..packet(
                Service::Xrc,
                Body::Send {
                    payload: Vec::new(),
                    extra: Extra::Nothing,
                },
            )
        };
        let response = |grh| Response {
            slid: 0x13,
            dlid: 1,
            service_level: 3,
            pkey: 0x8001,
            grh,
            dqpn: 0x209,
            migration_request: false,
            psn: 3,
            mtu: 2048,
            reply: Reply::Ack {
                data: Vec::new(),
                rearmed: true,
            },
        };
        for grh in [Some(grh(3)), None] {
            let response = response(grh);
            let frame = response_frames(&request, &response).next().unwrap();
            assert_eq!((frame.slid, frame.dlid), (0x13, 1));
            assert_eq!((frame.service_level, frame.grh), (3, grh));
            assert_eq!((frame.pkey, frame.migration_request), (0x8001, false));
        }
    }

    /// Counts the bytes, and the most that came at once.
    #[derive(Default)]
    struct Disk {
        total: usize,
        most: usize,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.total += bytes.len();
            self.most = self.most.max(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const RECORD: usize = 16 + ERF_HEADER_SIZE;

    #[test]
    fn a_long_message_is_not_kept_in_memory() {
        const LENGTH: usize = 16 << 20;
        let packets = LENGTH / 1024;
        let send = packet(
            Service::Rc,
            Body::Send {
                payload: vec![0; LENGTH],
                extra: Extra::Nothing,
            },
        );
        let mut disk = Disk::default();
        let mut capture = Capture::new(&mut disk, MAX_SIZE).unwrap();
        capture.request(&send).unwrap();
        drop(capture);
        let packet = requests(&send)[0].bytes().len();
        assert_eq!(disk.total, 24 + packets * (RECORD + packet));
        assert!(disk.most < 0x4000, "{} bytes at once", disk.most);
    }

    #[test]
    fn a_file_has_an_end() {
        const SIZE: u64 = 100_000;
        let mut disk = Disk::default();
        let mut capture = Capture::new(&mut disk, SIZE).unwrap();
        // Only the packets that have room are made of a message without end.
        let mut made = 0;
        let frames = iter::repeat_with(|| {
            made += 1;
            Frame::default()
        });
        let full = capture.write(frames).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::FileTooLarge);
        drop(capture);
        let record = RECORD + Frame::default().bytes().len();
        let fit = (SIZE as usize - 24) / record;
        assert_eq!((made, disk.total), (fit + 1, 24 + fit * record));
    }
}
