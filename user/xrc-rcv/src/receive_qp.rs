// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Receive QPs: how they are created and registered with, and how they are queried.

use crate::attr::{QpAttr, QpState};
use crate::channel::{EventChannel, EventTypes};
use crate::registered::Choice;
use crate::uapi::*;

/// The lifetime of a receive QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Lifetime {
    /// Destroyed with its last registration.
    #[default]
    Registrations = XRC_RCV_LIFETIME_REGISTRATIONS,
    /// Destroyed with its domain's last close, or by [`Domain::destroy`](crate::Domain::destroy).
    Domain = XRC_RCV_LIFETIME_DOMAIN,
}

impl Lifetime {
    fn from_raw(lifetime: u32) -> Option<Lifetime> {
        match lifetime {
            XRC_RCV_LIFETIME_REGISTRATIONS => Some(Lifetime::Registrations),
            XRC_RCV_LIFETIME_DOMAIN => Some(Lifetime::Domain),
            _ => None,
        }
    }

    /// The lifetime's name as the kernel spells it.
    pub fn name(self) -> &'static str {
        match self {
            Lifetime::Registrations => "registrations",
            Lifetime::Domain => "domain",
        }
    }
}

/// A receive QP as seen from its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo(pub(crate) xrc_rcv_qp_info);

impl QpInfo {
    /// The QP's number.
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// The QP's state, if this version of the crate knows it.
    pub fn state(&self) -> Option<QpState> {
        QpState::from_raw(self.0.state)
    }

    /// The lifetime, if this version of the crate knows it.
    pub fn lifetime(&self) -> Option<Lifetime> {
        Lifetime::from_raw(self.0.lifetime)
    }

    /// The number of event channels and kernel users that are registered with the QP.
    pub fn registrations(&self) -> u32 {
        self.0.registrations
    }

    /// The label that the QP's creator gave it ([`AllocOptions::label`]); 0 if it gave none, or if
    /// the kernel has no labels ([`Caps::has_labels`](crate::Caps::has_labels)).
    pub fn label(&self) -> u64 {
        self.0.label
    }

    /// The number of the peer's QP; 0 as long as there is none, or if the kernel has no labels.
    pub fn dest_qp_num(&self) -> u32 {
        self.0.dest_qp_num
    }

    /// The kernel's own struct.
    pub fn as_raw(&self) -> &xrc_rcv_qp_info {
        &self.0
    }
}

/// Options for a registration with a receive QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterOptions<'channel> {
    pub(crate) channel: Option<&'channel EventChannel>,
    pub(crate) cookie: u64,
    pub(crate) events: Option<EventTypes>,
}

impl<'channel> RegisterOptions<'channel> {
    /// No channel, cookie 0; every event if there is a channel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers `channel`, which is of the domain, and delivers the QP's events to it. Without
    /// one, a channel of the [`Domain`](crate::Domain) is registered, for no event.
    pub fn channel(mut self, channel: &'channel EventChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Returned in every event of this registration.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    pub(crate) fn choice(&self) -> Choice {
        Choice {
            cookie: self.cookie,
            events: self.events.map_or(u64::MAX, |events| events.bits()),
        }
    }

    /// Sets the event mask: only these events are delivered. Types that the kernel does not know
    /// ([`Caps::event_types`](crate::Caps::event_types)) are refused with `EINVAL`. An event that
    /// the mask excludes can make the channel readable, and the next read find nothing.
    pub fn events(mut self, events: EventTypes) -> Self {
        self.events = Some(events);
        self
    }
}

/// Options for a new receive QP.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocOptions<'channel> {
    pub(crate) register: RegisterOptions<'channel>,
    pub(crate) flags: u32,
    pub(crate) label: Option<u64>,
    pub(crate) attr: Option<QpAttr>,
}

impl<'channel> AllocOptions<'channel> {
    /// A QP in RESET that is destroyed with its last registration, see [`RegisterOptions::new`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The channel, the cookie and the event mask of the registration.
    pub fn register(mut self, options: RegisterOptions<'channel>) -> Self {
        self.register = options;
        self
    }

    /// See [`RegisterOptions::channel`].
    pub fn channel(mut self, channel: &'channel EventChannel) -> Self {
        self.register = self.register.channel(channel);
        self
    }

    /// See [`RegisterOptions::cookie`].
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.register = self.register.cookie(cookie);
        self
    }

    /// See [`RegisterOptions::events`].
    pub fn events(mut self, events: EventTypes) -> Self {
        self.register = self.register.events(events);
        self
    }

    /// Sets the label, which queries of the QP return ([`QpInfo::label`]); the kernel does not
    /// interpret it. A kernel without labels ([`Caps::has_labels`](crate::Caps::has_labels))
    /// refuses it with [`Cause::Unavailable`](crate::Cause::Unavailable).
    pub fn label(mut self, label: u64) -> Self {
        self.label = Some(label);
        self
    }

    /// The lifetime.
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.flags = match lifetime {
            Lifetime::Registrations => 0,
            Lifetime::Domain => XRC_RCV_ALLOC_LIFETIME_DOMAIN,
        };
        self
    }

    /// Flags as the kernel defines them; it refuses those it does not know.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// Takes the QP as far as `attr` allows: to INIT, or to RTR.
    pub fn attr(mut self, attr: QpAttr) -> Self {
        self.attr = Some(attr);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_newer_kernel_are_not_misread() {
        let info = QpInfo(xrc_rcv_qp_info {
            state: 9,
            lifetime: 2,
            ..Default::default()
        });
        assert_eq!(info.state(), None);
        assert_eq!(info.lifetime(), None);
    }
}
