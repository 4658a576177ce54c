// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! What there is at one moment: devices, their domains, the receive QPs in them, and the
//! registrations with those. What `show --json` prints.

use serde::Serialize;

/// A device, with as much as this user may see of it.
#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) status: Status,
    /// `None` unless attached.
    pub(crate) caps: Option<Caps>,
    /// `None` if this user may not see them.
    pub(crate) domains: Option<Vec<Domain>>,
}

/// Whether a device has receive QPs.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// It has.
    Attached,
    /// The module is not loaded, or not attached to this device.
    Unavailable,
    /// It cannot be opened by this user.
    Inaccessible,
}

impl Status {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Status::Attached => "attached",
            Status::Unavailable => "no receive QPs",
            Status::Inaccessible => "not accessible",
        }
    }
}

/// What the kernel and the device offer.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) version: u32,
    pub(crate) max_qps_per_domain: Option<u32>,
    pub(crate) max_qps_per_user: Option<u32>,
}

#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Domain {
    /// The kernel's number of it, `None` if seen from within.
    pub(crate) domain: Option<u64>,
    pub(crate) qps: Vec<Qp>,
}

#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Qp {
    pub(crate) qpn: u32,
    pub(crate) state: String,
    pub(crate) lifetime: String,
    /// The peer's QP, `None` as long as there is none.
    pub(crate) dest_qpn: Option<u32>,
    /// How many events there were, `None` if not known.
    pub(crate) events: Option<u64>,
    pub(crate) registrations: u64,
    /// `None` if this user may not see them.
    pub(crate) registered: Option<Vec<Registration>>,
}

#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Registration {
    /// `file`, or `kernel` for a user in the kernel.
    pub(crate) kind: String,
    pub(crate) pid: Option<u32>,
    pub(crate) program: String,
    /// Whether events are delivered to a channel.
    pub(crate) channel: bool,
    pub(crate) events: u64,
    /// Events that were not read yet.
    pub(crate) pending: u64,
}
