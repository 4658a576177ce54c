// SPDX-License-Identifier: GPL-2.0

//! A method call: the attributes that a process passed, and the places for answers.

use super::{
    event_file::{
        self,
        EventFile,
        NewFile, //
    },
    handle::{
        Handle,
        NewHandle, //
    },
    object_id::XRCD,
    table::Attribute,
    FileId, //
};
use crate::rdma::{
    bindings,
    client::ClientOperations,
    device::Device,
    xrcd::Xrcd, //
};
use core::mem::MaybeUninit;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::ArcBorrow,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    types::ForeignOwnable, //
};

/// A running call of a method on a device of the client `C`.
///
/// # Invariants
///
/// `bundle` is valid for `'a`, and so is `device`, which the client `C` has data for. `declared`
/// are the attributes of the method that runs.
pub(crate) struct Call<'a, C: ClientOperations> {
    bundle: *mut bindings::uverbs_attr_bundle,
    declared: &'static [&'static Attribute],
    device: &'a Device,
    data: <C::Data as ForeignOwnable>::Borrowed<'a>,
}

/// What a driver gets to see of a process's request. Ours is always empty, but its being there
/// tells ib_core that a process is behind the request.
///
/// # Invariants
///
/// `udata` is that of a call on a file of `device` which runs for `'a`.
pub(crate) struct UserRequest<'a> {
    udata: *mut bindings::ib_udata,
    device: &'a Device,
}

impl UserRequest<'_> {
    pub(in crate::rdma) fn as_ptr(&self) -> *mut bindings::ib_udata {
        self.udata
    }

    /// The device that it is a request to.
    pub(in crate::rdma) fn device(&self) -> &Device {
        self.device
    }
}

type Header = bindings::uverbs_attr_bundle__bindgen_ty_1_uverbs_attr_bundle_hdr;

/// What precedes the attributes. To be used by its members: C changes some while others are read.
fn header(bundle: *mut bindings::uverbs_attr_bundle) -> *mut Header {
    // It is the first member.
    bundle.cast()
}

impl<'a, C: ClientOperations> Call<'a, C> {
    /// # Safety
    ///
    /// uverbs must be running a handler with `bundle` for the length of `'a`, for a method with the
    /// attributes `declared`.
    pub(super) unsafe fn new(
        bundle: *mut bindings::uverbs_attr_bundle,
        declared: &'static [&'static Attribute],
    ) -> Result<Self> {
        // SAFETY:
        // * uverbs runs the handler with the bundle, so the bundle is valid and its file is open.
        // * An open file has a context or none; the context's device is constant, and not removed
        //   before all handlers have returned.
        let device = unsafe {
            let context = from_err_ptr(bindings::ib_uverbs_get_ucontext_file(
                (*header(bundle)).ufile,
            ))?;

            Device::from_ptr((*context).device)
        };
        // SAFETY: ib_uverbs registered after `C`: the method came to its device by `C`. Its `remove`
        // waits for all handlers, and returns before the one of `C` begins.
        let data = unsafe { C::client().data(device) };

        // INVARIANT: The requirements of this function, and the above.
        Ok(Self {
            bundle,
            declared,
            device,
            data: data.ok_or_else(crate::rdma::not_supported)?,
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> &'a Device {
        self.device
    }

    /// The client's data of the device.
    pub(crate) fn data(&self) -> <C::Data as ForeignOwnable>::Borrowed<'a>
    where
        <C::Data as ForeignOwnable>::Borrowed<'a>: Copy,
    {
        self.data
    }

    /// The file through which the call came.
    pub(crate) fn file(&self) -> FileId {
        // SAFETY: By the type invariant, the bundle is valid.
        FileId(unsafe { (*header(self.bundle)).ufile } as usize)
    }

    /// The request, for verbs that treat those of processes differently.
    pub(crate) fn request(&self) -> UserRequest<'_> {
        UserRequest {
            // SAFETY: By the type invariant, the bundle is valid.
            udata: unsafe { &raw mut (*header(self.bundle)).driver_udata },
            device: self.device,
        }
    }

    /// Whether the attribute is there. `EINVAL` if it is not what the method declared.
    fn has(&self, id: u32, kind: u32, object: Option<u16>) -> Result<bool> {
        let declared = self.declared.iter().any(|attribute| {
            (attribute.id(), attribute.kind(), attribute.object_id()) == (id, kind, object)
        });

        if !declared {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant.
        Ok(unsafe { bindings::xrc_rcv_attr_is_valid(self.bundle, id as u16) })
    }

    fn has_input(&self, id: u32) -> Result<bool> {
        self.has(id, bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN, None)
    }

    fn has_output(&self, id: u32) -> Result<bool> {
        self.has(
            id,
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT,
            None,
        )
    }

    /// The object of an attribute that is there, `None` if it is not.
    fn uobject(
        &self,
        id: u32,
        kind: u32,
        object: u16,
    ) -> Result<Option<*mut bindings::ib_uobject>> {
        if !self.has(id, kind, Some(object))? {
            return Ok(None);
        }
        // SAFETY: By the type invariant; the attribute is an object.
        from_err_ptr(unsafe { bindings::xrc_rcv_attr_uobject(self.bundle, id as u16) }).map(Some)
    }

    fn handle(&self, id: u32, object: u16) -> Result<*mut bindings::ib_uobject> {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR;

        self.uobject(id, kind, object)?.ok_or(EINVAL)
    }

    /// The domain that an attribute for `object_id::XRCD` names.
    pub(crate) fn xrcd(&self, id: u32) -> Result<&Xrcd> {
        let uobject = self.handle(id, XRCD)?;

        // SAFETY:
        // * The object of an XRCD handle is an `ib_xrcd`, which the process has open.
        // * The attribute keeps the handle from being destroyed during the call.
        Ok(unsafe { Xrcd::from_ptr((*uobject).object.cast()) })
    }

    /// A value, or `None` if the attribute is not there.
    pub(crate) fn input<T: FromBytes>(&self, id: u32) -> Result<Option<T>> {
        if !self.has_input(id)? {
            return Ok(None);
        }

        let mut value = MaybeUninit::<T>::uninit();

        // SAFETY: By the type invariant, and `value` has room for as much as is asked for.
        to_result(unsafe {
            bindings::xrc_rcv_copy_from_or_zero(
                value.as_mut_ptr().cast(),
                self.bundle,
                id as u16,
                size_of::<T>(),
            )
        })?;
        // SAFETY: All bytes were written, and all values of them are a `T`.
        Ok(Some(unsafe { value.assume_init() }))
    }

    /// A value that has to be there.
    pub(crate) fn mandatory<T: FromBytes>(&self, id: u32) -> Result<T> {
        self.input(id)?.ok_or(EINVAL)
    }

    /// Bits of which only `known` may be set; 0 if the attribute is not there.
    pub(crate) fn flags(&self, id: u32, known: u32) -> Result<u32> {
        let mut flags = 0;

        if !self.has_input(id)? {
            return Ok(flags);
        }
        // SAFETY: By the type invariant.
        to_result(unsafe {
            bindings::uverbs_get_flags32(&mut flags, self.bundle, id as usize, known.into())
        })?;
        Ok(flags)
    }

    /// The length in bytes of the place for an answer; 0 if the attribute is not there.
    pub(crate) fn output_len(&self, id: u32) -> Result<usize> {
        if !self.has_output(id)? {
            return Ok(0);
        }
        // SAFETY: By the type invariant.
        let len = unsafe { bindings::xrc_rcv_attr_len(self.bundle, id as u16) };

        Ok(usize::try_from(len)?)
    }

    /// Answers with a value, if the caller asked for it.
    pub(crate) fn output<T: AsBytes + ?Sized>(&self, id: u32, value: &T) -> Result {
        if !self.has_output(id)? {
            return Ok(());
        }

        // SAFETY: By the type invariant; `value` is as long as it says.
        to_result(unsafe {
            bindings::uverbs_copy_to(
                self.bundle,
                id as usize,
                core::ptr::from_ref(value).cast(),
                size_of_val(value),
            )
        })
    }

    /// Answers with as much of a structure as the caller knows; if it knows more, the rest is zero.
    pub(crate) fn output_struct<T: AsBytes>(&self, id: u32, value: &T) -> Result {
        if !self.has_output(id)? {
            return Ok(());
        }

        // SAFETY: By the type invariant; `value` is as long as it says.
        to_result(unsafe {
            bindings::uverbs_copy_to_struct_or_zero(
                self.bundle,
                id as usize,
                core::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        })
    }

    /// The handle that the method creates.
    pub(crate) fn new_handle<H: Handle>(&self, id: u32) -> Result<NewHandle<'_, H>> {
        let uobject = self.handle(id, H::OBJECT as u16)?;

        // SAFETY: The attribute's object stays for the length of the call.
        unsafe { NewHandle::new(uobject) }
    }

    fn file_object<F: EventFile>(&self, id: u32) -> Result<Option<*mut bindings::ib_uobject>> {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_FD;

        self.uobject(id, kind, F::OBJECT as u16)
    }

    /// The file that the method creates.
    pub(crate) fn new_file<F: EventFile>(&self, id: u32) -> Result<NewFile<'_, F>> {
        let uobject = self.file_object::<F>(id)?.ok_or(EINVAL)?;

        // SAFETY: The attribute's object stays for the length of the call.
        unsafe { NewFile::new(uobject) }
    }

    /// The data of the file that an attribute names, or `None` if the attribute is not there.
    pub(crate) fn event_file<F: EventFile>(&self, id: u32) -> Result<Option<ArcBorrow<'_, F>>> {
        let Some(uobject) = self.file_object::<F>(id)? else {
            return Ok(None);
        };

        // SAFETY: The attribute's object stays for the length of the call.
        unsafe { event_file::data::<F>(uobject) }.map(Some)
    }
}
