// SPDX-License-Identifier: GPL-2.0

//! Tables that declare objects, their methods and the methods' attributes.
//!
//! They are written as constants, the way the C tables are, and read the same:
//!
//! ```ignore
//! static THING: Object<Device> = Object::handle::<Thing>(&[&Method::new::<Query>()]);
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
//! ib_uverbs copies the attributes' specifications when a device is added; it keeps pointers to the
//! objects' types and to handlers.

use super::{
    attribute::{
        self,
        Declaration,
        Declarations, //
    },
    call::{
        self,
        Handler, //
    },
    event_file::EventFile,
    handle::Handle,
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

        let definition = bindings::uverbs_method_def {
            id: id as u16,
            flags: 0,
            num_attrs: attributes.len(),
            attrs: attributes.as_ptr().cast(),
            handler: Some(handler),
        };

        Self(definition, PhantomData)
    }

    /// A method that `H` implements.
    pub(crate) const fn new<H: Handler<Data = D>>() -> Self {
        Self::define(H::METHOD, H::ATTRIBUTES, call::run::<H>)
    }

    /// A method that does no more than to destroy a handle.
    pub(crate) const fn destroy(id: u32, handle: &'static [&'static Declaration; 1]) -> Self {
        Self::define(id, handle, bindings::uverbs_destroy_def_handler)
    }
}

/// An object with its methods, for devices with the data `D`.
#[repr(transparent)]
pub(crate) struct Object<D>(bindings::uverbs_object_def, PhantomData<fn() -> D>);

// SAFETY: Nothing writes to the structure, nor to what its pointers lead to: `type_attrs`, a static
// that is `Sync`, and `methods`, a constant slice of references to constant methods, of whose
// attributes the same is true.
unsafe impl<D> Sync for Object<D> {}

impl<D: DeviceData> Object<D> {
    const fn define(
        id: u32,
        type_attrs: *const bindings::uverbs_obj_type,
        methods: &'static [&'static Method<D>],
    ) -> Self {
        // `Method` is transparent, so this is an array of pointers to its one member, as C expects it.
        let definition = bindings::uverbs_object_def {
            id: id as u16,
            type_attrs,
            num_methods: methods.len(),
            methods: methods.as_ptr().cast(),
        };

        Self(definition, PhantomData)
    }

    /// An object that processes know by a handle.
    pub(crate) const fn handle<H: Handle>(methods: &'static [&'static Method<D>]) -> Self {
        Self::define(H::OBJECT, H::TYPE.as_ptr(), methods)
    }

    /// An object that processes know by a file descriptor.
    pub(crate) const fn file<F: EventFile>(methods: &'static [&'static Method<D>]) -> Self {
        Self::define(F::OBJECT, F::TYPE.as_ptr(), methods)
    }

    /// Its number in the uverbs interface.
    pub(in crate::rdma) const fn id(&self) -> u16 {
        self.0.id
    }

    /// The entry of a device's definitions that brings the object in.
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
