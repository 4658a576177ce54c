// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The state at one moment: devices, their domains, the receive QPs in them, and the registrations
//! with those. `show --json` prints it; the keys are those of `rdma -j` where they mean
//! the same. Comments of fields are descriptions in the JSON Schema, where `None` is null.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use xrc_rcv::EventType;

/// The version of the JSON that all commands print. Keys may be added to a version; none is changed
/// or removed.
pub(crate) const JSON_VERSION: u32 = 1;

/// An RDMA device of this network namespace, with as much as this user may see of it.
#[derive(Debug, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "device")]
pub(crate) struct Device {
    /// Its number, as rdma dev shows it, which no other device has in any network namespace; null
    /// if ib_uverbs does not offer it.
    pub(crate) ifindex: Option<u32>,
    /// Its name.
    pub(crate) ifname: String,
    pub(crate) status: Status,
    /// Null unless attached.
    pub(crate) caps: Option<Caps>,
    /// The domains that the options ask for; null if this user may not see them.
    pub(crate) domains: Option<Vec<Domain>>,
}

impl Device {
    /// The control groups of all processes.
    pub(crate) fn cgroups(&mut self) -> impl Iterator<Item = &mut Cgroup> {
        let domains = self.domains.iter_mut().flatten();
        domains.flat_map(|domain| &mut domain.qps).flat_map(|qp| {
            let members = qp.registered.iter_mut().flatten();
            let of_members = members.filter_map(|member| member.cgroup.as_mut());
            qp.cgroup.iter_mut().chain(of_members)
        })
    }
}

/// Whether a device has receive QPs, or why not.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "status")]
pub(crate) enum Status {
    /// Receive QPs can be created on it.
    Attached,
    /// The module is not loaded.
    NotLoaded,
    /// The device has XRC, but the module is not attached to it.
    NotAttached,
    /// The driver or its library has no XRC.
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
#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(rename = "caps")]
pub(crate) struct Caps {
    /// The version of the kernel's interface.
    pub(crate) version: u32,
    /// A limit; null for none.
    pub(crate) max_qps_per_domain: Option<u32>,
    /// A limit; null for none.
    pub(crate) max_qps_per_user: Option<u32>,
    /// A limit; null for none.
    pub(crate) max_registrations_per_qp: Option<u32>,
}

/// An XRC domain with receive QPs.
#[derive(Debug, Default, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "domain")]
pub(crate) struct Domain {
    /// The kernel's number of it; null with --file, from within.
    pub(crate) domain: Option<u64>,
    pub(crate) qps: Vec<Qp>,
    /// The members that are registered with all of them, also those to come; null if this user may
    /// not see them.
    pub(crate) members_of_all: Option<Vec<MemberOfAll>>,
}

/// A member that is registered with all receive QPs of a domain.
#[derive(Debug, Default, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "member")]
pub(crate) struct MemberOfAll {
    /// A process's file, or a user in the kernel.
    #[schemars(extend("enum" = ["file", "kernel"]))]
    pub(crate) kind: String,
    /// Whether it keeps the QPs.
    pub(crate) keeps: bool,
    /// The process that created its event channel; null for the kernel.
    pub(crate) pid: Option<u32>,
    /// Its name; empty for the kernel.
    #[serde(rename = "comm")]
    pub(crate) program: String,
    /// The effective uid of the process then; null for the kernel.
    pub(crate) uid: Option<u32>,
    /// Its event mask: the types of events that are delivered, as type of watch names them.
    #[serde(serialize_with = "mask")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) mask: Option<u64>,
}

/// A receive QP.
#[derive(Debug, Default, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "qp")]
pub(crate) struct Qp {
    /// Its number.
    #[serde(rename = "lqpn")]
    pub(crate) qpn: u32,
    /// A state of the verbs API; ? if this program does not know it.
    #[schemars(extend("enum" = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "?"]))]
    pub(crate) state: String,
    /// The object that keeps it; ? if this program does not know it.
    #[schemars(extend("enum" = ["registrations", "domain", "?"]))]
    pub(crate) lifetime: String,
    /// The number of the peer's QP; null as long as there is none.
    #[serde(rename = "rqpn")]
    pub(crate) dest_qpn: Option<u32>,
    /// The label that its creator gave it; null if none.
    #[serde(serialize_with = "label")]
    #[schemars(with = "Option<String>", extend("pattern" = LABEL))]
    pub(crate) label: Option<u64>,
    /// The number of events so far; null if not known.
    pub(crate) events: Option<u64>,
    /// The effective uid that created it; null if not known.
    pub(crate) creator: Option<u32>,
    /// The uid for which it counts, which is another if a user made the user namespace of its
    /// creator; null if not known.
    pub(crate) user: Option<u32>,
    /// The kernel's number of it on the device, which no later QP has; none if not known.
    #[serde(skip)]
    pub(crate) serial: Option<u64>,
    /// The process that created it, which may have ended: its number may be that of another by now.
    /// Null if not known.
    pub(crate) pid: Option<u32>,
    /// The name of that process then; null if not known.
    #[serde(rename = "comm")]
    pub(crate) program: Option<String>,
    /// The control group of that process then; null if not known.
    pub(crate) cgroup: Option<Cgroup>,
    /// The number of its registrations, whatever --pid leaves of holders.
    pub(crate) registrations: u64,
    /// The holders of its registrations, with --pid that process alone; null if this user may not
    /// see them.
    #[serde(rename = "holders")]
    pub(crate) registered: Option<Vec<Registration>>,
}

/// A control group of version 2.
#[derive(Debug, Default, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "cgroup")]
pub(crate) struct Cgroup {
    /// The inode number of its directory, which no other group gets.
    pub(crate) id: u64,
    /// Its path, as in /proc/PID/cgroup; null if it was removed, or cannot be seen from here.
    pub(crate) path: Option<String>,
}

/// The pattern of a label in JSON.
pub(crate) const LABEL: &str = "^0x[0-9a-f]{1,16}$";

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

/// The holder of a registration, and the registration.
#[derive(Debug, Default, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "holder")]
pub(crate) struct Registration {
    /// A process's file, or a user in the kernel.
    #[schemars(extend("enum" = ["file", "kernel"]))]
    pub(crate) kind: String,
    /// The process that created its event channel; null for the kernel.
    pub(crate) pid: Option<u32>,
    /// Its name; empty for the kernel.
    #[serde(rename = "comm")]
    pub(crate) program: String,
    /// The effective uid of the process then; null for the kernel, or if not known.
    pub(crate) uid: Option<u32>,
    /// The control group of the process then; null for the kernel, or if not known.
    pub(crate) cgroup: Option<Cgroup>,
    /// Whether its events are delivered to an event channel.
    pub(crate) channel: bool,
    /// The event mask of its channel, or of the kernel user: the types of events that are
    /// delivered, as type of watch names them; null if not known.
    #[serde(serialize_with = "mask")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) mask: Option<u64>,
    /// The number of records that were not read yet.
    #[serde(rename = "unread")]
    pub(crate) pending: u64,
}
