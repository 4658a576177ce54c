// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/uverbs.rs`: objects without a process behind them.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoveReason {
    Destroyed,
    FileClosed,
    DeviceRemoved,
}

pub(crate) mod event_file {
    use crate::kernel_ext::{wait_queue::WaitQueue, ThisModule};
    use core::marker::PhantomData;
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
        pub(crate) const fn new(
            _name: &'static CStr,
            _operations: &'static FileOperations<F>,
        ) -> Self {
            Self(PhantomData)
        }
    }
}
