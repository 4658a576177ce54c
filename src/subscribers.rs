// SPDX-License-Identifier: GPL-2.0

//! The subscribers of a receive QP: its registrations, to which its events are delivered.
//!
//! Owned by the QP and, as the context of its events, by the verbs object. An event comes in any
//! context, with interrupts disabled and locks of the provider held. So the list has a lock that
//! may be taken there; inside it, only that of one event channel at a time is taken. Who adds a
//! registration reserves a place before taking any lock: nothing is allocated or freed with this one
//! held, nor with the domain's. The list is ordered, so that it is searched and not
//! walked; only an event is for all, whose number [`limits`] bounds.
//!
//! What the QP was last seen to be is kept here as well, for those who must not ask the device.

use crate::{
    event::{
        Event,
        EventType, //
    },
    kernel_ext::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    limits,
    notify,
    rdma::{
        device::Device,
        qp::EventHandler,
        qp_attr::{
            QpAttr,
            QpAttrMask,
            QpState, //
        },
        uverbs::FileId, //
    },
    subscriber::Subscriber, //
};
use core::mem::swap;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Subscribers {
    device: ARef<Device>,
    domain: u32,
    events: Atomic<i64>,
    state: Atomic<u32>,
    destination: Atomic<u32>,
    #[pin]
    entries: SpinLockIrq<Entries>,
}

/// There is room for the list and what is reserved.
struct Entries {
    /// In the order of [`key`].
    list: KVVec<Arc<Subscriber>>,
    reserved: usize,
}

/// Room for a registration more.
pub(crate) struct Place<'a>(&'a Subscribers);

/// Orders registrations: by their files, those of the kernel first.
fn key(subscriber: &Arc<Subscriber>) -> (Option<FileId>, *const Subscriber) {
    (subscriber.file(), Arc::as_ptr(subscriber))
}

impl Subscribers {
    /// Creates the list of a QP in the domain with the id `domain`.
    pub(crate) fn new(device: ARef<Device>, domain: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                domain,
                events: Atomic::new(0),
                state: Atomic::new(QpState::Reset as u32),
                destination: Atomic::new(0),
                entries <- new_spinlock_irq!(
                    Entries {
                        list: KVVec::new(),
                        reserved: 0,
                    },
                    "Subscribers::entries"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// How many registrations there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().list.len()
    }

    /// Whether nobody is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many events there were.
    pub(crate) fn events(&self) -> i64 {
        self.events.load(Relaxed)
    }

    /// The state that the QP was last seen in: by a command that succeeded, or by its events.
    pub(crate) fn state(&self) -> Result<QpState> {
        self.state.load(Relaxed).try_into()
    }

    /// The QP number of the other side, as last seen.
    pub(crate) fn destination(&self) -> u32 {
        self.destination.load(Relaxed)
    }

    /// Keeps what a command found or did.
    pub(crate) fn note(&self, attributes: &QpAttr) {
        if let (true, Ok(state)) = (attributes.mask().has(QpAttrMask::STATE), attributes.state()) {
            self.state.store(state as u32, Relaxed);
        }
        if attributes.mask().has(QpAttrMask::DEST_QPN) {
            self.destination.store(attributes.destination(), Relaxed);
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The number of the domain.
    pub(crate) fn domain(&self) -> u32 {
        self.domain
    }

    /// Makes room for a registration more.
    pub(crate) fn reserve(&self) -> Result<Place<'_>> {
        let mut bigger = KVVec::new();

        loop {
            let mut entries = self.entries.lock();
            let wanted = entries.list.len() + entries.reserved + 1;

            if wanted > entries.list.capacity() && wanted <= bigger.capacity() {
                for subscriber in entries.list.drain_all() {
                    bigger.push_within_capacity(subscriber)?;
                }
                swap(&mut entries.list, &mut bigger);
            }
            if wanted <= entries.list.capacity() {
                entries.reserved += 1;
                drop(entries);
                return Ok(Place(self));
            }
            drop(entries);
            bigger = KVVec::with_capacity(wanted.next_power_of_two().max(4), GFP_KERNEL_ACCOUNT)?;
        }
    }

    /// Removes a registration. It gets no event after this returns.
    pub(crate) fn remove(&self, subscriber: &Arc<Subscriber>) {
        let mut entries = self.entries.lock();
        let removed = entries
            .list
            .binary_search_by_key(&key(subscriber), key)
            .map(|index| entries.list.remove(index));

        drop(entries);
        drop(removed);
    }

    /// Whether `predicate` holds for any registration.
    pub(crate) fn any(&self, predicate: impl FnMut(&Subscriber) -> bool) -> bool {
        let mut predicate = predicate;

        self.entries
            .lock()
            .list
            .iter()
            .any(|subscriber| predicate(subscriber))
    }

    /// Whether a uverbs file is registered.
    pub(crate) fn has(&self, file: FileId) -> bool {
        let entries = &self.entries.lock().list;
        let index = entries.partition_point(|other| other.file() < Some(file));

        entries
            .get(index)
            .is_some_and(|subscriber| subscriber.is_of(file))
    }

    /// The registrations there are now.
    pub(crate) fn snapshot(&self) -> Result<KVVec<Arc<Subscriber>>> {
        loop {
            let mut snapshot = KVVec::with_capacity(self.len(), GFP_KERNEL)?;
            let entries = self.entries.lock();

            if entries.list.len() <= snapshot.capacity() {
                for subscriber in entries.list.iter() {
                    snapshot.push_within_capacity(subscriber.clone())?;
                }
                drop(entries);
                return Ok(snapshot);
            }
        }
    }

    /// Tells everybody that the QP is gone. No event may come after this.
    pub(crate) fn gone(&self, qpn: u32) {
        self.deliver(&Event::now(qpn, EventType::QP_GONE));
    }

    /// Tells everybody of an event, and returns how many wanted to know.
    fn deliver(&self, event: &Event) -> usize {
        self.entries
            .lock()
            .list
            .iter()
            .filter(|subscriber| subscriber.deliver(event))
            .count()
    }
}

impl Place<'_> {
    /// Adds a registration, if the limit allows it. The caller sees to it that only one is added at
    /// a time.
    pub(crate) fn take(self, subscriber: Arc<Subscriber>) -> Result {
        limits::another_registration(self.0.len())?;

        let mut entries = self.0.entries.lock();
        let key_of_new = key(&subscriber);
        let index = entries
            .list
            .partition_point(|other| key(other) < key_of_new);

        // There is room: it was reserved.
        entries
            .list
            .insert_within_capacity(index, subscriber)
            .map_err(|_| ENOMEM)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.entries.lock().reserved -= 1;
    }
}

impl EventHandler for Subscribers {
    fn event(&self, qpn: u32, ib_event: u32) {
        self.events.add(1, Relaxed);
        if EventType::ends_in_error(ib_event) {
            self.state.store(QpState::Error as u32, Relaxed);
        }

        let delivered = match EventType::from_ib_event(ib_event) {
            Some(kind) => self.deliver(&Event::now(qpn, kind)),
            None => 0,
        };

        notify::event(&self.device, self.domain, qpn, ib_event, delivered);
        if delivered == 0 {
            self.device.log_qp_event(qpn, ib_event);
        }
    }
}
