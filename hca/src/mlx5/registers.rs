// SPDX-License-Identifier: Apache-2.0 OR MIT

//! BAR 0: the initialization segment (struct mlx5_init_seg), then UAR pages with doorbells.

use std::time::Instant;

use crate::engine::bytes::Fields;
use crate::engine::violation::Violation;
use crate::mlx5::card::{ConnectX6, Hca};
use crate::mlx5::command::{LOG_COMMANDS, LOG_ENTRY};

// struct mlx5_init_seg.
const FW_REV: u64 = 0x0000;
const CMDIF_REV: u64 = 0x0004;
const CMDQ_ADDR_H: u64 = 0x0010;
const CMDQ_ADDR_L_SZ: u64 = 0x0014;
const CMD_DBELL: u64 = 0x0018;
const INITIALIZING: u64 = 0x01fc;
/// The first field of the health buffer (struct health_buffer): an assertion of firmware.
const HEALTH: u64 = 0x0200;
/// Its fields rfr_severity and synd are bytes of these dwords.
const HEALTH_RFR_SEVERITY: u64 = 0x0238;
const HEALTH_SYNDROME: u64 = 0x023c;
const INTERNAL_TIMER_H: u64 = 0x1000;
const INTERNAL_TIMER_L: u64 = 0x1004;
const HEALTH_COUNTER: u64 = 0x1010;
const SEGMENT_END: u64 = 0x4000;

/// Firmware 20.35.1010, as minor and major.
const FIRMWARE: u32 = 35 << 16 | 20;
/// The command interface that the driver knows, and the last part of the firmware's version.
const COMMAND_INTERFACE: u32 = 5 << 16 | 1010;
/// The health counter where it has stopped.
const STOPPED_COUNTER: u32 = 1;
/// The address of the command queue has nothing below.
const QUEUE_LOW: u64 = 0xfff;

/// MLX5_NIC_IFC_OFFSET: in the low part of the command queue's address.
const NIC_INTERFACE_SHIFT: u32 = 8;
const NIC_INTERFACE_MASK: u32 = 7;
/// MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED: no driver yet after a reset of firmware.
const NIC_DISABLED: u32 = 1;
/// MLX5_INITIAL_SEG_NIC_INTERFACE_SW_RESET: resets firmware when it is written.
const NIC_SW_RESET: u32 = 7;
/// MLX5_FW_RESET_SUPPORTED_OFFSET: firmware can be reset so.
const FIRMWARE_RESET: u32 = 1 << 30;
/// MLX5_RFR_BIT_OFFSET, in the dword: firmware requests its reset.
const REQUESTS_RESET: u32 = 1 << 31;
/// MLX5_SEVERITY_VALID_MASK and the severity LOGLEVEL_CRIT, in the dword.
const SEVERITY_CRITICAL: u32 = 0xa << 24;
/// MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_INTERNAL_ERR, in the dword.
const INTERNAL_ERROR: u32 = 1 << 16;

/// MLX5_CQ_DOORBELL: eight bytes, which a 32-bit driver writes in two halves.
const CQ_DOORBELL: u64 = 0x20;
const EQ_ARM: u64 = 0x40;
const EQ_UPDATE: u64 = 0x48;
/// MLX5_BF_OFFSET: the first eight bytes of a WQE.
const SEND_DOORBELL: u64 = 0x800;

impl ConnectX6 {
    fn elapsed(&mut self, now: Instant) -> u64 {
        let start = *self.start.get_or_insert(now);
        now.saturating_duration_since(start).as_nanos() as u64
    }
}

impl Hca {
    fn register(&mut self, offset: u64, now: Instant) -> u32 {
        let time = self.card.elapsed(now);
        let failure = self.faults.catastrophe();
        match offset {
            FW_REV => FIRMWARE,
            CMDIF_REV => COMMAND_INTERFACE,
            CMDQ_ADDR_H => (self.card.command_queue >> 32) as u32,
            CMDQ_ADDR_L_SZ => {
                let interface = self.card.interface << NIC_INTERFACE_SHIFT;
                self.card.command_queue as u32 | interface | LOG_COMMANDS << 4 | LOG_ENTRY
            }
            // It has initialised.
            INITIALIZING => FIRMWARE_RESET,
            HEALTH => failure.unwrap_or(0),
            HEALTH_RFR_SEVERITY if failure.is_some() => REQUESTS_RESET | SEVERITY_CRITICAL,
            HEALTH_SYNDROME if failure.is_some() => INTERNAL_ERROR,
            // It changes, until firmware has failed or a test stops it.
            HEALTH_COUNTER if self.faults.is_dead() || self.faults.health_stopped() => {
                STOPPED_COUNTER
            }
            HEALTH_COUNTER => (time / 10_000_000) as u32,
            INTERNAL_TIMER_H => (time >> 32) as u32,
            INTERNAL_TIMER_L => time as u32,
            // All else is well.
            _ => 0,
        }
    }

    /// A read of BAR 0.
    pub fn read_segment(&mut self, offset: u64, data: &mut [u8], now: Instant) {
        for (at, byte) in (offset..).zip(data) {
            let value = match at {
                ..SEGMENT_END => self.register(at & !3, now),
                _ => 0,
            };
            let [first, second, third, fourth] = value.to_be_bytes();
            *byte = match at & 3 {
                0 => first,
                1 => second,
                2 => third,
                _ => fourth,
            };
        }
    }

    /// A write to BAR 0.
    pub fn write_segment(&mut self, offset: u64, data: &[u8], now: Instant) {
        if offset >= SEGMENT_END {
            return self.write_uar(offset, data);
        }
        for (at, dword) in (offset..).step_by(4).zip(data.chunks_exact(4)) {
            let value = dword.get_be32(0);
            let queue = self.card.command_queue;
            match at {
                CMDQ_ADDR_H => {
                    self.card.command_queue = u64::from(value) << 32 | queue & 0xffff_ffff;
                }
                CMDQ_ADDR_L_SZ => {
                    let low = u64::from(value) & !QUEUE_LOW;
                    self.card.command_queue = queue & !0xffff_ffff | low;
                    self.card.interface = value >> NIC_INTERFACE_SHIFT & NIC_INTERFACE_MASK;
                    if self.card.interface == NIC_SW_RESET {
                        self.restart();
                        self.card.interface = NIC_DISABLED;
                    }
                }
                CMD_DBELL => {
                    for slot in (0..32).filter(|slot| value >> slot & 1 != 0) {
                        self.post_command(slot, now);
                    }
                }
                _ => log::debug!("register {at:#x}: {value:#x}"),
            }
        }
    }

    fn write_uar(&mut self, offset: u64, data: &[u8]) {
        if self.faults.is_dead() {
            return;
        }
        let shift = self.card.uar_shift();
        let page = (offset >> shift) as u32;
        let within = offset & (1u64 << shift).wrapping_sub(1);
        if !self.card.uars.contains(&page) {
            log::debug!("write to UAR page {page}, which is not allocated: {within:#x}");
            return;
        }
        match (within, data.len()) {
            (EQ_ARM, 4) => self.eq_doorbell(page, data.get_be32(0), true),
            (EQ_UPDATE, 4) => self.eq_doorbell(page, data.get_be32(0), false),
            (CQ_DOORBELL, 8) => self.cq_doorbell(page, data.get_be32(0), data.get_be32(4)),
            (CQ_DOORBELL, 4) => self.card.cq_high = Some((page, data.get_be32(0))),
            (_, 4) if within == CQ_DOORBELL.saturating_add(4) => {
                if let Some((high_page, high)) = self.card.cq_high.take() {
                    if high_page == page {
                        self.cq_doorbell(page, high, data.get_be32(0));
                    }
                }
            }
            (SEND_DOORBELL.., 8..) => self.send_doorbell(page, data.get_be32(4) >> 8),
            _ => log::debug!("UAR page {page}: {} bytes at {within:#x}", data.len()),
        }
    }

    fn eq_doorbell(&mut self, page: u32, value: u32, arm: bool) {
        self.card.events.doorbell(&self.dma, page, value, arm);
    }

    fn cq_doorbell(&mut self, page: u32, first: u32, cqn: u32) {
        let card = &mut self.card;
        card.cqs
            .doorbell(&self.dma, &mut card.events, page, first, cqn);
    }

    fn send_doorbell(&mut self, page: u32, qpn: u32) {
        let violation = match self.qps.get_mut(qpn) {
            None => Violation::UnknownDoorbell,
            // It has no page either.
            Some(qp) if qp.context.has_no_sq() => Violation::TargetRung,
            Some(qp) if qp.context.uar_page() != page => Violation::ForeignPage,
            Some(qp) => {
                qp.queues.ring(&self.dma, &qp.context, qpn);
                self.schedule.queue(qpn);
                return;
            }
        };
        self.dma
            .violations
            .note(violation, format_args!("QP {qpn:#x} rung from {page}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::transport::Service;
    use crate::mlx5::card::Qp;
    use crate::mlx5::command::Status;
    use crate::mlx5::ifc::{alloc_uar_out, cmd_hca_cap, qpc, set_hca_cap_in, Bits};
    use crate::mlx5::qpc::Context;
    use crate::mlx5::queues::Queues;

    /// A card whose driver wants UAR pages of `4096 << log` bytes.
    fn card(log: u64) -> Result<Hca, Status> {
        let mut hca = Hca::new(0);
        let mut input = vec![0; set_hca_cap_in::SIZE];
        let field = set_hca_cap_in::CAPABILITY.part(cmd_hca_cap::LOG_UAR_PAGE_SZ);
        input.set_bits(field, log);
        hca.set_hca_cap(&input).map(|_| hca)
    }

    #[test]
    fn uar_pages_are_as_large_as_those_of_the_system() {
        for log in [0, 2, 4] {
            let mut hca = card(log).unwrap();
            let page = hca.alloc_uar().unwrap().bits32(alloc_uar_out::UAR);
            let at = (u64::from(page) << (12 + log)) + CQ_DOORBELL;
            hca.write_segment(at, &7u32.to_be_bytes(), Instant::now());
            assert_eq!(hca.card.cq_high, Some((page, 7)));
        }
        assert_eq!(card(5).err(), Some(Status::BadParam));
    }

    fn read(hca: &mut Hca, offset: u64) -> u32 {
        let mut data = [0; 4];
        hca.read_segment(offset, &mut data, Instant::now());
        u32::from_be_bytes(data)
    }

    fn interface(hca: &mut Hca) -> u32 {
        read(hca, CMDQ_ADDR_L_SZ) >> NIC_INTERFACE_SHIFT & NIC_INTERFACE_MASK
    }

    #[test]
    fn firmware_that_failed_requests_a_reset_and_works_after_it() {
        let mut hca = Hca::new(0);
        hca.write_config(4, &[0x06, 0x04]);
        hca.card.pds.insert(1);
        assert_eq!(read(&mut hca, INITIALIZING), 1 << 30);
        let health = |hca: &mut Hca| {
            // The driver reads bytes.
            let [mut rfr, mut synd] = [[0], [0]];
            hca.read_segment(0x238, &mut rfr, Instant::now());
            hca.read_segment(0x23d, &mut synd, Instant::now());
            (rfr[0] >> 7, synd[0])
        };
        assert_eq!(health(&mut hca), (0, 0));
        hca.faults.set_catastrophe(7);
        assert_eq!(health(&mut hca), (1, 1));
        assert_eq!(read(&mut hca, HEALTH), 7);

        let reset = (NIC_SW_RESET << NIC_INTERFACE_SHIFT).to_be_bytes();
        hca.write_segment(CMDQ_ADDR_L_SZ, &reset, Instant::now());
        assert_eq!(interface(&mut hca), NIC_DISABLED);
        assert_eq!(health(&mut hca), (0, 0));
        assert!(hca.card.pds.is_empty() && !hca.faults.is_dead());
        // Configuration space is not firmware's.
        assert!(hca.dma.memory.bus_master);
        // The driver comes back with its command queue.
        hca.write_segment(CMDQ_ADDR_L_SZ, &0x5000u32.to_be_bytes(), Instant::now());
        assert_eq!(interface(&mut hca), 0);
    }

    #[test]
    fn a_reset_of_the_function_empties_the_card() {
        const DEVCAP: u64 = 0x64;
        const DEVCTL: u64 = 0x68;
        let mut hca = Hca::new(0);
        let config = |hca: &Hca, at| {
            let mut data = [0; 4];
            hca.config.read(at, &mut data);
            u32::from_le_bytes(data)
        };
        // PCI_EXP_DEVCAP_FLR.
        assert_eq!(config(&hca, DEVCAP) >> 28 & 1, 1);
        hca.write_config(4, &[0x06, 0x04]);
        hca.card.pds.insert(1);
        hca.faults.set_catastrophe(7);
        // Other bits reset nothing, in whichever width they are written.
        hca.write_config(DEVCTL, &[0x10, 0x50]);
        hca.write_config(DEVCTL + 1, &[0x20]);
        assert_eq!(config(&hca, DEVCTL), 0x2010);
        assert_eq!((hca.counters.resets, hca.card.pds.len()), (0, 1));
        hca.write_config(DEVCTL, &[0x10, 0xa0]);
        assert_eq!((hca.counters.resets, hca.card.pds.len()), (1, 0));
        assert!(!hca.faults.is_dead() && !hca.dma.memory.bus_master);
        assert_eq!(config(&hca, DEVCTL), 0);
    }

    #[test]
    fn the_health_counter_stops_where_a_test_stops_it() {
        let mut hca = Hca::new(0);
        let start = Instant::now();
        let counts = |hca: &mut Hca| {
            let mut at = |seconds| {
                let mut data = [0; 4];
                let now = start + std::time::Duration::from_secs(seconds);
                hca.read_segment(HEALTH_COUNTER, &mut data, now);
                data
            };
            at(1) != at(2)
        };
        assert!(counts(&mut hca));
        hca.faults.stop_health(true);
        assert!(!counts(&mut hca));
        hca.faults.stop_health(false);
        assert!(counts(&mut hca));
    }

    #[test]
    fn a_target_has_no_doorbell() {
        let mut hca = Hca::new(0);
        let mut context = vec![0; qpc::SIZE];
        context.set_bits(qpc::ST, 3);
        context.set_bits(qpc::RQ_TYPE, 1);
        context.set_bits(qpc::NO_SQ, 1);
        let context = Context::new(&context);
        let queues = Queues::new(&context, &[]).unwrap();
        hca.qps.insert(Qp::new(0x41, Service::Xrc, context, queues));
        hca.send_doorbell(9, 0x41);
        assert_eq!(hca.dma.violations.take(), [Violation::TargetRung]);
        hca.send_doorbell(9, 0x42);
        assert_eq!(hca.dma.violations.take(), [Violation::UnknownDoorbell]);
    }
}
