// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Event queues: how the card notifies the driver. One lives from CREATE_EQ to DESTROY_EQ or reset.

use std::collections::BTreeMap;
use std::sync::atomic::{fence, Ordering};

use crate::engine::bytes::Fields;
use crate::engine::event::EventType;
use crate::engine::memory::DmaError;
use crate::engine::pci::Msix;
use crate::engine::violation::Violation;
use crate::mlx5::memory::{Buffer, Dma};

/// Size of an EQE (struct mlx5_eqe).
pub const EQE_SIZE: usize = 64;
const EQE_TYPE: usize = 0x01;
const EQE_SUBTYPE: usize = 0x03;
const EQE_DATA: usize = 0x20;
const EQE_OWNER: usize = 0x3f;
/// In the data: the number of a QP, an SRQ or, of a completion, a CQ.
const DATA_NUMBER: usize = 24;

/// MLX5_PORT_CHANGE_SUBTYPE_DOWN.
const PORT_DOWN: u8 = 1;
/// MLX5_PORT_CHANGE_SUBTYPE_ACTIVE.
const PORT_ACTIVE: u8 = 4;

/// One event queue.
pub struct Eq {
    /// Its entries.
    pub buffer: Buffer,
    /// How many, as log2.
    pub log_entries: u32,
    /// The UAR page of its doorbells.
    pub uar: u32,
    /// Its interrupt.
    pub vector: u8,
    /// Types of events that it takes.
    pub mask: u64,
    /// Entries written.
    pub producer: u32,
    /// Entries that the driver has read.
    pub consumer: u32,
    /// The next entry interrupts.
    pub armed: bool,
}

impl Eq {
    fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & 0xff_ffff
    }

    /// Writes an entry, its owner byte last, which the driver polls.
    fn write(&mut self, dma: &Dma, mut entry: [u8; EQE_SIZE]) -> Result<(), DmaError> {
        let owner = (self.producer >> self.log_entries & 1) as u8;
        entry.set_u8(EQE_OWNER, owner);
        let index = self.producer & (1u32 << self.log_entries).wrapping_sub(1);
        let offset = u64::from(index).wrapping_mul(EQE_SIZE as u64);
        let (body, owner) = entry.split_at(EQE_OWNER);
        self.buffer.write(dma, offset, body)?;
        fence(Ordering::Release);
        self.buffer
            .write(dma, offset.wrapping_add(EQE_OWNER as u64), owner)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }
}

/// All event queues of a card, and where they interrupt.
#[derive(Default)]
pub struct Events {
    /// By number.
    pub queues: BTreeMap<u32, Eq>,
    /// The interrupt vectors; they outlive a reset.
    pub msix: Msix,
    /// Events raised, by type.
    pub raised: BTreeMap<EventType, u64>,
    /// Events lost because their queue was full or could not be written.
    pub lost: u64,
}

impl Events {
    /// The queue that takes events of this type.
    pub fn queue_of(&self, kind: EventType) -> Option<u32> {
        let mut queues = self.queues.iter();
        let found = queues.find(|(_, eq)| eq.mask >> (kind as u8) & 1 != 0);
        found.map(|(eqn, _)| *eqn)
    }

    fn post(&mut self, dma: &Dma, eqn: u32, entry: [u8; EQE_SIZE]) {
        let Some(eq) = self.queues.get_mut(&eqn) else {
            self.lost = self.lost.saturating_add(1);
            return;
        };
        if eq.used() >= 1 << eq.log_entries {
            dma.violations
                .note(Violation::EqOverrun, format_args!("EQ {eqn}"));
            self.lost = self.lost.saturating_add(1);
            return;
        }
        if let Err(error) = eq.write(dma, entry) {
            log::warn!("EQ {eqn}: {error}");
            self.lost = self.lost.saturating_add(1);
            return;
        }
        if std::mem::take(&mut eq.armed) {
            self.msix.fire(eq.vector);
        }
    }

    fn count(&mut self, kind: EventType) {
        let count = self.raised.entry(kind).or_default();
        *count = count.saturating_add(1);
    }

    fn raise(&mut self, dma: &Dma, kind: EventType, subtype: u8, data: &[u8]) {
        self.count(kind);
        let Some(eqn) = self.queue_of(kind) else {
            log::debug!("{kind:?} is for no EQ");
            return;
        };
        let mut entry = [0; EQE_SIZE];
        entry.set_u8(EQE_TYPE, kind as u8);
        entry.set_u8(EQE_SUBTYPE, subtype);
        entry.set_field(EQE_DATA, data);
        self.post(dma, eqn, entry);
    }

    /// An event about the QP or SRQ `number`.
    pub fn object(&mut self, dma: &Dma, kind: EventType, number: u32) {
        log::debug!("{kind:?} on {number:#x}");
        let mut data = [0; 28];
        data.set_be32(DATA_NUMBER, number);
        self.raise(dma, kind, 0, &data);
    }

    /// CQ `cqn` overran (its `syndrome` 1) or could not be written (2).
    pub fn cq_error(&mut self, dma: &Dma, cqn: u32, syndrome: u8) {
        let mut data = [0; 12];
        data.set_be32(0, cqn);
        data.set_u8(11, syndrome);
        self.raise(dma, EventType::CqError, 0, &data);
    }

    /// A port came up or down.
    pub fn port_change(&mut self, dma: &Dma, port: u8, up: bool) {
        let mut data = [0; 12];
        data.set_u8(8, port << 4);
        let subtype = if up { PORT_ACTIVE } else { PORT_DOWN };
        self.raise(dma, EventType::PortChange, subtype, &data);
    }

    /// The command in entry `slot` ended.
    pub fn command(&mut self, dma: &Dma, slot: u8) {
        let vector = 1u32 << slot;
        self.raise(dma, EventType::Cmd, 0, &vector.to_be_bytes());
    }

    /// CQ `cqn`, which is armed, has a completion.
    pub fn completion(&mut self, dma: &Dma, eqn: u32, cqn: u32) {
        self.count(EventType::Comp);
        let mut entry = [0; EQE_SIZE];
        entry.set_be32(EQE_DATA + DATA_NUMBER, cqn);
        self.post(dma, eqn, entry);
    }

    /// A doorbell from UAR page `page`: the number of the EQ, and its consumer index.
    pub fn doorbell(&mut self, dma: &Dma, page: u32, value: u32, arm: bool) {
        let eqn = value >> 24;
        let Some(eq) = self.queues.get_mut(&eqn) else {
            dma.violations
                .note(Violation::UnknownDoorbell, format_args!("EQ {eqn}"));
            return;
        };
        if eq.uar != page {
            dma.violations.note(
                Violation::ForeignPage,
                format_args!("EQ {eqn} of UAR page {} rung from {page}", eq.uar),
            );
            return;
        }
        eq.consumer = value & 0xff_ffff;
        if eq.used() > 1 << eq.log_entries {
            dma.violations.note(
                Violation::ConsumerAhead,
                format_args!("EQ {eqn}: consumer {value:#x}, producer {:#x}", eq.producer),
            );
        }
        if !arm {
            return;
        }
        // Entries between the driver's last look and this arm must not be missed.
        eq.armed = eq.used() == 0;
        if !eq.armed {
            self.msix.fire(eq.vector);
        }
    }
}
