// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/uverbs/table.rs`: objects and methods, which a process calls by their numbers.

use super::{
    attribute::{self, Declarations},
    call::{self, Handler, Passed},
    event_file::EventFile,
    DeviceData,
};
use core::pin::Pin;
use kernel::prelude::*;

/// A method of an object, for devices with the data `D`.
pub(crate) struct Method<D: 'static> {
    id: u32,
    attributes: Declarations,
    run: fn(Pin<&D>, &[Passed<'_>]) -> Result,
}

impl<D: DeviceData> Method<D> {
    pub(crate) const fn new<H: Handler<Data = D>>() -> Self {
        assert!(attribute::are_distinct(H::ATTRIBUTES));
        Self {
            id: H::METHOD,
            attributes: H::ATTRIBUTES,
            run: call::run::<H>,
        }
    }
}

/// An object with its methods, for devices with the data `D`.
pub(crate) struct Object<D: 'static> {
    id: u32,
    methods: &'static [&'static Method<D>],
}

// SAFETY: Nothing writes to the structure, nor to the constants that it refers to.
unsafe impl<D> Sync for Object<D> {}

impl<D: DeviceData> Object<D> {
    pub(crate) const fn methods(id: u32, methods: &'static [&'static Method<D>]) -> Self {
        Self { id, methods }
    }

    pub(crate) const fn file<F: EventFile>(methods: &'static [&'static Method<D>]) -> Self {
        Self::methods(F::OBJECT, methods)
    }
}

/// Runs the method with a number on a device, after the checks of uverbs.
pub(crate) fn call<D: DeviceData>(
    objects: &[&Object<D>],
    object: u32,
    method: u32,
    data: Pin<&D>,
    attributes: &[Passed<'_>],
) -> Result {
    let object = objects.iter().find(|known| known.id == object);
    let mut methods = object.ok_or(EINVAL)?.methods.iter();
    let method = methods.find(|known| known.id == method).ok_or(EINVAL)?;

    call::check(method.attributes, attributes)?;
    (method.run)(data, attributes)
}
