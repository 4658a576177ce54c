// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Work requests as `libmlx5` and `mlx5_ib` lay them out, parsed once into typed values.
//!
//! A WQE was copied out of guest RAM before it comes here, so it cannot change under us.

use crate::engine::bytes::Fields;
use crate::engine::headers::Grh;
use crate::engine::transport::Service;
use crate::engine::work::{Beside, Control, Datagram, RemoteAddress, Request, Segment, SendWqe};

/// Size of a control segment (struct mlx5_wqe_ctrl_seg), and the unit WQEs are counted in
/// (MLX5_SEND_WQE_DS).
pub const CONTROL_SIZE: usize = 0x10;
/// The unit in which a send queue counts (MLX5_SEND_WQE_BB).
pub const BASIC_BLOCK: usize = 0x40;
const SEGMENT_SIZE: usize = 0x10;
/// Size of a datagram segment (struct mlx5_wqe_datagram_seg).
const DATAGRAM_SIZE: usize = 0x30;
/// MLX5_INLINE_SEG: data follows in the WQE itself.
const INLINE_SEG: u32 = 1 << 31;
/// MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK.
const INLINE_LENGTH: u32 = 0x3ff;
const INLINE_HEADER: usize = 4;
/// MLX5_TERMINATE_SCATTER_LIST_LKEY ends a scatter list.
pub const TERMINATOR_LKEY: u32 = 0x100;
/// In the flags: a completion is wanted always.
const CTRL_CQ_UPDATE: u8 = 2 << 2;
/// MLX5_WQE_CTRL_SOLICITED.
const CTRL_SOLICITED: u8 = 1 << 1;
/// In grh_gid_fl of an address: packets have a GRH.
const GRH_PRESENT: u32 = 1 << 30;

/// Opcodes (MLX5_OPCODE_*).
mod opcode {
    pub const NOP: u8 = 0x00;
    pub const SEND_INVAL: u8 = 0x01;
    pub const RDMA_WRITE: u8 = 0x08;
    pub const RDMA_WRITE_IMM: u8 = 0x09;
    pub const SEND: u8 = 0x0a;
    pub const SEND_IMM: u8 = 0x0b;
    pub const RDMA_READ: u8 = 0x10;
    pub const ATOMIC_CS: u8 = 0x11;
    pub const ATOMIC_FA: u8 = 0x12;
    pub const UMR: u8 = 0x25;
}

/// Parses a control segment.
pub fn parse_control(segment: &[u8; CONTROL_SIZE]) -> Control {
    let flags = segment.get_u8(0x0b);
    Control {
        opcode: segment.get_u8(0x03),
        size: usize::from(segment.get_u8(0x07) & 0x3f).wrapping_mul(CONTROL_SIZE),
        srqn: 0,
        signaled: flags & CTRL_CQ_UPDATE != 0,
        solicited: flags & CTRL_SOLICITED != 0,
        immediate: segment.field(0x0c),
    }
}

fn parse_datagram(segment: &[u8]) -> Datagram {
    let grh_gid_fl = segment.get_be32(0x1c);
    Datagram {
        // A function has one port.
        port: 1,
        dlid: segment.get_be16(0x0e),
        grh: (grh_gid_fl & GRH_PRESENT != 0).then(|| Grh {
            traffic_class: segment.get_u8(0x1a),
            flow_label: grh_gid_fl & 0xf_ffff,
            hop_limit: segment.get_u8(0x1b),
            sgid: [0; 16],
            dgid: segment.field(0x20),
        }),
        service_level: segment.get_u8(0x0c) & 0xf,
        dqpn: segment.get_be24(0x08),
        qkey: segment.get_be32(0x00),
    }
}

/// Parses the bytes of a WQE of a QP of this service. None: no such request.
pub fn parse(mut control: Control, wqe: &[u8], service: Service) -> Option<SendWqe> {
    let mut at = CONTROL_SIZE;
    let mut take = |size: usize| -> Option<&[u8]> {
        let start = at;
        at = at.checked_add(size)?;
        wqe.get(start..at)
    };
    let mut datagram = None;
    match service {
        _ if matches!(control.opcode, opcode::NOP | opcode::UMR) => {}
        Service::Xrc => control.srqn = take(SEGMENT_SIZE)?.get_be24(0),
        Service::Ud | Service::Mlx => datagram = Some(parse_datagram(take(DATAGRAM_SIZE)?)),
        _ => {}
    }
    let remote = |segment: &[u8]| RemoteAddress {
        address: segment.get_be64(0),
        rkey: segment.get_be32(8),
    };
    let request = match control.opcode {
        opcode::NOP => Request::Nop,
        opcode::UMR => Request::Local(wqe.to_vec()),
        opcode::SEND => Request::Send {
            beside: Beside::Nothing,
        },
        opcode::SEND_IMM => Request::Send {
            beside: Beside::Immediate,
        },
        _ if !service.connected() => return None,
        opcode::RDMA_WRITE => Request::Write {
            remote: remote(take(SEGMENT_SIZE)?),
            immediate: false,
        },
        opcode::RDMA_WRITE_IMM => Request::Write {
            remote: remote(take(SEGMENT_SIZE)?),
            immediate: true,
        },
        _ if !service.reliable() => return None,
        opcode::SEND_INVAL => Request::Send {
            beside: Beside::Invalidate,
        },
        opcode::RDMA_READ => Request::Read {
            remote: remote(take(SEGMENT_SIZE)?),
        },
        opcode::ATOMIC_CS => {
            let remote = remote(take(SEGMENT_SIZE)?);
            let operands = take(SEGMENT_SIZE)?;
            Request::CompareSwap {
                remote,
                swap: operands.get_be64(0),
                compare: operands.get_be64(8),
            }
        }
        opcode::ATOMIC_FA => Request::FetchAdd {
            remote: remote(take(SEGMENT_SIZE)?),
            add: take(SEGMENT_SIZE)?.get_be64(0),
        },
        _ => return None,
    };
    let segments = match request {
        Request::Nop | Request::Local(_) => Vec::new(),
        _ => parse_segments(wqe, at)?,
    };
    Some(SendWqe {
        control,
        request,
        datagram,
        segments,
        inline_across_line: false,
    })
}

fn memory(bytes: &[u8]) -> Segment {
    Segment::Memory {
        length: bytes.get_be32(0x00) & !INLINE_SEG,
        lkey: bytes.get_be32(0x04),
        address: bytes.get_be64(0x08),
    }
}

/// Parses the gather list of a send WQE, which begins `at`.
pub fn parse_segments(wqe: &[u8], mut at: usize) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    loop {
        let rest = wqe.get(at..).unwrap_or_default();
        if rest.len() < SEGMENT_SIZE {
            return Some(segments);
        }
        let count = rest.get_be32(0);
        let used = if count & INLINE_SEG != 0 {
            let end = INLINE_HEADER.checked_add((count & INLINE_LENGTH) as usize)?;
            segments.push(Segment::Inline(rest.get(INLINE_HEADER..end)?.to_vec()));
            end.checked_next_multiple_of(SEGMENT_SIZE)?
        } else {
            if count != 0 {
                segments.push(memory(rest));
            }
            SEGMENT_SIZE
        };
        at = at.checked_add(used)?;
    }
}

/// Parses the scatter list of a receive WQE, up to its terminator.
pub fn parse_scatter(list: &[u8]) -> Vec<Segment> {
    list.chunks_exact(SEGMENT_SIZE)
        .take_while(|segment| segment.get_be32(0x04) != TERMINATOR_LKEY)
        .map(memory)
        .filter(|segment| !segment.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xrc_request_names_its_srq_after_the_control_segment() {
        let mut wqe = [0; 48];
        wqe[3] = opcode::SEND;
        wqe[7] = 3;
        wqe[11] = CTRL_CQ_UPDATE;
        wqe.set_be32(16, 0x45);
        wqe.set_be32(32, 8);
        wqe.set_be32(36, 0x1200);
        wqe.set_be64(40, 0x7000);
        let control = parse_control(&wqe.field(0));
        assert_eq!((control.size, control.signaled), (48, true));
        let parsed = parse(control, &wqe, Service::Xrc).unwrap();
        assert_eq!(parsed.control.srqn, 0x45);
        assert_eq!(parsed.length(), 8);
        assert!(parse(control, &wqe[..16], Service::Xrc).is_none());
    }
}
