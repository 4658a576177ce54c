// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory keys. The protection table lies in ICM: SW2HW_MPT writes an entry there, and every access
//! reads it from there, because re-registration edits it in place (HW2SW_MPT, edit, SYNC_TPT).

use crate::engine::bytes::Fields;
use crate::engine::key::{self, Access, KeyError};
use crate::engine::memory::DmaError;
use crate::mlx4::icm::{Buffer, Dma, Icm, Layout};
use std::collections::BTreeSet;
use std::ops::Range;

/// Size of a dMPT entry, as QUERY_DEV_CAP reports it.
pub const MPT_SIZE: usize = 0x40;
/// log2 of the dMPTs.
pub const LOG_MAX_MPTS: u8 = 19;
/// log2 of the reserved ones.
pub const LOG_RESERVED_MPTS: u8 = 4;

// struct mlx4_mpt_entry.
pub(super) const MPT_FLAGS: usize = 0x00;
const MPT_KEY: usize = 0x08;
const MPT_PD_FLAGS: usize = 0x0c;
const MPT_START: usize = 0x10;
const MPT_LENGTH: usize = 0x18;
const MPT_MTT_ADDR: usize = 0x2c;
const MPT_ENTITY_SIZE: usize = 0x38;

/// MLX4_MPT_FLAG_SW_OWNS.
pub(super) const MPT_FLAG_SW_OWNS: u32 = 0xf << 28;
/// MLX4_MPT_FLAG_PHYSICAL: addresses are guest-physical, there are no MTTs.
const MPT_FLAG_PHYSICAL: u32 = 1 << 9;
/// MLX4_MPT_FLAG_REGION.
const MPT_FLAG_REGION: u32 = 1 << 8;
/// MLX4_MPT_PD_MASK.
const MPT_PD_MASK: u32 = 0x1_ffff;

/// MLX4_PERM_* of an access.
fn permission(access: Access) -> u32 {
    match access {
        Access::LocalRead => 1 << 10,
        Access::LocalWrite => 1 << 11,
        Access::RemoteRead => 1 << 12,
        Access::RemoteWrite => 1 << 13,
        Access::Atomic => 1 << 14,
    }
}

/// A stretch of memory that a key opened.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// None: `address` is guest-physical.
    pub(super) buffer: Option<Buffer>,
    /// Guest-physical address, or offset into the buffer.
    pub(super) address: u64,
}

impl key::Region<Icm> for Region {
    fn read(&self, dma: &Dma, data: &mut [u8]) -> Result<(), DmaError> {
        match self.buffer {
            Some(buffer) => buffer.read(dma, self.address, data),
            None => dma.memory.read(self.address, data),
        }
    }

    fn write(&self, dma: &Dma, data: &[u8]) -> Result<(), DmaError> {
        match self.buffer {
            Some(buffer) => buffer.write(dma, self.address, data),
            None => dma.memory.write(self.address, data),
        }
    }

    fn fetch_update(&self, dma: &Dma, update: impl Fn(u64) -> u64) -> Result<u64, DmaError> {
        let mut at = Err(DmaError::Overflow);
        match self.buffer {
            Some(buffer) => buffer.pieces(dma, self.address, 1, |_, address, _| {
                at = Ok(address);
                Ok(())
            })?,
            None => at = Ok(self.address),
        }
        dma.memory.fetch_update(at?, update)
    }
}

/// The keys of an adapter: which entries are the device's. The entries themselves are in ICM.
#[derive(Default)]
pub struct Keys {
    pub(super) hardware: BTreeSet<u32>,
    /// Given back by HW2SW_MPT; SYNC_TPT may find them edited and handed over again.
    pub(super) software: BTreeSet<u32>,
}

impl Keys {
    /// Forgets them, as a reset does.
    pub fn reset(&mut self) {
        self.hardware.clear();
        self.software.clear();
    }

    /// Regions the device owns.
    pub fn len(&self) -> usize {
        self.hardware.len()
    }

    /// The device owns no region.
    pub fn is_empty(&self) -> bool {
        self.hardware.is_empty()
    }

    /// The regions that the device owns: index, and the ICM addresses of the entry and of the MTTs,
    /// if it has some.
    pub fn in_icm<'a>(
        &'a self,
        dma: &'a Dma,
        layout: &'a Layout,
    ) -> impl Iterator<Item = (u32, Range<u64>, Option<Range<u64>>)> + 'a {
        self.hardware.iter().map(move |&index| {
            let offset = u64::from(index).saturating_mul(MPT_SIZE as u64);
            let at = layout.dmpt_base.saturating_add(offset);
            let entry = dma.icm.translate(at).ok();
            let entry = entry.and_then(|at| dma.memory.block::<MPT_SIZE>(at).ok());
            let mtts = entry.and_then(|entry| {
                let buffer = buffer(&entry)?;
                let bytes = buffer
                    .page_offset(entry.get_be64(MPT_START))
                    .saturating_add(entry.get_be64(MPT_LENGTH));
                Some(buffer.mtts(layout, bytes))
            });
            (index, at..at.saturating_add(MPT_SIZE as u64), mtts)
        })
    }

    /// Opens `length` bytes at virtual `address` with `key` for a queue of protection domain `pd`.
    pub fn open(
        &self,
        dma: &Dma,
        key: u32,
        pd: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        // The key is the entry's index rotated by a byte that the driver may vary.
        let full = key.rotate_right(8);
        let index = full & (1u32 << dma.icm.layout()?.log_mpts).wrapping_sub(1);
        if !self.hardware.contains(&index) {
            return Err(KeyError::Invalid(key));
        }
        let entry: [u8; MPT_SIZE] = dma.memory.block(entry_address(dma, index)?)?;
        let flags = entry.get_be32(MPT_FLAGS);
        let open = flags & MPT_FLAG_SW_OWNS == 0 && flags & MPT_FLAG_REGION != 0;
        if !open || entry.get_be32(MPT_KEY) != full {
            return Err(KeyError::Invalid(key));
        }
        let theirs = entry.get_be32(MPT_PD_FLAGS) & MPT_PD_MASK;
        if theirs != pd & MPT_PD_MASK {
            return Err(KeyError::Pd {
                key,
                theirs,
                ours: pd,
            });
        }
        if flags & permission(access) == 0 {
            return Err(KeyError::Permission(key, access));
        }
        if flags & MPT_FLAG_PHYSICAL != 0 {
            return Ok(Region {
                buffer: None,
                address,
            });
        }
        let bounds = KeyError::Bounds(key, address, length);
        let start = entry.get_be64(MPT_START);
        let Some(within) = address.checked_sub(start) else {
            return Err(bounds);
        };
        match within.checked_add(length) {
            Some(end) if end <= entry.get_be64(MPT_LENGTH) => {}
            _ => return Err(bounds),
        }
        let buffer = buffer(&entry).ok_or(KeyError::Invalid(key))?;
        // The first page begins before the region does.
        let address = within
            .checked_add(buffer.page_offset(start))
            .ok_or(bounds)?;
        Ok(Region {
            buffer: Some(buffer),
            address,
        })
    }
}

/// The memory of a region; none if it has all there is.
fn buffer(entry: &[u8; MPT_SIZE]) -> Option<Buffer> {
    if entry.get_be32(MPT_FLAGS) & MPT_FLAG_PHYSICAL != 0 {
        return None;
    }
    let page_shift = entry.get_be32(MPT_ENTITY_SIZE) & 0x3f;
    Buffer::new(entry.get_be64(MPT_MTT_ADDR), page_shift)
}

pub(super) fn entry_address(dma: &Dma, index: u32) -> Result<u64, DmaError> {
    let offset = u64::from(index).saturating_mul(MPT_SIZE as u64);
    let base = dma.icm.layout()?.dmpt_base;
    dma.icm
        .translate(base.checked_add(offset).ok_or(DmaError::Overflow)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::key::Region as _;
    use crate::engine::violation::Violation;
    use crate::mlx4::command::Status;
    use crate::mlx4::testing::Bench;

    const ADDRESS: u64 = 0x7f00_0000_0800;
    const ALL: u32 = 0x1f << 10;

    fn open(
        bench: &Bench,
        key: u32,
        pd: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        bench
            .hca
            .card
            .keys
            .open(&bench.hca.dma, key, pd, address, length, access)
    }

    #[test]
    fn a_region_reaches_its_pages_and_no_further() {
        let mut bench = Bench::new();
        let (key, page) = bench.region(0x12, ADDRESS, 0x1000, ALL);
        let region = open(&bench, key, Bench::PD, ADDRESS + 8, 4, Access::LocalWrite).unwrap();
        region.write(&bench.hca.dma, &[1, 2, 3, 4]).unwrap();
        let there = bench.hca.dma.memory.block::<4>(page + 0x808).unwrap();
        assert_eq!(there, [1, 2, 3, 4]);
        let denied = |address, length| {
            matches!(
                open(&bench, key, Bench::PD, address, length, Access::LocalRead),
                Err(KeyError::Bounds(..))
            )
        };
        assert!(denied(ADDRESS - 1, 1));
        assert!(denied(ADDRESS + 0xfff, 2));
        assert!(denied(ADDRESS, u64::MAX));
        assert!(denied(u64::MAX, 1));
        assert!(!denied(ADDRESS + 0xfff, 1));
    }

    #[test]
    fn pd_permission_and_the_varying_byte_are_checked() {
        let mut bench = Bench::new();
        let readable = 1 << 10 | 1 << 12;
        let (key, _) = bench.region(0x12, ADDRESS, 0x1000, readable);
        let try_open = |key, pd, access| open(&bench, key, pd, ADDRESS, 8, access);
        assert!(try_open(key, Bench::PD, Access::RemoteRead).is_ok());
        assert!(matches!(
            try_open(key, Bench::PD, Access::RemoteWrite),
            Err(KeyError::Permission(..))
        ));
        assert!(matches!(
            try_open(key, Bench::PD + 1, Access::RemoteRead),
            Err(KeyError::Pd { .. })
        ));
        assert!(matches!(
            try_open(key ^ 1, Bench::PD, Access::RemoteRead),
            Err(KeyError::Invalid(_))
        ));
    }

    #[test]
    fn a_region_edited_in_place_opens_again_at_sync() {
        let mut bench = Bench::new();
        let (key, _) = bench.region(0x12, ADDRESS, 0x1000, 1 << 10);
        bench.close_region(0x12).unwrap();
        assert!(bench.hca.card.keys.is_empty());
        assert!(open(&bench, key, Bench::PD, ADDRESS, 8, Access::LocalRead).is_err());
        bench.sync_tpt();
        assert!(bench.hca.card.keys.is_empty());
        // mlx4_mr_hw_change_access(), then mlx4_mr_hw_write_mpt().
        bench.edit_region(0x12, |entry| {
            let flags = entry.get_be32(0);
            entry.set_be32(0, flags | 1 << 11);
            entry.set_u8(0, 0);
        });
        bench.sync_tpt();
        assert!(open(&bench, key, Bench::PD, ADDRESS, 8, Access::LocalWrite).is_ok());
        assert_eq!(bench.hca.card.keys.len(), 1);
    }

    #[test]
    fn the_first_keys_are_the_firmwares() {
        let mut bench = Bench::new();
        for index in [0, 0xf] {
            let refused = bench.try_region(index, ADDRESS, 0x1000, ALL);
            assert_eq!(refused, Err(Status::BadResource));
            assert_eq!(bench.violations(), [Violation::ReservedKey]);
        }
        bench.region(0x10, ADDRESS, 0x1000, ALL);
    }

    #[test]
    fn indices_outside_the_table_are_refused() {
        let mut bench = Bench::new();
        assert_eq!(bench.close_region(1 << 19), Err(Status::BadIndex));
        assert_eq!(bench.close_region(3), Err(Status::BadIndex));
    }
}
