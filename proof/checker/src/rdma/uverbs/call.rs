// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/uverbs/call.rs`: a running method, with the attributes that a process passed.

use super::{
    attribute::{
        self, Attribute, AttributeKind, Declaration, Declarations, Fd, Flags, InArray, InputKind,
        NewFd, Out, OutBytes, OutStruct, XrcdHandle,
    },
    event_file::{EventFile, NewFile},
    DeviceData,
};
use crate::{
    bindings,
    device::AttachedDevice,
    kernel_ext::not_supported,
    rdma::{device::Device, udata::UData, xrcd::Xrcd},
};
use core::{any::Any, cell::OnceCell, marker::PhantomData, mem::MaybeUninit};
use kernel::{
    prelude::*,
    runtime,
    sync::{Arc, ArcBorrow},
    transmute::AsBytes,
};

/// The implementation of a method.
pub(crate) trait Handler: Sized {
    type Data: DeviceData;

    const METHOD: u32;
    const ATTRIBUTES: Declarations;

    fn run(call: &Call<'_, Self>) -> Result;
}

/// An attribute that a process passes: its number and its contents.
#[derive(Clone)]
pub(crate) struct Passed<'a>(pub(crate) u32, pub(crate) Contents<'a>);

/// uverbs holds handles and files for the length of the call.
#[derive(Clone)]
pub(crate) enum Contents<'a> {
    Xrcd(&'a Xrcd),
    /// An `Arc` of the data of a file.
    File(&'a dyn Any),
    /// A `OnceCell` of an `Arc` of the data of the file that the call creates.
    NewFile(&'a dyn Any),
    In(Vec<u8>),
    /// A buffer of so many bytes, and what happens when the call copies to it.
    Out(usize, &'a dyn Fn(&[u8]) -> Result),
}

/// Returns what uverbs knows of an attribute.
fn definition(declaration: &Declaration) -> &bindings::uverbs_attr_def {
    // SAFETY: The definition is the first member, as C relies on.
    unsafe { &*core::ptr::from_ref(declaration).cast() }
}

/// uverbs checks the attributes, each of which is mandatory by its flags, before the method runs.
pub(super) fn check(declared: Declarations, passed: &[Passed<'_>]) -> Result {
    let definitions = || declared.iter().map(|declaration| definition(declaration));

    for (index, Passed(id, contents)) in passed.iter().enumerate() {
        let mut known = definitions();
        let known = known.find(|known| u32::from(known.id) == *id);

        contents.check(&known.ok_or_else(no_protocol)?.attr)?;
        if passed[..index].iter().any(|before| before.0 == *id) {
            return Err(EINVAL);
        }
    }
    for definition in definitions() {
        let is_passed = passed
            .iter()
            .any(|passed| passed.0 == u32::from(definition.id));

        if definition.attr.mandatory() != 0 && !is_passed {
            return Err(EINVAL);
        }
    }
    Ok(())
}

/// Returns `EPROTONOSUPPORT`.
fn no_protocol() -> Error {
    Error::from_errno(-93)
}

impl Contents<'_> {
    fn check(&self, spec: &bindings::uverbs_attr_spec) -> Result {
        let (kind, length, bytes): (_, _, &[u8]) = match self {
            Self::Xrcd(_) => (bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR, 0, &[]),
            Self::File(_) | Self::NewFile(_) => {
                (bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_FD, 0, &[])
            }
            Self::In(bytes) => (
                bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN,
                bytes.len(),
                bytes,
            ),
            Self::Out(room, _) => (
                bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT,
                *room,
                &[],
            ),
        };

        if kind != spec.type_.into() {
            return Err(EINVAL);
        }
        if matches!(self, Self::In(_) | Self::Out(..)) {
            // SAFETY: The specification of data has lengths.
            let (max, min) = unsafe { (spec.u.ptr.len.into(), spec.u.ptr.min_len.into()) };
            let rest = bytes.get(max..).unwrap_or_default();

            if length < min || length > max && spec.zero_trailing() == 0 {
                return Err(EINVAL);
            }
            if rest.iter().any(|byte| *byte != 0) {
                return Err(not_supported());
            }
        }
        Ok(())
    }
}

/// Returns an integer of 32 bits.
fn number(bytes: &[u8]) -> Result<u32> {
    let bytes = bytes.try_into().map_err(|_| EINVAL)?;

    Ok(u32::from_ne_bytes(bytes))
}

/// Returns flags, of 32 bits or of 64, of which these must be 0 in the upper half.
fn number_of_flags(bytes: &[u8]) -> Result<u32> {
    match bytes.try_into() {
        Ok(bytes) => Ok(u64::from_ne_bytes(bytes).try_into()?),
        Err(_) => number(bytes),
    }
}

/// Returns the data of a driver in a call on a device.
pub(crate) fn udata_on(device: &Device) -> UData<'_> {
    // SAFETY: ib_core compares the pointer with null, and reads nothing through it.
    unsafe { UData::from_ptr(core::ptr::dangling_mut(), device) }
}

/// Runs the method `H`.
pub(super) fn run<H: Handler>(data: Pin<&H::Data>, passed: &[Passed<'_>]) -> Result {
    let call = Call {
        data,
        passed,
        method: PhantomData,
    };

    H::run(&call)
}

/// A running call of the method `H`.
pub(crate) struct Call<'a, H: Handler> {
    data: Pin<&'a H::Data>,
    passed: &'a [Passed<'a>],
    method: PhantomData<fn() -> H>,
}

impl<'a, H: Handler<Data = AttachedDevice>> Call<'a, H> {
    pub(crate) fn device(&self) -> &'a Device {
        self.data.get_ref().device()
    }

    pub(crate) fn udata(&self) -> UData<'_> {
        udata_on(self.device())
    }
}

impl<'a, H: Handler> Call<'a, H> {
    pub(crate) fn data(&self) -> Pin<&'a H::Data> {
        self.data
    }

    fn get<K: AttributeKind, const ID: u32>(&self) -> Option<&'a Contents<'a>> {
        const {
            assert!(
                attribute::declares::<K, ID>(H::ATTRIBUTES),
                "the method declares no such attribute"
            );
        }
        let mut passed = self.passed.iter();

        passed.find(|passed| passed.0 == ID).map(|passed| &passed.1)
    }

    pub(crate) fn xrcd<const ID: u32>(&self, _: Attribute<XrcdHandle, ID>) -> Result<&'a Xrcd> {
        match self.get::<XrcdHandle, ID>() {
            Some(Contents::Xrcd(xrcd)) => Ok(xrcd),
            _ => Err(EINVAL),
        }
    }

    fn bytes<K: AttributeKind, const ID: u32>(&self) -> Option<&'a [u8]> {
        match self.get::<K, ID>()? {
            Contents::In(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn input<K: InputKind, const ID: u32>(
        &self,
        _: Attribute<K, ID>,
    ) -> Result<Option<K::Value>> {
        let Some(bytes) = self.bytes::<K, ID>() else {
            return Ok(None);
        };
        let mut value = MaybeUninit::<K::Value>::zeroed();
        let len = bytes.len().min(size_of::<K::Value>());

        // SAFETY: `value` has room for the bytes, of which any are a valid value.
        Ok(Some(unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), len);
            value.assume_init()
        }))
    }

    pub(crate) fn mandatory<K: InputKind, const ID: u32>(
        &self,
        attribute: Attribute<K, ID>,
    ) -> Result<K::Value> {
        const {
            assert!(
                attribute::requires::<ID>(H::ATTRIBUTES),
                "the method declares the attribute as optional"
            );
        }
        self.input(attribute)?.ok_or(EINVAL)
    }

    pub(crate) fn array<const ID: u32>(
        &self,
        _: Attribute<InArray<u32>, ID>,
    ) -> Result<KVVec<u32>> {
        let bytes = self.bytes::<InArray<u32>, ID>().ok_or(EINVAL)?;
        let elements = bytes.chunks_exact(size_of::<u32>());
        let mut array = KVVec::new();

        if !elements.remainder().is_empty() {
            return Err(EINVAL);
        }
        for element in elements {
            array.push(number(element)?, GFP_KERNEL)?;
        }
        Ok(array)
    }

    pub(crate) fn flags<const ID: u32>(&self, _: Attribute<Flags, ID>, known: u32) -> Result<u32> {
        let Some(bytes) = self.bytes::<Flags, ID>() else {
            return Ok(0);
        };
        let flags = number_of_flags(bytes)?;

        if flags & !known != 0 {
            return Err(EINVAL);
        }
        Ok(flags)
    }

    pub(crate) fn output<T: AsBytes, const ID: u32>(
        &self,
        _: Attribute<Out<T>, ID>,
        value: &T,
    ) -> Result {
        self.copy_to::<Out<T>, ID>(value.as_bytes())
    }

    pub(crate) fn output_len<const ID: u32>(
        &self,
        _: Attribute<OutBytes, ID>,
    ) -> Result<Option<usize>> {
        Ok(match self.get::<OutBytes, ID>() {
            Some(Contents::Out(room, _)) => Some(*room),
            _ => None,
        })
    }

    pub(crate) fn output_bytes<const ID: u32>(
        &self,
        _: Attribute<OutBytes, ID>,
        bytes: &[u8],
    ) -> Result {
        self.copy_to::<OutBytes, ID>(bytes)
    }

    pub(crate) fn output_struct<T: AsBytes, const ID: u32>(
        &self,
        _: Attribute<OutStruct<T>, ID>,
        value: &T,
    ) -> Result {
        self.copy_to::<OutStruct<T>, ID>(value.as_bytes())
    }

    /// Copies to the process, whose page may have to be brought in.
    fn copy_to<K: AttributeKind, const ID: u32>(&self, bytes: &[u8]) -> Result {
        let Some(Contents::Out(room, write)) = self.get::<K, ID>() else {
            return Ok(());
        };

        runtime::might_sleep("copying to a process");
        runtime::interleave();
        write(&bytes[..bytes.len().min(*room)])
    }

    pub(crate) fn new_file<F: EventFile, const ID: u32>(
        &self,
        _: Attribute<NewFd<F>, ID>,
    ) -> Result<NewFile<'a, F>> {
        match self.get::<NewFd<F>, ID>() {
            Some(Contents::NewFile(place)) => {
                let place = place.downcast_ref::<OnceCell<Arc<F>>>();

                place.map(NewFile::new).ok_or(EINVAL)
            }
            _ => Err(EINVAL),
        }
    }

    pub(crate) fn event_file<F: EventFile, const ID: u32>(
        &self,
        _: Attribute<Fd<F>, ID>,
    ) -> Result<Option<ArcBorrow<'a, F>>> {
        match self.get::<Fd<F>, ID>() {
            Some(Contents::File(file)) => {
                let file = file.downcast_ref::<Arc<F>>().ok_or(EINVAL)?;

                Ok(Some(file.as_arc_borrow()))
            }
            _ => Ok(None),
        }
    }
}
