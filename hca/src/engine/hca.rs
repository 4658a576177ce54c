// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One adapter: its registers, its memory and its objects, and who it is on the fabric.
//!
//! Lives as long as the process; a reset empties it. Guarded by the fabric's mutex.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::engine::fault::Faults;
use crate::engine::pci::Config;
use crate::engine::responder::Drop;
use crate::engine::schedule::{Schedule, Task};
use crate::engine::violation::Violations;
use crate::mlx4::command::{Command, Status};
use crate::mlx4::cq::Cqs;
use crate::mlx4::eq::{EventType, Events, PORT_CHANGE_SUBTYPE_ACTIVE, PORT_CHANGE_SUBTYPE_DOWN};
use crate::mlx4::firmware::Firmware;
use crate::mlx4::hcr::Hcr;
use crate::mlx4::icm::{Dma, Object};
use crate::mlx4::mad::{DEFAULT_CAPABILITY_MASK, DEFAULT_PKEYS, PKEYS};
use crate::mlx4::mcg::Mcgs;
use crate::mlx4::mpt::Keys;
use crate::mlx4::qp::Qps;
use crate::mlx4::srq::Srqs;
use crate::mlx4::uar::Uar;

/// Ports of an adapter.
pub const PORTS: u8 = 2;
/// The model's vendor part of every GUID, Mellanox's.
const GUID_BASE: u64 = 0x0002_c903_0010_0000;

/// A port, numbered from 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Port {
    /// Its only LID.
    pub lid: u16,
    /// Its cable is in.
    pub cable: bool,
    /// The driver has initialised it (INIT_PORT).
    pub initialised: bool,
    /// Its capabilities, as set by the driver (SET_PORT).
    pub capability_mask: u32,
    /// The first P_Keys of its table; the others are 0.
    pub pkeys: [u16; PKEYS],
}

impl Port {
    fn new(lid: u16, pkeys: [u16; PKEYS]) -> Self {
        Self {
            lid,
            cable: true,
            initialised: false,
            capability_mask: DEFAULT_CAPABILITY_MASK,
            pkeys,
        }
    }

    /// It carries packets.
    pub fn is_up(&self) -> bool {
        self.cable && self.initialised
    }
}

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
    pub drops: BTreeMap<Drop, u64>,
}

impl Counters {
    /// Counts the end of a command.
    pub fn count_command(&mut self, name: String, status: Status) {
        let by_status = self.commands.entry(name).or_default();
        let count = by_status.entry(status.into()).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a packet that was dropped.
    pub fn count_drop(&mut self, reason: Drop) {
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
pub struct Hca {
    /// Its place on the fabric, from 0.
    pub index: usize,
    /// Configuration space.
    pub config: Config,
    /// The command register.
    pub hcr: Hcr,
    /// Doorbell pages.
    pub uar: Uar,
    /// Guest RAM and ICM.
    pub dma: Dma,
    /// Event queues and interrupts.
    pub events: Events,
    /// Completion queues.
    pub cqs: Cqs,
    /// Shared receive queues.
    pub srqs: Srqs,
    /// Queue pairs.
    pub qps: Qps,
    /// Memory keys.
    pub keys: Keys,
    /// Multicast groups.
    pub mcgs: Mcgs,
    /// The state of firmware.
    pub firmware: Firmware,
    /// The ports.
    pub ports: [Port; PORTS as usize],
    /// Commands that wait for their latency.
    pub commands: BTreeMap<u64, Command>,
    /// The work that is due.
    pub schedule: Schedule,
    /// The faults that the test injects.
    pub faults: Faults,
    /// The counters.
    pub counters: Counters,
    /// Messages received by connected QPs. It lives as long as the process, as [violations](crate::engine::violation) do: without
    /// messages, that there are none means little.
    pub messages: u64,
}

impl Hca {
    /// Adapter number `index` of a fabric, its cables in.
    pub fn new(index: usize) -> Self {
        let first = (index as u16)
            .wrapping_mul(u16::from(PORTS))
            .wrapping_add(1);
        Self {
            index,
            config: Config::default(),
            hcr: Hcr::default(),
            uar: Uar::default(),
            dma: Dma::new(Violations::default()),
            events: Events::default(),
            cqs: Cqs::default(),
            srqs: Srqs::default(),
            qps: Qps::default(),
            keys: Keys::default(),
            mcgs: Mcgs::default(),
            firmware: Firmware::default(),
            ports: [
                Port::new(first, DEFAULT_PKEYS[0]),
                Port::new(first.wrapping_add(1), DEFAULT_PKEYS[1]),
            ],
            commands: BTreeMap::new(),
            schedule: Schedule::default(),
            faults: Faults::default(),
            counters: Counters::default(),
            messages: 0,
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

    /// Port number `port`.
    pub fn port(&self, port: u8) -> Option<&Port> {
        self.ports.get(usize::from(port.checked_sub(1)?))
    }

    /// The number of the port with this LID.
    pub fn port_of_lid(&self, lid: u16) -> Option<u8> {
        (1..=PORTS).find(|&number| self.port(number).is_some_and(|port| port.lid == lid))
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
        let subtype = match (before, state.is_up()) {
            (false, true) => PORT_CHANGE_SUBTYPE_ACTIVE,
            (true, false) => PORT_CHANGE_SUBTYPE_DOWN,
            _ => return true,
        };
        self.events.port_change(&self.dma, port, subtype);
        true
    }

    /// Plugs the cable of `port` in, or pulls it.
    pub fn set_cable(&mut self, port: u8, cable: bool) -> bool {
        self.change_port(port, |port| port.cable = cable)
    }

    /// A write to configuration space.
    pub fn write_config(&mut self, offset: u64, data: &[u8]) {
        self.config.write(offset, data);
        self.dma.memory.bus_master = self.config.bus_master();
    }

    /// Every object with a context in ICM.
    pub fn objects(&self) -> impl Iterator<Item = (Object, u32)> + '_ {
        let of = |object| move |number| (object, number);
        (self.qps.iter().map(|qp| qp.index()).map(of(Object::Qp)))
            .chain(self.srqs.numbers().map(of(Object::Srq)))
            .chain(self.cqs.numbers().map(of(Object::Cq)))
            .chain(self.events.numbers().map(of(Object::Eq)))
    }

    /// Device reset: drops the guest's objects and its writes to configuration space; memory map,
    /// vectors, cables and the test's wishes stay.
    pub fn reset(&mut self) {
        log::info!("HCA {} reset", self.index);
        self.config = Config::default();
        self.dma.memory.bus_master = self.config.bus_master();
        self.hcr = Hcr::default();
        let mut uar = std::mem::take(&mut self.uar);
        uar.reset(self.objects());
        self.uar = uar;
        self.dma.icm = Default::default();
        for (port, pkeys) in self.ports.iter_mut().zip(DEFAULT_PKEYS) {
            port.initialised = false;
            port.capability_mask = DEFAULT_CAPABILITY_MASK;
            port.pkeys = pkeys;
        }
        self.events.reset();
        self.cqs.reset();
        self.srqs.reset();
        self.qps.reset();
        self.keys.reset();
        self.mcgs = Mcgs::default();
        self.firmware = Firmware::default();
        self.commands.clear();
        self.schedule = Schedule::default();
        self.faults.reset();
        self.counters.resets = self.counters.resets.saturating_add(1);
    }

    /// Does the work that is due, except sending, which needs the fabric.
    pub fn run_timers(&mut self, now: Instant) {
        while let Some(task) = self.schedule.due(now) {
            match task {
                Task::Queue(qpn) => self.schedule.queue(qpn),
                Task::Command(id) => self.command_due(id, now),
            }
        }
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
                let port = port.ok_or("no such port")?;
                self.events
                    .port_change(&self.dma, port, PORT_CHANGE_SUBTYPE_ACTIVE);
            }
            EventType::CqError => self.events.cq_error(&self.dma, number, 1),
            _ => self.event(kind, number),
        }
        Ok(())
    }
}
