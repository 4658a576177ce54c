// SPDX-License-Identifier: GPL-2.0

//! What attributes use of `<rdma/uverbs_ioctl.h>`, as bindgen declares it.

#![allow(non_camel_case_types, non_upper_case_globals)]

use core::{ffi::c_void, mem::ManuallyDrop};

pub(crate) type uverbs_attr_type = u32;

pub(crate) const uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_IN: uverbs_attr_type = 1;
pub(crate) const uverbs_attr_type_UVERBS_ATTR_TYPE_PTR_OUT: uverbs_attr_type = 2;
pub(crate) const uverbs_attr_type_UVERBS_ATTR_TYPE_IDR: uverbs_attr_type = 3;
pub(crate) const uverbs_attr_type_UVERBS_ATTR_TYPE_FD: uverbs_attr_type = 4;

pub(crate) const uverbs_default_objects_UVERBS_OBJECT_XRCD: u32 = 10;

pub(crate) const uverbs_obj_access_UVERBS_ACCESS_READ: u32 = 0;
pub(crate) const uverbs_obj_access_UVERBS_ACCESS_NEW: u32 = 2;

pub(crate) struct uverbs_attr_def {
    pub(crate) id: u16,
    pub(crate) attr: uverbs_attr_spec,
}

pub(crate) struct uverbs_attr_spec {
    pub(crate) type_: u8,
    pub(crate) _bitfield_align_1: [u8; 0],
    pub(crate) _bitfield_1: __BindgenBitfieldUnit,
    pub(crate) u: uverbs_attr_spec__bindgen_ty_1,
    pub(crate) u2: uverbs_attr_spec__bindgen_ty_2,
}

/// Bit-fields of a byte.
pub(crate) struct __BindgenBitfieldUnit(u8);

impl __BindgenBitfieldUnit {
    pub(crate) const fn new([bits]: [u8; 1]) -> Self {
        Self(bits)
    }

    fn get(&self, index: u32) -> u8 {
        (self.0 >> index) & 1
    }
}

impl uverbs_attr_spec {
    pub(crate) fn zero_trailing(&self) -> u8 {
        self._bitfield_1.get(0)
    }

    pub(crate) fn alloc_and_copy(&self) -> u8 {
        self._bitfield_1.get(1)
    }

    pub(crate) fn mandatory(&self) -> u8 {
        self._bitfield_1.get(2)
    }

    pub(crate) fn is_udata(&self) -> u8 {
        self._bitfield_1.get(3)
    }
}

pub(crate) union uverbs_attr_spec__bindgen_ty_1 {
    pub(crate) ptr: ManuallyDrop<uverbs_attr_spec__bindgen_ty_1__bindgen_ty_1>,
    pub(crate) obj: ManuallyDrop<uverbs_attr_spec__bindgen_ty_1__bindgen_ty_2>,
}

pub(crate) struct uverbs_attr_spec__bindgen_ty_1__bindgen_ty_1 {
    pub(crate) len: u16,
    pub(crate) min_len: u16,
}

pub(crate) struct uverbs_attr_spec__bindgen_ty_1__bindgen_ty_2 {
    pub(crate) obj_type: u16,
    pub(crate) access: u8,
}

pub(crate) union uverbs_attr_spec__bindgen_ty_2 {
    pub(crate) enum_def: ManuallyDrop<uverbs_attr_spec__bindgen_ty_2__bindgen_ty_1>,
}

pub(crate) struct uverbs_attr_spec__bindgen_ty_2__bindgen_ty_1 {
    pub(crate) ids: *const c_void,
}
