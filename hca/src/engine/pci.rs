// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The PCI face of the adapter: configuration space and MSI-X vectors.
//!
//! QEMU emulates BAR sizing and the MSI-X table; writes that it forwards must be remembered. The
//! vectors live as long as QEMU's connection, also across resets by the guest.

use std::fs::File;
use std::io::Write;

/// Size of configuration space.
pub const CONFIG_SIZE: usize = 4096;
/// MSI-X vectors.
pub const VECTORS: u16 = 16;

/// The identity of a card on the bus.
pub struct Identity {
    /// Device ID; the vendor is Mellanox.
    pub device: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Sizes of BAR 0 and BAR 2, of 64 bits each; 0 is none.
    pub bars: [u64; 2],
    /// BAR 0 may be prefetched; BAR 2 always may.
    pub prefetch: bool,
    /// The offset of the MSI-X table in BAR 0.
    pub msix_table: u32,
    /// The offset of its pending bits in BAR 0.
    pub msix_pba: u32,
}

const PCI_VENDOR_ID_MELLANOX: u16 = 0x15b3;
/// Network controller, InfiniBand.
const PCI_CLASS_INFINIBAND: u32 = 0x02_0700;

const PCI_VENDOR_ID: usize = 0x00;
const PCI_DEVICE_ID: usize = 0x02;
const PCI_COMMAND: usize = 0x04;
const PCI_COMMAND_MASTER: u16 = 1 << 2;
const PCI_STATUS: usize = 0x06;
const PCI_STATUS_CAP_LIST: u16 = 0x10;
const PCI_CLASS_REVISION: usize = 0x08;
const PCI_BASE_ADDRESS_0: usize = 0x10;
const PCI_BASE_ADDRESS_2: usize = 0x18;
const PCI_BASE_ADDRESS_MEM_TYPE_64: u32 = 0x04;
const PCI_BASE_ADDRESS_MEM_PREFETCH: u32 = 0x08;
const PCI_SUBSYSTEM_VENDOR_ID: usize = 0x2c;
const PCI_SUBSYSTEM_DEVICE_ID: usize = 0x2e;
const PCI_CAPABILITY_LIST: usize = 0x34;
const PCI_INTERRUPT_LINE: usize = 0x3c;

const EXP_CAP: usize = 0x60;
const PCI_CAP_ID_EXP: u8 = 0x10;
const PCI_EXP_FLAGS: usize = EXP_CAP + 0x02;
const PCI_EXP_DEVCAP: usize = EXP_CAP + 0x04;
/// Payloads of 512 bytes, and error reports by role.
const DEVCAP: u32 = 0x8002;
const PCI_EXP_DEVCAP_FLR: u32 = 1 << 28;
const PCI_EXP_DEVCTL: usize = EXP_CAP + 0x08;
/// Resets the function when it is written; it reads as 0.
const PCI_EXP_DEVCTL_BCR_FLR: u16 = 1 << 15;
const PCI_EXP_LNKCAP: usize = EXP_CAP + 0x0c;
const PCI_EXP_LNKCTL: usize = EXP_CAP + 0x10;
const PCI_EXP_LNKSTA: usize = EXP_CAP + 0x12;
const PCI_EXP_LNKCAP2: usize = EXP_CAP + 0x2c;
/// 2.5, 5 and 8 GT/s.
const LINK_SPEEDS: u32 = 0x0e;
/// 8 GT/s, eight lanes: a card in its slot.
const LINK_8GT_X8: u16 = 0x83;

const MSIX_CAP: usize = 0x9c;
const PCI_CAP_ID_MSIX: u8 = 0x11;
const PCI_MSIX_FLAGS: usize = MSIX_CAP + 0x02;
const PCI_MSIX_TABLE: usize = MSIX_CAP + 0x04;
const PCI_MSIX_PBA: usize = MSIX_CAP + 0x08;

/// Bytes of configuration space the guest may change.
const WRITABLE: [std::ops::Range<usize>; 5] = [
    PCI_COMMAND..PCI_COMMAND + 2,
    PCI_INTERRUPT_LINE..PCI_INTERRUPT_LINE + 1,
    PCI_EXP_DEVCTL..PCI_EXP_DEVCTL + 2,
    PCI_EXP_LNKCTL..PCI_EXP_LNKCTL + 2,
    PCI_MSIX_FLAGS + 1..PCI_MSIX_FLAGS + 2,
];

/// Configuration space.
pub struct Config {
    bytes: Vec<u8>,
}

impl Config {
    /// That of a card.
    pub fn new(identity: &Identity) -> Self {
        let mut config = Self {
            bytes: vec![0; CONFIG_SIZE],
        };
        config.set16(PCI_VENDOR_ID, PCI_VENDOR_ID_MELLANOX);
        config.set16(PCI_DEVICE_ID, identity.device);
        config.set16(PCI_STATUS, PCI_STATUS_CAP_LIST);
        config.set32(PCI_CLASS_REVISION, PCI_CLASS_INFINIBAND << 8);
        let prefetch = |yes: bool| u32::from(yes).wrapping_mul(PCI_BASE_ADDRESS_MEM_PREFETCH);
        let first = PCI_BASE_ADDRESS_MEM_TYPE_64 | prefetch(identity.prefetch);
        config.set32(PCI_BASE_ADDRESS_0, first);
        if identity.bars[1] != 0 {
            let second = PCI_BASE_ADDRESS_MEM_TYPE_64 | prefetch(true);
            config.set32(PCI_BASE_ADDRESS_2, second);
        }
        config.set16(PCI_SUBSYSTEM_VENDOR_ID, PCI_VENDOR_ID_MELLANOX);
        config.set16(PCI_SUBSYSTEM_DEVICE_ID, identity.subsystem);
        config.set8(PCI_CAPABILITY_LIST, MSIX_CAP as u8);

        config.set8(MSIX_CAP, PCI_CAP_ID_MSIX);
        config.set8(MSIX_CAP + 1, EXP_CAP as u8);
        config.set16(PCI_MSIX_FLAGS, VECTORS - 1);
        config.set32(PCI_MSIX_TABLE, identity.msix_table);
        config.set32(PCI_MSIX_PBA, identity.msix_pba);

        config.set8(EXP_CAP, PCI_CAP_ID_EXP);
        config.set16(PCI_EXP_FLAGS, 2);
        config.set32(PCI_EXP_DEVCAP, DEVCAP | PCI_EXP_DEVCAP_FLR);
        config.set32(PCI_EXP_LNKCAP, u32::from(LINK_8GT_X8));
        config.set16(PCI_EXP_LNKSTA, LINK_8GT_X8);
        config.set32(PCI_EXP_LNKCAP2, LINK_SPEEDS);
        config
    }

    fn set8(&mut self, at: usize, value: u8) {
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte = value;
        }
    }

    fn set16(&mut self, at: usize, value: u16) {
        for (offset, byte) in value.to_le_bytes().into_iter().enumerate() {
            self.set8(at.wrapping_add(offset), byte);
        }
    }

    fn set32(&mut self, at: usize, value: u32) {
        for (offset, byte) in value.to_le_bytes().into_iter().enumerate() {
            self.set8(at.wrapping_add(offset), byte);
        }
    }

    /// The device may reach memory.
    pub fn bus_master(&self) -> bool {
        let command = self.bytes.get(PCI_COMMAND).copied().unwrap_or(0);
        u16::from(command) & PCI_COMMAND_MASTER != 0
    }

    /// Reads; beyond the end there is nothing.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.bytes.get(start..))
            .unwrap_or_default();
        let stored = bytes.iter().copied().chain(std::iter::repeat(0));
        for (byte, stored) in data.iter_mut().zip(stored) {
            *byte = stored;
        }
    }

    fn get16(&self, at: usize) -> u16 {
        let mut data = [0; 2];
        self.read(at as u64, &mut data);
        u16::from_le_bytes(data)
    }

    /// Writes the writable bits. Returns whether that asks for a reset of the function.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        for (index, byte) in data.iter().enumerate() {
            let at = offset.saturating_add(index);
            if WRITABLE.iter().any(|range| range.contains(&at)) {
                self.set8(at, *byte);
            }
        }
        let control = self.get16(PCI_EXP_DEVCTL);
        self.set16(PCI_EXP_DEVCTL, control & !PCI_EXP_DEVCTL_BCR_FLR);
        control & PCI_EXP_DEVCTL_BCR_FLR != 0
    }
}

/// The MSI-X vectors: an eventfd each, as QEMU hands them over.
#[derive(Default)]
pub struct Msix {
    vectors: [Option<File>; VECTORS as usize],
    /// Raised while QEMU had given no eventfd.
    pending: u64,
}

impl Msix {
    /// Connects vector `index`, or disconnects it. An interrupt that came while it was
    /// disconnected fires now.
    pub fn connect(&mut self, index: usize, eventfd: Option<File>) {
        let Some(vector) = self.vectors.get_mut(index) else {
            return;
        };
        *vector = eventfd;
        if vector.is_some() && self.pending >> index & 1 != 0 {
            self.pending &= !(1u64 << index);
            self.fire(index as u8);
        }
    }

    /// Raises vector `index`.
    pub fn fire(&mut self, index: u8) {
        match self.vectors.get_mut(usize::from(index)) {
            // An eventfd only refuses when its counter is full: then the interrupt is on its way.
            Some(Some(eventfd)) => {
                if let Err(error) = eventfd.write_all(&1u64.to_ne_bytes()) {
                    log::warn!("vector {index}: {error}");
                }
            }
            Some(None) => self.pending |= 1u64 << index,
            None => log::warn!("no vector {index}"),
        }
    }

    /// The pending bits, as the PBA shows them.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Whether vector `index` was raised, for tests.
    #[cfg(test)]
    pub fn take_pending(&mut self, index: u8) -> bool {
        let bit = 1u64 << index;
        let was = self.pending & bit != 0;
        self.pending &= !bit;
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read32(config: &Config, offset: u64) -> u32 {
        let mut data = [0; 4];
        config.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    #[test]
    fn the_driver_finds_its_device() {
        let config = Config::new(&crate::mlx4::identity::IDENTITY);
        assert_eq!(read32(&config, 0), 0x1003_15b3);
        assert_eq!(read32(&config, 8), 0x0207_0000);
        // MSI-X, then PCI Express, then the end.
        assert_eq!(read32(&config, 0x34) & 0xff, 0x9c);
        assert_eq!(read32(&config, 0x9c), 0x000f_6011);
        assert_eq!(read32(&config, 0x60) & 0xffff, 0x0010);
    }

    #[test]
    fn only_control_registers_remember() {
        let mut config = Config::new(&crate::mlx4::identity::IDENTITY);
        config.write(4, &[0x06, 0x04, 0xff, 0xff]);
        assert_eq!(read32(&config, 4), 0x0010_0406);
        config.write(0, &[0; 4]);
        assert_eq!(read32(&config, 0), 0x1003_15b3);
        assert!(config.bus_master());
        config.write(u64::MAX, &[0; 4]);
        assert_eq!(read32(&config, 4094), 0);
        assert_eq!(read32(&config, u64::MAX), 0);
    }
}
