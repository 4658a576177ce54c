// SPDX-License-Identifier: GPL-2.0

//! The interface to processes, generated from its header: structures, and numbers of objects,
//! methods and attributes.
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

// SAFETY: Its members are integers, and leave no padding: four of 32 bits.
unsafe impl AsBytes for xrc_rcv_qp_info {}

/// A structure that processes get as an element of an array or a record of a file, where nothing
/// but a size that they pass says which version of it they know.
pub(crate) trait Record: AsBytes {
    /// Its size in the first version of the interface.
    const FIRST_SIZE: u32;
}

impl Record for xrc_rcv_event {
    const FIRST_SIZE: u32 = XRC_RCV_EVENT_SIZE_VER1;
}

impl Record for xrc_rcv_qp_info {
    const FIRST_SIZE: u32 = XRC_RCV_QP_INFO_SIZE_VER1;
}

/// The size of a record as a process knows it.
pub(crate) struct RecordSize<R>(usize, PhantomData<fn(R)>);

impl<R: Record> RecordSize<R> {
    /// What the caller passed, if anything.
    pub(crate) fn new(given: Option<u32>) -> Result<Self> {
        let size = given.unwrap_or(R::FIRST_SIZE);

        if !(R::FIRST_SIZE..=XRC_RCV_RECORD_SIZE_MAX).contains(&size) || size % 8 != 0 {
            return Err(EINVAL);
        }
        Ok(Self(size as usize, PhantomData))
    }

    /// In bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0
    }

    /// A record in that size: the part that the process knows, and zeroes for what the kernel does
    /// not know.
    pub(crate) fn fit<'a>(&self, record: &'a R) -> (&'a [u8], &'static [u8]) {
        static ZEROES: [u8; XRC_RCV_RECORD_SIZE_MAX as usize] =
            [0; XRC_RCV_RECORD_SIZE_MAX as usize];
        let known = record.as_bytes();
        let known = &known[..known.len().min(self.0)];

        (known, &ZEROES[known.len()..self.0])
    }
}
