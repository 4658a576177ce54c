// SPDX-License-Identifier: GPL-2.0

//! The fan-out of a receive QP: who is registered, and therefore hears of its events.
//!
//! Owned by the QP and, as the context of its events, by the verbs object. An event comes in any
//! context, with interrupts disabled and locks of the provider held. So the list has a lock that
//! may be taken there; inside it, only that of one event channel at a time is taken. Additions
//! happen under the domain's lock, one at a time, and make room before they take this one:
//! nothing is allocated or freed with it held.

use crate::{
    announce,
    event::{
        Event,
        EventType, //
    },
    rdma::{
        device::Device,
        irq_lock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
        qp::EventHandler,
        uverbs::FileId, //
    },
    registration::Registration, //
};
use core::mem::replace;
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
    #[pin]
    registrations: IrqSpinLock<KVec<Arc<Registration>>>,
}

impl FanOut {
    /// The fan-out of a QP of the domain number `domain`.
    pub(crate) fn new(device: ARef<Device>, domain: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                domain,
                events: Atomic::new(0),
                registrations <- new_irq_spinlock!(KVec::new(), "FanOut::registrations"),
            }),
            GFP_KERNEL,
        )
    }

    /// How many registrations there are.
    pub(crate) fn len(&self) -> usize {
        self.registrations.lock().len()
    }

    /// Whether nobody is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many events there were.
    pub(crate) fn events(&self) -> i64 {
        self.events.load(Relaxed)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The number of the domain.
    pub(crate) fn domain(&self) -> u32 {
        self.domain
    }

    /// Adds a registration. The caller sees to it that only one is added at a time.
    pub(crate) fn add(&self, registration: Arc<Registration>) -> Result {
        let (len, capacity) = {
            let registrations = self.registrations.lock();

            (registrations.len(), registrations.capacity())
        };

        if len < capacity {
            return Ok(self
                .registrations
                .lock()
                .push_within_capacity(registration)?);
        }

        let mut bigger = KVec::with_capacity(len.checked_mul(2).ok_or(ENOMEM)?.max(4), GFP_KERNEL)?;
        let mut registrations = self.registrations.lock();

        for old in registrations.drain_all() {
            bigger.push_within_capacity(old)?;
        }
        bigger.push_within_capacity(registration)?;

        let old = replace(&mut *registrations, bigger);

        drop(registrations);
        drop(old);
        Ok(())
    }

    /// Removes a registration. It gets no event after this returns.
    pub(crate) fn remove(&self, registration: &Arc<Registration>) {
        let mut registrations = self.registrations.lock();
        let removed = registrations
            .iter()
            .position(|other| Arc::ptr_eq(other, registration))
            .map(|index| registrations.remove(index));

        drop(registrations);
        drop(removed);
    }

    /// Whether `predicate` holds for any registration.
    pub(crate) fn any(&self, predicate: impl FnMut(&Registration) -> bool) -> bool {
        let mut predicate = predicate;

        self.registrations
            .lock()
            .iter()
            .any(|registration| predicate(registration))
    }

    /// Whether a uverbs file is registered.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.any(|registration| registration.is_of(file))
    }

    /// The registrations there are now.
    pub(crate) fn snapshot(&self) -> Result<KVec<Arc<Registration>>> {
        loop {
            let mut snapshot = KVec::with_capacity(self.len(), GFP_KERNEL)?;
            let registrations = self.registrations.lock();

            if registrations.len() <= snapshot.capacity() {
                for registration in registrations.iter() {
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
            .iter()
            .filter(|registration| registration.deliver(event))
            .count()
    }
}

impl EventHandler for FanOut {
    fn event(&self, qpn: u32, number: u32) {
        self.events.add(1, Relaxed);

        let told = match EventType::from_verbs(number) {
            Some(kind) => self.deliver(&Event::now(qpn, kind)),
            None => 0,
        };

        announce::event(self, qpn, number, told);
        if told == 0 {
            self.device.log_qp_event(qpn, number);
        }
    }
}
