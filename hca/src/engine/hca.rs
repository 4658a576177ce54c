// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One adapter: its memory, its ports and its queue pairs, who it is on the fabric, and the
//! [`Card`] that it is.
//!
//! Lives as long as the process; a reset empties it. Guarded by the fabric's mutex.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

use crate::engine::bytes::Fields;
use crate::engine::completion::{Cqe, LocalError};
use crate::engine::event::EventType;
use crate::engine::fault::Faults;
use crate::engine::headers::Grh;
use crate::engine::key::{Access, KeyError, Region, User};
use crate::engine::memory::{Dma, DmaError};
use crate::engine::packet::{DropReason, Packet};
use crate::engine::pci::{Config, Identity, Msix};
use crate::engine::port::{pkeys_match, Port, DEFAULT_PKEYS};
use crate::engine::qp::{Context, Qps, Queues};
use crate::engine::schedule::{Schedule, Task};
use crate::engine::transport::Path;
use crate::engine::violation::Violations;
use crate::engine::work::{RecvWqe, SendWqe};

/// The model's vendor part of every GUID, Mellanox's.
const GUID_BASE: u64 = 0x0002_c903_0010_0000;
const SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;
/// LIDs of an adapter, used or not.
const LIDS: u16 = 2;

/// A shared receive queue, as a request needs it.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The domain of an XRC SRQ.
    pub xrcd: u32,
    /// The protection domain its buffers, and XRC's remote keys, belong to.
    pub pd: u32,
    /// The CQ of the completions of an XRC SRQ.
    pub cqn: u32,
}

/// The part that is a card's own: registers, commands, contexts, queues and keys.
pub trait Card: Default + Send + 'static {
    /// Its state in the memory that the host lends it.
    type Icm: Default + Send;
    /// The parameters of a QP.
    type Context: Context + Send;
    /// The rings of a QP.
    type Queues: Queues<Self::Icm, Self::Context> + Send;
    /// A stretch of memory that a key opened.
    type Region: Region<Self::Icm>;

    /// Its face on the bus.
    const IDENTITY: Identity;
    /// Its ports.
    const PORTS: u8;
    /// Commands in flight at most.
    const MAX_COMMANDS: usize;
    /// Its name for people.
    const DESCRIPTION: &'static str;

    /// Drops everything that the driver has made.
    fn reset(hca: &mut Hca<Self>);
    /// The interrupt vectors, which outlive a reset.
    fn msix(&mut self) -> &mut Msix;
    /// A read of BAR `bar`.
    fn read_bar(hca: &mut Hca<Self>, bar: u32, offset: u64, data: &mut [u8], now: Instant);
    /// A write to BAR `bar`.
    fn write_bar(hca: &mut Hca<Self>, bar: u32, offset: u64, data: &[u8], now: Instant);
    /// The latency of a command has passed.
    fn command_due(hca: &mut Hca<Self>, id: u64, now: Instant);
    /// The number of the command that a person means by `text`.
    fn parse_opcode(text: &str) -> Result<u16, String>;
    /// The number of the status that a person means by `text`.
    fn parse_status(text: &str) -> Result<u8, String>;

    /// Raises an event about an object.
    fn event(hca: &mut Hca<Self>, kind: EventType, number: u32);
    /// Reports that `port` came up, or went down.
    fn port_changed(hca: &mut Hca<Self>, port: u8, up: bool);
    /// Puts `cqe` into CQ `cqn`. Returns whether there was a place.
    fn push(hca: &mut Hca<Self>, cqn: u32, cqe: &Cqe, solicited: bool) -> bool;
    /// SRQ `srqn`.
    fn shared(hca: &Hca<Self>, srqn: u32) -> Option<Shared>;
    /// Takes a WQE from SRQ `srqn`, and reports an event if that passes its limit. None: there is
    /// no such SRQ.
    fn take_shared(hca: &mut Hca<Self>, srqn: u32) -> Option<Result<Option<RecvWqe>, DmaError>>;
    /// Opens `length` bytes at virtual `address` with `key` for the queue `user`.
    fn open(
        hca: &Hca<Self>,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Self::Region, KeyError>;
    /// Whether a message to the queue `user` may invalidate `key`.
    fn may_invalidate(_hca: &Hca<Self>, key: u32, _user: User) -> Result<(), KeyError> {
        Err(KeyError::Lasting(key))
    }
    /// Such a message has arrived.
    fn invalidate(_hca: &mut Hca<Self>, _key: u32) {}
    /// The QPs that joined multicast group `gid`.
    fn members(&self, gid: &[u8; 16]) -> Vec<u32>;
    /// The QP that packets for QP `dqpn` of `port` are for: QP0 and QP1 have other numbers inside.
    fn behind(&self, port: u8, dqpn: u32) -> u32;
    /// The packet of a WQE of QP0 or QP1 that brings its own headers.
    fn management_packet(hca: &Hca<Self>, qpn: u32, wqe: &SendWqe) -> Result<Packet, LocalError>;
    /// Does a request that stays inside the card, whose WQE this is.
    fn execute_local(_hca: &mut Hca<Self>, _qpn: u32, _wqe: &[u8]) -> Result<(), LocalError> {
        Err(LocalError::Operation)
    }
    /// The node's description, if the driver has set one.
    fn node_description(&self) -> Option<[u8; 64]> {
        None
    }

    /// Its part of the state that a test can query.
    fn status(hca: &Hca<Self>) -> Value;
    /// Its counters start from zero again.
    fn reset_counters(&mut self);
}

/// The QP of a card.
pub type Qp<C> = crate::engine::qp::Qp<<C as Card>::Context, <C as Card>::Queues>;

/// Counters since the adapter was started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    /// Commands by name: how often they ended well, and with which status they did not.
    pub commands: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Most commands that waited for injected latency at once.
    pub max_commands_in_flight: u64,
    /// Commands that came while others waited for injected latency.
    pub overlapping_commands: u64,
    /// The last command that failed because a test wanted it to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_injected_failure: Option<String>,
    /// Resets, by the driver or by QEMU.
    pub resets: u64,
    /// Requests sent, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Requests answered "receiver not ready".
    pub rnr_naks: u64,
    /// Requests without an answer.
    pub timeouts: u64,
    /// Packets dropped at one of our ports, by reason.
    pub drops: BTreeMap<DropReason, u64>,
}

impl Counters {
    /// Counts the end of a command.
    pub fn count_command(&mut self, name: String, status: &'static str) {
        let by_status = self.commands.entry(name).or_default();
        let count = by_status.entry(status).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a packet that was dropped.
    pub fn count_drop(&mut self, reason: DropReason) {
        let count = self.drops.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a request of this kind.
    pub fn count_request(&mut self, kind: &str) {
        let count = self.requests.entry(kind.to_string()).or_default();
        *count = count.saturating_add(1);
    }
}

/// An adapter.
pub struct Hca<C: Card> {
    /// Its place on the fabric, from 0.
    pub index: usize,
    /// Configuration space.
    pub config: Config,
    /// Guest RAM, and what is lent of it.
    pub dma: Dma<C::Icm>,
    /// Queue pairs.
    pub qps: Qps<C::Context, C::Queues>,
    /// The ports.
    pub ports: Vec<Port>,
    /// The work that is due.
    pub schedule: Schedule,
    /// The faults that the test injects.
    pub faults: Faults,
    /// The counters.
    pub counters: Counters,
    /// Messages received by connected QPs. It lives as long as the process, as
    /// [violations](crate::engine::violation) do: without messages, that there are none means
    /// little.
    pub messages: u64,
    /// The card.
    pub card: C,
}

impl<C: Card> Hca<C> {
    /// Adapter number `index` of a fabric, its cables in.
    pub fn new(index: usize) -> Self {
        let first = (index as u16).wrapping_mul(LIDS).wrapping_add(1);
        let ports = (first..).zip(DEFAULT_PKEYS).take(usize::from(C::PORTS));
        Self {
            index,
            config: Config::new(&C::IDENTITY),
            dma: Dma::new(Violations::default()),
            qps: Qps::default(),
            ports: ports.map(|(lid, pkeys)| Port::new(lid, pkeys)).collect(),
            schedule: Schedule::default(),
            faults: Faults::default(),
            counters: Counters::default(),
            messages: 0,
            card: C::default(),
        }
    }

    /// The node's GUID; its ports' follow it.
    pub fn node_guid(&self) -> u64 {
        GUID_BASE.wrapping_add((self.index as u64) << 8)
    }

    /// The GUID of `port`.
    pub fn port_guid(&self, port: u8) -> u64 {
        self.node_guid().wrapping_add(u64::from(port))
    }

    /// The GUID of the system image, after the ports'.
    pub fn image_guid(&self) -> u64 {
        self.port_guid(C::PORTS.wrapping_add(1))
    }

    /// The GID of `port`.
    pub fn port_gid(&self, port: u8) -> [u8; 16] {
        let mut gid = [0; 16];
        gid.set_be64(0, SUBNET_PREFIX);
        gid.set_be64(8, self.port_guid(port));
        gid
    }

    /// The GID under `index` in the table of `port`.
    pub fn gid(&self, port: u8, index: u8) -> Option<[u8; 16]> {
        (index == 0).then(|| self.port_gid(port))
    }

    /// The P_Key under `index` in the table of `port`.
    pub fn pkey(&self, port: u8, index: u8) -> Option<u16> {
        self.port(port)?.pkeys.get(usize::from(index)).copied()
    }

    /// Whether both are members of a partition, and at least one a full one.
    pub fn pkey_matches(&self, path: &Path, pkey: u16) -> bool {
        let ours = self.pkey(path.port, path.pkey_index).unwrap_or(0);
        pkeys_match(ours, pkey)
    }

    /// Our LID on `path`.
    pub fn lid(&self, path: &Path) -> Option<u16> {
        Some(self.port(path.port)?.lid_with(path.path_bits))
    }

    /// The GRH of packets over `path`, if they have one.
    pub fn grh(&self, path: &Path) -> Option<Grh> {
        let (index, grh) = path.grh?;
        Some(Grh {
            sgid: self.gid(path.port, index).unwrap_or_default(),
            ..grh
        })
    }

    /// Whether a packet from `slid` to `dlid` came over `path`.
    pub fn on_path(&self, path: &Path, slid: u16, dlid: u16) -> bool {
        path.remote_lid == slid && self.lid(path) == Some(dlid)
    }

    /// Port number `port`.
    pub fn port(&self, port: u8) -> Option<&Port> {
        self.ports.get(usize::from(port.checked_sub(1)?))
    }

    /// The number of the port with this LID.
    pub fn port_of_lid(&self, lid: u16) -> Option<u8> {
        (1..=C::PORTS).find(|&number| self.port(number).is_some_and(|port| port.has_lid(lid)))
    }

    /// Port number `port`, to change.
    pub fn port_mut(&mut self, port: u8) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(port.checked_sub(1)?))
    }

    /// Changes `port`, and reports an event if it has become active or ceased to be so.
    pub fn change_port(&mut self, port: u8, change: impl FnOnce(&mut Port)) -> bool {
        let Some(state) = self.port_mut(port) else {
            return false;
        };
        let before = state.is_up();
        change(state);
        let after = state.is_up();
        if before != after {
            C::port_changed(self, port, after);
        }
        true
    }

    /// Plugs the cable of `port` in, or pulls it.
    pub fn set_cable(&mut self, port: u8, cable: bool) -> bool {
        self.change_port(port, |port| port.cable = cable)
    }

    /// A write to configuration space, which may reset the function.
    pub fn write_config(&mut self, offset: u64, data: &[u8]) {
        if self.config.write(offset, data) {
            return self.reset();
        }
        self.dma.memory.bus_master = self.config.bus_master();
    }

    /// Reset of the device, or of its function: drops the guest's objects and its writes to
    /// configuration space; memory map, vectors, cables and the test's wishes stay.
    pub fn reset(&mut self) {
        self.config = Config::new(&C::IDENTITY);
        self.dma.memory.bus_master = self.config.bus_master();
        self.restart();
    }

    /// Firmware starts anew: the same, with configuration space as it is.
    pub fn restart(&mut self) {
        log::info!("HCA {} reset", self.index);
        C::reset(self);
        self.dma.icm = C::Icm::default();
        for (port, pkeys) in self.ports.iter_mut().zip(DEFAULT_PKEYS) {
            port.reset(pkeys);
        }
        self.qps.reset();
        self.schedule = Schedule::default();
        self.faults.reset();
        self.counters.resets = self.counters.resets.saturating_add(1);
    }

    /// Does the work that is due, except sending, which needs the fabric.
    pub fn run_timers(&mut self, now: Instant) {
        while let Some(task) = self.schedule.due(now) {
            match task {
                Task::Queue(qpn) => self.schedule.queue(qpn),
                Task::Command(id) => C::command_due(self, id, now),
            }
        }
    }

    /// Raises an event about an object.
    pub fn event(&mut self, kind: EventType, number: u32) {
        C::event(self, kind, number);
    }

    /// Raises the event `kind` that nothing caused, as a test asks: about object `number`, or port.
    pub fn inject_event(&mut self, kind: EventType, number: u32) -> Result<(), String> {
        match kind {
            EventType::Comp | EventType::Cmd => {
                return Err("completions and command ends cannot be invented".into());
            }
            EventType::PortChange => {
                let port = u8::try_from(number)
                    .ok()
                    .filter(|&port| self.port(port).is_some());
                C::port_changed(self, port.ok_or("no such port")?, true);
            }
            _ => self.event(kind, number),
        }
        Ok(())
    }

    /// Puts a completion of QP `qpn` into CQ `cqn`. Where there is no place for it, the QP breaks.
    pub fn complete(&mut self, qpn: u32, cqn: u32, cqe: Cqe, solicited: bool) {
        let taken = C::push(self, cqn, &cqe, solicited);
        if let (false, Some(qp)) = (taken, self.qps.get_mut(qpn)) {
            qp.overrun = true;
            self.schedule.queue(qpn);
        }
    }
}
