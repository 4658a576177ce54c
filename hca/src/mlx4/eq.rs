// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Event queues: how the device notifies the driver.
//!
//! An EQ lives from SW2HW_EQ to HW2SW_EQ or reset. MAP_EQ selects the queue of each type of
//! asynchronous event; a completion event is written to the queue its CQ names. An armed queue
//! raises its MSI-X vector once, then waits to be armed again.

use crate::engine::bytes::Fields;
use crate::engine::event::EventType;
use crate::engine::memory::DmaError;
use crate::engine::pci::Msix;
use crate::engine::violation::Violation;
use crate::mlx4::command::Status;
use crate::mlx4::icm::{Buffer, Dma};
use std::collections::BTreeMap;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;

/// Size of an EQE without the 64-byte capability (`MLX4_EQ_ENTRY_SIZE` of
/// `drivers/net/ethernet/mellanox/mlx4/eq.c`).
pub const EQE_SIZE: usize = 0x20;

// struct mlx4_eqe.
const EQE_TYPE: usize = 0x01;
const EQE_SUBTYPE: usize = 0x03;
const EQE_EVENT: usize = 0x04;
pub(super) const EQE_OWNER: usize = 0x1f;
pub(super) const EQE_OWNER_HW: u8 = 0x80;

// struct mlx4_eq_context.
pub(super) const EQC_SIZE: usize = 0x40;
pub(super) const EQC_FLAGS: usize = 0x00;
pub(super) const EQC_LOG_EQ_SIZE: usize = 0x0c;
pub(super) const EQC_INTR: usize = 0x17;
pub(super) const EQC_LOG_PAGE_SIZE: usize = 0x18;
/// MLX4_EQ_STATE_ARMED, within EQC_FLAGS.
pub(super) const EQ_STATE_ARMED: u32 = 9 << 8;
pub(super) const EQ_STATE_MASK: u32 = 0xf << 8;

/// MAP_EQ: remove the mapping instead.
pub(super) const MAP_EQ_UNMAP: u32 = 1 << 31;
/// log2 of the EQs the model has.
pub const LOG_MAX_EQS: u8 = 7;

/// MLX4_PORT_CHANGE_SUBTYPE_DOWN.
pub const PORT_CHANGE_SUBTYPE_DOWN: u8 = 1;
/// MLX4_PORT_CHANGE_SUBTYPE_ACTIVE.
pub const PORT_CHANGE_SUBTYPE_ACTIVE: u8 = 4;

/// One event queue.
pub(super) struct Eq {
    pub(super) buffer: Buffer,
    pub(super) entries: u32,
    pub(super) vector: u8,
    pub(super) producer: u32,
    pub(super) consumer: u32,
    pub(super) armed: bool,
}

impl Eq {
    /// Whether the producer has wrapped an odd number of times: the owner bit of the entries it
    /// writes.
    pub(super) fn owner(&self) -> u8 {
        if self.producer & self.entries != 0 {
            EQE_OWNER_HW
        } else {
            0
        }
    }

    pub(super) fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & 0xff_ffff
    }

    /// Writes an entry, its owner byte last, which the driver polls.
    pub(super) fn write(&mut self, dma: &Dma, mut entry: [u8; EQE_SIZE]) -> Result<(), DmaError> {
        entry.set_u8(EQE_OWNER, self.owner());
        let index = self.producer & self.entries.wrapping_sub(1);
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

/// All event queues of an adapter, and where they interrupt.
#[derive(Default)]
pub struct Events {
    pub(super) queues: BTreeMap<u32, Eq>,
    /// Event type -> EQN.
    pub(super) map: BTreeMap<u8, u32>,
    /// The interrupt vectors; they outlive a reset.
    pub msix: Msix,
    /// Events raised, by type.
    pub raised: BTreeMap<EventType, u64>,
    /// Events lost because their queue was full or could not be written.
    pub lost: u64,
}

impl Events {
    /// Forgets the queues, as a reset does.
    pub fn reset(&mut self) {
        self.queues.clear();
        self.map.clear();
    }

    /// Number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// There are no queues.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The numbers of the queues.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.keys().copied()
    }

    /// Where their entries are, and the bytes of those.
    pub fn extents(&self) -> impl Iterator<Item = (u32, (Buffer, u64))> + '_ {
        self.queues.iter().map(|(eqn, eq)| {
            let bytes = u64::from(eq.entries).saturating_mul(EQE_SIZE as u64);
            (*eqn, (eq.buffer, bytes))
        })
    }

    /// There is a queue of this number.
    pub fn contains(&self, eqn: u32) -> bool {
        self.queues.contains_key(&eqn)
    }

    pub(super) fn post(&mut self, dma: &Dma, eqn: u32, entry: [u8; EQE_SIZE]) {
        let Some(eq) = self.queues.get_mut(&eqn) else {
            self.lost = self.lost.saturating_add(1);
            return;
        };
        if eq.used() >= eq.entries {
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
        if eq.armed {
            eq.armed = false;
            self.msix.fire(eq.vector);
        }
    }

    pub(super) fn raise(&mut self, dma: &Dma, kind: EventType, subtype: u8, payload: &[u8]) {
        let count = self.raised.entry(kind).or_default();
        *count = count.saturating_add(1);
        let Some(&eqn) = self.map.get(&(kind as u8)) else {
            log::debug!("{kind:?} is mapped to no EQ");
            return;
        };
        let mut entry = [0; EQE_SIZE];
        entry.set_u8(EQE_TYPE, kind as u8);
        entry.set_u8(EQE_SUBTYPE, subtype);
        entry.set_field(EQE_EVENT, payload);
        self.post(dma, eqn, entry);
    }

    /// An event about the QP, SRQ or CQ `number`.
    pub fn object(&mut self, dma: &Dma, kind: EventType, number: u32) {
        log::debug!("{kind:?} on {number:#x}");
        self.raise(dma, kind, 0, &number.to_be_bytes());
    }

    /// CQ `cqn` overran (its `syndrome` 1) or could not be written (2).
    pub fn cq_error(&mut self, dma: &Dma, cqn: u32, syndrome: u8) {
        let mut payload = [0; 12];
        payload.set_be32(0, cqn);
        payload.set_u8(11, syndrome);
        self.raise(dma, EventType::CqError, 0, &payload);
    }

    /// A port came up or down.
    pub fn port_change(&mut self, dma: &Dma, port: u8, subtype: u8) {
        let mut payload = [0; 12];
        payload.set_be32(8, u32::from(port) << 28);
        self.raise(dma, EventType::PortChange, subtype, &payload);
    }

    /// A command posted in event mode ended.
    pub fn command(&mut self, dma: &Dma, token: u16, status: Status, immediate: Option<u64>) {
        let mut payload = [0; 20];
        payload.set_be16(2, token);
        payload.set_u8(11, status as u8);
        payload.set_be64(12, immediate.unwrap_or(0));
        self.raise(dma, EventType::Cmd, 0, &payload);
    }

    /// CQ `cqn`, which is armed, has a completion.
    pub fn completion(&mut self, dma: &Dma, eqn: u32, cqn: u32) {
        let mut entry = [0; EQE_SIZE];
        entry.set_be32(EQE_EVENT, cqn);
        let count = self.raised.entry(EventType::Comp).or_default();
        *count = count.saturating_add(1);
        self.post(dma, eqn, entry);
    }

    /// The EQ doorbell: consumer index, and a request for an interrupt in bit 31.
    pub fn doorbell(&mut self, dma: &Dma, eqn: u32, value: u32) {
        let Some(eq) = self.queues.get_mut(&eqn) else {
            return;
        };
        eq.consumer = value & 0xff_ffff;
        if eq.used() > eq.entries {
            dma.violations.note(
                Violation::ConsumerAhead,
                format_args!("EQ {eqn}: consumer {value:#x}, producer {:#x}", eq.producer),
            );
        }
        if value >> 31 == 0 {
            return;
        }
        // Entries between the driver's last look and this arm must not be missed.
        eq.armed = eq.used() == 0;
        if !eq.armed {
            self.msix.fire(eq.vector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx4::testing::Bench;

    fn bench() -> Bench {
        let mut bench = Bench::new();
        bench.eq(1, 2);
        bench
    }

    #[test]
    fn entries_are_stamped_then_owned_by_turns() {
        let mut bench = bench();
        let owner = |bench: &Bench, index: u64| bench.eqe(1, index)[EQE_OWNER];
        assert_eq!(owner(&bench, 3), EQE_OWNER_HW);
        for turn in 0..6 {
            bench
                .hca
                .card
                .events
                .object(&bench.hca.dma, EventType::CommEst, turn);
            bench.ring_eq(1, turn + 1);
        }
        // Entries 4 and 5 are the second time round.
        assert_eq!(owner(&bench, 0), EQE_OWNER_HW);
        assert_eq!(owner(&bench, 1), EQE_OWNER_HW);
        assert_eq!(owner(&bench, 2), 0);
        assert_eq!(bench.eqe(1, 1)[..8], [0, 2, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn an_overrun_loses_the_event_and_nothing_else() {
        let mut bench = bench();
        for turn in 0..5 {
            bench
                .hca
                .card
                .events
                .object(&bench.hca.dma, EventType::CommEst, turn);
        }
        assert_eq!(bench.hca.card.events.lost, 1);
        assert_eq!(bench.violations(), [Violation::EqOverrun]);
        assert_eq!(bench.eqe(1, 0)[4..8], [0, 0, 0, 0]);
    }

    #[test]
    fn one_interrupt_per_arm_and_none_is_missed() {
        let mut bench = bench();
        let fired = |bench: &mut Bench| bench.hca.card.events.msix.take_pending(1);
        bench
            .hca
            .card
            .events
            .object(&bench.hca.dma, EventType::CommEst, 1);
        assert!(fired(&mut bench));
        bench
            .hca
            .card
            .events
            .object(&bench.hca.dma, EventType::CommEst, 1);
        assert!(!fired(&mut bench));
        // The driver saw one of the two.
        bench.ring_eq(1, 1 << 31 | 1);
        assert!(fired(&mut bench));
        bench.ring_eq(1, 1 << 31 | 2);
        assert!(!fired(&mut bench));
        bench
            .hca
            .card
            .events
            .object(&bench.hca.dma, EventType::CommEst, 1);
        assert!(fired(&mut bench));
    }

    #[test]
    fn bad_queues_are_refused() {
        let mut bench = bench();
        assert_eq!(bench.create_eq(1, 2), Err(Status::BadResState));
        assert_eq!(bench.create_eq(128, 2), Err(Status::BadIndex));
        assert_eq!(bench.create_eq(2, 31), Err(Status::BadParam));
        // Far beyond the buffer's MTTs.
        assert_eq!(bench.create_eq(2, 20), Err(Status::IcmError));
    }

    #[test]
    fn a_queue_outlives_its_event_sources() {
        let mut bench = Bench::connected();
        let close = |bench: &mut Bench| bench.run(0x14, 1, 0, &[]);
        let unmap = |bench: &mut Bench| bench.run_immediate(0x12, 1 << 31 | 1, 0, &[], u64::MAX);
        assert_eq!(close(&mut bench), Err(Status::ResourceBusy));
        unmap(&mut bench).unwrap();
        assert_eq!(close(&mut bench), Err(Status::ResourceBusy));
        assert_eq!(bench.violations(), [Violation::ObjectInUse]);
        for cqn in [Bench::SEND_CQN, Bench::RECV_CQN] {
            bench.run(0x17, cqn, 0, &[]).unwrap();
        }
        assert_eq!(close(&mut bench), Ok(None));
        assert_eq!(unmap(&mut bench), Err(Status::BadResState));
        assert_eq!(bench.violations(), [Violation::UnknownObject]);
    }

    #[test]
    fn a_consumer_ahead_of_the_device_is_noticed() {
        let mut bench = bench();
        bench.ring_eq(1, 1);
        assert_eq!(bench.violations(), [Violation::ConsumerAhead]);
    }
}
