// SPDX-License-Identifier: GPL-2.0

//! REG and UNREG as ioctls of an event channel.

use crate::errno::errno;
use crate::program::{Arg, Call, array_len};
use crate::room::Room;
use crate::uapi::*;

/// The places of the size of a struct in a request: 14 bits.
const SIZE_SHIFT: u32 = 16;
const SIZE_MASK: u32 = 0x3fff << SIZE_SHIFT;

/// The place for output of the elements. They reach into those that follow.
const INFOS: usize = 1;

/// An ioctl of a channel.
pub struct ChannelIoctl {
    request: u32,
    argument: u64,
}

impl ChannelIoctl {
    /// Returns the call of a step with a QP number, if it is one.
    pub fn new(call: &Call, number: u32, room: &Room) -> Option<ChannelIoctl> {
        let (request, again, info, size, flags, pointer) = match *call {
            Call::IoctlReg {
                again,
                info,
                size,
                flags,
                pointer,
                ..
            } => (CHANNEL_IOCTL_REG, again, info, size, flags, pointer),
            Call::IoctlUnreg {
                again,
                info,
                size,
                flags,
                pointer,
                ..
            } => (CHANNEL_IOCTL_UNREG, again, info, size, flags, pointer),
            _ => return None,
        };
        let count = array_len(again);
        let mut qpns = xrc_rcv_qpns {
            qpns: room.write_numbers(number, count),
            infos: info.map_or(0, |_| room.output(INFOS)),
            count: count as u32,
            info_size: info.unwrap_or(0) as u32,
            flags: flags.unwrap_or(0) as u32,
            done: 0,
        };
        let hostile = pointer.map(|which| room.hostile(which / Bad::ALL.len() as u64));
        match (Bad::of(pointer), hostile) {
            (Some(Bad::Numbers), Some(address)) => qpns.qpns = address,
            (Some(Bad::Infos), Some(address)) => qpns.infos = address,
            _ => (),
        }
        let argument = room.write_qpns(qpns);
        Some(ChannelIoctl {
            request: request_of_size(request, size),
            argument: match (Bad::of(pointer), hostile) {
                (Some(Bad::Argument), Some(address)) => address,
                _ => argument,
            },
        })
    }

    /// Makes the call. Returns 0 or a negative errno.
    pub fn call(&self, fd: i32) -> i32 {
        // SAFETY: All addresses in it are of the room, or of nothing of this process.
        let result = unsafe { libc::ioctl(fd, self.request.into(), self.argument) };
        if result < 0 { -errno() } else { 0 }
    }
}

/// Returns a request with another size of its struct, if there is one.
fn request_of_size(request: u32, size: Arg) -> u32 {
    match size {
        Some(size) => request & !SIZE_MASK | ((size as u32) << SIZE_SHIFT) & SIZE_MASK,
        None => request,
    }
}

/// The address that is bad.
#[derive(Clone, Copy)]
enum Bad {
    Argument,
    Numbers,
    Infos,
}

impl Bad {
    const ALL: [Bad; 3] = [Bad::Argument, Bad::Numbers, Bad::Infos];

    fn of(pointer: Arg) -> Option<Bad> {
        pointer.map(|which| Bad::ALL[(which % Bad::ALL.len() as u64) as usize])
    }
}
