// SPDX-License-Identifier: GPL-2.0
// compiles
//! The code of the others without the mistake.

use crate::{
    device::AttachedDevice,
    kernel_ext::{
        debugfs::{
            Dir,
            Listing,
            ListingOperations, //
        },
        mutex::lock_killable,
        process::Process,
        this_module,
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        },
        wait_queue::WaitQueue,
        workqueue::UnboundQueue,
        SpinLockIrq, //
    },
    rdma::{
        attachment::{
            ClientOperations,
            DataRef, //
        },
        device::Device,
        pd::ProtectionDomain,
        qp::EventHandler,
        xrcd::Xrcd, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

struct Owned(u32);

impl EventHandler for Owned {
    fn event(self: ArcBorrow<'_, Self>, _qpn: u32, event: u32) {
        let _ = self.0 == event;
    }
}

pub(crate) fn data(xrcd: &Xrcd) -> Option<DataRef<AttachedDevice>> {
    AttachedDevice::of_xrcd(xrcd)
}

pub(crate) fn pd(device: &Device) -> Result<Arc<ProtectionDomain>> {
    Ok(Arc::new(
        ProtectionDomain::new(device, c"fine")?,
        GFP_KERNEL,
    )?)
}

pub(crate) fn handler() -> Result<Arc<impl EventHandler>> {
    Ok(Arc::new(Owned(0), GFP_KERNEL)?)
}

struct Item {
    links: Links<0>,
    linked: Linked<0>,
    other_links: Links<1>,
    other_linked: Linked<1>,
}

impl_tree_item! {
    impl TreeItem<0> for Item {
        links: links,
        linked: linked,
        key: |_item| -> u32 { 0 }
    }
}

impl_tree_item! {
    impl TreeItem<1> for Item {
        links: other_links,
        linked: other_linked,
        key: |_item| -> u32 { 0 }
    }
}

pub(crate) fn acquire(mutex: &Mutex<u32>) -> Result<u32> {
    Ok(*lock_killable(mutex)?)
}

pub(crate) fn keep_pinned(queue: Pin<KBox<WaitQueue>>) -> Pin<KBox<WaitQueue>> {
    queue
}

fn send<T: Send>(_to_another: T) {}

pub(crate) fn lock_elsewhere(lock: &SpinLockIrq<u32>) {
    send(lock);
}

#[pin_data]
pub(crate) struct Job {
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Job { self.work }
}

impl WorkItem for Job {
    type Pointer = Arc<Self>;

    fn run(_job: Arc<Self>) {}
}

pub(crate) fn queue_it(queue: &UnboundQueue, job: Arc<Job>) {
    let _ = queue.enqueue(job);
}

static OPERATIONS: ListingOperations<u32> = ListingOperations::new(this_module());

pub(crate) fn list(parent: Arc<Dir>, data: &Arc<u32>) -> Result<Listing<u32>> {
    Listing::new(c"list", parent, &OPERATIONS, data, &[])
}

pub(crate) fn print(process: &Process) {
    pr_info!("{}\n", process.name());
}
