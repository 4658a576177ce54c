// SPDX-License-Identifier: GPL-2.0

//! Tables that declare objects, their methods and the methods' attributes.
//!
//! They are written as constants, the way the C tables are, and read the same:
//!
//! ```ignore
//! static THING: Object = Object::handle::<Thing>(&[&Method::new::<Query>()]);
//!
//! impl Handler for Query {
//!     const METHOD: u32 = THING_QUERY;
//!     const ATTRIBUTES: &[&Attribute] = &[
//!         &Attribute::handle(QUERY_XRCD, object_id::XRCD).mandatory(),
//!         &Attribute::output::<u32>(QUERY_RESULT).mandatory(),
//!     ];
//! }
//! ```
//!
//! A running method can get at an attribute only as what it declared it to be.
//!
//! ib_uverbs copies the attributes' specifications when a device is added; it keeps pointers to the
//! objects' types and to handlers.

use super::{
    call::Call,
    event_file::EventFile,
    handle::Handle, //
};
use crate::rdma::{
    bindings,
    client::ClientOperations, //
};
use core::mem::ManuallyDrop;
use kernel::{
    error::from_result,
    prelude::*, //
};

/// An attribute of a method.
///
/// Optional unless made [`mandatory`](Self::mandatory).
#[repr(transparent)]
pub(crate) struct Attribute(bindings::uverbs_attr_def);

/// A bit of the flags that C declares as one-bit fields: `zero_trailing`, `alloc_and_copy`,
/// `mandatory`, `is_udata`. bindgen has no constant constructor for them.
const fn flag(index: u32) -> u8 {
    if cfg!(target_endian = "little") {
        1 << index
    } else {
        0x80 >> index
    }
}

const ZERO_TRAILING: u8 = flag(0);
const MANDATORY: u8 = flag(2);

impl Attribute {
    const fn data(id: u32, kind: u32, flags: u8, min_len: usize, len: usize) -> Self {
        assert!(len <= u16::MAX as usize && min_len <= len);
        Self(bindings::uverbs_attr_def {
            id: id as u16,
            attr: bindings::uverbs_attr_spec {
                type_: kind as u8,
                _bitfield_align_1: [],
                _bitfield_1: bindings::__BindgenBitfieldUnit::new([flags]),
                u: bindings::uverbs_attr_spec__bindgen_ty_1 {
                    ptr: ManuallyDrop::new(
                        bindings::uverbs_attr_spec__bindgen_ty_1__bindgen_ty_1 {
                            len: len as u16,
                            min_len: min_len as u16,
                        },
                    ),
                },
                u2: NO_IDS,
            },
        })
    }

    const fn object(id: u32, kind: u32, object: u16, access: u32) -> Self {
        Self(bindings::uverbs_attr_def {
            id: id as u16,
            attr: bindings::uverbs_attr_spec {
                type_: kind as u8,
                _bitfield_align_1: [],
                _bitfield_1: bindings::__BindgenBitfieldUnit::new([0]),
                u: bindings::uverbs_attr_spec__bindgen_ty_1 {
                    obj: ManuallyDrop::new(
                        bindings::uverbs_attr_spec__bindgen_ty_1__bindgen_ty_2 {
                            obj_type: object,
                            access: access as u8,
                        },
                    ),
                },
                u2: NO_IDS,
            },
        })
    }

    /// A value of exactly the size of `T`.
    pub(crate) const fn input<T>(id: u32) -> Self {
        let size = size_of::<T>();

        Self::data(
            id,
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN,
            0,
            size,
            size,
        )
    }

    /// A structure that may be longer than `T` if what follows is zero.
    pub(crate) const fn input_struct<T>(id: u32) -> Self {
        let size = size_of::<T>();
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN;

        Self::data(id, kind, ZERO_TRAILING, size, size)
    }

    /// Bits, as `u32` or `u64`.
    pub(crate) const fn flags(id: u32) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN;

        Self::data(id, kind, 0, size_of::<u32>(), size_of::<u64>())
    }

    /// A place for a value of exactly the size of `T`.
    pub(crate) const fn output<T>(id: u32) -> Self {
        let size = size_of::<T>();

        Self::data(
            id,
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT,
            0,
            size,
            size,
        )
    }

    /// A place for a structure of which the caller knows a shorter or longer version, or for an
    /// array of any length.
    pub(crate) const fn output_any(id: u32) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT;

        Self::data(id, kind, 0, 0, u16::MAX as usize)
    }

    /// An existing handle.
    pub(crate) const fn handle(id: u32, object: u16) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR;

        Self::object(
            id,
            kind,
            object,
            bindings::uverbs_obj_access_UVERBS_ACCESS_READ,
        )
    }

    /// A handle that the method creates. A method can have one attribute that creates or destroys.
    pub(crate) const fn new_handle<H: Handle>(id: u32) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR;

        Self::object(
            id,
            kind,
            H::OBJECT as u16,
            bindings::uverbs_obj_access_UVERBS_ACCESS_NEW,
        )
        .mandatory()
    }

    /// A handle that is destroyed before the method runs.
    pub(crate) const fn destroyed_handle<H: Handle>(id: u32) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR;

        Self::object(
            id,
            kind,
            H::OBJECT as u16,
            bindings::uverbs_obj_access_UVERBS_ACCESS_DESTROY,
        )
        .mandatory()
    }

    /// The file descriptor of an existing event file.
    pub(crate) const fn file<F: EventFile>(id: u32) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_FD;

        Self::object(
            id,
            kind,
            F::OBJECT as u16,
            bindings::uverbs_obj_access_UVERBS_ACCESS_READ,
        )
    }

    /// A file descriptor that the method creates.
    pub(crate) const fn new_file<F: EventFile>(id: u32) -> Self {
        let kind = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_FD;

        Self::object(
            id,
            kind,
            F::OBJECT as u16,
            bindings::uverbs_obj_access_UVERBS_ACCESS_NEW,
        )
        .mandatory()
    }

    pub(super) const fn id(&self) -> u32 {
        self.0.id as u32
    }

    pub(super) const fn kind(&self) -> u32 {
        self.0.attr.type_ as u32
    }

    /// The object that it is a handle or file of, if it is one.
    pub(super) fn object_id(&self) -> Option<u16> {
        match self.kind() {
            bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR
            | bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_FD => {
                // SAFETY: `Self::object` made it, which sets this member.
                Some(unsafe { &self.0.attr.u.obj }.obj_type)
            }
            _ => None,
        }
    }

    /// Makes it mandatory: without the attribute the call fails with `EINVAL`.
    pub(crate) const fn mandatory(mut self) -> Self {
        let unit = &self.0.attr._bitfield_1;
        // SAFETY: A bitfield unit is a transparent wrapper of its bytes, and there is one.
        let flags = unsafe { *core::ptr::from_ref(unit).cast::<u8>() };

        self.0.attr._bitfield_1 = bindings::__BindgenBitfieldUnit::new([flags | MANDATORY]);
        self
    }
}

const NO_IDS: bindings::uverbs_attr_spec__bindgen_ty_2 = bindings::uverbs_attr_spec__bindgen_ty_2 {
    enum_def: ManuallyDrop::new(bindings::uverbs_attr_spec__bindgen_ty_2__bindgen_ty_1 {
        ids: core::ptr::null(),
    }),
};

/// What a method does.
pub(crate) trait Handler {
    /// The client on whose devices the method is offered.
    type Client: ClientOperations;

    /// The number of the method.
    const METHOD: u32;

    /// Its attributes.
    const ATTRIBUTES: &'static [&'static Attribute];

    /// Runs it. All mandatory attributes are there, and all are of the right kind and size.
    fn run(call: &Call<'_, Self::Client>) -> Result;
}

/// A method of an object.
#[repr(transparent)]
pub(crate) struct Method(bindings::uverbs_method_def);

impl Method {
    const fn define(
        id: u32,
        attributes: &'static [&'static Attribute],
        handler: unsafe extern "C" fn(*mut bindings::uverbs_attr_bundle) -> c_int,
    ) -> Self {
        Self(bindings::uverbs_method_def {
            id: id as u16,
            flags: 0,
            num_attrs: attributes.len(),
            attrs: attributes.as_ptr().cast(),
            handler: Some(handler),
        })
    }

    /// A method that `H` implements.
    pub(crate) const fn new<H: Handler>() -> Self {
        Self::define(H::METHOD, H::ATTRIBUTES, run::<H>)
    }

    /// A method that does no more than to destroy a handle.
    pub(crate) const fn destroy(id: u32, handle: &'static [&'static Attribute; 1]) -> Self {
        Self::define(id, handle, bindings::uverbs_destroy_def_handler)
    }
}

/// The handler of a method that `H` implements.
///
/// # Safety
///
/// Called by uverbs only, for a method of a device of `H::Client`.
unsafe extern "C" fn run<H: Handler>(bundle: *mut bindings::uverbs_attr_bundle) -> c_int {
    from_result(|| {
        // SAFETY: uverbs passes a valid bundle, and keeps the device from being removed while a
        // handler runs.
        let call = unsafe { Call::new(bundle, H::ATTRIBUTES) }?;

        H::run(&call)?;
        Ok(0)
    })
}

/// An object with its methods.
#[repr(transparent)]
pub(crate) struct Object(bindings::uverbs_object_def);

// SAFETY: The table is constant, as is all that it points to.
unsafe impl Sync for Object {}

impl Object {
    const fn define(
        id: u32,
        type_attrs: *const bindings::uverbs_obj_type,
        methods: &'static [&'static Method],
    ) -> Self {
        Self(bindings::uverbs_object_def {
            id: id as u16,
            type_attrs,
            num_methods: methods.len(),
            methods: methods.as_ptr().cast(),
        })
    }

    /// An object that processes know by a handle.
    pub(crate) const fn handle<H: Handle>(methods: &'static [&'static Method]) -> Self {
        Self::define(H::OBJECT, H::TYPE.as_ptr(), methods)
    }

    /// An object that processes know by a file descriptor.
    pub(crate) const fn file<F: EventFile>(methods: &'static [&'static Method]) -> Self {
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
