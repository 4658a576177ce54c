// SPDX-License-Identifier: GPL-2.0

//! A subscriber of a receive QP: the part of a registration that events are delivered to.
//!
//! One allocation holds its links in the list of the QP and in the queue of an event channel, and
//! its slots on that channel. The registration owns a reference; so does the list of the QP until
//! the registration ends, and the queue of the channel as long as the subscriber has unread events.
//! Members that change are atomic, or guarded by the lock of the channel.

use crate::{
    event::{
        Event,
        EventMask,
        EventType, //
    },
    event_channel,
    event_queue::{
        self,
        EventQueue,
        Queued,
        Slots,
        BY_TIME, //
    },
    kernel_ext::{
        process::Process,
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        }, //
    },
    notify::{
        self,
        FileId, //
    },
    rdma::uverbs::RemoveReason,
    right::Right, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        LockedBy, //
    }, //
};

/// An event channel of registrations.
pub(crate) type EventChannel = event_channel::EventChannel<Subscriber>;

/// The holder of a registration, and its event mask.
pub(crate) enum Holder {
    /// The event channel of a member, the process that registered, and its right.
    File(FileId, Process, EventMask, Right),
    /// A kernel user, and the handler of its events.
    Kernel(Option<KBox<dyn Callback>>, EventMask),
}

/// A handler of events of a kernel user.
pub(crate) trait Callback: Send + Sync {
    /// Handles an event. Called in any context, with locks held: it must not sleep, nor unregister.
    fn event(&self, event: &Event);
}

/// The part of a subscriber that its channel uses.
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
    links: Links<BY_HOLDER>,
    listed: Linked<BY_HOLDER>,
    /// The events of the current round happened before it was added. Written with the lock of the
    /// list held.
    skips_round: Atomic<bool>,

    /// In the queue of the channel.
    queue_links: Links<BY_TIME>,
    queued: Linked<BY_TIME>,
    /// The time of its oldest unread event. Written with the lock of the channel held.
    time: Atomic<u64>,
}

/// With its reference count, the subscriber fits into kmalloc-256.
const _: () = assert!(size_of::<Subscriber>() + size_of::<u64>() <= 256);

/// The order of the subscribers of a QP: by address.
pub(crate) type Key = usize;

/// The [`Tree`](crate::kernel_ext::tree::Tree) of a QP.
pub(crate) const BY_HOLDER: u64 = 0;

impl_tree_item! {
    impl TreeItem<{ BY_HOLDER }> for Subscriber {
        links: links,
        linked: listed,
        key: |subscriber| -> Key { subscriber.address() }
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

/// The result of delivering events to a subscriber.
#[must_use]
pub(crate) enum Delivery {
    /// The events were delivered.
    Done,
    /// The event mask excludes the events.
    Masked,
    /// The holder has no channel and no handler, or its channel is at its end.
    Impossible,
}

impl Subscriber {
    /// Creates a subscriber whose events are reported with `cookie` on `channel`, if there is one.
    /// `EIO` if the channel is at its end.
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
                skips_round: Atomic::new(false),
                queue_links: Links::new(),
                queued: Linked::new(),
                time: Atomic::new(0),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Returns the holder of the registration.
    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the event mask.
    pub(crate) fn mask(&self) -> EventMask {
        let (Holder::File(_, _, mask, _) | Holder::Kernel(_, mask)) = self.holder;

        mask
    }

    /// Returns the pid of the process that registered, or 0 for a kernel user.
    pub(crate) fn pid(&self) -> i32 {
        match self.holder {
            Holder::File(_, process, ..) => process.pid(),
            Holder::Kernel(..) => 0,
        }
    }

    /// Returns the holder of the registration for reports.
    pub(crate) fn report(&self) -> notify::Holder {
        notify::Holder {
            pid: self.pid(),
            file: self.file(),
        }
    }

    /// Returns the event channel of the member that holds the registration.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self.holder {
            Holder::File(file, ..) => Some(file),
            Holder::Kernel(..) => None,
        }
    }

    /// Whether the QP stays as long as the registration, unless its domain is closed.
    pub(crate) fn keeps(&self) -> bool {
        match self.holder {
            Holder::File(.., right) => right >= Right::Write,
            Holder::Kernel(..) => true,
        }
    }

    /// Returns whether the current round of events passes over it.
    pub(crate) fn skips_round(&self) -> &Atomic<bool> {
        &self.skips_round
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Whether events are reported on a channel.
    pub(crate) fn has_channel(&self) -> bool {
        self.subscription.is_some()
    }

    /// Delivers events to the holder, unless its event mask excludes them. May be called in any
    /// context.
    pub(crate) fn deliver(self: ArcBorrow<'_, Self>, event: &Event) -> Delivery {
        if !self.mask().has(event.kind) {
            return Delivery::Masked;
        }
        if event.kind == EventType::QP_GONE && self.gone.xchg(true, Relaxed) {
            return Delivery::Done;
        }

        let delivery = match (&self.subscription, &self.holder) {
            (Some(subscription), _) => {
                let channel = &subscription.channel;
                let mut queue = channel.queue().lock();
                let ended = queue.ended;
                let is_new = !ended && queue.post(self, event);

                drop(queue);
                if is_new {
                    channel.wake_later();
                }
                if ended {
                    Delivery::Impossible
                } else {
                    Delivery::Done
                }
            }
            (None, Holder::Kernel(Some(callback), _)) => {
                callback.event(event);
                Delivery::Done
            }
            (None, _) => Delivery::Impossible,
        };

        if matches!(delivery, Delivery::Done) {
            self.delivered.add(event.count, Relaxed);
        }
        delivery
    }

    /// Returns the number of events that were delivered, modulo 2^32.
    pub(crate) fn delivered(&self) -> u32 {
        self.delivered.load(Relaxed)
    }

    /// Returns the number of unread records.
    pub(crate) fn unread(&self) -> usize {
        match &self.subscription {
            Some(subscription) => {
                let mut queue = subscription.channel.queue().lock();

                subscription.slots.access_mut(&mut queue).unread()
            }
            None => 0,
        }
    }

    /// Discards unread events. No event is added after this.
    pub(crate) fn cancel(self: &Arc<Self>) {
        if let Some(subscription) = &self.subscription {
            subscription
                .channel
                .queue()
                .lock()
                .close(self.as_arc_borrow());
        }
    }

    /// Ends the registration, which is not in the list of the QP any more. Unread events are
    /// discarded, except after the removal of the device, where QP_GONE is added and all can still
    /// be read.
    pub(crate) fn end(self: &Arc<Self>, qpn: u32, why: RemoveReason) {
        match why {
            RemoveReason::Destroyed | RemoveReason::FileClosed => self.cancel(),
            RemoveReason::DeviceRemoved => {
                // If it is not delivered, the holder does not want it, or cannot get it.
                let _ = self
                    .as_arc_borrow()
                    .deliver(&Event::now(qpn, EventType::QP_GONE));
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

#[kunit_tests(ib_xrc_rcv_subscriber)]
mod tests {
    use super::*;
    use crate::uapi::RecordSize;

    fn event(kind: EventType) -> Event {
        Event::now(0x17, kind)
    }

    #[test]
    fn only_events_that_were_asked_for_are_delivered() -> Result {
        let channel = EventChannel::new(RecordSize::new(None)?)?;
        let wanted = EventType::from_index(1).ok_or(EINVAL)?;
        let unwanted = EventType::from_index(0).ok_or(EINVAL)?;
        let mut events = EventMask::default();

        events.add(wanted);

        let subscriber = Subscriber::new(Holder::Kernel(None, events), Some(channel), 1)?;

        for kind in [unwanted, EventType::QP_GONE] {
            let delivery = subscriber.as_arc_borrow().deliver(&event(kind));

            assert!(matches!(delivery, Delivery::Masked));
        }
        assert_eq!((subscriber.unread(), subscriber.delivered()), (0, 0));

        let delivery = subscriber.as_arc_borrow().deliver(&event(wanted));

        assert!(matches!(delivery, Delivery::Done));
        assert_eq!((subscriber.unread(), subscriber.delivered()), (1, 1));
        subscriber.cancel();
        Ok(())
    }

    #[test]
    fn the_end_of_the_qp_is_one_record() -> Result {
        let channel = EventChannel::new(RecordSize::new(None)?)?;
        let holder = Holder::Kernel(None, EventMask::ALL);
        let subscriber = Subscriber::new(holder, Some(channel), 1)?;
        let gone = event(EventType::QP_GONE);

        let deliver = || subscriber.as_arc_borrow().deliver(&gone);

        assert!(matches!(deliver(), Delivery::Done));
        assert!(matches!(deliver(), Delivery::Done));
        assert_eq!(subscriber.unread(), 1);
        subscriber.cancel();
        Ok(())
    }
}
