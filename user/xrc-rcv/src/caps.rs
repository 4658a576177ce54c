// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The capabilities of the kernel and a device.

use crate::channel::{EventType, EventTypes};
use crate::uapi::{XRC_RCV_ALLOC_LIFETIME_DOMAIN, xrc_rcv_caps};

/// The capabilities of the kernel and a device; see
/// [`Device::query_caps`](crate::Device::query_caps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps(pub(crate) xrc_rcv_caps);

impl Caps {
    /// The version of the interface. Nothing is ever removed from it.
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// Whether receive QPs can outlive all registrations
    /// ([`Lifetime::Domain`](crate::Lifetime::Domain)).
    pub fn has_lifetime_domain(&self) -> bool {
        self.0.alloc_flags & XRC_RCV_ALLOC_LIFETIME_DOMAIN != 0
    }

    /// Whether events of this type can be reported.
    pub fn reports(&self, event: EventType) -> bool {
        event.raw() < u64::BITS && self.0.event_types & (1 << event.raw()) != 0
    }

    /// The types of events that can be reported, and that an event mask may have.
    pub fn event_types(&self) -> EventTypes {
        EventTypes::from_bits_retain(self.0.event_types)
    }

    /// Whether a registration can choose its events ([`RegisterOptions::events`]).
    ///
    /// [`RegisterOptions::events`]: crate::RegisterOptions::events
    pub fn has_event_masks(&self) -> bool {
        self.0.version >= 2
    }

    /// Whether receive QPs have labels ([`AllocOptions::label`]).
    ///
    /// [`AllocOptions::label`]: crate::AllocOptions::label
    pub fn has_labels(&self) -> bool {
        self.0.version >= 2
    }

    /// How many receive QPs a domain can hold, if that is limited.
    pub fn max_qps_per_domain(&self) -> Option<u32> {
        (self.0.max_qps_per_domain != 0).then_some(self.0.max_qps_per_domain)
    }

    /// How many receive QPs of one user can exist on all devices, if that is limited.
    pub fn max_qps_per_user(&self) -> Option<u32> {
        (self.0.max_qps_per_user != 0).then_some(self.0.max_qps_per_user)
    }

    /// How many registrations a receive QP can have, if that is limited.
    pub fn max_registrations_per_qp(&self) -> Option<u32> {
        let most = self.0.max_registrations_per_qp;
        (most != 0).then_some(most)
    }

    /// The kernel's own struct.
    pub fn as_raw(&self) -> &xrc_rcv_caps {
        &self.0
    }
}
