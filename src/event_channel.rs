// SPDX-License-Identifier: GPL-2.0

//! An event channel: the file from which a process reads the events of its registrations.
//!
//! Made by a process through its uverbs file, and owned by the file descriptor; the registrations
//! on it hold references. Its lock is taken in any context, with the lock of a QP's subscribers held.
//!
//! Readers copy without the lock, see [`crate::event_queue`]. What a read returns belongs to
//! registrations that existed after all of it was copied.
//!
//! When the device is removed, or the descriptor or the uverbs file is closed, nothing is added any
//! more. What is unread can still be read; after that, `read(2)` gives `EIO`. While one reader
//! copies, others cannot know yet whether there is more for them: it may fail, and put records back.

use crate::{
    event::Event,
    event_queue::{
        EventQueue,
        Record,
        Slots,
        SlotsId,
        Table, //
    },
    kernel_ext::{
        new_spinlock_irq,
        this_module,
        wait_queue::{
            new_wait_queue,
            WaitQueue, //
        },
        SpinLockIrq, //
    },
    rdma::uverbs::event_file::{
        EventFile,
        FileOperations,
        FileType, //
    },
    uapi::{
        xrc_rcv_event,
        RecordSize,
        XRC_RCV_OBJECT_EVENT_CHANNEL, //
    }, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// How many records one `read(2)` returns at most.
const BATCH: usize = 256;

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct EventChannel {
    record_size: RecordSize<xrc_rcv_event>,
    #[pin]
    state: SpinLockIrq<State>,
    #[pin]
    readable: WaitQueue,
}

struct State {
    queue: EventQueue,
    /// The descriptor is closed or the device is gone: nothing is added any more.
    ended: bool,
    /// How many readers have taken records that are not settled yet.
    reading: usize,
}

impl State {
    /// Whether there will be nothing to read any more, unless there is now.
    fn at_end(&self) -> bool {
        self.ended && self.reading == 0
    }
}

/// The place of one registration on a channel. Dropping it discards what is unread.
pub(crate) struct Subscription {
    channel: Arc<EventChannel>,
    slots: SlotsId,
    /// What is unread outlives the registration.
    abandoned: Atomic<bool>,
}

impl EventChannel {
    /// A channel without registrations, which gives records of that size.
    pub(crate) fn new(record_size: RecordSize<xrc_rcv_event>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                record_size,
                state <- new_spinlock_irq!(
                    State {
                        queue: EventQueue::new(),
                        ended: false,
                        reading: 0,
                    },
                    "EventChannel::state"
                ),
                readable <- new_wait_queue!("EventChannel::readable"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Makes place for one registration.
    pub(crate) fn subscribe(self: ArcBorrow<'_, Self>, cookie: u64) -> Result<Subscription> {
        let mut slots = Slots::new(cookie)?;

        loop {
            let capacity = {
                let mut state = self.state.lock();

                if state.ended {
                    return Err(EIO);
                }
                match state.queue.insert(slots) {
                    Ok(slots) => {
                        return Ok(Subscription {
                            channel: self.into(),
                            slots,
                            abandoned: Atomic::new(false),
                        })
                    }
                    Err(returned) => slots = returned,
                }
                state.queue.capacity()
            };
            let bigger = capacity.checked_mul(2).ok_or(ENOMEM)?.max(8);
            let table = Table::with_capacity(bigger, GFP_KERNEL_ACCOUNT)?;
            let old = self.state.lock().queue.grow(table);

            drop(old);
        }
    }

    /// Takes up to `max` records to read, at least one. They have to be [copied](Self::copy).
    fn take(&self, batch: &mut KVVec<Record>, max: usize, nonblocking: bool) -> Result {
        self.readable.wait_interruptible(|| loop {
            let mut state = self.state.lock();

            state.queue.take(batch, max);
            if !batch.is_empty() {
                state.reading += 1;
                break Some(Ok(()));
            }
            // Otherwise the oldest were withheld. There can be many: not all under one lock.
            if state.queue.is_empty() {
                break if state.at_end() {
                    Some(Err(EIO))
                } else {
                    nonblocking.then_some(Err(EAGAIN))
                };
            }
        })?
    }

    /// Copies records that were taken, and leaves in `batch` those that the reader gets. Those that
    /// cannot be copied are put back.
    fn copy(&self, batch: &mut KVVec<Record>, buffer: UserPtr, length: usize) -> Result {
        loop {
            let mut writer = UserSlice::new(buffer, length).writer();
            let mut copied = 0;
            let result = batch.iter().try_for_each(|record| {
                let event = xrc_rcv_event {
                    cookie: record.cookie,
                    first_ns: record.first,
                    qp_num: record.qpn,
                    type_: record.kind.as_raw(),
                    count: record.count,
                    reserved: 0,
                };
                let (known, zeroes) = self.record_size.fit(&event);

                writer.write_slice(known)?;
                writer.write_slice(zeroes)?;
                copied += 1;
                Ok(())
            });
            let mut state = self.state.lock();
            let mut wake = state.queue.restore(&batch[copied..]);

            batch.truncate(copied);

            // Others have to move up to where a record is that must not be seen any more.
            let again = state.queue.drop_gone(batch) && !batch.is_empty();

            if !again {
                wake |= state.queue.finish(batch);
                state.reading -= 1;
                wake |= state.at_end();
            }
            drop(state);
            if wake {
                self.readable.notify_all();
            }
            if !again {
                return result;
            }
        }
    }
}

impl Subscription {
    /// Adds an event, unless nobody can read it any more. Returns whether it did. Any context.
    pub(crate) fn post(&self, event: &Event) -> bool {
        let new = {
            let mut state = self.channel.state.lock();

            if state.ended {
                return false;
            }
            state.queue.post(self.slots, event)
        };

        if new {
            self.channel.readable.notify_all();
        }
        true
    }

    /// How many records are unread.
    pub(crate) fn unread(&self) -> usize {
        self.channel.state.lock().queue.unread(self.slots)
    }

    /// Discards what is unread; nothing is added any more.
    pub(crate) fn cancel(&self) {
        let slots = self.channel.state.lock().queue.remove(self.slots);

        drop(slots);
    }

    /// Leaves what is unread to the reader when this is dropped.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if !self.abandoned.load(Relaxed) {
            self.cancel();
        }
    }
}

static OPERATIONS: FileOperations<EventChannel> = FileOperations::new(this_module());
static TYPE: FileType<EventChannel> = FileType::new(c"[xrc_rcv_event]", &OPERATIONS);

impl EventFile for EventChannel {
    const OBJECT: u32 = XRC_RCV_OBJECT_EVENT_CHANNEL;
    const TYPE: &'static FileType<Self> = &TYPE;

    fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize> {
        let size = self.record_size.bytes();

        if length < size {
            return Err(EINVAL);
        }

        let max = (length / size).min(BATCH);
        let mut batch = KVVec::with_capacity(max, GFP_KERNEL)?;

        loop {
            self.take(&mut batch, max, nonblocking)?;

            let result = self.copy(&mut batch, buffer, length);

            if !batch.is_empty() {
                return Ok(batch.len() * size);
            }
            // Nothing is left of them: their registrations are gone, unless there was an error.
            result?;
        }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.readable
    }

    fn poll(&self) -> u32 {
        let state = self.state.lock();
        let mut mask = 0;

        if !state.queue.is_empty() {
            mask |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        if state.at_end() {
            mask |= bindings::POLLHUP;
        }
        mask
    }

    fn closed(channel: Arc<Self>) {
        channel.state.lock().ended = true;
        channel.readable.notify_all();
    }
}
