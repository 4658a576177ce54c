// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Violations of an adapter's rules by a driver or a library, by name.
//!
//! Where it is known how an adapter answers, the model answers so as well; where it is not,
//! counting is all it does. A test that ends with an empty list has used the adapter as it wants to
//! be used. The counts live as long as the process: neither a reset of the device nor of the
//! counters clears them.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt::Arguments;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Violation {
    /// A command before or after its time, such as RST2INIT before INIT_HCA. Refused.
    CommandOrder,
    /// A context names a CQ, an SRQ or an EQ that does not exist. Refused.
    UnknownObject,
    /// A command takes away an object in use. Refused.
    ObjectInUse,
    /// No ICM is mapped where the device keeps an object's context. Refused.
    ContextWithoutIcm,
    /// UNMAP_ICM takes the context of an object that exists, the entry of a memory key, or entries
    /// that translate a queue or a region; or MANAGE_PAGES asks for pages that firmware needs, and
    /// gets none of them.
    IcmInUse,
    /// A page is lent to the device that it has already, or ICM is mapped where some is. Refused.
    PageLentTwice,
    /// Tables that INIT_HCA places overlap. Refused.
    TableOverlap,
    /// The device has to reach memory, but bus mastering is off. It does not.
    NoBusMaster,
    /// An ordinary QP has a number that is reserved for firmware or for special QPs. Refused.
    ReservedQpn,
    /// A CQ has a number that is reserved for firmware. Refused.
    ReservedCqn,
    /// An SRQ has a number that is reserved for firmware. Refused.
    ReservedSrqn,
    /// A region has a memory key that is reserved for firmware. Refused.
    ReservedKey,
    /// A queue of a QP has more WQEs than the device's capabilities allow. Refused.
    QueueSize,
    /// A context names a doorbell page that does not exist, or one of those for EQs. Refused.
    UarPage,
    /// A QP names an SRQ that its service does not receive from: an XRC QP any at all, another one
    /// an XRC SRQ. Refused.
    SrqService,
    /// A QP is to have more RDMA READs and atomics outstanding than the device has places for.
    /// Refused.
    ReadLimit,
    /// A QP other than QP0 and QP1 has the service of management QPs, or they have another.
    /// Refused.
    SpecialService,
    /// The headers of a packet of QP0 or QP1, which the driver builds, contradict each other or the
    /// WQE. It is not sent.
    ManagementHeaders,
    /// The number of an XRC target lacks bit 23, or another one has it.
    XrcQpnBit,
    /// 2ERR or 2RST of a QP in RESET. Refused.
    ModifyInReset,
    /// A transition comes with optional parameters that it does not have. They are ignored.
    OptionalParameter,
    /// A path MTU or a message size that does not exist. Refused.
    Mtu,
    /// INIT_PORT of a port that has been initialised. Refused.
    PortOrder,
    /// CLOSE_PORT of a port over which QPs may still receive. It is closed.
    PortInUse,
    /// A doorbell from a page other than its object's. Ignored.
    ForeignPage,
    /// A doorbell of an object that does not exist, nor did before a reset. Ignored.
    UnknownDoorbell,
    /// A send doorbell of an XRC target, which sends nothing. Ignored.
    TargetRung,
    /// The consumer of a CQ or an EQ is ahead of its producer.
    ConsumerAhead,
    /// More receives were posted than the queue has places for.
    ReceiveOverrun,
    /// An EQ has no place for an event, which is lost.
    EqOverrun,
    /// An inline data segment crosses a 64-byte line.
    InlineAcrossLine,
    /// One end of a connection uses a GRH and the other does not.
    GrhMismatch,
    /// A transition of a QP that is in another state, other than by an error. Refused.
    Transition,
    /// A path names an entry that the port's table of GIDs or P_Keys does not have. Refused.
    TableIndex,
    /// More requests were posted than the send queue has places for, or fewer than were executed.
    /// The doorbell is ignored.
    SendOverrun,
    /// A request that a QP of its service does not execute, or that has an unknown opcode. It ends
    /// as a QP operation error.
    UnknownRequest,
    /// A key lets peers write where its owner may not.
    KeyRights,
    /// An SRQ is armed with a limit that it does not have places for. Refused.
    SrqLimit,
    /// INIT_HCA before the driver has chosen an interface step (SET_ISSI) and capabilities
    /// (SET_HCA_CAP).
    InitOrder,
    /// DISABLE_HCA while firmware has pages of the driver. It forgets them.
    PagesLeft,
    /// DESTROY_QP of a member of a multicast group. The QP leaves it.
    MemberDestroyed,
}

/// Those of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// The number of them.
    pub count: u64,
    /// Describes the first.
    pub first: String,
}

/// All that were seen. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Violations(Arc<Mutex<BTreeMap<Violation, Seen>>>);

impl Violations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Violation, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one.
    pub fn note(&self, violation: Violation, details: Arguments<'_>) {
        log::info!("violation {}: {details}", <&str>::from(violation));
        match self.lock().entry(violation) {
            Entry::Occupied(mut seen) => {
                let count = &mut seen.get_mut().count;
                *count = count.saturating_add(1);
            }
            Entry::Vacant(place) => {
                place.insert(Seen {
                    count: 1,
                    first: details.to_string(),
                });
            }
        }
    }

    /// All of them, by kind.
    pub fn list(&self) -> BTreeMap<Violation, Seen> {
        self.lock().clone()
    }

    /// Forgets them, for a test that has caused them.
    #[cfg(test)]
    pub fn take(&self) -> Vec<Violation> {
        std::mem::take(&mut *self.lock()).into_keys().collect()
    }
}
