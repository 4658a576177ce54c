// SPDX-License-Identifier: GPL-2.0

//! An event channel: the unread events of the registrations of a member, and the processes that
//! read them.
//!
//! The [`Member`](crate::member::Member) owns it, and its registrations hold references. Its lock
//! is taken in any context, with the lock of a QP's subscribers held.
//!
//! A channel has any number of readers: processes watch it with epoll. Whoever adds a record, or
//! ends the channel, works for others, so a worker wakes the readers, once for all records that are
//! added until it begins. A reader that lets others continue wakes them itself.
//!
//! Readers copy without the lock, see [`crate::event_queue`]. The registrations of the records that
//! a read returns existed after all records were copied.
//!
//! After the device was removed, or the descriptor or the uverbs file closed, no event is added.
//! Unread records can still be read; then `read(2)` returns `EIO`. While one reader copies, other
//! readers wait, because it may put its records back.

use crate::{
    event_queue::{
        Batch,
        EventQueue,
        Queued,
        Record,
        BATCH, //
    },
    kernel_ext::{
        in_time_namespace,
        new_spinlock_irq,
        wait_queue::{
            new_wait_queue,
            WaitQueue, //
        },
        workqueue::{
            ModuleQueue,
            ModuleQueueOwner, //
        },
        SpinLockIrq, //
    },
    notify::FileId,
    uapi::{
        xrc_rcv_event,
        RecordSize, //
    }, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// Wakes the readers of all channels: an item for each channel, which is queued once at a time.
static WAKEUPS: ModuleQueue = ModuleQueue::new();

/// Allocates the workqueue that wakes readers.
///
/// # Safety
///
/// Must be called once, before a channel is created. When the result is dropped, no channel may be
/// open.
pub(crate) unsafe fn init() -> Result<ModuleQueueOwner> {
    // SAFETY: By the requirements of this function: only channels queue items, until they are at
    // their end.
    unsafe { WAKEUPS.init(c"ib_xrc_rcv_wakeup") }
}

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct EventChannel<Q: Queued> {
    record_size: RecordSize<xrc_rcv_event>,
    #[pin]
    queue: SpinLockIrq<EventQueue<Q>>,
    #[pin]
    readable: WaitQueue,
    #[pin]
    wakeup: Work<Self>,
}

impl_has_work! {
    impl{Q: Queued} HasWork<Self> for EventChannel<Q> { self.wakeup }
}

impl<Q: Queued + Send + Sync + 'static> EventChannel<Q> {
    /// Creates a channel whose records have the given size.
    pub(crate) fn new(record_size: RecordSize<xrc_rcv_event>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                record_size,
                queue <- new_spinlock_irq!(EventQueue::new(), "EventChannel::queue"),
                readable <- new_wait_queue!("EventChannel::readable"),
                wakeup <- new_work!("EventChannel::wakeup"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the identity of the channel.
    pub(crate) fn id(&self) -> FileId {
        FileId::of(self)
    }

    /// Returns the queue of unread events. Its lock is taken in any context.
    pub(crate) fn queue(&self) -> &SpinLockIrq<EventQueue<Q>> {
        &self.queue
    }

    /// Returns `EIO` if no event can be added.
    pub(crate) fn check(&self) -> Result {
        if self.queue.lock().ended {
            return Err(EIO);
        }
        Ok(())
    }

    /// Has a worker wake the readers that wait. May be called in any context.
    pub(crate) fn wake_later(self: &Arc<Self>) {
        // An item that is queued already has not begun, and wakes them as well.
        drop(WAKEUPS.enqueue(self.clone()));
    }

    /// Takes records, as many as are unread and `batch` has places, for [`copy`](Self::copy). Waits
    /// for the first. Returns their number.
    fn take(&self, batch: &mut [Option<Record<Q>>], nonblocking: bool) -> Result<usize> {
        self.readable.wait_interruptible(|| loop {
            let mut queue = self.queue.lock();
            let taken = queue.take(batch);

            if taken != 0 {
                queue.reading += 1;
                break Some(Ok(taken));
            }
            // The oldest records are withheld. There can be many, so the lock is released between.
            if queue.is_empty() {
                break if queue.at_end() {
                    Some(Err(EIO))
                } else {
                    nonblocking.then_some(Err(EAGAIN))
                };
            }
        })?
    }

    /// Copies records to the buffer, and returns the number of those that were copied and whose
    /// registrations exist. It is 0 if the registrations of all ended. Records that cannot be
    /// copied are put back.
    fn copy(
        &self,
        batch: &mut [Option<Record<Q>>],
        buffer: UserPtr,
        length: usize,
    ) -> Result<usize> {
        let mut taken = batch.len();

        loop {
            let mut writer = UserSlice::new(buffer, length).writer();
            let mut copied = 0;
            let result = batch[..taken].iter().flatten().try_for_each(|record| {
                let event = xrc_rcv_event {
                    cookie: record.cookie(),
                    first_ns: in_time_namespace(record.first),
                    qp_num: record.qpn,
                    type_: record.kind.as_raw(),
                    count: record.count,
                    reserved: 0,
                };
                let (known, zeroes) = self.record_size.fit(&event);

                writer.write_slice(known)?;
                if !zeroes.is_empty() {
                    writer.write_slice(zeroes)?;
                }
                copied += 1;
                Ok(())
            });
            let mut queue = self.queue.lock();
            let mut wake = queue.restore(&batch[copied..taken]);
            let kept = queue.drop_closed(&mut batch[..copied]);
            // The others are copied again, to the place of a record whose registration ended.
            let again = kept != copied && kept != 0;

            if !again {
                wake |= queue.finish(&batch[..kept]);
                queue.reading -= 1;
                wake |= queue.at_end();
            }
            drop(queue);
            taken = kept;
            if wake {
                self.readable.notify_all();
            }
            if !again {
                return match kept {
                    0 => result.map(|()| 0),
                    kept => Ok(kept),
                };
            }
        }
    }

    /// Implements `read(2)`: writes whole records to the `length` bytes at `buffer`, and returns
    /// their size.
    pub(crate) fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize> {
        let size = self.record_size.bytes();

        if length < size {
            return Err(EINVAL);
        }

        let places = (length / size).min(BATCH);
        let mut copied = 0;

        while copied == 0 {
            let mut batch: Batch<Q> = [const { None }; BATCH];
            let taken = self.take(&mut batch[..places], nonblocking)?;

            copied = self.copy(&mut batch[..taken], buffer, length)?;
        }
        Ok(copied * size)
    }

    /// Returns the queue whose tasks are woken when the result of [`Self::poll`] changes.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        &self.readable
    }

    /// Implements `poll(2)`: returns a mask of `EPOLL…` bits.
    pub(crate) fn poll(&self) -> u32 {
        let queue = self.queue.lock();
        let mut mask = 0;

        if !queue.is_empty() {
            mask |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        if queue.at_end() {
            mask |= bindings::POLLHUP;
        }
        mask
    }

    /// Ends the channel: no event is added after this.
    pub(crate) fn end(self: &Arc<Self>) {
        self.queue.lock().ended = true;
        self.wake_later();
    }

    /// Discards the unread events. No process reads the channel any more.
    pub(crate) fn release(&self) {
        let unread = {
            let mut queue = self.queue.lock();

            queue.ended = true;
            queue.take_all()
        };

        drop(unread);
    }
}

impl<Q: Queued + Send + Sync + 'static> WorkItem for EventChannel<Q> {
    type Pointer = Arc<Self>;

    fn run(channel: Arc<Self>) {
        channel.readable.notify_all();
    }
}
