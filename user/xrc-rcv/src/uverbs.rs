// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! One uverbs method call: a header followed by attributes, handed to `ioctl()`.
//!
//! A [`Command`] lives on its caller's stack and borrows the buffers its attributes point to, so
//! that it cannot outlive them.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Cause;
use crate::ffi::xrc_rcv_event;
use crate::uapi::*;

/// The result of a call to the kernel.
pub type Result<T> = std::result::Result<T, Cause>;

/// The most attributes a method of ours has.
const MAX_ATTRS: usize = 7;

/// Driver ids are small and dense (`enum rdma_driver_id`); leave room for new ones.
const MAX_DRIVER_ID: u32 = 64;

/// A type the kernel reads or writes as plain bytes.
///
/// # Safety
///
/// Every bit pattern is valid and there is no padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: Integers have no padding and no invalid values.
unsafe impl Plain for u32 {}
// SAFETY: Integers have no padding and no invalid values.
unsafe impl Plain for u64 {}
// SAFETY: Consists of integers, with all padding explicit.
unsafe impl Plain for ib_uverbs_qp_attr {}
// SAFETY: Consists of integers, each at a multiple of its size, and ends with two that fill eight
// bytes.
unsafe impl Plain for xrc_rcv_qp_info {}
// SAFETY: Consists of integers, each at a multiple of its size, and ends with one.
unsafe impl Plain for xrc_rcv_caps {}
// SAFETY: Consists of integers of eight bytes.
unsafe impl Plain for xrc_rcv_reg_info {}
// SAFETY: Consists of integers of eight bytes, and ends with two that fill eight bytes.
unsafe impl Plain for xrc_rcv_record {}
// SAFETY: Consists of integers of eight bytes, and ends with four that fill sixteen bytes.
unsafe impl Plain for xrc_rcv_event {}

/// The number of an object, a method or an attribute as a command has it, in 16 bits.
fn id(number: u32) -> u16 {
    number as u16
}

/// The bytes that the kernel wrote to an attribute.
fn data(attr: &ib_uverbs_attr) -> u64 {
    // SAFETY: Both members of the union are integers of 64 bits, of which any value is valid.
    unsafe { attr.__bindgen_anon_1.data }
}

/// The bytes of a struct of the kernel's.
pub(crate) fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `T` is plain bytes.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The struct of the kernel's at the beginning of `bytes`.
pub(crate) fn from_bytes<T: Plain>(bytes: &[u8]) -> T {
    let bytes = &bytes[..size_of::<T>()];
    // SAFETY: There are as many bytes as `T` has, of which any value is valid.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

#[repr(C)]
pub(crate) struct Command<'buf> {
    header: ib_uverbs_ioctl_hdr,
    attrs: [ib_uverbs_attr; MAX_ATTRS],
    buffers: PhantomData<&'buf mut ()>,
}

impl<'buf> Command<'buf> {
    pub(crate) fn new(object: u32, method: u32) -> Self {
        Command {
            header: ib_uverbs_ioctl_hdr {
                object_id: id(object),
                method_id: id(method),
                length: size_of::<ib_uverbs_ioctl_hdr>() as u16,
                ..Default::default()
            },
            attrs: Default::default(),
            buffers: PhantomData,
        }
    }

    fn push(mut self, attr_id: u32, len: usize, data: u64) -> Self {
        self.attrs[usize::from(self.header.num_attrs)] = ib_uverbs_attr {
            attr_id: id(attr_id),
            len: u16::try_from(len).expect("attribute of at most 64 KiB"),
            flags: UVERBS_ATTR_F_MANDATORY,
            attr_data: Default::default(),
            __bindgen_anon_1: ib_uverbs_attr__bindgen_ty_2 { data },
        };
        self.header.num_attrs += 1;
        self.header.length += size_of::<ib_uverbs_attr>() as u16;
        self
    }

    /// A value to be read by the kernel; up to eight bytes travel in the attribute itself.
    pub(crate) fn input<T: Plain>(self, id: u32, value: &'buf T) -> Self {
        self.input_slice(id, std::slice::from_ref(value))
    }

    /// An array to be read by the kernel, likewise.
    pub(crate) fn input_slice<T: Plain>(self, id: u32, values: &'buf [T]) -> Self {
        let len = size_of_val(values);
        if len > size_of::<u64>() {
            return self.push(id, len, values.as_ptr().expose_provenance() as u64);
        }
        let mut inline = [0u8; size_of::<u64>()];
        // SAFETY: `T` is plain bytes, not more than `inline` has, and the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), inline.as_mut_ptr(), len);
        }
        self.push(id, len, u64::from_ne_bytes(inline))
    }

    pub(crate) fn input_opt<T: Plain>(self, id: u32, value: Option<&'buf T>) -> Self {
        match value {
            Some(value) => self.input(id, value),
            None => self,
        }
    }

    /// A value to be written by the kernel.
    pub(crate) fn output<T: Plain>(self, id: u32, value: &'buf mut T) -> Self {
        self.output_slice(id, std::slice::from_mut(value))
    }

    /// An array to be written by the kernel, which learns its size from the attribute.
    pub(crate) fn output_slice<T: Plain>(self, id: u32, values: &'buf mut [T]) -> Self {
        self.push(
            id,
            size_of_val(values),
            values.as_mut_ptr().expose_provenance() as u64,
        )
    }

    /// A struct to be written by the kernel, of the length that the caller knows: the kernel fills
    /// the part that both know and clears the rest.
    pub(crate) fn output_bytes(self, id: u32, place: &'buf mut [u8]) -> Self {
        // No struct is longer than an attribute can be; the rest would stay unwritten.
        let known = place.len().min(usize::from(u16::MAX));
        let (place, beyond) = place.split_at_mut(known);
        beyond.fill(0);
        self.push(
            id,
            place.len(),
            place.as_mut_ptr().expose_provenance() as u64,
        )
    }

    /// The handle of an existing object.
    pub(crate) fn handle(self, id: u32, handle: u32) -> Self {
        self.push(id, 0, u64::from(handle))
    }

    /// An object that is represented by a file descriptor.
    pub(crate) fn fd(self, id: u32, fd: BorrowedFd<'buf>) -> Self {
        // Sign-extended, as the kernel reads it as an s64.
        self.push(id, 0, i64::from(fd.as_raw_fd()) as u64)
    }

    /// A new object. It must be the first attribute: [`Command::execute_new`] returns its handle or
    /// descriptor.
    pub(crate) fn new_object(self, id: u32) -> Self {
        debug_assert_eq!(self.header.num_attrs, 0);
        self.push(id, 0, 0)
    }

    pub(crate) fn execute(mut self, fd: BorrowedFd<'_>) -> Result<()> {
        self.run(fd)
    }

    pub(crate) fn execute_new(mut self, fd: BorrowedFd<'_>) -> Result<u32> {
        self.run(fd)?;
        Ok(data(&self.attrs[0]) as u32)
    }

    fn run(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        self.run_with(&mut Kernel(fd.as_raw_fd()))
    }

    /// Calls the method with the device's driver id, which no public object of rdma-core holds.
    ///
    /// The kernel checks the id first and returns `EINVAL` for a wrong one. So the id that worked
    /// last is tried first, and only after `EINVAL` is the right one looked up: that is exact for
    /// every device in every namespace, needs neither sysfs nor a netlink socket, and stays correct
    /// when a descriptor number is used again.
    fn run_with(&mut self, target: &mut impl Target) -> Result<()> {
        static LAST: AtomicU32 = AtomicU32::new(0);

        let id = LAST.load(Ordering::Relaxed);
        let result = self.call(target, id);
        if result != Err(Cause::Os(libc::EINVAL)) {
            return result;
        }
        let found = find_driver_id(target, id)?;
        if found == id {
            return result;
        }
        LAST.store(found, Ordering::Relaxed);
        self.call(target, found)
    }

    fn call(&mut self, target: &mut impl Target, driver_id: u32) -> Result<()> {
        self.header.driver_id = driver_id;
        match target.ioctl(self) {
            Ok(()) => Ok(()),
            Err(libc::EPROTONOSUPPORT | libc::ENOTTY) => Err(Cause::Unavailable),
            Err(errno) => Err(Cause::Os(errno)),
        }
    }
}

/// The driver id of the device behind `target`, found by calling a method without an effect.
fn find_driver_id(target: &mut impl Target, guess: u32) -> Result<u32> {
    for id in std::iter::once(guess).chain(0..MAX_DRIVER_ID) {
        let mut caps = xrc_rcv_caps::default();
        let mut command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS)
            .output(XRC_RCV_ATTR_QUERY_CAPS_RESP, &mut caps);
        match command.call(target, id) {
            Err(Cause::Os(libc::EINVAL)) => continue,
            result => return result.map(|()| id),
        }
    }
    Err(Cause::Unavailable)
}

/// The target of a command.
trait Target {
    /// Returns the positive errno on failure.
    fn ioctl(&mut self, command: &mut Command<'_>) -> std::result::Result<(), i32>;
}

struct Kernel(RawFd);

impl Target for Kernel {
    fn ioctl(&mut self, command: &mut Command<'_>) -> std::result::Result<(), i32> {
        // SAFETY: `command` begins with a header followed by the `num_attrs` attributes it counts
        // (the struct is `repr(C)` and neither part has padding), and each attribute points to a
        // buffer of its stated length that `command` borrows, exclusively where it is written.
        let ret = unsafe { libc::ioctl(self.0, RDMA_VERBS_IOCTL, std::ptr::from_mut(command)) };
        if ret == 0 {
            Ok(())
        } else {
            Err(Cause::last().errno())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with a driver id and an answer; records the last command that got through.
    struct Mock {
        driver_id: u32,
        answer: std::result::Result<(), i32>,
        seen: Vec<ib_uverbs_attr>,
        method_id: u16,
        calls: usize,
    }

    impl Mock {
        fn new(driver_id: u32, answer: std::result::Result<(), i32>) -> Self {
            Mock {
                driver_id,
                answer,
                seen: vec![],
                method_id: 0,
                calls: 0,
            }
        }
    }

    impl Target for Mock {
        fn ioctl(&mut self, command: &mut Command<'_>) -> std::result::Result<(), i32> {
            self.calls += 1;
            if command.header.driver_id != self.driver_id {
                return Err(libc::EINVAL);
            }
            self.method_id = command.header.method_id;
            self.seen = command.attrs[..usize::from(command.header.num_attrs)].to_vec();
            if self.method_id == id(XRC_RCV_METHOD_QUERY_CAPS)
                && self.answer != Err(libc::EPROTONOSUPPORT)
            {
                return Ok(());
            }
            self.answer
        }
    }

    #[test]
    fn attributes_are_encoded_as_uverbs_reads_them() {
        let qpn = 0x1234u32;
        let cookie = 0x8877_6655_4433_2211u64;
        let attr = ib_uverbs_qp_attr::default();
        let mut out = 0u32;
        let command = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG)
            .new_object(0x1000)
            .handle(0x1001, 5)
            .input(0x1002, &qpn)
            .input(0x1003, &cookie)
            .input(0x1004, &attr)
            .output(0x1005, &mut out);
        assert_eq!(command.header.num_attrs, 6);
        assert_eq!(command.header.length, 24 + 6 * 16);
        let word = |i: usize| (command.attrs[i].len, data(&command.attrs[i]));
        assert_eq!(word(0), (0, 0));
        assert_eq!(word(1), (0, 5));
        assert_eq!(word(2).0, 4);
        assert_eq!(word(2).1.to_ne_bytes()[..4], qpn.to_ne_bytes());
        assert_eq!(word(3), (8, cookie));
        assert_eq!(word(4), (144, std::ptr::from_ref(&attr).addr() as u64));
        assert_eq!(word(5).0, 4);
        assert!(
            command.attrs[..6]
                .iter()
                .all(|a| a.flags == UVERBS_ATTR_F_MANDATORY)
        );
    }

    #[test]
    fn a_negative_descriptor_is_sign_extended() {
        // SAFETY: AT_FDCWD is not -1, and nothing is done with the descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };
        let command = Command::new(0, 0).fd(1, fd);
        assert_eq!(data(&command.attrs[0]) as i64, i64::from(libc::AT_FDCWD));
    }

    #[test]
    fn the_driver_id_is_found_and_followed() {
        for driver_id in [2, 14, 2] {
            let mut device = Mock::new(driver_id, Ok(()));
            let mut command = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG)
                .handle(XRC_RCV_ATTR_QP_UNREG_CHANNEL, 9);
            assert_eq!(command.run_with(&mut device), Ok(()));
            assert_eq!(command.header.driver_id, driver_id);
            assert_eq!(device.method_id, id(XRC_RCV_METHOD_QP_UNREG));
            assert_eq!(data(&device.seen[0]), 9);
        }
    }

    #[test]
    fn an_einval_of_the_method_itself_stays_einval() {
        let mut device = Mock::new(14, Err(libc::EINVAL));
        let mut command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY);
        assert_eq!(command.run_with(&mut device), Err(Cause::Os(libc::EINVAL)));
    }

    #[test]
    fn a_kernel_without_the_module_is_unavailable() {
        let mut device = Mock::new(14, Err(libc::EPROTONOSUPPORT));
        let mut command = Command::new(XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY);
        assert_eq!(command.run_with(&mut device), Err(Cause::Unavailable));
        assert_eq!(Cause::Unavailable.errno(), libc::EOPNOTSUPP);
    }

    #[test]
    fn a_device_of_no_known_driver_is_unavailable() {
        let mut device = Mock::new(1000, Ok(()));
        let mut command = Command::new(XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG);
        assert_eq!(command.run_with(&mut device), Err(Cause::Unavailable));
        assert!(device.calls <= 2 * MAX_DRIVER_ID as usize);
    }
}
