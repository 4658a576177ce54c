// SPDX-License-Identifier: GPL-2.0

//! The fan-out of a receive QP: who is registered, and therefore hears of its events.
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
    announce,
    event::{
        Event,
        EventType, //
    },
    limits,
    rdma::{
        device::Device,
        new_spinlock_irq,
        qp::EventHandler,
        qp_attributes::{
            Attributes,
            Mask,
            State, //
        },
        uverbs::FileId,
        SpinLockIrq, //
    },
    registration::Registration, //
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
pub(crate) struct FanOut {
    device: ARef<Device>,
    domain: u32,
    events: Atomic<i64>,
    state: Atomic<u32>,
    destination: Atomic<u32>,
    #[pin]
    registrations: SpinLockIrq<Registrations>,
}

/// There is room for the list and what is reserved.
struct Registrations {
    /// In the order of [`key`].
    list: KVVec<Arc<Registration>>,
    reserved: usize,
}

/// Room for a registration more.
pub(crate) struct Place<'a>(&'a FanOut);

/// Orders registrations: by their files, those of the kernel first.
fn key(registration: &Arc<Registration>) -> (Option<FileId>, *const Registration) {
    (registration.file(), Arc::as_ptr(registration))
}

impl FanOut {
    /// The fan-out of a QP of the domain number `domain`.
    pub(crate) fn new(device: ARef<Device>, domain: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                domain,
                events: Atomic::new(0),
                state: Atomic::new(State::Reset as u32),
                destination: Atomic::new(0),
                registrations <- new_spinlock_irq!(
                    Registrations {
                        list: KVVec::new(),
                        reserved: 0,
                    },
                    "FanOut::registrations"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// How many registrations there are.
    pub(crate) fn len(&self) -> usize {
        self.registrations.lock().list.len()
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
    pub(crate) fn state(&self) -> Result<State> {
        self.state.load(Relaxed).try_into()
    }

    /// The QP number of the other side, as last seen.
    pub(crate) fn destination(&self) -> u32 {
        self.destination.load(Relaxed)
    }

    /// Keeps what a command found or did.
    pub(crate) fn note(&self, attributes: &Attributes) {
        if let (true, Ok(state)) = (attributes.mask().has(Mask::STATE), attributes.state()) {
            self.state.store(state as u32, Relaxed);
        }
        if attributes.mask().has(Mask::DEST_QPN) {
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
            let mut registrations = self.registrations.lock();
            let wanted = registrations.list.len() + registrations.reserved + 1;

            if wanted > registrations.list.capacity() && wanted <= bigger.capacity() {
                for registration in registrations.list.drain_all() {
                    bigger.push_within_capacity(registration)?;
                }
                swap(&mut registrations.list, &mut bigger);
            }
            if wanted <= registrations.list.capacity() {
                registrations.reserved += 1;
                drop(registrations);
                return Ok(Place(self));
            }
            drop(registrations);
            bigger = KVVec::with_capacity(wanted.next_power_of_two().max(4), GFP_KERNEL_ACCOUNT)?;
        }
    }

    /// Removes a registration. It gets no event after this returns.
    pub(crate) fn remove(&self, registration: &Arc<Registration>) {
        let mut registrations = self.registrations.lock();
        let removed = registrations
            .list
            .binary_search_by_key(&key(registration), key)
            .map(|index| registrations.list.remove(index));

        drop(registrations);
        drop(removed);
    }

    /// Whether `predicate` holds for any registration.
    pub(crate) fn any(&self, predicate: impl FnMut(&Registration) -> bool) -> bool {
        let mut predicate = predicate;

        self.registrations
            .lock()
            .list
            .iter()
            .any(|registration| predicate(registration))
    }

    /// Whether a uverbs file is registered.
    pub(crate) fn has(&self, file: FileId) -> bool {
        let registrations = &self.registrations.lock().list;
        let index = registrations.partition_point(|other| other.file() < Some(file));

        registrations
            .get(index)
            .is_some_and(|registration| registration.is_of(file))
    }

    /// The registrations there are now.
    pub(crate) fn snapshot(&self) -> Result<KVVec<Arc<Registration>>> {
        loop {
            let mut snapshot = KVVec::with_capacity(self.len(), GFP_KERNEL)?;
            let registrations = self.registrations.lock();

            if registrations.list.len() <= snapshot.capacity() {
                for registration in registrations.list.iter() {
                    snapshot.push_within_capacity(registration.clone())?;
                }
                drop(registrations);
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
        self.registrations
            .lock()
            .list
            .iter()
            .filter(|registration| registration.deliver(event))
            .count()
    }
}

impl Place<'_> {
    /// Adds a registration, if the limit allows it. The caller sees to it that only one is added at
    /// a time.
    pub(crate) fn take(self, registration: Arc<Registration>) -> Result {
        limits::another_registration(self.0.len())?;

        let mut registrations = self.0.registrations.lock();
        let key_of_new = key(&registration);
        let index = registrations
            .list
            .partition_point(|other| key(other) < key_of_new);

        // There is room: it was reserved.
        registrations
            .list
            .insert_within_capacity(index, registration)
            .map_err(|_| ENOMEM)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.registrations.lock().reserved -= 1;
    }
}

impl EventHandler for FanOut {
    fn event(&self, qpn: u32, number: u32) {
        self.events.add(1, Relaxed);
        if EventType::ends_in_error(number) {
            self.state.store(State::Error as u32, Relaxed);
        }

        let delivered = match EventType::from_verbs(number) {
            Some(kind) => self.deliver(&Event::now(qpn, kind)),
            None => 0,
        };

        announce::event(self, qpn, number, delivered);
        if delivered == 0 {
            self.device.log_qp_event(qpn, number);
        }
    }
}
