// SPDX-License-Identifier: GPL-2.0

//! A running method: access to the attributes that a process passed.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::{
    attribute::{
        self,
        Attribute,
        AttributeKind,
        Declarations,
        Flags,
        InArray,
        InputKind,
        Out,
        OutBytes,
        OutStruct,
        XrcdHandle, //
    },
    event_file::{
        self,
        EventFile,
        NewFile, //
    },
    DeviceData, //
};
use crate::{
    kernel_ext::not_supported,
    rdma::{
        bindings,
        device::Device,
        udata::UData,
        xrcd::Xrcd, //
    }, //
};
use core::mem::MaybeUninit;
use kernel::{
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    prelude::*,
    sync::ArcBorrow,
    transmute::AsBytes, //
};

/// The implementation of a method.
pub(crate) trait Handler: Sized {
    /// The data of the devices that offer the method.
    type Data: DeviceData;

    /// The number of the method.
    const METHOD: u32;

    /// The attributes of the method.
    const ATTRIBUTES: Declarations;

    /// Runs the method. uverbs has checked that the mandatory attributes are present, and the kinds
    /// and sizes of all attributes.
    fn run(call: &Call<'_, Self>) -> Result;
}

/// The handler that uverbs calls for a method that `H` implements.
///
/// # Safety
///
/// Called by uverbs only, for a method of a device with the data `H::Data`, with the attributes
/// `H::ATTRIBUTES`.
pub(super) unsafe extern "C" fn run<H: Handler>(
    bundle: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        // SAFETY:
        // * By the requirements of this function, uverbs runs it with a bundle that is valid until
        //   it returns, and `call` does not leave this closure.
        // * By the requirements of this function, the attributes of the bundle are those of
        //   `H::ATTRIBUTES`, against which uverbs has checked them.
        let call = unsafe { Call::<H>::new(bundle) }?;

        H::run(&call)?;
        Ok(0)
    })
}

/// A running call of the method `H`.
///
/// # Invariants
///
/// `bundle` is that of a call of `H` and valid for `'a`, and so is `device`.
pub(crate) struct Call<'a, H: Handler> {
    bundle: *mut bindings::uverbs_attr_bundle,
    device: &'a Device,
    data: Pin<&'a H::Data>,
}

type Header = bindings::uverbs_attr_bundle__bindgen_ty_1_uverbs_attr_bundle_hdr;

/// Returns the header of a bundle. It must be accessed member by member, through the pointer: C
/// changes some members while others are read.
fn header(bundle: *mut bindings::uverbs_attr_bundle) -> *mut Header {
    // It is the first member.
    bundle.cast()
}

impl<'a, H: Handler> Call<'a, H> {
    /// Wraps the bundle of a call. `EOPNOTSUPP` if its device has no data.
    ///
    /// # Safety
    ///
    /// uverbs must be running the handler of `H` with `bundle` for the length of `'a`.
    unsafe fn new(bundle: *mut bindings::uverbs_attr_bundle) -> Result<Self> {
        // SAFETY:
        // * By the requirements of this function, the handler is running, so the bundle is valid
        //   and its file is open. `ufile` is read through the pointer.
        // * The function returns the context of the file or an error. The device of a context is
        //   constant, and ib_uverbs waits for all handlers before it is removed from the device.
        let device = unsafe {
            let context = from_err_ptr(bindings::ib_uverbs_get_ucontext_file(
                (*header(bundle)).ufile,
            ))?;

            Device::from_ptr((*context).device)
        };
        // SAFETY: The reference does not outlive the handler, which is of a method of `H::Data`: by
        // the requirements of this function, it runs for all of `'a`.
        let data = unsafe { H::Data::of_device(device) };

        // INVARIANT: The requirements of this function, and the above.
        Ok(Self {
            bundle,
            device,
            data: data.ok_or_else(not_supported)?,
        })
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &'a Device {
        self.device
    }

    /// Returns the data of the device.
    pub(crate) fn data(&self) -> Pin<&'a H::Data> {
        self.data
    }

    /// Returns the `ib_udata` of the call, for verbs.
    pub(crate) fn udata(&self) -> UData<'_> {
        // SAFETY: By the type invariant, the bundle, which the `ib_udata` is a member of, is valid
        // as long as `self` is borrowed, and that of a call on a file of `self.device`.
        unsafe { UData::from_ptr(&raw mut (*header(self.bundle)).driver_udata, self.device) }
    }

    /// Whether the caller passed an attribute.
    fn has<K: AttributeKind, const ID: u32>(&self) -> bool {
        const {
            assert!(
                attribute::declares::<K, ID>(H::ATTRIBUTES),
                "the method declares no such attribute"
            );
        }
        // SAFETY: By the type invariant, the bundle is valid, with room for the attributes of the
        // method, of which this is one.
        unsafe { bindings::ib_xrc_rcv_attr_is_valid(self.bundle, ID as u16) }
    }

    /// Returns the object of an attribute, or `None` if the attribute is not present.
    fn object<K: AttributeKind, const ID: u32>(&self) -> Result<Option<*mut bindings::ib_uobject>> {
        if !self.has::<K, ID>() {
            return Ok(None);
        }
        // SAFETY:
        // * By the type invariant, the bundle is valid.
        // * The caller passes a kind that is an object, and the method declares the attribute as
        //   such, which `has` has checked: so uverbs has put an object there.
        from_err_ptr(unsafe { bindings::ib_xrc_rcv_attr_uobject(self.bundle, ID as u16) }).map(Some)
    }

    /// Returns the domain of an XRCD handle.
    pub(crate) fn xrcd<const ID: u32>(&self, _: Attribute<XrcdHandle, ID>) -> Result<&Xrcd> {
        let uobject = self.object::<XrcdHandle, ID>()?.ok_or(EINVAL)?;

        // SAFETY:
        // * `XrcdHandle` is the kind of `UVERBS_OBJECT_XRCD`, whose objects have an `ib_xrcd` that
        //   a process opened. `object` is set before a handle can be looked up, and constant.
        // * uverbs holds the handle for the length of the call, which is longer than `self` is
        //   borrowed: it is not destroyed, and the XRCD not closed.
        Ok(unsafe { Xrcd::from_ptr((*uobject).object.cast()) })
    }

    /// Returns the value of an attribute, or `None` if the attribute is not present.
    pub(crate) fn input<K: InputKind, const ID: u32>(
        &self,
        _: Attribute<K, ID>,
    ) -> Result<Option<K::Value>> {
        if !self.has::<K, ID>() {
            return Ok(None);
        }

        let mut value = MaybeUninit::<K::Value>::uninit();

        // SAFETY:
        // * By the type invariant, the bundle is valid; the method declares the attribute as input,
        //   which `has` has checked.
        // * `value` is valid for writes of its size.
        to_result(unsafe {
            bindings::ib_xrc_rcv_copy_from_or_zero(
                value.as_mut_ptr().cast(),
                self.bundle,
                ID as u16,
                size_of::<K::Value>(),
            )
        })?;
        // SAFETY: The function succeeded, so it has written all bytes: the bytes of the caller,
        // followed by zeroes. Any bytes are a valid `K::Value`, which is `FromBytes`.
        Ok(Some(unsafe { value.assume_init() }))
    }

    /// Returns the value of a mandatory attribute.
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

    /// Returns the elements of a mandatory array. `EINVAL` if its length is not a multiple of the
    /// size of an element.
    pub(crate) fn array<const ID: u32>(
        &self,
        _: Attribute<InArray<u32>, ID>,
    ) -> Result<KVVec<u32>> {
        const {
            assert!(
                attribute::requires::<ID>(H::ATTRIBUTES),
                "the method declares the attribute as optional"
            );
        }
        if !self.has::<InArray<u32>, ID>() {
            return Err(EINVAL);
        }

        // SAFETY: By the type invariant, the bundle is valid; the method declares the attribute as
        // input, which `has` has checked.
        let len = unsafe { bindings::ib_xrc_rcv_attr_len(self.bundle, ID as u16) };
        let bytes = usize::try_from(len)?;

        if bytes % size_of::<u32>() != 0 {
            return Err(EINVAL);
        }

        let mut array = KVVec::from_elem(0, bytes / size_of::<u32>(), GFP_KERNEL)?;

        // SAFETY:
        // * By the type invariant, the bundle is valid; the method declares the attribute as input,
        //   which `has` has checked.
        // * `array` is valid for writes of `bytes` bytes, the size of its elements, of which any
        //   bytes are a valid value.
        to_result(unsafe {
            bindings::ib_xrc_rcv_copy_from_or_zero(
                array.as_mut_ptr().cast(),
                self.bundle,
                ID as u16,
                bytes,
            )
        })?;
        Ok(array)
    }

    /// Returns flags, or 0 if the attribute is not present. `EINVAL` if flags other than `known`
    /// are set.
    pub(crate) fn flags<const ID: u32>(&self, _: Attribute<Flags, ID>, known: u32) -> Result<u32> {
        let mut flags = 0;

        if !self.has::<Flags, ID>() {
            return Ok(flags);
        }
        // SAFETY:
        // * By the type invariant, the bundle is valid; the method declares the attribute as input
        //   of 4 to 8 bytes, which `has` has checked.
        // * `flags` is valid for writes.
        to_result(unsafe {
            bindings::uverbs_get_flags32(&mut flags, self.bundle, ID as usize, known.into())
        })?;
        Ok(flags)
    }

    /// Writes an output value, if the attribute is present.
    pub(crate) fn output<T: AsBytes, const ID: u32>(
        &self,
        _: Attribute<Out<T>, ID>,
        value: &T,
    ) -> Result {
        if !self.has::<Out<T>, ID>() {
            return Ok(());
        }
        self.copy_to::<ID>(value)
    }

    /// Returns the size in bytes of an output buffer, or `None` if the attribute is not present.
    pub(crate) fn output_len<const ID: u32>(
        &self,
        _: Attribute<OutBytes, ID>,
    ) -> Result<Option<usize>> {
        if !self.has::<OutBytes, ID>() {
            return Ok(None);
        }
        // SAFETY: By the type invariant, the bundle is valid; the method declares the attribute as
        // output, which `has` has checked.
        let len = unsafe { bindings::ib_xrc_rcv_attr_len(self.bundle, ID as u16) };

        Ok(Some(usize::try_from(len)?))
    }

    /// Writes an output array, if the attribute is present.
    pub(crate) fn output_bytes<const ID: u32>(
        &self,
        _: Attribute<OutBytes, ID>,
        bytes: &[u8],
    ) -> Result {
        if !self.has::<OutBytes, ID>() {
            return Ok(());
        }
        self.copy_to::<ID>(bytes)
    }

    /// Writes to the output buffer of the attribute `ID`.
    fn copy_to<const ID: u32>(&self, value: &(impl AsBytes + ?Sized)) -> Result {
        // SAFETY:
        // * By the type invariant, the bundle is valid; the callers pass attributes that the method
        //   declares as output.
        // * `value` is valid for reads of its size, and all its bytes are initialised: it is
        //   `AsBytes`.
        to_result(unsafe {
            bindings::uverbs_copy_to(
                self.bundle,
                ID as usize,
                core::ptr::from_ref(value).cast(),
                size_of_val(value),
            )
        })
    }

    /// Writes an output structure, if the attribute is present: as much as fits into the buffer,
    /// and zeroes to the rest of a longer buffer.
    pub(crate) fn output_struct<T: AsBytes, const ID: u32>(
        &self,
        _: Attribute<OutStruct<T>, ID>,
        value: &T,
    ) -> Result {
        if !self.has::<OutStruct<T>, ID>() {
            return Ok(());
        }

        // SAFETY:
        // * By the type invariant, the bundle is valid; the method declares the attribute as
        //   output, which `has` has checked.
        // * `value` is valid for reads of its size, and all its bytes are initialised: it is
        //   `AsBytes`.
        to_result(unsafe {
            bindings::uverbs_copy_to_struct_or_zero(
                self.bundle,
                ID as usize,
                core::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        })
    }

    /// Returns the file that the method creates.
    pub(crate) fn new_file<F: EventFile, const ID: u32>(
        &self,
        _: Attribute<attribute::NewFd<F>, ID>,
    ) -> Result<NewFile<'_, F>> {
        let uobject = self.object::<attribute::NewFd<F>, ID>()?.ok_or(EINVAL)?;

        // SAFETY: The object is that of an attribute. uverbs holds it for the length of the call,
        // which is longer than `self` is borrowed.
        unsafe { NewFile::new(uobject) }
    }

    /// Returns the data of an event file, or `None` if the attribute is not present.
    pub(crate) fn event_file<F: EventFile, const ID: u32>(
        &self,
        _: Attribute<attribute::Fd<F>, ID>,
    ) -> Result<Option<ArcBorrow<'_, F>>> {
        let Some(uobject) = self.object::<attribute::Fd<F>, ID>()? else {
            return Ok(None);
        };

        // SAFETY: The object is that of an attribute. uverbs holds it for the length of the call,
        // which is longer than `self` is borrowed.
        unsafe { event_file::data::<F>(uobject) }.map(Some)
    }
}
