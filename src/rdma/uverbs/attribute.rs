// SPDX-License-Identifier: GPL-2.0

//! Attributes of uverbs methods.
//!
//! The type of an [`Attribute`] has its number, and the kind of its contents. The table of a method
//! declares the attribute as mandatory or optional, and the running method accesses it through its
//! [`Call`](super::call::Call). Accessing an attribute that the method does not declare, or
//! declares with another type, size or direction, does not compile; nor does relying on an optional
//! attribute.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::event_file::EventFile;
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop, //
};
use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

/// The attribute `ID` of a method, of kind `K`.
pub(crate) struct Attribute<K, const ID: u32>(PhantomData<fn() -> K>);

impl<K: AttributeKind, const ID: u32> Attribute<K, ID> {
    /// Creates the attribute.
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }

    /// Declares the attribute as mandatory: calls without it fail with `EINVAL`.
    pub(crate) const fn mandatory(self) -> Declaration {
        Declaration::new(ID, K::SHAPE, true)
    }

    /// Declares the attribute as optional.
    pub(crate) const fn optional(self) -> Declaration {
        Declaration::new(ID, K::SHAPE, false)
    }
}

/// A kind of attribute.
pub(crate) trait AttributeKind {
    /// The checks of uverbs.
    const SHAPE: Shape;
}

/// The properties of an attribute that uverbs checks before a method runs.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Input data, in bytes. With `zero_trailing`, it may be longer than `max` if the rest is zero.
    Input {
        /// The least length.
        min: u16,
        /// The greatest length.
        max: u16,
        /// Whether trailing zeroes are accepted.
        zero_trailing: bool,
    },
    /// An output buffer, in bytes.
    Output {
        /// The least length.
        min: u16,
        /// The greatest length.
        max: u16,
    },
    /// A handle, or a file descriptor, of an object.
    Object {
        /// `UVERBS_ATTR_TYPE_IDR` or `UVERBS_ATTR_TYPE_FD`.
        kind: u32,
        /// The number of the object.
        id: u32,
        /// `enum uverbs_obj_access`.
        access: u32,
    },
}

/// Returns the size of `T`, for which uverbs has 16 bits.
const fn size<T>() -> u16 {
    assert!(size_of::<T>() <= u16::MAX as usize);
    size_of::<T>() as u16
}

/// A kind of attribute with input data.
pub(crate) trait InputKind: AttributeKind {
    /// The type of the data.
    type Value: FromBytes;
}

/// A value of exactly the size of `T`.
pub(crate) struct In<T>(PhantomData<T>);

impl<T> AttributeKind for In<T> {
    const SHAPE: Shape = Shape::Input {
        min: size::<T>(),
        max: size::<T>(),
        zero_trailing: false,
    };
}

impl<T: FromBytes> InputKind for In<T> {
    type Value = T;
}

/// A structure `T`, or a longer version of it whose additional members are zero.
pub(crate) struct InStruct<T>(PhantomData<T>);

impl<T> AttributeKind for InStruct<T> {
    const SHAPE: Shape = Shape::Input {
        min: size::<T>(),
        max: size::<T>(),
        zero_trailing: true,
    };
}

impl<T: FromBytes> InputKind for InStruct<T> {
    type Value = T;
}

/// One or more elements `T`.
pub(crate) struct InArray<T>(PhantomData<T>);

impl<T> AttributeKind for InArray<T> {
    const SHAPE: Shape = Shape::Input {
        min: size::<T>(),
        max: u16::MAX,
        zero_trailing: false,
    };
}

/// Flags, as `u32` or `u64`.
pub(crate) struct Flags;

impl AttributeKind for Flags {
    const SHAPE: Shape = Shape::Input {
        min: size::<u32>(),
        max: size::<u64>(),
        zero_trailing: false,
    };
}

/// A buffer for a value of exactly the size of `T`.
pub(crate) struct Out<T>(PhantomData<T>);

impl<T: AsBytes> AttributeKind for Out<T> {
    const SHAPE: Shape = Shape::Output {
        min: size::<T>(),
        max: size::<T>(),
    };
}

/// A buffer for a structure `T`, or for a shorter or longer version of it.
pub(crate) struct OutStruct<T>(PhantomData<T>);

impl<T: AsBytes> AttributeKind for OutStruct<T> {
    const SHAPE: Shape = OutBytes::SHAPE;
}

/// A buffer for an array of any length.
pub(crate) struct OutBytes;

impl AttributeKind for OutBytes {
    const SHAPE: Shape = Shape::Output {
        min: 0,
        max: u16::MAX,
    };
}

const IDR: u32 = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_IDR;
const FD: u32 = bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_FD;

/// An existing handle of an XRC domain.
pub(crate) struct XrcdHandle;

impl AttributeKind for XrcdHandle {
    const SHAPE: Shape = Shape::Object {
        kind: IDR,
        id: bindings::uverbs_default_objects_UVERBS_OBJECT_XRCD,
        access: bindings::uverbs_obj_access_UVERBS_ACCESS_READ,
    };
}

/// The file descriptor of an existing event file.
pub(crate) struct Fd<F>(PhantomData<F>);

impl<F: EventFile> AttributeKind for Fd<F> {
    const SHAPE: Shape = Shape::Object {
        kind: FD,
        id: F::OBJECT,
        access: bindings::uverbs_obj_access_UVERBS_ACCESS_READ,
    };
}

/// A file descriptor that the method creates. A method may have one attribute that creates.
pub(crate) struct NewFd<F>(PhantomData<F>);

impl<F: EventFile> AttributeKind for NewFd<F> {
    const SHAPE: Shape = Shape::Object {
        kind: FD,
        id: F::OBJECT,
        access: bindings::uverbs_obj_access_UVERBS_ACCESS_NEW,
    };
}

/// The declaration of an attribute in the table of a method.
#[repr(C)]
pub(crate) struct Declaration {
    /// The first member: in the tables of C, pointers to a `Declaration` are pointers to this.
    definition: bindings::uverbs_attr_def,
    id: u32,
    shape: Shape,
    is_mandatory: bool,
}

/// The attributes of a method.
pub(crate) type Declarations = &'static [&'static Declaration];

/// Returns a bit of the flags that C declares as bit-fields: `zero_trailing`, `alloc_and_copy`,
/// `mandatory`, `is_udata`. The constructor that bindgen generates is not `const`.
const fn flag(index: u32, value: bool) -> u8 {
    let bit = if cfg!(target_endian = "little") {
        1 << index
    } else {
        0x80 >> index
    };

    if value {
        bit
    } else {
        0
    }
}

impl Declaration {
    const fn new(id: u32, shape: Shape, is_mandatory: bool) -> Self {
        let (kind, zero_trailing) = match shape {
            Shape::Input { zero_trailing, .. } => (
                bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN,
                zero_trailing,
            ),
            Shape::Output { .. } => (bindings::uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT, false),
            Shape::Object { kind, .. } => (kind, false),
        };
        let flags = flag(0, zero_trailing) | flag(2, is_mandatory);

        assert!(id <= u16::MAX as u32);
        Self {
            definition: bindings::uverbs_attr_def {
                id: id as u16,
                attr: bindings::uverbs_attr_spec {
                    type_: kind as u8,
                    _bitfield_align_1: [],
                    _bitfield_1: bindings::__BindgenBitfieldUnit::new([flags]),
                    u: shape.to_spec(),
                    u2: NO_IDS,
                },
            },
            id,
            shape,
            is_mandatory,
        }
    }
}

const NO_IDS: bindings::uverbs_attr_spec__bindgen_ty_2 = bindings::uverbs_attr_spec__bindgen_ty_2 {
    enum_def: ManuallyDrop::new(bindings::uverbs_attr_spec__bindgen_ty_2__bindgen_ty_1 {
        ids: core::ptr::null(),
    }),
};

impl Shape {
    const fn to_spec(self) -> bindings::uverbs_attr_spec__bindgen_ty_1 {
        match self {
            Self::Input { min, max, .. } | Self::Output { min, max } => {
                bindings::uverbs_attr_spec__bindgen_ty_1 {
                    ptr: ManuallyDrop::new(
                        bindings::uverbs_attr_spec__bindgen_ty_1__bindgen_ty_1 {
                            len: max,
                            min_len: min,
                        },
                    ),
                }
            }
            Self::Object { id, access, .. } => {
                assert!(id <= u16::MAX as u32);
                bindings::uverbs_attr_spec__bindgen_ty_1 {
                    obj: ManuallyDrop::new(
                        bindings::uverbs_attr_spec__bindgen_ty_1__bindgen_ty_2 {
                            obj_type: id as u16,
                            access: access as u8,
                        },
                    ),
                }
            }
        }
    }

    /// Compares shapes in constants.
    const fn is(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Input {
                    min: a,
                    max: b,
                    zero_trailing: c,
                },
                Self::Input {
                    min: x,
                    max: y,
                    zero_trailing: z,
                },
            ) => a == x && b == y && c == z,
            (Self::Output { min: a, max: b }, Self::Output { min: x, max: y }) => a == x && b == y,
            (
                Self::Object {
                    kind: a,
                    id: b,
                    access: c,
                },
                Self::Object {
                    kind: x,
                    id: y,
                    access: z,
                },
            ) => a == x && b == y && c == z,
            _ => false,
        }
    }
}

/// Whether a method declares the attribute `ID` with kind `K`.
#[expect(clippy::indexing_slicing, reason = "compiled into a constant")]
pub(super) const fn declares<K: AttributeKind, const ID: u32>(declarations: Declarations) -> bool {
    let mut i = 0;

    while i < declarations.len() {
        if declarations[i].id == ID {
            return declarations[i].shape.is(K::SHAPE);
        }
        i += 1;
    }
    false
}

/// Whether a method declares the attribute `ID` as mandatory.
#[expect(clippy::indexing_slicing, reason = "compiled into a constant")]
pub(super) const fn requires<const ID: u32>(declarations: Declarations) -> bool {
    let mut i = 0;

    while i < declarations.len() {
        if declarations[i].id == ID {
            return declarations[i].is_mandatory;
        }
        i += 1;
    }
    false
}

/// Whether the attributes of a method have different numbers.
#[expect(clippy::indexing_slicing, reason = "compiled into a constant")]
pub(super) const fn are_distinct(declarations: Declarations) -> bool {
    let mut i = 0;

    while i < declarations.len() {
        let mut j = 0;

        while j < i {
            if declarations[i].id == declarations[j].id {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

#[kunit_tests(ib_xrc_rcv_attribute)]
mod tests {
    use super::*;

    /// Compares the flags with those that bindgen reads from the bit-fields of the header.
    fn has_flags<K: AttributeKind>(zero_trailing: bool) {
        let attribute = Attribute::<K, 0x1000>::new;

        for (declaration, mandatory) in [
            (attribute().mandatory(), true),
            (attribute().optional(), false),
        ] {
            let spec = &declaration.definition.attr;

            assert_eq!(spec.zero_trailing() != 0, zero_trailing);
            assert_eq!(spec.mandatory() != 0, mandatory);
            assert_eq!((spec.alloc_and_copy(), spec.is_udata()), (0, 0));
        }
    }

    #[test]
    fn flags_are_where_the_header_has_them() {
        has_flags::<In<u32>>(false);
        has_flags::<InStruct<u64>>(true);
        has_flags::<Out<u64>>(false);
        has_flags::<XrcdHandle>(false);
    }
}
