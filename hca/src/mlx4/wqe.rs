// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Work requests as `libmlx4` and `mlx4_ib` lay them out, parsed once into typed values.
//!
//! A WQE was copied out of guest RAM before it comes here, so it cannot change under us.

use crate::engine::bytes::Fields;
use crate::engine::headers::Grh;
use crate::engine::transport::Service;
use crate::engine::work::{Beside, Control, Datagram, RemoteAddress, Request, Segment, SendWqe};

/// Size of a control segment (struct mlx4_wqe_ctrl_seg), and the unit WQEs are counted in.
pub const CONTROL_SIZE: usize = 0x10;
/// Size of a remote address segment (struct mlx4_wqe_raddr_seg).
const RADDR_SIZE: usize = 0x10;
/// Size of an atomic segment (struct mlx4_wqe_atomic_seg).
const ATOMIC_SIZE: usize = 0x10;
/// Size of a datagram segment (struct mlx4_wqe_datagram_seg).
const DATAGRAM_SIZE: usize = 0x30;
/// Size of a data segment (struct mlx4_wqe_data_seg).
const DATA_SIZE: usize = 0x10;
/// MLX4_INLINE_SEG: data follows in the WQE itself.
const INLINE_SEG: u32 = 1 << 31;
const INLINE_HEADER: usize = 4;
/// MLX4_INLINE_ALIGN: the boundary that an inline segment must not cross.
const INLINE_LINE: usize = 64;
/// MLX4_INVALID_LKEY ends a scatter list.
const INVALID_LKEY: u32 = 0x100;

/// The driver wants a CQE of the WQE (`MLX4_WQE_CTRL_CQ_UPDATE` of `include/linux/mlx4/qp.h`).
const CTRL_CQ_UPDATE: u32 = 3 << 2;
/// The receiver's CQE is solicited, for a receiver that waits for such ones only
/// (`MLX4_WQE_CTRL_SOLICITED`).
const CTRL_SOLICITED: u32 = 1 << 1;

/// Opcodes (`MLX4_OPCODE_*` of `include/linux/mlx4/device.h`).
mod opcode {
    pub const NOP: u8 = 0x00;
    pub const RDMA_WRITE: u8 = 0x08;
    pub const RDMA_WRITE_IMM: u8 = 0x09;
    pub const SEND: u8 = 0x0a;
    pub const SEND_IMM: u8 = 0x0b;
    pub const RDMA_READ: u8 = 0x10;
    pub const ATOMIC_CS: u8 = 0x11;
    pub const ATOMIC_FA: u8 = 0x12;
}

/// The control segment's owner bit, which flips every time round the ring: how the device sees that
/// a WQE is new.
pub fn owner(segment: &[u8; CONTROL_SIZE]) -> bool {
    segment.get_be32(0x00) >> 31 != 0
}

/// Parses a control segment.
pub fn parse_control(segment: &[u8; CONTROL_SIZE]) -> Control {
    let srcrb_flags = segment.get_be32(0x08);
    Control {
        opcode: (segment.get_be32(0x00) & 0x1f) as u8,
        size: usize::from(segment.get_u8(0x07) & 0x3f).wrapping_mul(CONTROL_SIZE),
        srqn: srcrb_flags >> 8,
        signaled: srcrb_flags & CTRL_CQ_UPDATE != 0,
        solicited: srcrb_flags & CTRL_SOLICITED != 0,
        immediate: segment.field(0x0c),
    }
}

/// Parses the bytes of a WQE of a QP of this service. None: no such request.
pub fn parse(control: Control, wqe: &[u8], service: Service) -> Option<SendWqe> {
    let mut at = CONTROL_SIZE;
    let mut take = |size: usize| -> Option<usize> {
        let start = at;
        at = at.checked_add(size).filter(|end| *end <= wqe.len())?;
        Some(start)
    };
    let mut address = None;
    if service == Service::Ud {
        address = Some(parse_datagram(wqe, take(DATAGRAM_SIZE)?));
    }
    let remote = |at: usize| RemoteAddress {
        address: wqe.get_be64(at),
        rkey: wqe.get_be32(at.wrapping_add(8)),
    };
    let request = match control.opcode {
        opcode::NOP => Request::Nop,
        opcode::SEND => Request::Send {
            beside: Beside::Nothing,
        },
        opcode::SEND_IMM => Request::Send {
            beside: Beside::Immediate,
        },
        _ if !service.connected() => return None,
        opcode::RDMA_WRITE => Request::Write {
            remote: remote(take(RADDR_SIZE)?),
            immediate: false,
        },
        opcode::RDMA_WRITE_IMM => Request::Write {
            remote: remote(take(RADDR_SIZE)?),
            immediate: true,
        },
        opcode::RDMA_READ => Request::Read {
            remote: remote(take(RADDR_SIZE)?),
        },
        opcode::ATOMIC_CS => {
            let remote = remote(take(RADDR_SIZE)?);
            let operands = take(ATOMIC_SIZE)?;
            Request::CompareSwap {
                remote,
                swap: wqe.get_be64(operands),
                compare: wqe.get_be64(operands.wrapping_add(8)),
            }
        }
        opcode::ATOMIC_FA => {
            let remote = remote(take(RADDR_SIZE)?);
            Request::FetchAdd {
                remote,
                add: wqe.get_be64(take(ATOMIC_SIZE)?),
            }
        }
        _ => return None,
    };
    let (segments, inline_across_line) = parse_segments(wqe, at)?;
    Some(SendWqe {
        control,
        request,
        datagram: address,
        segments,
        inline_across_line,
    })
}

fn parse_datagram(wqe: &[u8], at: usize) -> Datagram {
    // struct mlx4_av, then destination QPN and Q_Key.
    let field = |offset: usize| at.wrapping_add(offset);
    let port_pd = wqe.get_be32(field(0x00));
    let g_slid = wqe.get_u8(field(0x05));
    let sl_tclass_flowlabel = wqe.get_be32(field(0x0c));
    Datagram {
        port: (port_pd >> 24 & 3) as u8,
        dlid: wqe.get_be16(field(0x06)),
        grh: (g_slid & 0x80 != 0).then(|| Grh {
            traffic_class: (sl_tclass_flowlabel >> 20) as u8,
            flow_label: sl_tclass_flowlabel & 0xf_ffff,
            hop_limit: wqe.get_u8(field(0x0b)),
            sgid: [0; 16],
            dgid: wqe.field(field(0x10)),
        }),
        service_level: (sl_tclass_flowlabel >> 28) as u8,
        dqpn: wqe.get_be24(field(0x20)),
        qkey: wqe.get_be32(field(0x24)),
    }
}

fn memory(bytes: &[u8]) -> Segment {
    Segment::Memory {
        // The count 2^31 means no bytes; 0 is left to end a scatter list.
        length: bytes.get_be32(0x00) & !INLINE_SEG,
        lkey: bytes.get_be32(0x04),
        address: bytes.get_be64(0x08),
    }
}

/// Parses the gather list of a send WQE, which begins `at`. Says also whether it crosses a line.
fn parse_segments(wqe: &[u8], mut at: usize) -> Option<(Vec<Segment>, bool)> {
    let mut segments = Vec::new();
    let mut across_line = false;
    loop {
        let rest = wqe.get(at..).unwrap_or_default();
        if rest.len() < DATA_SIZE {
            return Some((segments, across_line));
        }
        let count = rest.get_be32(0);
        let used = if count & INLINE_SEG != 0 && count != INLINE_SEG {
            let end = INLINE_HEADER.checked_add((count & !INLINE_SEG) as usize)?;
            segments.push(Segment::Inline(rest.get(INLINE_HEADER..end)?.to_vec()));
            across_line |= (at % INLINE_LINE).checked_add(end)? > INLINE_LINE;
            end.checked_next_multiple_of(DATA_SIZE)?
        } else {
            if count != INLINE_SEG && count != 0 {
                segments.push(memory(rest));
            }
            DATA_SIZE
        };
        at = at.checked_add(used)?;
    }
}

/// Parses the scatter list of a receive WQE, up to its terminator.
pub fn parse_scatter(list: &[u8]) -> Vec<Segment> {
    list.chunks_exact(DATA_SIZE)
        .take_while(|segment| segment.get_be32(0x04) != INVALID_LKEY)
        .map(memory)
        .filter(|segment| !segment.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wqe(opcode: u8, units: u8) -> (Control, Vec<u8>) {
        let mut wqe = vec![0; usize::from(units) * 16];
        wqe[3] = opcode;
        wqe[7] = units;
        wqe.set_be32(8, 0x45 << 8 | CTRL_CQ_UPDATE | CTRL_SOLICITED);
        wqe.set_be32(12, 0xdead_beef);
        (parse_control(&wqe.field(0)), wqe)
    }

    fn data(wqe: &mut [u8], at: usize, length: u32, lkey: u32, address: u64) {
        wqe.set_be32(at, length);
        wqe.set_be32(at + 4, lkey);
        wqe.set_be64(at + 8, address);
    }

    #[test]
    fn the_control_segment_names_the_srq() {
        let (control, bytes) = wqe(opcode::SEND_IMM, 4);
        assert_eq!(control.srqn, 0x45);
        assert_eq!(control.size, 64);
        assert!(control.signaled && control.solicited && !owner(&bytes.field(0)));
        assert_eq!(control.immediate, [0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn a_send_gathers_memory_and_inline_data() {
        let (control, mut wqe) = wqe(opcode::SEND, 4);
        data(&mut wqe, 16, 8, 0x1200, 0x7000);
        wqe.set_be32(32, INLINE_SEG | 14);
        wqe[36..50].copy_from_slice(b"fourteen bytes");
        let parsed = parse(control, &wqe, Service::Rc).unwrap();
        assert_eq!(parsed.length(), 22);
        assert_eq!(
            parsed.segments[1],
            Segment::Inline(b"fourteen bytes".to_vec())
        );
        assert!(!parsed.inline_across_line);
    }

    #[test]
    fn an_inline_segment_ends_with_its_line() {
        let (control, mut wqe) = wqe(opcode::SEND, 8);
        for (length, across_line) in [(44, false), (45, true)] {
            wqe.set_be32(16, INLINE_SEG | length);
            let parsed = parse(control, &wqe, Service::Rc).unwrap();
            assert_eq!(parsed.inline_across_line, across_line);
        }
    }

    #[test]
    fn remote_and_atomic_segments_come_before_data() {
        let (control, mut wqe) = wqe(opcode::ATOMIC_CS, 4);
        data(&mut wqe, 48, 8, 0x1200, 0x7000);
        wqe.set_be64(16, 0x9000);
        wqe.set_be32(24, 0x3400);
        wqe.set_be64(32, 1);
        wqe.set_be64(40, 2);
        let parsed = parse(control, &wqe, Service::Rc).unwrap();
        let remote = RemoteAddress {
            address: 0x9000,
            rkey: 0x3400,
        };
        assert_eq!(
            parsed.request,
            Request::CompareSwap {
                remote,
                swap: 1,
                compare: 2
            }
        );
        assert_eq!(parsed.length(), 8);
    }

    #[test]
    fn a_datagram_knows_its_way() {
        let (control, mut wqe) = wqe(opcode::SEND, 4);
        wqe.set_be32(16, 2 << 24);
        wqe[21] = 0x80;
        wqe.set_be16(22, 0xc001);
        wqe.set_be32(28, 5 << 28);
        wqe[32..48].copy_from_slice(&[0xff; 16]);
        wqe.set_be32(48, 0xff_ffff);
        wqe.set_be32(52, 0x1111);
        let datagram = parse(control, &wqe, Service::Ud).unwrap().datagram;
        let datagram = datagram.unwrap();
        assert_eq!((datagram.port, datagram.dlid), (2, 0xc001));
        assert_eq!(datagram.grh.unwrap().dgid, [0xff; 16]);
        assert_eq!((datagram.service_level, datagram.qkey), (5, 0x1111));
    }

    #[test]
    fn nonsense_is_refused() {
        // Truncated before its remote address, inline data beyond the end, no such opcode.
        let (control, bytes) = wqe(opcode::RDMA_READ, 1);
        assert!(parse(control, &bytes, Service::Rc).is_none());
        let (control, mut bytes) = wqe(opcode::SEND, 2);
        bytes.set_be32(16, INLINE_SEG | 13);
        assert!(parse(control, &bytes, Service::Rc).is_none());
        bytes.set_be32(16, u32::MAX);
        assert!(parse(control, &bytes, Service::Rc).is_none());
        let (control, bytes) = wqe(0x1f, 2);
        assert!(parse(control, &bytes, Service::Rc).is_none());
        let (control, bytes) = wqe(opcode::RDMA_WRITE, 4);
        assert!(parse(control, &bytes, Service::Ud).is_none());
    }

    #[test]
    fn a_scatter_list_ends_at_the_invalid_key() {
        let mut list = vec![0; 64];
        data(&mut list, 0, 100, 0x1200, 0x7000);
        data(&mut list, 16, INLINE_SEG, 0x1200, 0);
        data(&mut list, 32, 0, INVALID_LKEY, 0);
        data(&mut list, 48, 100, 0x1200, 0x8000);
        assert_eq!(parse_scatter(&list).len(), 1);
    }
}
