// SPDX-License-Identifier: GPL-2.0

//! The interface to processes: structures, and numbers of objects, methods and attributes, which
//! bindgen generates from the header.
//!
//! C header: `src/include/uapi/rdma/ib_xrc_rcv.h`

use core::marker::PhantomData;
use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

pub(crate) use crate::bindings::uapi::*;

/// Implements [`AsBytes`] for a structure, by the types of all its members.
macro_rules! impl_as_bytes {
    ($type:ident { $($member:ident: $member_type:ty,)* }) => {
        const _: () = {
            const fn has_only_initialised_bytes<T: AsBytes>() {}

            // Does not compile if a member is missing, or has another type.
            let _: fn($type) -> ($($member_type,)*) = |$type { $($member),* }| ($($member,)*);

            $(has_only_initialised_bytes::<$member_type>();)*
            assert!(
                size_of::<$type>() == 0 $(+ size_of::<$member_type>())*,
                concat!(stringify!($type), " has padding")
            );
        };

        // SAFETY: As was just checked, each of its bytes is one of a member, whose bytes are all
        // initialised, and which has no interior mutability.
        unsafe impl AsBytes for $type {}
    };
}

impl_as_bytes! {
    xrc_rcv_caps {
        version: u32,
        alloc_flags: u32,
        event_types: u64,
        max_qps_per_domain: u32,
        max_qps_per_user: u32,
        record_size: u32,
        max_registrations_per_qp: u32,
    }
}

impl_as_bytes! {
    xrc_rcv_record {
        last_ns: u64,
        serial: u64,
        count: u64,
        qp_num: u32,
        type_: u32,
        label: u64,
    }
}

impl_as_bytes! {
    xrc_rcv_reg_info {
        serial: u64,
        counts: [u64; 17],
    }
}

impl_as_bytes! {
    xrc_rcv_qp_info {
        qp_num: u32,
        state: u32,
        lifetime: u32,
        registrations: u32,
        label: u64,
        dest_qp_num: u32,
        reserved: u32,
    }
}

impl_as_bytes! {
    xrc_rcv_qpns {
        qpns: u64,
        infos: u64,
        count: u32,
        info_size: u32,
        flags: u32,
        done: u32,
    }
}

// SAFETY: It consists of integers, of which any bytes are a valid value.
unsafe impl FromBytes for xrc_rcv_qpns {}

/// A structure that processes get as an element of an array or as a record of a file, or pass to an
/// ioctl. The process passes its size, by which the kernel knows the version that the process was
/// built with.
pub(crate) trait Record: AsBytes + Sized {
    /// The size in version 1 of the interface.
    const FIRST_SIZE: u32;

    /// Asserts that a process may pass the size of this version.
    const SIZE_IS_ACCEPTED: () = assert!(
        size_of::<Self>() >= Self::FIRST_SIZE as usize
            && size_of::<Self>() <= XRC_RCV_RECORD_SIZE_MAX as usize
            && size_of::<Self>() % 8 == 0
    );
}

impl Record for xrc_rcv_record {
    const FIRST_SIZE: u32 = XRC_RCV_RECORD_SIZE_VER1;
}

impl Record for xrc_rcv_reg_info {
    const FIRST_SIZE: u32 = XRC_RCV_REG_INFO_SIZE_VER1;
}

impl Record for xrc_rcv_qp_info {
    const FIRST_SIZE: u32 = XRC_RCV_QP_INFO_SIZE_VER1;
}

impl Record for xrc_rcv_qpns {
    const FIRST_SIZE: u32 = XRC_RCV_QPNS_SIZE_VER1;
}

/// The size of a record that a process passed.
pub(crate) struct RecordSize<R>(usize, PhantomData<fn(R)>);

impl<R: Record> RecordSize<R> {
    /// Checks a size that the caller passed; the default is that of version 1.
    pub(crate) fn new(given: Option<u32>) -> Result<Self> {
        const { R::SIZE_IS_ACCEPTED };

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

    /// Returns the zeroes that follow a record where the process knows more than the kernel.
    pub(crate) fn zeroes(&self) -> &'static [u8] {
        static ZEROES: [u8; XRC_RCV_RECORD_SIZE_MAX as usize] =
            [0; XRC_RCV_RECORD_SIZE_MAX as usize];

        ZEROES.get(size_of::<R>()..self.0).unwrap_or_default()
    }

    /// Adds a record in this size to an array.
    pub(crate) fn push(&self, record: &R, array: &mut KVVec<u8>) -> Result {
        let (known, zeroes) = self.fit(record);

        array.extend_from_slice(known, GFP_KERNEL)?;
        array.extend_from_slice(zeroes, GFP_KERNEL)?;
        Ok(())
    }

    /// Returns a record in this size: the part that the process knows, and what follows it.
    pub(crate) fn fit<'a>(&self, record: &'a R) -> (&'a [u8], &'static [u8]) {
        let known = record.as_bytes();

        (known.get(..self.0).unwrap_or(known), self.zeroes())
    }
}
