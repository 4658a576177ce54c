// SPDX-License-Identifier: GPL-2.0

//! Objects with handles.
//!
//! uverbs destroys an object when a method destroys the handle, when the uverbs file is closed, or
//! when the device is removed.
//!
//! C header: [`include/rdma/uverbs_types.h`](srctree/include/rdma/uverbs_types.h)

use super::{
    rdma_remove_reason,
    RemoveReason, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::{
        transmute,
        MaybeUninit, //
    }, //
};
use kernel::prelude::*;

/// An object with handles.
pub(crate) trait Handle: Sized + 'static {
    /// The number of the object.
    const OBJECT: u32;

    /// The type of the object.
    const TYPE: &'static HandleType<Self>;

    /// The data that a handle owns, in the same allocation.
    type Data: Send + 'static;

    /// Called when the handle is destroyed.
    fn destroy(data: Self::Data, why: RemoveReason);
}

/// An object as uverbs allocates it.
///
/// # Invariants
///
/// `data` is initialised if and only if `object` of `uobject` is not null.
#[repr(C)]
struct HandleObject<D> {
    uobject: bindings::ib_uobject,
    data: MaybeUninit<D>,
}

/// `destroy_object` as bindgen declares it.
type DestroyObject = unsafe extern "C" fn(
    *mut bindings::ib_uobject,
    bindings::rdma_remove_reason,
    *mut bindings::uverbs_attr_bundle,
) -> c_int;

/// `destroy_object` with the type that C encodes for kCFI, see [`rdma_remove_reason`].
type DestroyObjectByName = unsafe extern "C" fn(
    *mut bindings::ib_uobject,
    rdma_remove_reason,
    *mut bindings::uverbs_attr_bundle,
) -> c_int;

/// The type of an object with handles, for a `static`.
#[repr(transparent)]
pub(crate) struct HandleType<H>(bindings::uverbs_obj_idr_type, PhantomData<fn() -> H>);

// SAFETY: Nothing writes to the structure. Its pointers are to a constant of ib_uverbs's support
// module, and to a function.
unsafe impl<H> Sync for HandleType<H> {}

impl<H: Handle> HandleType<H> {
    /// Creates the type.
    pub(crate) const fn new() -> Self {
        Self(
            bindings::uverbs_obj_idr_type {
                type_: bindings::uverbs_obj_type {
                    type_class: &raw const bindings::uverbs_idr_class,
                    obj_size: size_of::<HandleObject<H::Data>>(),
                },
                // SAFETY:
                // * The types differ in the second argument: an integer, or a structure of this
                //   integer, which is passed in the same way.
                // * Only C calls the function, with the prototype of the callback.
                destroy_object: Some(unsafe {
                    transmute::<DestroyObjectByName, DestroyObject>(Self::destroy_callback)
                }),
            },
            PhantomData,
        )
    }

    /// Returns the C structure.
    pub(super) const fn as_ptr(&'static self) -> *const bindings::uverbs_obj_type {
        &self.0.type_
    }

    /// # Safety
    ///
    /// Called by uverbs only, once for an object of this type whose `object` is set.
    unsafe extern "C" fn destroy_callback(
        uobject: *mut bindings::ib_uobject,
        why: rdma_remove_reason,
        _bundle: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        // SAFETY:
        // * By the requirements of this function, the object is valid and of this type, for which
        //   uverbs allocated a `HandleObject<H::Data>`: `obj_size` says so.
        // * `object` is set, so that by the invariant of `HandleObject` the data are initialised.
        // * This is the one call for the object, so nothing else reads the data after this.
        let data = unsafe {
            (*uobject.cast::<HandleObject<H::Data>>())
                .data
                .assume_init_read()
        };

        H::destroy(data, why.into());
        0
    }
}

/// A handle that the running method creates.
///
/// It becomes visible if the method succeeds; otherwise uverbs frees it.
///
/// # Invariants
///
/// The object is of the type of `H` and valid for `'a`.
pub(crate) struct NewHandle<'a, H: Handle> {
    uobject: *mut bindings::ib_uobject,
    _handle: PhantomData<(&'a (), H)>,
}

impl<'a, H: Handle> NewHandle<'a, H> {
    /// Wraps the object of an attribute. `EINVAL` if it has another type, or is not new.
    ///
    /// # Safety
    ///
    /// `uobject` must be that of an attribute, and valid for `'a`.
    pub(super) unsafe fn new(uobject: *mut bindings::ib_uobject) -> Result<Self> {
        // SAFETY: The object is valid by the requirements of this function. uverbs sets
        // `uapi_object` when it allocates an object, to an entry of the device's interface, which
        // stays as long as the file.
        let type_attrs = unsafe { (*(*uobject).uapi_object).type_attrs };

        // SAFETY: The object is valid by the requirements of this function. If `object` is null,
        // the running method creates it, and no other method can look it up.
        if !core::ptr::eq(type_attrs, H::TYPE.as_ptr()) || !unsafe { (*uobject).object }.is_null() {
            return Err(EINVAL);
        }
        // INVARIANT: The type was just checked; the object is valid for `'a` by the requirements of
        // this function.
        Ok(Self {
            uobject,
            _handle: PhantomData,
        })
    }

    /// Sets the data of the handle. The method must succeed after this: uverbs does not call
    /// [`Handle::destroy`] for a handle that never became visible.
    pub(crate) fn set(self, data: H::Data) {
        let object = self.uobject.cast::<HandleObject<H::Data>>();

        // INVARIANT: `object` is set after `data` is initialised.
        // SAFETY:
        // * By the type invariant, the object is valid and of the type of `H`, for which uverbs
        //   allocated a `HandleObject<H::Data>`: `obj_size` says so.
        // * The running method creates it, so nothing else uses it.
        unsafe {
            (*self.uobject).object = core::ptr::from_mut((*object).data.write(data)).cast();
        }
    }
}
