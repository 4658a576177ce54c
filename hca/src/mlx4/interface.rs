// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The calls of the engine, as a ConnectX-3 answers them.

use crate::engine::completion::{Cqe, LocalError};
use crate::engine::event::EventType;
use crate::engine::hca::{Card, Shared};
use crate::engine::key::{Access, KeyError, User};
use crate::engine::memory::DmaError;
use crate::engine::packet::Packet;
use crate::engine::pci::{Identity, Msix};
use crate::engine::work::{RecvWqe, SendWqe};
use crate::mlx4::card::{ConnectX3, Hca};
use crate::mlx4::command::{parse_opcode, parse_status, LOG_MAX_COMMANDS};
use crate::mlx4::eq::{PORT_CHANGE_SUBTYPE_ACTIVE, PORT_CHANGE_SUBTYPE_DOWN};
use crate::mlx4::firmware::Firmware;
use crate::mlx4::hcr::Hcr;
use crate::mlx4::icm::Icm;
use crate::mlx4::identity::{IDENTITY, PORTS};
use crate::mlx4::mcg::Mcgs;
use crate::mlx4::mpt::Region;
use crate::mlx4::qp::{Queues, Specials};
use crate::mlx4::qpc::Context;
use serde_json::json;
use serde_json::Value;
use std::time::Instant;

impl Card for ConnectX3 {
    type Icm = Icm;
    type Context = Context;
    type Queues = Queues;
    type Region = Region;

    const IDENTITY: Identity = IDENTITY;
    const PORTS: u8 = PORTS;
    const MAX_COMMANDS: usize = 1 << LOG_MAX_COMMANDS;
    const DESCRIPTION: &'static str = "modelled ConnectX-3";

    fn reset(hca: &mut Hca) {
        let mut uar = std::mem::take(&mut hca.card.uar);
        uar.reset(hca.objects());
        hca.card.uar = uar;
        hca.card.hcr = Hcr::default();
        hca.card.events.reset();
        hca.card.cqs.reset();
        hca.card.srqs.reset();
        hca.card.specials = Specials::default();
        hca.card.keys.reset();
        hca.card.mcgs = Mcgs::default();
        hca.card.firmware = Firmware::default();
        hca.card.commands.clear();
    }

    fn msix(&mut self) -> &mut Msix {
        &mut self.events.msix
    }

    fn read_bar(hca: &mut Hca, bar: u32, offset: u64, data: &mut [u8], _now: Instant) {
        match bar {
            0 => hca.read_registers(offset, data),
            _ => data.fill(0),
        }
    }

    fn write_bar(hca: &mut Hca, bar: u32, offset: u64, data: &[u8], now: Instant) {
        match bar {
            0 => hca.write_registers(offset, data, now),
            2 => hca.write_doorbell(offset, data),
            _ => {}
        }
    }

    fn command_due(hca: &mut Hca, id: u64, now: Instant) {
        hca.command_due(id, now);
    }

    fn parse_opcode(text: &str) -> Result<u16, String> {
        parse_opcode(text)
    }

    fn parse_status(text: &str) -> Result<u8, String> {
        parse_status(text)
    }

    fn event(hca: &mut Hca, kind: EventType, number: u32) {
        match kind {
            EventType::CqError => hca.card.events.cq_error(&hca.dma, number, 1),
            _ => hca.card.events.object(&hca.dma, kind, number),
        }
    }

    fn port_changed(hca: &mut Hca, port: u8, up: bool) {
        let subtype = match up {
            true => PORT_CHANGE_SUBTYPE_ACTIVE,
            false => PORT_CHANGE_SUBTYPE_DOWN,
        };
        hca.card.events.port_change(&hca.dma, port, subtype);
    }

    fn push(hca: &mut Hca, cqn: u32, cqe: &Cqe, solicited: bool) -> bool {
        let card = &mut hca.card;
        card.cqs
            .push(&hca.dma, &mut card.events, cqn, cqe, solicited)
    }

    fn shared(hca: &Hca, srqn: u32) -> Option<Shared> {
        let srq = hca.card.srqs.get(srqn)?;
        Some(Shared {
            xrcd: u32::from(srq.xrcd()),
            pd: srq.pd(),
            cqn: srq.cqn(),
        })
    }

    fn take_shared(hca: &mut Hca, srqn: u32) -> Option<Result<Option<RecvWqe>, DmaError>> {
        let taken = hca.card.srqs.get_mut(srqn)?.take(&hca.dma);
        if taken.is_ok() {
            hca.check_srq_limit(srqn);
        }
        Some(taken)
    }

    fn open(
        hca: &Hca,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        let keys = &hca.card.keys;
        keys.open(&hca.dma, key, user.pd, address, length, access)
    }

    fn members(&self, gid: &[u8; 16]) -> Vec<u32> {
        self.mcgs.members(gid)
    }

    fn behind(&self, port: u8, dqpn: u32) -> u32 {
        self.specials.behind(port, dqpn)
    }

    fn management_packet(hca: &Hca, qpn: u32, wqe: &SendWqe) -> Result<Packet, LocalError> {
        let qp = hca.qps.get(qpn).ok_or(LocalError::Operation)?;
        hca.raw_packet(qp, wqe)
    }

    fn node_description(&self) -> Option<[u8; 64]> {
        self.firmware.node_description
    }

    fn status(hca: &Hca) -> Value {
        json!({
            "events": hca.card.events.raised,
            "events_lost": hca.card.events.lost,
            "completions": hca.card.cqs.completions,
            "commands_in_flight": hca.card.commands.len(),
            "initialised": hca.dma.icm.layout.is_some(),
            "icm_pages": hca.dma.icm.pages(),
            "objects": {
                "eqs": hca.card.events.len(),
                "cqs": hca.card.cqs.len(),
                "srqs": hca.card.srqs.len(),
                "mpts": hca.card.keys.len(),
                "qps": hca.qps.iter().count(),
            },
        })
    }

    fn reset_counters(&mut self) {
        self.events.raised.clear();
        self.events.lost = 0;
        self.cqs.completions = 0;
    }
}
