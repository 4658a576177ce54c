// SPDX-License-Identifier: GPL-2.0

//! The memory of a process that calls read and write.

use crate::program::{NUMBERS, POINTERS};
use crate::uapi::{ib_uverbs_qp_attr, xrc_rcv_qpns, xrc_rcv_record};

/// The number of attributes that have a place for output.
pub const PLACES: usize = 16;
const PAGE: usize = 4096;
/// An attribute has at most 64 KiB, of which the last place for output still has all.
const SIZE: usize = 32 * PAGE;

/// A type of which all bytes are a value.
///
/// # Safety
///
/// They are.
pub unsafe trait Plain {}

// SAFETY: It is an integer.
unsafe impl Plain for u32 {}
// SAFETY: It is an integer.
unsafe impl Plain for u64 {}
// SAFETY: It consists of integers.
unsafe impl Plain for xrc_rcv_record {}

/// Memory behind which nothing is mapped.
pub struct Room(*mut u8);

impl Room {
    pub fn new() -> Room {
        let anywhere = std::ptr::null_mut();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: The memory is new, and no other part of the program knows of it.
        let room = unsafe { libc::mmap(anywhere, SIZE + PAGE, protection, flags, -1, 0) };
        assert_ne!(room, libc::MAP_FAILED, "no room");
        // SAFETY: It is the last page of that memory, which nothing refers to.
        let result = unsafe { libc::mprotect(room.byte_add(SIZE), PAGE, libc::PROT_NONE) };
        assert_eq!(result, 0, "no page without access");
        Room(room.cast())
    }

    /// Returns the address.
    pub fn begin(&self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Returns the address of the first byte that is not mapped.
    pub fn end(&self) -> u64 {
        self.begin() + SIZE as u64
    }

    /// Returns the address of a place for output.
    pub fn output(&self, place: usize) -> u64 {
        self.begin() + (place % PLACES * PAGE) as u64
    }

    /// Returns a value at an address, if that is a place for output.
    pub fn value_at<T: Plain>(&self, address: u64) -> Option<T> {
        let offset = address.checked_sub(self.begin())? as usize;
        (offset < PLACES * PAGE && offset % PAGE == 0).then(|| self.value(offset))
    }

    /// Returns the values of the first place for output that are `size` bytes apart.
    pub fn values<T: Plain>(&self, size: usize, count: usize) -> impl Iterator<Item = T> {
        (0..count).map(move |index| self.value(index * size))
    }

    fn value<T: Plain>(&self, offset: usize) -> T {
        assert!(offset + size_of::<T>() <= SIZE);
        // SAFETY: The memory is mapped, nothing refers to its bytes, and any are a value.
        unsafe { self.0.add(offset).cast::<T>().read_unaligned() }
    }

    /// Writes attributes of a QP, and returns their address.
    pub fn write_qp_attr(&self, attr: ib_uverbs_qp_attr) -> u64 {
        // SAFETY: The page is mapped, aligned and large enough, and nothing refers to its bytes.
        unsafe { self.qp_attr().write(attr) };
        self.qp_attr().expose_provenance() as u64
    }

    /// Writes a byte of the attributes of a QP.
    pub fn spoil_qp_attr(&self, offset: usize, value: u8) {
        assert!(offset < size_of::<ib_uverbs_qp_attr>());
        // SAFETY: The offset is less than the size of the struct, which is in a mapped page, and
        // nothing refers to its bytes.
        unsafe { self.qp_attr().cast::<u8>().add(offset).write(value) };
    }

    /// Writes a QP number several times, and returns the address of the first.
    pub fn write_numbers(&self, number: u32, count: usize) -> u64 {
        // SAFETY: The page is mapped.
        let numbers = unsafe { self.0.add((PLACES + 1) * PAGE).cast::<u32>() };
        for index in 0..count.min(NUMBERS) {
            // SAFETY: The page is mapped, aligned and has room for so many, and nothing refers to
            // its bytes.
            unsafe { numbers.add(index).write(number) };
        }
        numbers.expose_provenance() as u64
    }

    /// Writes the argument of an ioctl of a channel, before zeroes, and returns its address.
    pub fn write_qpns(&self, qpns: xrc_rcv_qpns) -> u64 {
        // SAFETY: The page is mapped, aligned and large enough, and nothing refers to its bytes.
        unsafe {
            self.qpns().cast::<u8>().write_bytes(0, PAGE);
            self.qpns().write(qpns);
        }
        self.qpns().expose_provenance() as u64
    }

    /// Returns the number that the kernel has written to the argument.
    pub fn done(&self) -> u32 {
        // SAFETY: The page is mapped, nothing refers to its bytes, and any are a value.
        unsafe { self.qpns().read() }.done
    }

    fn qpns(&self) -> *mut xrc_rcv_qpns {
        // SAFETY: The page behind that for QP numbers is in the room.
        unsafe { self.0.add((PLACES + 2) * PAGE).cast() }
    }

    fn qp_attr(&self) -> *mut ib_uverbs_qp_attr {
        // SAFETY: The page behind the places for output is in the room.
        unsafe { self.0.add(PLACES * PAGE).cast() }
    }

    /// Returns an address that is bad for a call: not mapped, in part, of the kernel, misaligned.
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
