// SPDX-License-Identifier: GPL-2.0

//! A subscriber of a receive QP: the part of a registration that events are delivered to.
//!
//! One allocation has all that a registration needs to be found and to be delivered to: its place among
//! the subscribers of the QP, and on an event channel its slots and its place in the queue. Who registers
//! owns a reference; the QP's list has one until the registration ends, and the channel's queue has one
//! while something is unread. What changes is atomic, or guarded by the lock of the channel.

use crate::{
    event::{
        Event,
        EventType, //
    },
    event_channel,
    event_channel::HasChannel,
    event_queue::{
        self,
        EventQueue,
        Queued,
        Slots,
        BY_TIME, //
    },
    kernel_ext::{
        process::Process,
        this_module,
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        }, //
    },
    rdma::uverbs::{
        event_file::{
            FileOperations,
            FileType, //
        },
        FileId,
        RemoveReason, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        LockedBy, //
    }, //
};

/// The channels that registrations are on.
pub(crate) type EventChannel = event_channel::EventChannel<Subscriber>;

/// Who holds a registration.
pub(crate) enum Holder {
    /// A uverbs file, and the process that had it when it registered.
    File(FileId, Process),
    /// Another part of the kernel, and what is called for its events.
    Kernel(Option<KBox<dyn Callback>>),
}

/// A kernel user's interest in events.
pub(crate) trait Callback: Send + Sync {
    /// Called in any context, with locks held: must not sleep, nor give the registration up.
    fn event(&self, event: &Event);
}

/// The place of a registration on a channel.
struct Subscription {
    channel: Arc<EventChannel>,
    cookie: u64,
    slots: LockedBy<Slots, EventQueue<Subscriber>>,
}

/// See the [module's documentation](self).
pub(crate) struct Subscriber {
    holder: Holder,
    subscription: Option<Subscription>,
    delivered: Atomic<u32>,
    /// [`EventType::QP_GONE`] was delivered.
    gone: Atomic<bool>,

    /// In the list of the QP.
    links: Links,
    listed: Linked,

    /// In the queue of the channel.
    queue_links: Links,
    queued: Linked,
    /// When its oldest unread event was. Written with the channel's lock held.
    time: Atomic<u64>,
}

/// With its reference count it fits into an object of the slab allocator of that size.
const _: () = assert!(size_of::<Subscriber>() + size_of::<u64>() <= 256);

/// Orders the subscribers of a QP: by their files, those of the kernel first.
pub(crate) type Key = (Option<FileId>, usize);

/// The [`Tree`](crate::kernel_ext::tree::Tree) of a QP.
pub(crate) const BY_HOLDER: u64 = 0;

impl_tree_item! {
    impl TreeItem<{ BY_HOLDER }> for Subscriber {
        links: links,
        linked: listed,
        key: |subscriber| -> Key { (subscriber.file(), subscriber.address()) }
    }
}

impl_tree_item! {
    impl TreeItem<{ BY_TIME }> for Subscriber {
        links: queue_links,
        linked: queued,
        key: |subscriber| -> event_queue::Key {
            (subscriber.time.load(Relaxed), subscriber.address())
        }
    }
}

/// Whose readers are to be woken.
#[must_use]
pub(crate) struct Wakeup(Arc<EventChannel>);

impl Wakeup {
    /// Wakes them. Any context, but not with a lock held that others need: there can be many.
    pub(crate) fn wake(self) {
        self.0.wake();
    }
}

impl Subscriber {
    /// A subscriber that is told of events through `channel`, if there is one, with `cookie`. `EIO`
    /// if the channel is at its end.
    pub(crate) fn new(
        holder: Holder,
        channel: Option<Arc<EventChannel>>,
        cookie: u64,
    ) -> Result<Arc<Self>> {
        let subscription = match channel {
            Some(channel) => {
                channel.check()?;
                Some(Subscription {
                    slots: LockedBy::new(channel.queue(), Slots::new()),
                    cookie,
                    channel,
                })
            }
            None => None,
        };

        Ok(Arc::new(
            Self {
                holder,
                subscription,
                delivered: Atomic::new(0),
                gone: Atomic::new(false),
                links: Links::new(),
                listed: Linked::new(),
                queue_links: Links::new(),
                queued: Linked::new(),
                time: Atomic::new(0),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The process that registered; 0 for the kernel.
    pub(crate) fn pid(&self) -> i32 {
        match self.holder {
            Holder::File(_, process) => process.pid(),
            Holder::Kernel(_) => 0,
        }
    }

    /// The uverbs file whose it is.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self.holder {
            Holder::File(file, _) => Some(file),
            Holder::Kernel(_) => None,
        }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Whether events wait on a channel.
    pub(crate) fn has_channel(&self) -> bool {
        self.subscription.is_some()
    }

    /// Delivers events to the holder. Returns whether it wants to know, and who is to be woken. Any
    /// context.
    pub(crate) fn deliver(self: &Arc<Self>, event: &Event) -> (bool, Option<Wakeup>) {
        if event.kind == EventType::QP_GONE && self.gone.xchg(true, Relaxed) {
            return (false, None);
        }

        let (delivered, wakeup) = match (&self.subscription, &self.holder) {
            (Some(subscription), _) => {
                let channel = &subscription.channel;
                let mut queue = channel.queue().lock();

                if queue.ended {
                    (false, None)
                } else if queue.post(self, event) {
                    (true, Some(Wakeup(channel.clone())))
                } else {
                    (true, None)
                }
            }
            (None, Holder::Kernel(Some(callback))) => {
                callback.event(event);
                (true, None)
            }
            (None, _) => (false, None),
        };

        if delivered {
            self.delivered.add(event.count, Relaxed);
        }
        (delivered, wakeup)
    }

    /// How many events were delivered to the holder, modulo 2^32.
    pub(crate) fn delivered(&self) -> u32 {
        self.delivered.load(Relaxed)
    }

    /// How many records the holder has not read.
    pub(crate) fn unread(&self) -> usize {
        match &self.subscription {
            Some(subscription) => {
                let mut queue = subscription.channel.queue().lock();

                subscription.slots.access_mut(&mut queue).unread()
            }
            None => 0,
        }
    }

    /// Discards what is unread; nothing is added any more.
    pub(crate) fn cancel(self: &Arc<Self>) {
        if let Some(subscription) = &self.subscription {
            subscription.channel.queue().lock().close(self);
        }
    }

    /// The registration ended, and is in no list any more: what is unread is discarded. Unless the
    /// device was removed; then the holder can still read it.
    pub(crate) fn end(self: &Arc<Self>, qpn: u32, why: RemoveReason) {
        match why {
            RemoveReason::Destroyed | RemoveReason::FileClosed => self.cancel(),
            RemoveReason::DeviceRemoved => {
                let (_, wakeup) = self.deliver(&Event::now(qpn, EventType::QP_GONE));

                if let Some(wakeup) = wakeup {
                    wakeup.wake();
                }
            }
        }
    }
}

impl Queued for Subscriber {
    fn slots<'a>(&'a self, queue: &'a mut EventQueue<Self>) -> Option<&'a mut Slots> {
        let subscription = self.subscription.as_ref()?;

        Some(subscription.slots.access_mut(queue))
    }

    fn time(&self) -> &Atomic<u64> {
        &self.time
    }

    fn cookie(&self) -> u64 {
        self.subscription
            .as_ref()
            .map_or(0, |subscription| subscription.cookie)
    }
}

static OPERATIONS: FileOperations<EventChannel> = FileOperations::new(this_module());
static TYPE: FileType<EventChannel> = FileType::new(c"[xrc_rcv_event]", &OPERATIONS);

impl HasChannel for Subscriber {
    const CHANNEL_TYPE: &'static FileType<EventChannel> = &TYPE;
}
