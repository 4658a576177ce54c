// SPDX-License-Identifier: GPL-2.0

//! The status of a receive QP: which one it is, and what is known of it without its device.
//!
//! For reports, which any context makes, and for callers that must not query the device, such as
//! readers of debugfs. It is a member of the QP's [registrations](crate::registrations): they are
//! the context of its events, which change the status, and exist before the QP has a number. It has
//! no lock: members that change are atomic.

use crate::{
    creator::Creator,
    event::EventType,
    known_state::KnownState,
    notify,
    rdma::device::Device,
    uapi, //
};
use kernel::sync::{
    aref::ARef,
    atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Says how long a receive QP exists, if it is not destroyed by a call before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Its registrations: the QP is destroyed with the last one that keeps it.
    Registrations,
    /// Its domain: the QP is destroyed when the domain is closed.
    Domain,
}

impl Lifetime {
    /// Returns the value in the uapi.
    pub(crate) fn as_raw(self) -> u32 {
        match self {
            Self::Registrations => uapi::XRC_RCV_LIFETIME_REGISTRATIONS,
            Self::Domain => uapi::XRC_RCV_LIFETIME_DOMAIN,
        }
    }

    /// Returns the name in debugfs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Registrations => "registrations",
            Self::Domain => "domain",
        }
    }
}

/// See the [module's documentation](self).
pub(crate) struct QpStatus {
    device: ARef<Device>,
    domain: u32,
    serial: u64,
    creator: Creator,
    lifetime: Lifetime,
    label: u64,
    qpn: Atomic<u32>,
    /// The number of all events, also of kinds that are not reported.
    events: Atomic<i64>,
    known: KnownState,
}

impl QpStatus {
    /// Creates the status of the `serial`th QP of the domain with the id `domain`. The QP number is
    /// set when the QP is created.
    pub(crate) fn new(
        device: ARef<Device>,
        domain: u32,
        serial: u64,
        creator: Creator,
        lifetime: Lifetime,
        label: u64,
    ) -> Self {
        Self {
            device,
            domain,
            serial,
            creator,
            lifetime,
            label,
            qpn: Atomic::new(0),
            events: Atomic::new(0),
            known: KnownState::new(),
        }
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the id of the domain.
    pub(crate) fn domain(&self) -> u32 {
        self.domain
    }

    /// Returns which of the QPs of the domain it is, in the order in which they were created.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the creator.
    pub(crate) fn creator(&self) -> &Creator {
        &self.creator
    }

    /// Returns the lifetime.
    pub(crate) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// Returns the label that the creator gave the QP.
    pub(crate) fn label(&self) -> u64 {
        self.label
    }

    /// Sets the QP number, before there is a registration.
    pub(crate) fn set_qpn(&self, qpn: u32) {
        self.qpn.store(qpn, Relaxed);
    }

    /// Returns the QP number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn.load(Relaxed)
    }

    /// Returns the number of events of the QP.
    pub(crate) fn events(&self) -> i64 {
        self.events.load(Relaxed)
    }

    /// Returns the last known state of the QP.
    pub(crate) fn known(&self) -> &KnownState {
        &self.known
    }

    /// Notes an event, an `enum ib_event_type`. May be called in any context.
    pub(crate) fn note_event(&self, ib_event: u32) {
        self.events.add(1, Relaxed);
        if EventType::ends_in_error(ib_event) {
            self.known.note_break();
        }
    }

    /// Reports an event, an `enum ib_event_type`, in the kernel log. May be called in any context.
    /// The number is an argument because an event may come before it is set.
    pub(crate) fn log_event(&self, qpn: u32, ib_event: u32) {
        self.device
            .log_qp_event(self.creator.accounting_uid(), qpn, ib_event);
    }

    /// Returns the values of a report that are the same in every report of the QP `qpn`. The others
    /// are 0.
    pub(crate) fn report(&self, qpn: u32) -> notify::Qp<'_> {
        notify::Qp {
            device: &self.device,
            domain: self.domain,
            qpn,
            serial: self.serial,
            label: 0,
            lifetime: 0,
            registrations: 0,
            keeping: 0,
            keeping_all: 0,
            changes: 0,
        }
    }
}
