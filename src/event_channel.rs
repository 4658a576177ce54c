// SPDX-License-Identifier: GPL-2.0

//! An event channel: the file from which a process reads the events of its registrations.
//!
//! Made by a process through its uverbs file, and owned by the file descriptor; the registrations
//! on it hold references. Its lock is taken in any context, with the lock of a QP's fan-out held.
//!
//! When the device is removed, or the descriptor or the uverbs file is closed, nothing is added any
//! more. What is unread can still be read; after that, `read(2)` gives `EIO`.

use crate::{
    event::Event,
    event_queue::{
        EventQueue,
        Record,
        Slots,
        SlotsId,
        Table, //
    },
    rdma::{
        new_spinlock_irq,
        this_module,
        uverbs::event_file::{
            EventFile,
            FileOperations,
            FileType, //
        },
        SpinLockIrq, //
    },
    uapi::{
        xrc_rcv_event,
        RecordSize,
        XRC_RCV_OBJECT_EVENT_CHANNEL, //
    }, //
};
use kernel::{
    bindings,
    fs::File,
    new_poll_condvar,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::{
            PollCondVar,
            PollTable, //
        },
        Arc,
        ArcBorrow, //
    },
    uaccess::UserSliceWriter, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct EventChannel {
    record_size: RecordSize<xrc_rcv_event>,
    #[pin]
    state: SpinLockIrq<State>,
    #[pin]
    readable: PollCondVar,
}

struct State {
    queue: EventQueue,
    /// The descriptor is closed or the device is gone: nothing is added any more.
    ended: bool,
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
                    },
                    "EventChannel::state"
                ),
                readable <- new_poll_condvar!("EventChannel::readable"),
            }),
            GFP_KERNEL,
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
            let table = Table::with_capacity(bigger, GFP_KERNEL)?;
            let old = self.state.lock().queue.grow(table);

            drop(old);
        }
    }

    fn wait(&self, nonblocking: bool) -> Result<Record> {
        let mut state = self.state.lock();

        loop {
            if let Some(record) = state.queue.pop() {
                return Ok(record);
            }
            if state.ended {
                return Err(EIO);
            }
            if nonblocking {
                return Err(EAGAIN);
            }
            if self.readable.wait_interruptible(&mut state) {
                return Err(ERESTARTSYS);
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

    fn read(
        channel: ArcBorrow<'_, Self>,
        mut writer: UserSliceWriter,
        nonblocking: bool,
    ) -> Result<usize> {
        let size = channel.record_size.bytes();

        if writer.len() < size {
            return Err(EINVAL);
        }

        let mut written = 0;

        while writer.len() >= size {
            // Only the first record is worth waiting for.
            let record = match channel.wait(nonblocking || written != 0) {
                Ok(record) => record,
                Err(_) if written != 0 => break,
                Err(e) => return Err(e),
            };
            let event = xrc_rcv_event {
                cookie: record.cookie,
                first_ns: record.first,
                qpn: record.qpn,
                type_: record.kind.number(),
                count: record.count,
                reserved: 0,
            };

            let (known, zeroes) = channel.record_size.fit(&event);
            let write = writer.write_slice(known);

            if let Err(e) = write.and_then(|()| writer.write_slice(zeroes)) {
                channel.state.lock().queue.restore(&record);
                channel.readable.notify_all();
                if written == 0 {
                    return Err(e);
                }
                break;
            }
            written += size;
        }
        Ok(written)
    }

    fn poll(channel: ArcBorrow<'_, Self>, file: &File, table: PollTable<'_>) -> u32 {
        table.register_wait(file, &channel.readable);

        let state = channel.state.lock();
        let mut mask = 0;

        if !state.queue.is_empty() {
            mask |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        if state.ended {
            mask |= bindings::POLLHUP;
        }
        mask
    }

    fn closed(channel: Arc<Self>) {
        channel.state.lock().ended = true;
        channel.readable.notify_all();
    }
}
