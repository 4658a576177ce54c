// SPDX-License-Identifier: GPL-2.0

//! The module's methods as ioctls: put together as a correct caller does, then spoiled.

use crate::device;
use crate::program::{Call, How, POINTERS, Spoil, Step};
use crate::uapi::*;

/// The most attributes of an ioctl, with those that spoiling adds.
const MOST: usize = 16;

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

const PAGE: usize = 4096;
/// The most QP numbers of an array.
const NUMBERS: usize = 64;
/// More than an attribute can have, behind the page of any.
const ROOM: usize = 32 * PAGE;

/// The memory of a process that calls read and write; nothing behind it is mapped.
pub struct Room(*mut u8);

impl Room {
    pub fn new() -> Room {
        let anywhere = std::ptr::null_mut();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: New memory, of which no other part of the program knows.
        let room = unsafe { libc::mmap(anywhere, ROOM + PAGE, protection, flags, -1, 0) };
        assert_ne!(room, libc::MAP_FAILED, "no room");
        // SAFETY: The last page of that memory, which nothing refers to.
        let result = unsafe { libc::mprotect(room.byte_add(ROOM), PAGE, libc::PROT_NONE) };
        assert_eq!(result, 0, "no page without access");
        Room(room.cast())
    }

    fn begin(&self) -> u64 {
        self.0.expose_provenance() as u64
    }

    fn end(&self) -> u64 {
        self.begin() + ROOM as u64
    }

    /// The page for the output of attribute `index`, or of read(2).
    pub fn output(&self, index: usize) -> u64 {
        self.begin() + (index % MOST * PAGE) as u64
    }

    /// Four bytes of that page.
    pub fn word(&self, index: usize) -> u32 {
        // SAFETY: The page is mapped, and nothing refers to its bytes.
        unsafe { self.0.add(index % MOST * PAGE).cast::<u32>().read() }
    }

    /// The same of an address, if it is that of an attribute's page.
    pub fn word_at(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.begin())? as usize;
        (offset < MOST * PAGE && offset % PAGE == 0).then(|| self.word(offset / PAGE))
    }

    /// Where attributes of a QP are.
    fn attr(&self) -> *mut ib_uverbs_qp_attr {
        // SAFETY: The page is in the room.
        unsafe { self.0.add(MOST * PAGE).cast() }
    }

    /// Where an array of QP numbers is.
    fn numbers(&self) -> *mut u32 {
        // SAFETY: The page is in the room.
        unsafe { self.0.add((MOST + 1) * PAGE).cast() }
    }

    /// Not mapped, in part, in the kernel, misaligned.
    pub fn hostile(&self, which: u64) -> u64 {
        let hostile: [u64; POINTERS as usize] = [
            0,
            self.end(),
            self.end() - 3,
            self.end() - 32,
            0xffff_8880_0000_0000,
            u64::MAX,
            self.output(0) + 1,
        ];
        hostile[(which % POINTERS) as usize]
    }
}

/// The objects that the arguments of a step name.
pub struct Objects {
    pub domain: u64,
    pub channel: Option<u64>,
    pub qp: u64,
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

/// Attributes number `which`: those of RESET, INIT, RTR, ERR, of INIT and RTR at once, of RTS, SQD, and any.
fn qp_attr(which: u64) -> ib_uverbs_qp_attr {
    let init = STATE | PKEY_INDEX | PORT | ACCESS;
    let rtr = STATE | AV | PATH_MTU | RQ_PSN | MIN_RNR_TIMER | MAX_DEST_RD_ATOMIC | DEST_QPN;
    let (mask, state) = match which {
        0 => (STATE, 0),
        1 => (init, 1),
        2 => (rtr, 2),
        3 => (STATE, 6),
        4 => (init | rtr, 2),
        5 => (STATE, 3),
        6 => (STATE, 4),
        _ => (!0, 1),
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
    // That of the peer, as `guest` makes it: its link address is known.
    attr.ah_attr.grh.dgid[10..].copy_from_slice(&[0xff, 0xff, 10, 9, device::number(), 2]);
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr
}

/// Where `struct ib_uverbs_qp_attr` may be spoiled: not in its addresses, which take a second to be resolved.
const BEFORE_ADDRESSES: u64 = std::mem::offset_of!(ib_uverbs_qp_attr, ah_attr) as u64;
const AFTER_ADDRESSES: u64 = std::mem::offset_of!(ib_uverbs_qp_attr, max_send_wr) as u64;

impl Ioctl {
    fn of(object: u32, driver: u32) -> Ioctl {
        Ioctl {
            header: Header {
                object: object as u16,
                driver,
                ..Default::default()
            },
            attrs: Default::default(),
        }
    }

    /// A correct call that creates an event channel of a domain.
    pub fn new_channel(domain: u64, driver: u32) -> Ioctl {
        let mut ioctl = Ioctl::of(XRC_RCV_OBJECT_EVENT_CHANNEL, driver);
        ioctl.object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, u64::MAX);
        ioctl.object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE, domain);
        ioctl.header.method = XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC as u16;
        ioctl.set_length();
        ioctl
    }

    /// The call of a step, if it is an ioctl.
    pub fn new(step: &Step, objects: &Objects, room: &Room, driver: u32) -> Option<Ioctl> {
        let object = match step.call {
            Call::Channel | Call::Reg | Call::Unreg | Call::List => XRC_RCV_OBJECT_EVENT_CHANNEL,
            _ => XRC_RCV_OBJECT_QP,
        };
        let mut ioctl = Ioctl::of(object, driver);
        let arg = |index: usize| step.args[index];
        let method = match step.call {
            Call::Alloc => {
                ioctl.object(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, objects.domain);
                ioctl.output(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, Some(4), room);
                ioctl.value(XRC_RCV_ATTR_QP_ALLOC_FLAGS, 4, arg(2));
                ioctl.qp_attr(XRC_RCV_ATTR_QP_ALLOC_ATTR, arg(3), room);
                ioctl.channel(XRC_RCV_ATTR_QP_ALLOC_CHANNEL, objects.channel);
                ioctl.value(XRC_RCV_ATTR_QP_ALLOC_COOKIE, 8, arg(5));
                ioctl.value(XRC_RCV_ATTR_QP_ALLOC_EVENTS, 8, arg(6));
                ioctl.value(XRC_RCV_ATTR_QP_ALLOC_LABEL, 8, arg(7));
                XRC_RCV_METHOD_QP_ALLOC
            }
            Call::Reg => {
                ioctl.channel(XRC_RCV_ATTR_QP_REG_CHANNEL, objects.channel);
                ioctl.numbers(XRC_RCV_ATTR_QP_REG_QPNS, objects.qp, arg(4), room);
                ioctl.value(XRC_RCV_ATTR_QP_REG_COOKIE, 8, arg(2));
                ioctl.value(XRC_RCV_ATTR_QP_REG_EVENTS, 8, arg(3));
                ioctl.output(XRC_RCV_ATTR_QP_REG_RESP_DONE, Some(4), room);
                XRC_RCV_METHOD_QP_REG
            }
            Call::Unreg => {
                ioctl.channel(XRC_RCV_ATTR_QP_UNREG_CHANNEL, objects.channel);
                ioctl.numbers(XRC_RCV_ATTR_QP_UNREG_QPNS, objects.qp, arg(2), room);
                ioctl.output(XRC_RCV_ATTR_QP_UNREG_RESP_DONE, Some(4), room);
                XRC_RCV_METHOD_QP_UNREG
            }
            Call::Modify => {
                ioctl.object(XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_QP_MODIFY_QPN, 4, Some(objects.qp));
                ioctl.qp_attr(XRC_RCV_ATTR_QP_MODIFY_ATTR, arg(2), room);
                XRC_RCV_METHOD_QP_MODIFY
            }
            Call::Query => {
                ioctl.object(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_QP_QUERY_QPN, 4, Some(objects.qp));
                ioctl.output(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, arg(2), room);
                ioctl.output(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, arg(3), room);
                XRC_RCV_METHOD_QP_QUERY
            }
            Call::Destroy => {
                ioctl.object(XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_QP_DESTROY_QPN, 4, Some(objects.qp));
                ioctl.value(XRC_RCV_ATTR_QP_DESTROY_FLAGS, 4, arg(2));
                XRC_RCV_METHOD_QP_DESTROY
            }
            Call::List => {
                ioctl.object(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, objects.domain);
                ioctl.value(
                    XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN,
                    4,
                    arg(1).map(|_| objects.qp),
                );
                ioctl.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, arg(2), room);
                ioctl.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, Some(4), room);
                ioctl.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, Some(4), room);
                ioctl.value(XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, 4, arg(3));
                XRC_RCV_METHOD_QUERY_DOMAIN
            }
            Call::Caps => {
                ioctl.output(XRC_RCV_ATTR_QUERY_CAPS_RESP, arg(0), room);
                XRC_RCV_METHOD_QUERY_CAPS
            }
            Call::Channel => {
                ioctl.object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, u64::MAX);
                ioctl.object(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE, objects.domain);
                ioctl.value(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE, 4, arg(1));
                XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC
            }
            _ => return None,
        };
        ioctl.header.method = method as u16;
        ioctl.set_length();
        if let Some(spoil) = step.spoil {
            ioctl.spoil(spoil, room);
            ioctl.spare_program(room);
        }
        Some(ioctl)
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

    fn value(&mut self, id: u32, len: u64, value: Option<u64>) {
        if let Some(value) = value {
            self.push(id, len, if len == 4 { value & 0xffff_ffff } else { value });
        }
    }

    /// An array of a QP number, once, or `again` more times, modulo a few.
    fn numbers(&mut self, id: u32, number: u64, again: Option<u64>, room: &Room) {
        let count = 1 + again.unwrap_or(0) % NUMBERS as u64;
        if count <= 2 {
            let number = number & 0xffff_ffff;
            let both = number | if count == 2 { number << 32 } else { 0 };
            return self.push(id, 4 * count, both);
        }
        for index in 0..count as usize {
            // SAFETY: The room has a place for them, which nothing else refers to.
            unsafe { room.numbers().add(index).write(number as u32) };
        }
        self.push(id, 4 * count, room.numbers().expose_provenance() as u64);
    }

    fn output(&mut self, id: u32, len: Option<u64>, room: &Room) {
        if let Some(len) = len {
            self.push(id, len, room.output(usize::from(self.header.count)));
        }
    }

    fn qp_attr(&mut self, id: u32, which: Option<u64>, room: &Room) {
        if let Some(which) = which {
            // SAFETY: The room has a place for it, which nothing else refers to.
            unsafe { room.attr().write(qp_attr(which)) };
            self.push(
                id,
                size_of::<ib_uverbs_qp_attr>() as u64,
                room.attr().expose_provenance() as u64,
            );
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
            How::Drop => {
                self.attrs.copy_within(index + 1..count, index);
                self.header.count -= 1;
                self.set_length();
            }
            How::Twice => {
                self.attrs[count] = *attr;
                self.header.count += 1;
                self.set_length();
            }
            How::Method => self.header.method ^= 1 << (value % 16),
            How::Object => self.header.object ^= 1 << (value % 16),
            How::Count => self.header.count = value as u16 % MOST as u16,
            How::Size => self.header.length = value as u16,
            How::Driver => self.header.driver = value as u32,
            How::Attr => {
                let size = size_of::<ib_uverbs_qp_attr>() as u64;
                let open = BEFORE_ADDRESSES + size - AFTER_ADDRESSES;
                let mut offset = at % open;
                if offset >= BEFORE_ADDRESSES {
                    offset += AFTER_ADDRESSES - BEFORE_ADDRESSES;
                }
                // SAFETY: The offset is less than the struct's size, and nothing else refers to it.
                unsafe {
                    room.attr()
                        .cast::<u8>()
                        .add(offset as usize)
                        .write(value as u8)
                };
            }
        }
    }

    /// An attribute that became another may have its old value taken for an address to write to. The program is
    /// at none of the addresses that are left.
    fn spare_program(&mut self, room: &Room) {
        for attr in &mut self.attrs {
            let elsewhere = !(room.begin()..=room.end()).contains(&attr.data);
            if (1 << 32..1 << 47).contains(&attr.data) && elsewhere {
                attr.data = room.end();
            }
        }
    }

    /// Calls it: 0 or a negative errno.
    pub fn call(&mut self, fd: i32) -> i32 {
        // SAFETY: All addresses in it are of the room, or of nothing of this process.
        let result = unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL, std::ptr::from_mut(self)) };
        if result < 0 { -errno() } else { 0 }
    }

    /// What the kernel wrote to the attribute.
    pub fn answer(&self, id: u32) -> Option<u64> {
        self.attrs
            .iter()
            .find(|attr| u32::from(attr.id) == id)
            .map(|attr| attr.data)
    }
}

/// That of this thread.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
