// SPDX-License-Identifier: GPL-2.0

//! The module's methods as ioctls: put together as a correct caller does, then spoiled.

use crate::errno::errno;
use crate::program::{Arg, Call, How, Spoil, Step, Transition, array_len};
use crate::room::{PLACES, Room};
use crate::uapi::*;

/// `RDMA_DRIVER_RXE` of `enum rdma_driver_id`
const DRIVER: u32 = 14;
/// The largest number of attributes of an ioctl, with those that spoiling adds.
const MOST: usize = PLACES;

/// An ioctl of uverbs.
#[repr(C)]
pub struct Ioctl {
    header: Header,
    attrs: [Attr; MOST],
}

/// `struct ib_uverbs_ioctl_hdr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    count: u16,
    reserved1: u64,
    driver: u32,
    reserved2: u32,
}

/// `struct ib_uverbs_attr`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Attr {
    id: u16,
    len: u16,
    flags: u16,
    reserved: u16,
    pub data: u64,
}

/// The objects that the arguments of a step name.
pub struct Objects {
    /// The handle of the domain.
    pub domain: u64,
    /// The descriptor of the channel.
    pub channel: Option<u64>,
    /// The number of the QP.
    pub qp: u64,
}

/// The memory for an ioctl, and the address of the peer.
pub struct Place<'a> {
    pub room: &'a Room,
    /// The last byte of the address of the peer, as `guest` makes it: its link address is known.
    pub peer: u8,
}

const STATE: u32 = 1 << 0;
const ACCESS: u32 = 1 << 3;
const PKEY_INDEX: u32 = 1 << 4;
const PORT: u32 = 1 << 5;
const AV: u32 = 1 << 7;
const PATH_MTU: u32 = 1 << 8;
const RQ_PSN: u32 = 1 << 12;
const MIN_RNR_TIMER: u32 = 1 << 15;
const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
const DEST_QPN: u32 = 1 << 20;

// `enum ib_uverbs_qp_state`
const RESET: u32 = 0;
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const SQD: u32 = 4;
const ERR: u32 = 6;

fn qp_attr(transition: Transition, peer: u8) -> ib_uverbs_qp_attr {
    let init = STATE | PKEY_INDEX | PORT | ACCESS;
    let rtr = STATE | AV | PATH_MTU | RQ_PSN | MIN_RNR_TIMER | MAX_DEST_RD_ATOMIC | DEST_QPN;
    let (mask, state) = match transition {
        Transition::ToReset => (STATE, RESET),
        Transition::ToInit => (init, INIT),
        Transition::ToRtr => (rtr, RTR),
        Transition::ToError => (STATE, ERR),
        Transition::ToInitAndRtr => (init | rtr, RTR),
        Transition::ToRts => (STATE, RTS),
        Transition::ToSqd => (STATE, SQD),
        Transition::All => (!0, INIT),
    };
    let mut attr = ib_uverbs_qp_attr {
        qp_attr_mask: mask,
        qp_state: state,
        path_mtu: 3,
        dest_qp_num: 17,
        port_num: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        ..Default::default()
    };
    attr.ah_attr.grh.dgid[10..].copy_from_slice(&[0xff, 0xff, 10, 9, peer, 2]);
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr
}

/// The part of `struct ib_uverbs_qp_attr` that may be spoiled: not its addresses, which take a
/// second to be resolved.
const BEFORE_ADDRESSES: u64 = std::mem::offset_of!(ib_uverbs_qp_attr, ah_attr) as u64;
const AFTER_ADDRESSES: u64 = std::mem::offset_of!(ib_uverbs_qp_attr, max_send_wr) as u64;

impl Ioctl {
    fn of(object: u32, method: u32) -> Ioctl {
        Ioctl {
            header: Header {
                object: object as u16,
                method: method as u16,
                driver: DRIVER,
                ..Default::default()
            },
            attrs: Default::default(),
        }
    }

    /// Returns a correct call that creates an event channel of a domain.
    pub fn new_channel(domain: u64) -> Ioctl {
        let mut ioctl = Ioctl::create_channel(domain, None, None, None);
        ioctl.set_length();
        ioctl
    }

    /// Returns the call of a step, if it is an ioctl.
    pub fn new(step: &Step, objects: &Objects, place: &Place<'_>) -> Option<Ioctl> {
        let room = place.room;
        let mut ioctl = match step.call {
            Call::Alloc { .. } => Ioctl::alloc(&step.call, objects, place)?,
            Call::Modify { attr, .. } => {
                let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY);
                ioctl.object(XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_QP_MODIFY_QPN, 4, Some(objects.qp));
                ioctl.qp_attr(XRC_RCV_ATTR_QP_MODIFY_ATTR, attr, place);
                ioctl
            }
            Call::Query { attr, info, .. } => {
                let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_QUERY);
                ioctl.object(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_QP_QUERY_QPN, 4, Some(objects.qp));
                ioctl.output(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, attr, room);
                ioctl.output(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, info, room);
                ioctl
            }
            Call::Destroy { flags, .. } => {
                let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_DESTROY);
                ioctl.object(XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_QP_DESTROY_QPN, 4, Some(objects.qp));
                ioctl.value(XRC_RCV_ATTR_QP_DESTROY_FLAGS, 4, flags);
                ioctl
            }
            Call::List { .. } => Ioctl::list(&step.call, objects, place)?,
            Call::Caps { room: length } => {
                let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS);
                ioctl.output(XRC_RCV_ATTR_QUERY_CAPS_RESP, length, room);
                ioctl
            }
            _ => Ioctl::of_channel(&step.call, objects, room)?,
        };
        ioctl.set_length();
        for spoil in step.spoils.iter() {
            ioctl.spoil(spoil, room);
        }
        if !step.spoils.is_empty() {
            ioctl.spare_program(room);
        }
        Some(ioctl)
    }

    /// Returns the call of a step if it is about an event channel.
    fn of_channel(call: &Call, objects: &Objects, room: &Room) -> Option<Ioctl> {
        Some(match *call {
            Call::Reg {
                again, info, size, ..
            } => {
                let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG);
                ioctl.channel(XRC_RCV_ATTR_QP_REG_CHANNEL, objects.channel);
                ioctl.numbers(XRC_RCV_ATTR_QP_REG_QPNS, objects.qp, again, room);
                ioctl.output(XRC_RCV_ATTR_QP_REG_RESP_DONE, Some(4), room);
                ioctl.output(XRC_RCV_ATTR_QP_REG_RESP_INFO, info, room);
                ioctl.value(XRC_RCV_ATTR_QP_REG_INFO_SIZE, 4, size);
                ioctl
            }
            Call::Unreg { again, .. } => {
                let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG);
                ioctl.channel(XRC_RCV_ATTR_QP_UNREG_CHANNEL, objects.channel);
                ioctl.numbers(XRC_RCV_ATTR_QP_UNREG_QPNS, objects.qp, again, room);
                ioctl.output(XRC_RCV_ATTR_QP_UNREG_RESP_DONE, Some(4), room);
                ioctl
            }
            Call::Channel {
                size,
                events,
                flags,
                ..
            } => Ioctl::create_channel(objects.domain, size, events, flags),
            _ => return None,
        })
    }

    fn alloc(call: &Call, objects: &Objects, place: &Place<'_>) -> Option<Ioctl> {
        let Call::Alloc {
            flags, attr, label, ..
        } = *call
        else {
            return None;
        };
        let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC);
        ioctl.object(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, objects.domain);
        ioctl.output(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, Some(4), place.room);
        ioctl.value(XRC_RCV_ATTR_QP_ALLOC_FLAGS, 4, flags);
        ioctl.qp_attr(XRC_RCV_ATTR_QP_ALLOC_ATTR, attr, place);
        ioctl.channel(XRC_RCV_ATTR_QP_ALLOC_CHANNEL, objects.channel);
        ioctl.value(XRC_RCV_ATTR_QP_ALLOC_LABEL, 8, label);
        ioctl.output(XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL, Some(8), place.room);
        Some(ioctl)
    }

    fn list(call: &Call, objects: &Objects, place: &Place<'_>) -> Option<Ioctl> {
        let Call::List {
            after, room, size, ..
        } = *call
        else {
            return None;
        };
        let after = after.map(|_| objects.qp);
        let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN);
        ioctl.object(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, objects.domain);
        ioctl.value(XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN, 4, after);
        ioctl.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, room, place.room);
        ioctl.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, Some(4), place.room);
        ioctl.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, Some(4), place.room);
        ioctl.value(XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, 4, size);
        Some(ioctl)
    }

    fn create_channel(domain: u64, size: Arg, events: Arg, flags: Arg) -> Ioctl {
        let mut ioctl = Ioctl::of(
            XRC_RCV_OBJECT_EVENT_CHANNEL,
            XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC,
        );
        ioctl.object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, u64::MAX);
        ioctl.object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE, domain);
        ioctl.value(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE, 4, size);
        ioctl.value(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS, 8, events);
        ioctl.value(
            XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS,
            4,
            Some(flags.unwrap_or(0)),
        );
        ioctl
    }

    fn set_length(&mut self) {
        let size = size_of::<Header>() + usize::from(self.header.count) * size_of::<Attr>();
        self.header.length = size as u16;
    }

    fn push(&mut self, id: u32, len: u64, data: u64) {
        let flags = UVERBS_ATTR_F_MANDATORY;
        self.attrs[usize::from(self.header.count)] = Attr {
            id: id as u16,
            len: len as u16,
            flags,
            reserved: 0,
            data,
        };
        self.header.count += 1;
    }

    fn object(&mut self, id: u32, handle: u64) {
        self.push(id, 0, handle);
    }

    fn channel(&mut self, id: u32, fd: Option<u64>) {
        if let Some(fd) = fd {
            self.push(id, 0, fd);
        }
    }

    fn value(&mut self, id: u32, len: u64, value: Arg) {
        if let Some(value) = value {
            self.push(id, len, if len == 4 { value & 0xffff_ffff } else { value });
        }
    }

    /// Adds an array of a QP number, see [`array_len`].
    fn numbers(&mut self, id: u32, number: u64, again: Arg, room: &Room) {
        let number = number as u32;
        let count = array_len(again);
        // Up to eight bytes are in the attribute.
        let data = match count {
            1 => number.into(),
            2 => (u64::from(number) << 32) | u64::from(number),
            _ => room.write_numbers(number, count),
        };
        self.push(id, (count * size_of::<u32>()) as u64, data);
    }

    fn output(&mut self, id: u32, len: Arg, room: &Room) {
        if let Some(len) = len {
            self.push(id, len, room.output(usize::from(self.header.count)));
        }
    }

    fn qp_attr(&mut self, id: u32, transition: Arg, place: &Place<'_>) {
        if let Some(transition) = transition {
            let attr = qp_attr(Transition::of(transition), place.peer);
            let address = place.room.write_qp_attr(attr);
            self.push(id, size_of::<ib_uverbs_qp_attr>() as u64, address);
        }
    }

    fn spoil(&mut self, spoil: Spoil, room: &Room) {
        let Spoil { how, at, value } = spoil;
        let count = usize::from(self.header.count);
        let index = at as usize % count.max(1);
        let attr = &mut self.attrs[index];
        match how {
            How::Length => attr.len = value as u16,
            How::Data => attr.data = value,
            How::Pointer => attr.data = room.hostile(value),
            How::Id => attr.id = value as u16,
            How::Flags => attr.flags = value as u16,
            How::Reserved => attr.reserved = value as u16,
            // A fault before this one may have left no attribute, or no room.
            How::Drop if count > 0 => {
                self.attrs.copy_within(index + 1..count, index);
                self.header.count -= 1;
                self.set_length();
            }
            How::Twice if count < MOST => {
                self.attrs[count] = *attr;
                self.header.count += 1;
                self.set_length();
            }
            How::Drop | How::Twice => (),
            How::Method => self.header.method ^= 1 << (value % 16),
            How::Object => self.header.object ^= 1 << (value % 16),
            How::Count => self.header.count = value as u16 % MOST as u16,
            How::Size => self.header.length = value as u16,
            How::Driver => self.header.driver = value as u32,
            How::Attr => {
                let size = size_of::<ib_uverbs_qp_attr>() as u64;
                let mut offset = at % (BEFORE_ADDRESSES + size - AFTER_ADDRESSES);
                if offset >= BEFORE_ADDRESSES {
                    offset += AFTER_ADDRESSES - BEFORE_ADDRESSES;
                }
                room.spoil_qp_attr(offset as usize, value as u8);
            }
        }
    }

    /// Keeps the kernel from writing into the program: an attribute that became another may have
    /// its old value taken for an address. The program is at none of the addresses that are left.
    fn spare_program(&mut self, room: &Room) {
        for attr in &mut self.attrs {
            let elsewhere = !(room.begin()..=room.end()).contains(&attr.data);
            if (1 << 32..1 << 47).contains(&attr.data) && elsewhere {
                attr.data = room.end();
            }
        }
    }

    /// Makes the call. Returns 0 or a negative errno.
    pub fn call(&mut self, fd: i32) -> i32 {
        // SAFETY: All addresses in it are of the room, or of nothing of this process.
        let result = unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL, std::ptr::from_mut(self)) };
        if result < 0 { -errno() } else { 0 }
    }

    /// Returns what the kernel wrote to an attribute.
    pub fn answer(&self, id: u32) -> Option<u64> {
        self.attrs
            .iter()
            .find(|attr| u32::from(attr.id) == id)
            .map(|attr| attr.data)
    }
}
