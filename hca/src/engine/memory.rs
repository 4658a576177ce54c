// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The guest's RAM as the device sees it: ranges of guest-physical addresses that QEMU announced,
//! each mapped from the file descriptor that came with it.
//!
//! The guest runs while we look, so every access is volatile and nothing is ever borrowed as a
//! plain slice. A range lives from DMA_MAP to the DMA_UNMAP that covers it.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::engine::violation::{Violation, Violations};

/// The reason why an address could not be reached.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum DmaError {
    /// No range holds the address.
    #[error("guest address {0:#x} is not mapped")]
    Unmapped(u64),
    /// The range was announced without write access.
    #[error("guest address {0:#x} is read-only")]
    ReadOnly(u64),
    /// No MAP_ICM covers the address.
    #[error("ICM address {0:#x} is not mapped")]
    Icm(u64),
    /// The MTT entry is not present.
    #[error("MTT entry {0:#x} is not present")]
    Mtt(u64),
    /// The driver has not allowed the device to master the bus.
    #[error("bus mastering is off")]
    BusMaster,
    /// An address ran over the end of the address space.
    #[error("address overflow")]
    Overflow,
    /// INIT_HCA has not been executed.
    #[error("no ICM layout before INIT_HCA")]
    NoHca,
}

/// The ranges of guest RAM, none overlapping another. (Those of [`vm_memory::GuestMemoryMmap`] are
/// all writable, and a change makes a new collection.)
#[derive(Default)]
pub struct GuestMemory {
    ranges: Vec<Range>,
    /// Whether the device may reach it, as the PCI command register says.
    pub bus_master: bool,
    violations: Violations,
}

struct Range {
    start: u64,
    size: u64,
    writable: bool,
    mapping: MmapRegion,
}

impl Range {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }
}

impl GuestMemory {
    /// No memory yet, and none that may be reached.
    pub fn new(violations: Violations) -> Self {
        Self {
            violations,
            ..Self::default()
        }
    }

    /// Maps `size` bytes of `file` at guest address `start`, replacing earlier mappings.
    pub fn map(
        &mut self,
        start: u64,
        size: u64,
        file: File,
        offset: u64,
        writable: bool,
    ) -> std::io::Result<()> {
        let length = usize::try_from(size).map_err(std::io::Error::other)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, offset), length)
            .map_err(std::io::Error::other)?;
        self.insert(start, size, mapping, writable);
        Ok(())
    }

    fn insert(&mut self, start: u64, size: u64, mapping: MmapRegion, writable: bool) {
        self.unmap(start, size);
        self.ranges.push(Range {
            start,
            size,
            writable,
            mapping,
        });
        self.ranges.sort_by_key(|range| range.start);
    }

    /// Forgets every range that overlaps `start..start+size`; one message may cover several.
    pub fn unmap(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size);
        self.ranges
            .retain(|range| range.end() <= start || range.start >= end);
    }

    /// Forgets all ranges.
    pub fn unmap_all(&mut self) {
        self.ranges.clear();
    }

    /// Number of mapped ranges.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    fn range(&self, address: u64) -> Result<&Range, DmaError> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        after
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index))
            .filter(|range| address < range.end())
            .ok_or(DmaError::Unmapped(address))
    }

    /// Calls `visit` with the pieces of RAM behind `address..address+length`, in order, each with
    /// its distance from `address`.
    fn pieces(
        &self,
        address: u64,
        length: usize,
        write: bool,
        mut visit: impl FnMut(usize, VolatileSlice<'_>) -> Result<(), DmaError>,
    ) -> Result<(), DmaError> {
        if !self.bus_master {
            self.violations.note(
                Violation::NoBusMaster,
                format_args!("{length} bytes at {address:#x}"),
            );
            return Err(DmaError::BusMaster);
        }
        let mut done = 0usize;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(DmaError::Overflow)?;
            let range = self.range(at)?;
            if write && !range.writable {
                return Err(DmaError::ReadOnly(at));
            }
            let within = at.saturating_sub(range.start);
            let room = range.size.saturating_sub(within);
            let count = length
                .saturating_sub(done)
                .min(usize::try_from(room).unwrap_or(usize::MAX));
            let slice = range
                .mapping
                .get_slice(
                    usize::try_from(within).map_err(|_| DmaError::Overflow)?,
                    count,
                )
                .map_err(|_| DmaError::Unmapped(at))?;
            visit(done, slice)?;
            done = done.saturating_add(count);
        }
        Ok(())
    }

    /// Reads guest RAM.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DmaError> {
        self.pieces(address, data.len(), false, |done, slice| {
            let end = done.saturating_add(slice.len());
            if let Some(piece) = data.get_mut(done..end) {
                slice.copy_to(piece);
            }
            Ok(())
        })
    }

    /// Writes guest RAM.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), DmaError> {
        self.pieces(address, data.len(), true, |done, slice| {
            let end = done.saturating_add(slice.len());
            if let Some(piece) = data.get(done..end) {
                slice.copy_from(piece);
            }
            Ok(())
        })
    }

    /// Reads a block of a constant size.
    pub fn block<const N: usize>(&self, address: u64) -> Result<[u8; N], DmaError> {
        let mut block = [0; N];
        self.read(address, &mut block)?;
        Ok(block)
    }

    /// Applies `update` to the 64-bit word at `address` atomically against the guest's CPUs and
    /// returns the old value. The word must be naturally aligned.
    pub fn fetch_update(&self, address: u64, update: impl Fn(u64) -> u64) -> Result<u64, DmaError> {
        let mut old = Err(DmaError::Unmapped(address));
        self.pieces(address, size_of::<u64>(), true, |_, slice| {
            let word = slice
                .get_atomic_ref::<AtomicU64>(0)
                .map_err(|_| DmaError::Unmapped(address))?;
            old = word
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |value| {
                    Some(update(value))
                })
                .map_err(|_| DmaError::Unmapped(address));
            Ok(())
        })?;
        old
    }

    /// Anonymous RAM at `start`, which the device may reach, for tests.
    #[cfg(test)]
    pub fn add_ram(&mut self, start: u64, size: usize, writable: bool) {
        self.insert(start, size as u64, MmapRegion::new(size).unwrap(), writable);
        self.bus_master = true;
    }

    /// The same, and nothing else.
    #[cfg(test)]
    fn with_ram(start: u64, size: usize) -> Self {
        let mut memory = Self::default();
        memory.add_ram(start, size, true);
        memory
    }
}

/// Everything an adapter reaches by DMA: guest RAM, and the memory that the host has lent to the
/// card.
#[derive(Default)]
pub struct Dma<I> {
    /// Guest RAM.
    pub memory: GuestMemory,
    /// The pages lent to the card.
    pub icm: I,
    /// Describes the violation in its use, if any.
    pub violations: Violations,
}

impl<I: Default> Dma<I> {
    /// Nothing mapped yet.
    pub fn new(violations: Violations) -> Self {
        Self {
            memory: GuestMemory::new(violations.clone()),
            icm: I::default(),
            violations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_may_cross_ranges_but_not_holes() {
        let mut memory = GuestMemory::with_ram(0x1000, 0x1000);
        memory.add_ram(0x2000, 0x1000, true);
        memory.add_ram(0x4000, 0x1000, true);
        memory.write(0x1ffe, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.block::<4>(0x1ffe).unwrap(), [1, 2, 3, 4]);
        assert_eq!(
            memory.write(0x2ffe, &[0; 4]),
            Err(DmaError::Unmapped(0x3000))
        );
        assert_eq!(memory.block::<1>(0xfff), Err(DmaError::Unmapped(0xfff)));
        assert_eq!(memory.block::<1>(0x5000), Err(DmaError::Unmapped(0x5000)));
        assert_eq!(
            memory.block::<8>(u64::MAX - 3),
            Err(DmaError::Unmapped(u64::MAX - 3))
        );
    }

    #[test]
    fn rom_is_not_written() {
        let mut memory = GuestMemory::default();
        memory.add_ram(0, 0x1000, false);
        assert_eq!(memory.write(8, &[1]), Err(DmaError::ReadOnly(8)));
        assert!(memory.block::<8>(0).is_ok());
    }

    #[test]
    fn one_unmap_covers_several_ranges() {
        let mut memory = GuestMemory::with_ram(0, 0x1000);
        memory.add_ram(0x1000, 0x1000, true);
        memory.add_ram(0x8000, 0x1000, true);
        memory.unmap(0, 0x2000);
        assert_eq!(memory.ranges(), 1);
        assert!(memory.block::<1>(0x8000).is_ok());
    }

    #[test]
    fn atomics_return_the_old_value_and_want_alignment() {
        let memory = GuestMemory::with_ram(0, 0x1000);
        memory.write(8, &5u64.to_ne_bytes()).unwrap();
        assert_eq!(memory.fetch_update(8, |v| v.wrapping_add(2)), Ok(5));
        assert_eq!(memory.block::<8>(8).unwrap(), 7u64.to_ne_bytes());
        assert!(memory.fetch_update(9, |v| v).is_err());
        assert!(memory.fetch_update(0xffc, |v| v).is_err());
    }

    #[test]
    fn without_bus_mastering_nothing_is_reached() {
        let mut memory = GuestMemory::with_ram(0, 0x1000);
        memory.bus_master = false;
        assert_eq!(memory.write(8, &[1]), Err(DmaError::BusMaster));
        assert_eq!(memory.block::<8>(0), Err(DmaError::BusMaster));
        assert_eq!(memory.violations.take(), [Violation::NoBusMaster]);
    }
}
