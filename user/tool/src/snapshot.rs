// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The state at one moment: devices, their domains, the receive QPs in them, and the registrations
//! with those. `show --json` prints it; output.schema.json describes the keys, which are those of
//! `rdma -j` where they mean the same.

use serde::{Serialize, Serializer};
use xrc_rcv::EventType;

/// The version of the JSON that all commands print. Keys may be added to a version; none is changed
/// or removed.
pub(crate) const JSON_VERSION: u32 = 1;

/// A device, with as much as this user may see of it.
#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Device {
    /// The kernel's number of it, `None` if libibverbs does not know it.
    pub(crate) ifindex: Option<u32>,
    pub(crate) ifname: String,
    pub(crate) status: Status,
    /// `None` unless attached.
    pub(crate) caps: Option<Caps>,
    /// `None` if this user may not see them.
    pub(crate) domains: Option<Vec<Domain>>,
}

/// Whether a device has receive QPs, or why not.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    Attached,
    /// The module is not loaded.
    NotLoaded,
    /// The device has XRC, but the module is not attached to it.
    NotAttached,
    NoXrc,
    /// This user may not open the device.
    NoPermission,
    /// ib_uverbs does not offer the device to user space.
    NotExposed,
}

impl Status {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Status::Attached => "attached",
            Status::NotLoaded => "module not loaded",
            Status::NotAttached => "not attached",
            Status::NoXrc => "no XRC",
            Status::NoPermission => "no permission",
            Status::NotExposed => "not exposed",
        }
    }

    /// The remedy, if it is not attached.
    pub(crate) fn advice(self) -> Option<&'static str> {
        Some(match self {
            Status::Attached => return None,
            Status::NotLoaded => {
                "the module ib_xrc_rcv is not loaded: run 'xrc-rcv-module load' as root"
            }
            Status::NotAttached => {
                "ib_xrc_rcv was loaded after ib_uverbs had exposed the device, or could not attach \
                 (the kernel's log says which): run 'xrc-rcv-module reload' as root"
            }
            Status::NoXrc => "the driver or its library has no XRC, without which no receive QPs",
            Status::NoPermission => {
                "this user may not open its file in /dev/infiniband: ask for access, or be root"
            }
            Status::NotExposed => "ib_uverbs does not expose the device: run 'modprobe ib_uverbs'",
        })
    }
}

/// The capabilities of the kernel and the device.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) version: u32,
    pub(crate) max_qps_per_domain: Option<u32>,
    pub(crate) max_qps_per_user: Option<u32>,
    pub(crate) max_registrations_per_qp: Option<u32>,
}

#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Domain {
    /// The kernel's number of it, `None` if seen from within.
    pub(crate) domain: Option<u64>,
    pub(crate) qps: Vec<Qp>,
}

#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Qp {
    #[serde(rename = "lqpn")]
    pub(crate) qpn: u32,
    pub(crate) state: String,
    pub(crate) lifetime: String,
    /// The peer's QP, `None` as long as there is none.
    #[serde(rename = "rqpn")]
    pub(crate) dest_qpn: Option<u32>,
    /// The label, `None` if its creator gave it none.
    #[serde(serialize_with = "label")]
    pub(crate) label: Option<u64>,
    /// How many events there were, `None` if not known.
    pub(crate) events: Option<u64>,
    /// The effective uid that created it, and the uid for which it counts, `None` if not known.
    pub(crate) creator: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) registrations: u64,
    /// Who is registered, `None` if this user may not see them.
    #[serde(rename = "holders")]
    pub(crate) registered: Option<Vec<Registration>>,
}

/// A label in JSON. A string: readers may keep no more than 53 bits of a number.
fn label<S: Serializer>(label: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    label
        .map(|label| format!("{label:#x}"))
        .serialize(serializer)
}

/// The names of the event types of a mask.
pub(crate) fn type_names(mask: u64) -> Vec<String> {
    (0..u64::BITS)
        .filter(|bit| mask & (1 << bit) != 0)
        .map(|bit| EventType::from_raw(bit).to_string())
        .collect()
}

/// An event mask in JSON.
fn mask<S: Serializer>(mask: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    mask.map(type_names).serialize(serializer)
}

#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Registration {
    /// `file`, or `kernel` for a user in the kernel.
    pub(crate) kind: String,
    pub(crate) pid: Option<u32>,
    #[serde(rename = "comm")]
    pub(crate) program: String,
    /// Whether events are delivered to a channel.
    pub(crate) channel: bool,
    /// The event mask, a bit per type, `None` if not known.
    #[serde(serialize_with = "mask")]
    pub(crate) mask: Option<u64>,
    pub(crate) events: u64,
    /// Events that were not read yet.
    #[serde(rename = "unread")]
    pub(crate) pending: u64,
}
