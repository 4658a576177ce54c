// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The two BARs behind QEMU's region accesses: registers in BAR 0, doorbell pages in BAR 2.
//!
//! A page of BAR 2 is a process's, or the kernel's; a doorbell counts only on the page that its QP
//! or CQ was created with, so that one process cannot ring another's.

use std::time::Instant;

use crate::bytes::Fields;
use crate::firmware::CATAS_BASE;
use crate::hca::Hca;
use crate::hcr::{HCR_BASE, HCR_SIZE};
use crate::pci::MSIX_PBA;

/// log2 of the size of a doorbell page.
const UAR_PAGE_SHIFT: u32 = 12;
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

/// What the doorbells remember.
#[derive(Default)]
pub struct Uar {
    /// The first half of a CQ doorbell, and its page.
    cq_high: Option<(u32, u32)>,
}

impl Hca {
    /// A read of BAR 0.
    pub fn read_registers(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let value = if (HCR_BASE..HCR_BASE.saturating_add(HCR_SIZE)).contains(&offset) {
            self.hcr.read(offset.saturating_sub(HCR_BASE))
        } else if offset == CATAS_BASE {
            self.faults.catastrophe().unwrap_or(0)
        } else if offset == MSIX_PBA {
            // Little-endian, unlike the rest.
            (self.events.msix.pending() as u32).swap_bytes()
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
                if let Some(command) = self.hcr.write(at.saturating_sub(HCR_BASE), value) {
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
            (CQ_DOORBELL, 4) => self.uar.cq_high = Some((page, data.get_be32(0))),
            (_, 4) if within == CQ_DOORBELL.saturating_add(4) => {
                if let Some((high_page, high)) = self.uar.cq_high.take() {
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
                    self.events.doorbell(eqn as u32, data.get_be32(0));
                }
            }
            _ => log::debug!("UAR page {page}: {} bytes at {within:#x}", data.len()),
        }
    }

    fn send_doorbell(&mut self, page: u32, qpn: u32) {
        match self.qps.get_mut(qpn) {
            Some(qp) if qp.context.uar_page() == page => {
                qp.rung = true;
                self.schedule.queue(qpn);
            }
            Some(_) => log::debug!("QP {qpn:#x} rung from UAR page {page}, which is not its own"),
            None => log::debug!("doorbell for QP {qpn:#x}, which does not exist"),
        }
    }

    fn cq_doorbell(&mut self, page: u32, first: u32, index: u32) {
        self.cqs
            .doorbell(&self.dma, &mut self.events, page, first, index);
    }
}
