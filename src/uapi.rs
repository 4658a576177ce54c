// SPDX-License-Identifier: GPL-2.0

//! The interface to processes: structures, and numbers of objects, methods and attributes, which
//! bindgen generates from the header.
//!
//! C header: `src/include/uapi/rdma/ib_xrc_rcv.h`

use core::marker::PhantomData;
use kernel::{
    prelude::*,
    transmute::AsBytes, //
};

pub(crate) use crate::bindings::uapi::*;

// SAFETY: Its members are integers, and leave no padding: two of 32 bits, one of 64, four of 32.
unsafe impl AsBytes for xrc_rcv_caps {}

// SAFETY: Its members are integers, and leave no padding: two of 64 bits, four of 32.
unsafe impl AsBytes for xrc_rcv_event {}

// SAFETY: Its members are integers, and leave no padding: four of 32 bits, one of 64, two of 32.
unsafe impl AsBytes for xrc_rcv_qp_info {}

/// A structure that processes get as an element of an array or as a record of a file. The process
/// passes its size, by which the kernel knows the version that the process was built with.
pub(crate) trait Record: AsBytes {
    /// The size in version 1 of the interface.
    const FIRST_SIZE: u32;
}

impl Record for xrc_rcv_event {
    const FIRST_SIZE: u32 = XRC_RCV_EVENT_SIZE_VER1;
}

impl Record for xrc_rcv_qp_info {
    const FIRST_SIZE: u32 = XRC_RCV_QP_INFO_SIZE_VER1;
}

/// The size of a record that a process passed.
pub(crate) struct RecordSize<R>(usize, PhantomData<fn(R)>);

impl<R: Record> RecordSize<R> {
    /// Checks a size that the caller passed; the default is that of version 1.
    pub(crate) fn new(given: Option<u32>) -> Result<Self> {
        let size = given.unwrap_or(R::FIRST_SIZE);

        if !(R::FIRST_SIZE..=XRC_RCV_RECORD_SIZE_MAX).contains(&size) || size % 8 != 0 {
            return Err(EINVAL);
        }
        Ok(Self(size as usize, PhantomData))
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0
    }

    /// Returns a record in this size: the part that the process knows, followed by zeroes where the
    /// process knows more than the kernel.
    pub(crate) fn fit<'a>(&self, record: &'a R) -> (&'a [u8], &'static [u8]) {
        static ZEROES: [u8; XRC_RCV_RECORD_SIZE_MAX as usize] =
            [0; XRC_RCV_RECORD_SIZE_MAX as usize];
        let known = record.as_bytes();
        let known = &known[..known.len().min(self.0)];

        (known, &ZEROES[known.len()..self.0])
    }
}
