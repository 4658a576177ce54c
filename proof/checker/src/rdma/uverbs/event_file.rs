// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/uverbs/event_file.rs`: files without descriptors, which the scenarios read.

use crate::kernel_ext::{wait_queue::WaitQueue, ThisModule};
use core::{cell::OnceCell, marker::PhantomData};
use kernel::{prelude::*, sync::Arc, uaccess::UserPtr};

pub(crate) trait EventFile: Send + Sync + Sized + 'static {
    const OBJECT: u32;
    const TYPE: &'static FileType<Self>;

    fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize>;
    fn wait_queue(&self) -> &WaitQueue;
    fn poll(&self) -> u32;
    fn ioctl(&self, request: u32, argument: UserPtr) -> Result;
    fn closed(data: Arc<Self>, why: super::RemoveReason);
    fn released(&self);
}

pub(crate) struct FileOperations<F>(PhantomData<fn() -> F>);
pub(crate) struct FileType<F>(PhantomData<fn() -> F>);

impl<F> FileOperations<F> {
    pub(crate) const fn new(_owner: &'static ThisModule) -> Self {
        Self(PhantomData)
    }
}

impl<F> FileType<F> {
    pub(crate) const fn new(_name: &'static CStr, _operations: &'static FileOperations<F>) -> Self {
        Self(PhantomData)
    }
}

/// A file that the running method creates.
pub(crate) struct NewFile<'a, F>(&'a OnceCell<Arc<F>>);

impl<'a, F: EventFile> NewFile<'a, F> {
    pub(super) fn new(place: &'a OnceCell<Arc<F>>) -> Self {
        Self(place)
    }

    pub(crate) fn set(self, data: Arc<F>) {
        assert!(self.0.set(data).is_ok(), "the file is set once");
    }
}
