// SPDX-License-Identifier: GPL-2.0

//! The arguments of REG and UNREG as ioctls of an event channel.
//!
//! The size of the structure is a part of the request, as with other ioctls of Linux whose
//! structures grow: no member of the structure can contradict it, and a filter of system calls,
//! which sees the request alone, decides on each version.
//!
//! QP numbers are read in blocks, and each block is done before the next is read. A page that is
//! missing can take for ever to come, so nothing is held meanwhile: above all no QP that UNREG has
//! removed from its domain, whose last close would wait for it.

use crate::{
    bindings::RDMA_IOCTL_MAGIC,
    kernel_ext::not_supported,
    uapi::*, //
};
use core::mem::offset_of;
use kernel::{
    ioctl::{
        _IOC_DIR,
        _IOC_NR,
        _IOC_SIZE,
        _IOC_TYPE,
        _IOWR, //
    },
    prelude::*,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    }, //
};

/// The number of QP numbers of a block.
const BLOCK: usize = 64;

/// A request of a process.
pub(crate) enum Request {
    Register(QpNumbers, Option<Infos>),
    Unregister(QpNumbers),
}

impl Request {
    /// Reads a request. `ENOTTY` if it is none of an event channel.
    pub(crate) fn new(request: u32, argument: UserPtr) -> Result<Self> {
        const REG: u32 = _IOWR::<xrc_rcv_qpns>(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_REG);

        let registers = match _IOC_NR(request) {
            XRC_RCV_IOCTL_NR_REG => true,
            XRC_RCV_IOCTL_NR_UNREG => false,
            _ => return Err(ENOTTY),
        };

        if _IOC_TYPE(request) != _IOC_TYPE(REG) || _IOC_DIR(request) != _IOC_DIR(REG) {
            return Err(ENOTTY);
        }

        let args = read(_IOC_SIZE(request), argument)?;
        let qpns = QpNumbers::new(&args, argument)?;

        match Infos::new(&args)? {
            infos if registers => Ok(Self::Register(qpns, infos)),
            None => Ok(Self::Unregister(qpns)),
            Some(_) => Err(EINVAL),
        }
    }
}

/// Reads a structure, which the process may know a longer version of.
fn read(size: usize, argument: UserPtr) -> Result<xrc_rcv_qpns> {
    let size = RecordSize::<xrc_rcv_qpns>::new(Some(size.try_into()?))?;
    let mut reader = UserSlice::new(argument, size.bytes()).reader();
    let args: xrc_rcv_qpns = reader.read()?;

    while !reader.is_empty() {
        if reader.read::<u64>()? != 0 {
            return Err(not_supported());
        }
    }
    if args.flags != 0 {
        return Err(EINVAL);
    }
    Ok(args)
}

/// Returns the address of an array of so many elements, and its size in bytes.
fn array(address: u64, count: u32, size: usize) -> Result<UserSlice> {
    let address = usize::try_from(address).map_err(|_| EFAULT)?;
    let bytes = usize::try_from(count)?.checked_mul(size).ok_or(EINVAL)?;

    Ok(UserSlice::new(UserPtr::from_addr(address), bytes))
}

/// The QP numbers, and the place for the number of those that are done.
pub(crate) struct QpNumbers {
    qpns: UserSlice,
    done: UserPtr,
}

impl QpNumbers {
    fn new(args: &xrc_rcv_qpns, argument: UserPtr) -> Result<Self> {
        if args.count == 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            qpns: array(args.qpns, args.count, size_of::<u32>())?,
            done: argument.wrapping_byte_add(offset_of!(xrc_rcv_qpns, done)),
        })
    }

    /// Calls `call` with the QP numbers, block by block, until one is not done: it returns how many
    /// are, and the error of the next. Writes the number of all that are done.
    pub(crate) fn for_each(self, call: impl FnMut(&[u32]) -> (usize, Result)) -> Result {
        let Self { qpns, done: place } = self;
        let mut done = 0;

        // A bad pointer is found before anything is done.
        write(place, 0)?;

        let result = for_each_block(qpns, &mut done, call);

        write(place, done.try_into()?)?;
        result
    }
}

fn write(place: UserPtr, value: u32) -> Result {
    UserSlice::new(place, size_of::<u32>())
        .writer()
        .write(&value)
}

/// Calls `call` with each block of QP numbers, and adds what it returns to `done`.
fn for_each_block(
    qpns: UserSlice,
    done: &mut usize,
    mut call: impl FnMut(&[u32]) -> (usize, Result),
) -> Result {
    let mut qpns = qpns.reader();
    let mut block = [0u32; BLOCK];

    while !qpns.is_empty() {
        let len = BLOCK.min(qpns.len() / size_of::<u32>());
        let block = block.get_mut(..len).ok_or(EINVAL)?;

        qpns.read_slice(AsBytes::as_bytes_mut(block))?;

        let (more, result) = call(block);

        *done += more;
        result?;
    }
    Ok(())
}

/// The place for information on the QPs.
pub(crate) struct Infos {
    size: RecordSize<xrc_rcv_reg_info>,
    writer: UserSliceWriter,
}

impl Infos {
    /// Returns the place, if the process wants the information.
    fn new(args: &xrc_rcv_qpns) -> Result<Option<Self>> {
        if args.infos == 0 {
            return match args.info_size {
                0 => Ok(None),
                _ => Err(EINVAL),
            };
        }

        let size = RecordSize::new(Some(args.info_size))?;
        let writer = array(args.infos, args.count, size.bytes())?.writer();

        Ok(Some(Self { size, writer }))
    }

    /// Writes the information on the next QP.
    pub(crate) fn write(&mut self, info: &xrc_rcv_reg_info) -> Result {
        let (known, zeroes) = self.size.fit(info);

        self.writer.write_slice(known)?;
        self.writer.write_slice(zeroes)
    }
}
