// SPDX-License-Identifier: GPL-2.0

//! Tables that declare objects, their methods, and the attributes of methods.
//!
//! As in C, they are constants:
//!
//! ```ignore
//! static THING: Object<Device> = Object::methods(THING_OBJECT, &[&Method::new::<Query>()]);
//!
//! impl Query {
//!     const XRCD: Attribute<XrcdHandle, QUERY_XRCD> = Attribute::new();
//!     const RESULT: Attribute<Out<u32>, QUERY_RESULT> = Attribute::new();
//! }
//!
//! impl Handler for Query {
//!     type Data = Device;
//!
//!     const METHOD: u32 = THING_QUERY;
//!     const ATTRIBUTES: Declarations = &[&Self::XRCD.mandatory(), &Self::RESULT.mandatory()];
//! }
//! ```
//!
//! When ib_uverbs is added to a device, it copies the specifications of attributes. It keeps
//! pointers to the types of objects and to handlers.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::{
    attribute::{
        self,
        Declarations, //
    },
    call::{
        self,
        Handler, //
    },
    event_file::EventFile,
    DeviceData, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop, //
};
use kernel::prelude::*;

/// A method of an object, for devices with the data `D`.
#[repr(transparent)]
pub(crate) struct Method<D>(bindings::uverbs_method_def, PhantomData<fn() -> D>);

impl<D: DeviceData> Method<D> {
    const fn define(
        id: u32,
        attributes: Declarations,
        handler: unsafe extern "C" fn(*mut bindings::uverbs_attr_bundle) -> c_int,
    ) -> Self {
        assert!(attribute::are_distinct(attributes));
        assert!(id <= u16::MAX as u32);
        // ib_uverbs refuses the whole device otherwise.
        assert!(
            id < (1 << bindings::UVERBS_ID_NS_SHIFT)
                + bindings::uapi_radix_data_UVERBS_API_METHOD_KEY_NUM_DRIVER
        );

        let definition = bindings::uverbs_method_def {
            id: id as u16,
            flags: 0,
            num_attrs: attributes.len(),
            attrs: attributes.as_ptr().cast(),
            handler: Some(handler),
        };

        Self(definition, PhantomData)
    }

    /// Declares a method that `H` implements.
    pub(crate) const fn new<H: Handler<Data = D>>() -> Self {
        Self::define(H::METHOD, H::ATTRIBUTES, call::run::<H>)
    }
}

/// An object with its methods, for devices with the data `D`.
#[repr(transparent)]
pub(crate) struct Object<D>(bindings::uverbs_object_def, PhantomData<fn() -> D>);

// SAFETY: Nothing writes to the structure, nor to the objects of its pointers: `type_attrs` is null
// or a static that is `Sync`, and `methods` a constant slice of references to constant methods,
// which refer to constant attributes.
unsafe impl<D> Sync for Object<D> {}

impl<D: DeviceData> Object<D> {
    const fn define(
        id: u32,
        type_attrs: *const bindings::uverbs_obj_type,
        methods: &'static [&'static Method<D>],
    ) -> Self {
        assert!(id <= u16::MAX as u32);

        // `Method` is a transparent wrapper, so this is the array of pointers that C expects.
        let definition = bindings::uverbs_object_def {
            id: id as u16,
            type_attrs,
            num_methods: methods.len(),
            methods: methods.as_ptr().cast(),
        };

        Self(definition, PhantomData)
    }

    /// Declares an object that has methods, and neither handles nor file descriptors.
    pub(crate) const fn methods(id: u32, methods: &'static [&'static Method<D>]) -> Self {
        Self::define(id, core::ptr::null(), methods)
    }

    /// Declares an object with file descriptors.
    pub(crate) const fn file<F: EventFile>(methods: &'static [&'static Method<D>]) -> Self {
        Self::define(F::OBJECT, F::TYPE.as_ptr(), methods)
    }

    /// Returns the number of the object.
    #[cfg(not(hooked))]
    pub(in crate::rdma) const fn id(&self) -> u16 {
        self.0.id
    }

    /// Whether ids of drivers, which start above those of ib_core, go as far as that of the object.
    /// The kernel decides how the two divide the space.
    pub(in crate::rdma) const fn has_room(&self) -> bool {
        let start = 1 << bindings::UVERBS_ID_NS_SHIFT;

        (self.0.id as u32) < start + bindings::uapi_radix_data_UVERBS_API_OBJ_KEY_NUM_DRIVER
    }

    /// Returns the definition that adds the object to a device.
    pub(in crate::rdma) const fn definition(&'static self) -> bindings::uapi_definition {
        bindings::uapi_definition {
            kind: bindings::uapi_definition_kind_UAPI_DEF_CHAIN_OBJ_TREE as u8,
            scope: 0,
            __bindgen_anon_1: bindings::uapi_definition__bindgen_ty_1 {
                object_start: ManuallyDrop::new(
                    bindings::uapi_definition__bindgen_ty_1__bindgen_ty_1 {
                        object_id: self.0.id,
                    },
                ),
            },
            __bindgen_anon_2: bindings::uapi_definition__bindgen_ty_2 {
                chain_obj_tree: ManuallyDrop::new(&self.0),
            },
        }
    }
}
