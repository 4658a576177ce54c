// SPDX-License-Identifier: Apache-2.0 OR MIT

//! An adapter as the subnet, QEMU and tests see it, whichever card it is.

use std::time::{Duration, Instant};

use serde_json::{json, Map, Value};

use crate::engine::administration::Endport;
use crate::engine::event::EventType;
use crate::engine::fault::{CommandFailure, Faults};
use crate::engine::hca::{Card, Hca};
use crate::engine::memory::GuestMemory;
use crate::engine::packet::{DropReason, Packet, Reply, Response};
use crate::engine::pci::{Identity, Msix};
use crate::engine::port::Port;
use crate::engine::requester::Transfer;
use crate::engine::schedule::Schedule;

/// An adapter.
#[allow(missing_docs)]
pub trait Adapter: Send {
    // To the subnet.
    fn index(&self) -> usize;
    /// An active port of it has this LID.
    fn has_lid(&self, lid: u16) -> bool;
    /// Its ports that carry packets.
    fn endports(&self) -> Vec<Endport>;
    fn schedule(&mut self) -> &mut Schedule;
    fn deadline(&self, now: Instant) -> Option<Instant>;
    fn run_timers(&mut self, now: Instant);
    fn next_transfer(&mut self, qpn: u32, now: Instant) -> Option<Transfer>;
    fn finish_transfer(&mut self, qpn: u32, transfer: Transfer, reply: Reply, now: Instant)
        -> bool;
    fn respond(&mut self, packet: &Packet, now: Instant) -> Option<Response>;
    fn receive_multicast(&mut self, packet: &Packet);
    fn take_response(&mut self, qpn: u32, packet: &Packet, response: Response) -> Reply;
    fn count_drop(&mut self, reason: DropReason);

    // To QEMU.
    fn identity(&self) -> &'static Identity;
    fn memory(&mut self) -> &mut GuestMemory;
    fn msix(&mut self) -> &mut Msix;
    fn reset(&mut self);
    fn read_config(&self, offset: u64, data: &mut [u8]);
    fn write_config(&mut self, offset: u64, data: &[u8]);
    fn read_bar(&mut self, bar: u32, offset: u64, data: &mut [u8], now: Instant);
    fn write_bar(&mut self, bar: u32, offset: u64, data: &[u8], now: Instant);

    // To tests.
    fn faults(&mut self) -> &mut Faults;
    /// The state that a test can query.
    fn status(&self) -> Value;
    /// Every QP.
    fn qps(&self) -> Result<Value, String>;
    fn reset_counters(&mut self);
    /// After `skip` that pass, `count` commands fail.
    fn fail_command(
        &mut self,
        opcode: Option<&str>,
        status: &str,
        skip: u64,
        count: Option<u64>,
    ) -> Result<(), String>;
    fn set_latency(
        &mut self,
        opcode: Option<&str>,
        latency: Duration,
        parallel: Option<usize>,
    ) -> Result<(), String>;
    fn inject_event(&mut self, kind: EventType, number: u32) -> Result<(), String>;
    fn set_cable(&mut self, port: u8, cable: bool) -> bool;
    /// Its ports.
    fn ports(&mut self) -> &mut [Port];
}

impl<C: Card> Adapter for Hca<C> {
    fn index(&self) -> usize {
        self.index
    }

    fn has_lid(&self, lid: u16) -> bool {
        let port = self.port_of_lid(lid).and_then(|number| self.port(number));
        port.is_some_and(Port::is_up)
    }

    fn endports(&self) -> Vec<Endport> {
        let active = (1..=C::PORTS).filter_map(|number| {
            let port = self.port(number).filter(|port| port.is_up())?;
            Some(Endport::new(port, self.port_gid(number)))
        });
        active.collect()
    }

    fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        self.schedule.deadline(now)
    }

    fn run_timers(&mut self, now: Instant) {
        self.run_timers(now);
    }

    fn next_transfer(&mut self, qpn: u32, now: Instant) -> Option<Transfer> {
        self.next_transfer(qpn, now)
    }

    fn finish_transfer(
        &mut self,
        qpn: u32,
        transfer: Transfer,
        reply: Reply,
        now: Instant,
    ) -> bool {
        self.finish_transfer(qpn, transfer, reply, now)
    }

    fn respond(&mut self, packet: &Packet, now: Instant) -> Option<Response> {
        self.respond(packet, now)
    }

    fn receive_multicast(&mut self, packet: &Packet) {
        self.receive_multicast(packet);
    }

    fn take_response(&mut self, qpn: u32, packet: &Packet, response: Response) -> Reply {
        self.take_response(qpn, packet, response)
    }

    fn count_drop(&mut self, reason: DropReason) {
        self.counters.count_drop(reason);
    }

    fn identity(&self) -> &'static Identity {
        &C::IDENTITY
    }

    fn memory(&mut self) -> &mut GuestMemory {
        &mut self.dma.memory
    }

    fn msix(&mut self) -> &mut Msix {
        self.card.msix()
    }

    fn reset(&mut self) {
        self.reset();
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        self.config.read(offset, data);
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        self.write_config(offset, data);
    }

    fn read_bar(&mut self, bar: u32, offset: u64, data: &mut [u8], now: Instant) {
        C::read_bar(self, bar, offset, data, now);
    }

    fn write_bar(&mut self, bar: u32, offset: u64, data: &[u8], now: Instant) {
        C::write_bar(self, bar, offset, data, now);
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    fn status(&self) -> Value {
        let mut qps = Map::new();
        for qp in self.qps.iter() {
            let service = match qp.is_xrc_target() {
                true => "xrc_target",
                false => qp.service.into(),
            };
            let by_state = qps.entry(service).or_insert_with(|| json!({}));
            if let Some(by_state) = by_state.as_object_mut() {
                let state: &str = qp.state.into();
                let count = by_state.get(state).and_then(Value::as_u64).unwrap_or(0);
                by_state.insert(state.into(), count.saturating_add(1).into());
            }
        }
        let mut status = json!({
            "counters": self.counters,
            "ports": self.ports,
            "messages": self.messages,
            "violations": self.dma.violations.list(),
            "qps": qps,
        });
        if let (Some(status), Value::Object(card)) = (status.as_object_mut(), C::status(self)) {
            status.extend(card);
        }
        status
    }

    fn qps(&self) -> Result<Value, String> {
        serde_json::to_value(self.qps.report()).map_err(|error| error.to_string())
    }

    fn reset_counters(&mut self) {
        self.counters = Default::default();
        self.card.reset_counters();
    }

    fn fail_command(
        &mut self,
        opcode: Option<&str>,
        status: &str,
        skip: u64,
        count: Option<u64>,
    ) -> Result<(), String> {
        let failure = CommandFailure {
            opcode: opcode.map(C::parse_opcode).transpose()?,
            status: C::parse_status(status)?,
            skip,
            count,
        };
        self.faults.fail_command(failure);
        Ok(())
    }

    fn set_latency(
        &mut self,
        opcode: Option<&str>,
        latency: Duration,
        parallel: Option<usize>,
    ) -> Result<(), String> {
        let opcode = opcode.map(C::parse_opcode).transpose()?;
        let parallel = parallel.unwrap_or(C::MAX_COMMANDS).min(C::MAX_COMMANDS);
        self.faults.set_latency(opcode, latency, parallel);
        Ok(())
    }

    fn inject_event(&mut self, kind: EventType, number: u32) -> Result<(), String> {
        self.inject_event(kind, number)
    }

    fn set_cable(&mut self, port: u8, cable: bool) -> bool {
        self.set_cable(port, cable)
    }

    fn ports(&mut self) -> &mut [Port] {
        &mut self.ports
    }
}
