// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The two BARs behind QEMU's region accesses: registers in BAR 0, doorbell pages in BAR 2.
//!
//! A page of BAR 2 is a process's, or the kernel's; a doorbell counts only on the page that its QP
//! or CQ was created with, so that one process cannot ring another's.

use std::time::Instant;

use crate::engine::bytes::Fields;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::firmware::CATAS_BASE;
use crate::mlx4::hcr::{HCR_BASE, HCR_SIZE};
use crate::mlx4::icm::Object;
use crate::mlx4::identity::IDENTITY;
use crate::mlx4::qp::XRC_QPN_BIT;
use crate::mlx4::uar::UAR_PAGE_SHIFT;

/// MLX4_SEND_DOORBELL: QPN << 8.
const SEND_DOORBELL: u64 = 0x14;
/// MLX4_CQ_DOORBELL: eight bytes, which a 32-bit driver writes in two halves.
const CQ_DOORBELL: u64 = 0x20;
/// The first of four EQ doorbells.
const EQ_DOORBELL: u64 = 0x800;
const EQ_DOORBELL_STRIDE: u64 = 8;
const EQS_PER_PAGE: u64 = 4;

/// MLX4_RESET_BASE + MLX4_RESET_OFFSET.
const RESET: u64 = 0xf0010;
/// MLX4_RESET_VALUE, as it arrives.
const RESET_VALUE: u32 = 1;

impl Hca {
    /// A doorbell of an object that does not exist.
    fn unknown_doorbell(&self, object: Object, number: u32) {
        if !self.card.uar.orphans.contains(&(object, number)) {
            self.dma.violations.note(
                Violation::UnknownDoorbell,
                format_args!("{object:?} {number:#x}"),
            );
        }
    }

    /// A read of BAR 0.
    pub fn read_registers(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let value = if (HCR_BASE..HCR_BASE.saturating_add(HCR_SIZE)).contains(&offset) {
            self.card.hcr.read(offset.saturating_sub(HCR_BASE))
        } else if offset == CATAS_BASE {
            self.faults.catastrophe().unwrap_or(0)
        } else if offset == u64::from(IDENTITY.msix_pba) {
            // Little-endian, unlike the rest.
            (self.card.events.msix.pending() as u32).swap_bytes()
        } else {
            // Semaphore and ownership read 0: granted. The rest of the error buffer is empty.
            0
        };
        for (byte, value) in data.iter_mut().zip(value.to_be_bytes()) {
            *byte = value;
        }
    }

    /// A write to BAR 0.
    pub fn write_registers(&mut self, offset: u64, data: &[u8], now: Instant) {
        for (index, dword) in data.chunks_exact(4).enumerate() {
            let at = offset.saturating_add((index as u64).saturating_mul(4));
            let value = dword.get_be32(0);
            if at == RESET {
                if value == RESET_VALUE {
                    self.reset();
                }
            } else if (HCR_BASE..HCR_BASE.saturating_add(HCR_SIZE)).contains(&at) {
                if let Some(command) = self.card.hcr.write(at.saturating_sub(HCR_BASE), value) {
                    self.post_command(command, now);
                }
            }
        }
    }

    /// A write to BAR 2.
    pub fn write_doorbell(&mut self, offset: u64, data: &[u8]) {
        if self.faults.is_dead() {
            return;
        }
        let page = (offset >> UAR_PAGE_SHIFT) as u32;
        let within = offset & ((1 << UAR_PAGE_SHIFT) - 1);
        match (within, data.len()) {
            (SEND_DOORBELL, 4) => self.send_doorbell(page, data.get_be32(0) >> 8),
            (CQ_DOORBELL, 8) => self.cq_doorbell(page, data.get_be32(0), data.get_be32(4)),
            (CQ_DOORBELL, 4) => self.card.uar.cq_high = Some((page, data.get_be32(0))),
            (_, 4) if within == CQ_DOORBELL.saturating_add(4) => {
                if let Some((high_page, high)) = self.card.uar.cq_high.take() {
                    if high_page == page {
                        self.cq_doorbell(page, high, data.get_be32(0));
                    }
                }
            }
            (EQ_DOORBELL.., 4) => {
                let slot = within.saturating_sub(EQ_DOORBELL) / EQ_DOORBELL_STRIDE;
                if slot < EQS_PER_PAGE {
                    let eqn = u64::from(page)
                        .saturating_mul(EQS_PER_PAGE)
                        .saturating_add(slot);
                    self.eq_doorbell(eqn as u32, data.get_be32(0));
                }
            }
            _ => log::debug!("UAR page {page}: {} bytes at {within:#x}", data.len()),
        }
    }

    fn send_doorbell(&mut self, page: u32, qpn: u32) {
        let (violation, ours) = match self.qps.get_mut(qpn) {
            None => return self.unknown_doorbell(Object::Qp, qpn & !XRC_QPN_BIT),
            Some(qp) if qp.context.uar_page() != page => {
                (Violation::ForeignPage, qp.context.uar_page())
            }
            Some(qp) if qp.is_xrc_target() => (Violation::TargetRung, page),
            Some(qp) => {
                qp.queues.ring();
                self.schedule.queue(qpn);
                return;
            }
        };
        self.dma.violations.note(
            violation,
            format_args!("QP {qpn:#x} of UAR page {ours} rung from {page}"),
        );
    }

    fn cq_doorbell(&mut self, page: u32, first: u32, index: u32) {
        let cqn = first & 0xff_ffff;
        if !self.card.cqs.contains(cqn) {
            return self.unknown_doorbell(Object::Cq, cqn);
        }
        self.card
            .cqs
            .doorbell(&self.dma, &mut self.card.events, page, first, index);
    }

    fn eq_doorbell(&mut self, eqn: u32, value: u32) {
        if !self.card.events.contains(eqn) {
            return self.unknown_doorbell(Object::Eq, eqn);
        }
        self.card.events.doorbell(&self.dma, eqn, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::memory::DmaError;
    use crate::mlx4::testing::{Bench, QpSetup};

    const QPN: u32 = 0x40;
    const TARGET: u32 = 0x80_0041;

    fn ring(bench: &mut Bench, page: u32, qpn: u32) {
        let at = u64::from(page) << UAR_PAGE_SHIFT | SEND_DOORBELL;
        bench.hca.write_doorbell(at, &(qpn << 8).to_be_bytes());
    }

    #[test]
    fn a_doorbell_belongs_to_an_object_and_its_page() {
        let mut bench = Bench::connected();
        bench.pair(0, QPN, QPN + 2);
        ring(&mut bench, Bench::UAR, QPN);
        assert_eq!(bench.violations(), []);
        ring(&mut bench, Bench::UAR + 1, QPN);
        assert_eq!(bench.violations(), [Violation::ForeignPage]);
        ring(&mut bench, Bench::UAR, QPN + 9);
        assert_eq!(bench.violations(), [Violation::UnknownDoorbell]);
        bench.hca.cq_doorbell(Bench::UAR, 2 << 24 | 0x99, 0);
        assert_eq!(bench.violations(), [Violation::UnknownDoorbell]);
        bench.ring_eq(9, 0);
        assert_eq!(bench.violations(), [Violation::UnknownDoorbell]);
    }

    #[test]
    fn users_may_ring_doorbells_of_objects_that_a_reset_destroyed() {
        let mut bench = Bench::connected();
        bench.pair(0, QPN, QPN + 2);
        bench.hca.reset();
        bench.hca.reset();
        ring(&mut bench, Bench::UAR, QPN);
        bench
            .hca
            .cq_doorbell(Bench::UAR, 2 << 24 | Bench::SEND_CQN, 0);
        bench.ring_eq(1, 0);
        assert_eq!(bench.violations(), []);
        ring(&mut bench, Bench::UAR, QPN + 1);
        assert_eq!(bench.violations(), [Violation::UnknownDoorbell]);
    }

    #[test]
    fn a_target_is_not_rung() {
        let mut bench = Bench::connected();
        let target = QpSetup {
            xrcd: 7,
            ..QpSetup::new(6, QPN)
        };
        bench.qp_rts(TARGET, &target);
        ring(&mut bench, Bench::UAR, TARGET);
        assert_eq!(bench.violations(), [Violation::TargetRung]);
    }

    #[test]
    fn a_reset_undoes_the_drivers_settings() {
        let mut bench = Bench::connected();
        bench
            .hca
            .write_registers(RESET, &RESET_VALUE.to_be_bytes(), bench.now);
        assert!(!bench.hca.config.bus_master());
        assert_eq!(
            bench.hca.dma.memory.write(0, &[0]),
            Err(DmaError::BusMaster)
        );
        assert_eq!(bench.violations(), [Violation::NoBusMaster]);
        bench.hca.write_config(4, &[0x06]);
        assert_eq!(bench.run(0x004, 0, 0, &[]), Ok(None));
        assert!(!bench.hca.port(1).unwrap().is_up());
    }
}
