// SPDX-License-Identifier: Apache-2.0 OR MIT

//! ICM, the device's own address space, lent by the host page by page (MAP_ICM), and the tables
//! that the model reads from it: the MTTs, which translate the driver's buffers, and the dMPTs
//! ([`crate::mlx4::mpt`]).
//!
//! The driver never reads queue contexts from ICM, so they stay inside the model, but there must be
//! ICM where a real device would keep them. The map lives from MAP_ICM to UNMAP_ICM or reset.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::engine::bytes::Fields;
use crate::engine::memory::DmaError;
use crate::engine::violation::Violation;

/// MLX4_ICM_PAGE_SHIFT.
pub const ICM_PAGE_SHIFT: u32 = 12;
const ICM_PAGE_SIZE: u64 = 1 << ICM_PAGE_SHIFT;
/// A guest cannot make the model keep more ranges than a driver ever needs.
const MAX_RANGES: usize = 1 << 16;
/// An MTT entry: the page's address, and in bit 0 that it is there.
const MTT_ENTRY_SIZE: u64 = 8;
const MTT_FLAG_PRESENT: u64 = 1;
/// MLX4_CMPT_SHIFT: numbers of one kind of objects in the cMPT table.
const CMPT_SHIFT: u32 = 24;
/// log2 of all control MPTs, for four kinds of objects.
pub const LOG_CMPTS: u32 = CMPT_SHIFT + 2;

/// Objects with a context in ICM; the value is the MLX4_CMPT_TYPE_* of their protection entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Object {
    /// A queue pair.
    Qp = 0,
    /// A shared receive queue.
    Srq = 1,
    /// A completion queue.
    Cq = 2,
    /// An event queue.
    Eq = 3,
}

/// A table of per-object state: its ICM address, and log2 of the size of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The address of its first object.
    pub base: u64,
    /// log2 of the bytes for one object.
    pub log_share: u32,
}

impl Table {
    fn entry(&self, number: u64) -> Option<u64> {
        self.base
            .checked_add(number.checked_mul(1u64.checked_shl(self.log_share)?)?)
    }
}

/// The places of the tables, as INIT_HCA gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// ICM address of the dMPT table.
    pub dmpt_base: u64,
    /// log2 of the number of dMPTs.
    pub log_mpts: u32,
    /// ICM address of the MTT table.
    pub mtt_base: u64,
    /// Tables of a QP's state: its context, the auxiliary and the alternate one,
    /// and the resources of its RDMA READs.
    pub qp: [Table; 4],
    /// log2 of the RDMA READs for which a QP has resources.
    pub log_reads: u32,
    /// The table of SRQ contexts.
    pub srq: Table,
    /// The table of CQ contexts.
    pub cq: Table,
    /// The table of EQ contexts.
    pub eq: Table,
    /// The table of control MPTs, for all kinds of objects.
    pub cmpt: Table,
}

impl Layout {
    /// The address of an object's state; `None` is beyond the address space.
    pub fn contexts(&self, object: Object, number: u32) -> impl Iterator<Item = Option<u64>> + '_ {
        let number = u64::from(number);
        let tables = match object {
            Object::Qp => &self.qp[..],
            Object::Srq => std::slice::from_ref(&self.srq),
            Object::Cq => std::slice::from_ref(&self.cq),
            Object::Eq => std::slice::from_ref(&self.eq),
        };
        let control = (object as u64) << CMPT_SHIFT | number;
        tables
            .iter()
            .map(move |table| table.entry(number))
            .chain(std::iter::once(self.cmpt.entry(control)))
    }
}

/// Guest RAM and the ICM laid over it: everything the device reaches by DMA.
pub type Dma = crate::engine::memory::Dma<Icm>;

impl Dma {
    /// The device is given object `number` of this kind: there must be ICM for its context.
    pub fn check_context(&self, object: Object, number: u32) -> Result<(), DmaError> {
        let layout = self.icm.layout()?;
        for address in layout.contexts(object, number) {
            let mapped = address.ok_or(DmaError::Overflow);
            if let Err(error) = mapped.and_then(|address| self.icm.translate(address)) {
                self.violations.note(
                    Violation::ContextWithoutIcm,
                    format_args!("{object:?} {number:#x}: {error}"),
                );
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether the two have an address in common.
pub fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Pages that the host has lent to the device for another purpose than ICM.
#[derive(Default)]
pub struct Loan(Vec<Range<u64>>);

impl Loan {
    /// Adds these guest addresses.
    pub fn add(&mut self, guest: Range<u64>) -> Result<(), DmaError> {
        if self.0.len() >= MAX_RANGES {
            return Err(DmaError::Overflow);
        }
        self.0.push(guest);
        Ok(())
    }

    /// Some of these guest addresses are lent.
    pub fn includes(&self, guest: &Range<u64>) -> bool {
        self.0.iter().any(|lent| overlap(lent, guest))
    }

    /// Pages in all.
    pub fn pages(&self) -> u64 {
        self.0
            .iter()
            .map(|lent| lent.end.saturating_sub(lent.start) >> ICM_PAGE_SHIFT)
            .fold(0, u64::saturating_add)
    }
}

/// The map from ICM to guest-physical addresses.
#[derive(Default)]
pub struct Icm {
    /// First ICM address of a range -> guest address and number of bytes.
    ranges: BTreeMap<u64, (u64, u64)>,
    /// Known from INIT_HCA to CLOSE_HCA.
    pub layout: Option<Layout>,
}

impl Icm {
    /// Some of these guest addresses are lent as ICM.
    pub fn includes(&self, guest: &Range<u64>) -> bool {
        let mut ranges = self.ranges.values();
        ranges.any(|&(start, size)| overlap(&(start..start.saturating_add(size)), guest))
    }

    /// Some of these ICM addresses are mapped.
    pub fn maps(&self, icm: &Range<u64>) -> bool {
        let before = self.ranges.range(..icm.end).next_back();
        before
            .is_some_and(|(&start, &(_, size))| overlap(&(start..start.saturating_add(size)), icm))
    }

    /// MAP_ICM of one chunk, where none is mapped.
    pub fn map(&mut self, icm: u64, guest: u64, size: u64) -> Result<(), DmaError> {
        icm.checked_add(size).ok_or(DmaError::Overflow)?;
        guest.checked_add(size).ok_or(DmaError::Overflow)?;
        if self.ranges.len() >= MAX_RANGES {
            return Err(DmaError::Icm(icm));
        }
        self.ranges.insert(icm, (guest, size));
        Ok(())
    }

    /// UNMAP_ICM: removes mappings in `icm..icm+size`, cutting ranges where it must.
    pub fn unmap(&mut self, icm: u64, size: u64) {
        let end = icm.saturating_add(size);
        if let Some((&start, &(guest, length))) = self.ranges.range(..icm).next_back() {
            let stop = start.saturating_add(length);
            if stop > icm {
                self.ranges
                    .insert(start, (guest, icm.saturating_sub(start)));
                if stop > end {
                    let skip = end.saturating_sub(start);
                    self.ranges
                        .insert(end, (guest.saturating_add(skip), stop.saturating_sub(end)));
                }
            }
        }
        let inside: Vec<u64> = self
            .ranges
            .range(icm..end)
            .map(|(&start, _)| start)
            .collect();
        for start in inside {
            if let Some((guest, length)) = self.ranges.remove(&start) {
                let stop = start.saturating_add(length);
                if stop > end {
                    let skip = end.saturating_sub(start);
                    self.ranges
                        .insert(end, (guest.saturating_add(skip), stop.saturating_sub(end)));
                }
            }
        }
    }

    /// Pages lent to the device.
    pub fn pages(&self) -> u64 {
        self.ranges
            .values()
            .map(|(_, size)| size >> ICM_PAGE_SHIFT)
            .sum()
    }

    /// The guest address behind `icm`, where a structure of up to eight-fold its own alignment
    /// never crosses a page.
    pub fn translate(&self, icm: u64) -> Result<u64, DmaError> {
        self.ranges
            .range(..=icm)
            .next_back()
            .and_then(|(&start, &(guest, size))| {
                let within = icm.saturating_sub(start);
                (within < size).then(|| guest.saturating_add(within))
            })
            .ok_or(DmaError::Icm(icm))
    }

    /// The table layout, or that there is none yet.
    pub fn layout(&self) -> Result<&Layout, DmaError> {
        self.layout.as_ref().ok_or(DmaError::NoHca)
    }
}

/// Bytes of one ICM page count, as the commands give it.
pub fn pages_to_bytes(pages: u64) -> Result<u64, DmaError> {
    pages.checked_mul(ICM_PAGE_SIZE).ok_or(DmaError::Overflow)
}

/// A buffer of the driver's behind a run of MTT entries: a queue, or a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Byte offset of the first entry in the MTT table.
    mtt: u64,
    page_shift: u32,
}

impl Buffer {
    /// The buffer that a queue's context names by its page size, of which `at` is the offset, and
    /// the MTTs that follow it: the same in every kind of context.
    pub fn of_context(context: &[u8], at: usize) -> Option<Self> {
        const MTT_BASE_ADDR_H: usize = 3;
        const MTT_BASE_ADDR_L: usize = 4;
        let high = context.get_u8(at.saturating_add(MTT_BASE_ADDR_H));
        let low = context.get_be32(at.saturating_add(MTT_BASE_ADDR_L));
        let page_shift = u32::from(context.get_u8(at) & 0x3f).saturating_add(ICM_PAGE_SHIFT);
        Self::new(u64::from(high) << 32 | u64::from(low), page_shift)
    }

    /// A buffer of pages of `1 << page_shift` bytes, if the device can have such pages.
    pub fn new(mtt: u64, page_shift: u32) -> Option<Self> {
        (ICM_PAGE_SHIFT..=40).contains(&page_shift).then_some(Self {
            mtt: mtt & !(MTT_ENTRY_SIZE - 1),
            page_shift,
        })
    }

    /// ICM addresses of the MTTs behind its first `bytes` bytes.
    pub fn mtts(&self, layout: &Layout, bytes: u64) -> Range<u64> {
        let pages = bytes.div_ceil(1u64 << self.page_shift);
        let first = layout.mtt_base.saturating_add(self.mtt);
        first..first.saturating_add(pages.saturating_mul(MTT_ENTRY_SIZE))
    }

    /// Byte offset of its first entry in the MTT table, for tests.
    #[cfg(test)]
    pub fn mtt(&self) -> u64 {
        self.mtt
    }

    /// Offset of `address` within its page.
    pub fn page_offset(&self, address: u64) -> u64 {
        address & (1u64 << self.page_shift).wrapping_sub(1)
    }

    fn page(&self, dma: &Dma, index: u64) -> Result<u64, DmaError> {
        let entry = index
            .checked_mul(MTT_ENTRY_SIZE)
            .and_then(|offset| offset.checked_add(self.mtt))
            .and_then(|offset| offset.checked_add(dma.icm.layout().ok()?.mtt_base))
            .ok_or(DmaError::Overflow)?;
        let word = dma.memory.block(dma.icm.translate(entry)?)?;
        let word = u64::from_be_bytes(word);
        if word & MTT_FLAG_PRESENT == 0 {
            return Err(DmaError::Mtt(entry));
        }
        Ok(word & !(MTT_ENTRY_SIZE - 1))
    }

    /// Calls `visit` with each physically contiguous piece of `offset..offset+length`: distance
    /// from `offset`, guest address, bytes.
    pub fn pieces(
        &self,
        dma: &Dma,
        offset: u64,
        length: usize,
        mut visit: impl FnMut(usize, u64, usize) -> Result<(), DmaError>,
    ) -> Result<(), DmaError> {
        let mut done = 0usize;
        while done < length {
            let at = offset.checked_add(done as u64).ok_or(DmaError::Overflow)?;
            let within = self.page_offset(at);
            let room = (1u64 << self.page_shift).saturating_sub(within);
            let count = length
                .saturating_sub(done)
                .min(usize::try_from(room).unwrap_or(usize::MAX));
            let page = self.page(dma, at >> self.page_shift)?;
            let address = page.checked_add(within).ok_or(DmaError::Overflow)?;
            visit(done, address, count)?;
            done = done.saturating_add(count);
        }
        Ok(())
    }

    /// Reads the buffer.
    pub fn read(&self, dma: &Dma, offset: u64, data: &mut [u8]) -> Result<(), DmaError> {
        self.pieces(dma, offset, data.len(), |done, address, count| {
            match data.get_mut(done..done.saturating_add(count)) {
                Some(piece) => dma.memory.read(address, piece),
                None => Err(DmaError::Overflow),
            }
        })
    }

    /// Writes the buffer.
    pub fn write(&self, dma: &Dma, offset: u64, data: &[u8]) -> Result<(), DmaError> {
        self.pieces(dma, offset, data.len(), |done, address, count| {
            match data.get(done..done.saturating_add(count)) {
                Some(piece) => dma.memory.write(address, piece),
                None => Err(DmaError::Overflow),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Icm {
        let mut icm = Icm::default();
        icm.map(0x10_000, 0x50_000, 0x4000).unwrap();
        icm
    }

    #[test]
    fn translation_follows_the_chunks() {
        let icm = map();
        assert_eq!(icm.translate(0x12_345), Ok(0x52_345));
        assert_eq!(icm.translate(0x14_000), Err(DmaError::Icm(0x14_000)));
        assert_eq!(icm.translate(0xf_fff), Err(DmaError::Icm(0xf_fff)));
        assert_eq!(icm.pages(), 4);
    }

    #[test]
    fn unmapping_the_middle_leaves_both_ends() {
        let mut icm = map();
        icm.unmap(0x11_000, 0x2000);
        assert_eq!(icm.translate(0x10_fff), Ok(0x50_fff));
        assert!(icm.translate(0x11_000).is_err());
        assert!(icm.translate(0x12_fff).is_err());
        assert_eq!(icm.translate(0x13_000), Ok(0x53_000));
        assert_eq!(icm.pages(), 2);
    }

    #[test]
    fn one_unmap_covers_several_chunks() {
        let mut icm = map();
        icm.map(0x14_000, 0x90_000, 0x2000).unwrap();
        icm.unmap(0x10_000, 0x5000);
        assert_eq!(icm.pages(), 1);
        assert_eq!(icm.translate(0x15_010), Ok(0x91_010));
    }

    #[test]
    fn what_is_mapped_or_lent_is_known_to_its_ends() {
        let icm = map();
        for (range, known) in [
            (0xf_000..0x10_000, false),
            (0xf_000..0x10_001, true),
            (0x11_000..0x12_000, true),
            (0x0..u64::MAX, true),
            (0x13_fff..0x20_000, true),
            (0x14_000..0x20_000, false),
        ] {
            assert_eq!(icm.maps(&range), known, "{range:x?}");
            let guest = range.start.saturating_add(0x40_000)..range.end.saturating_add(0x40_000);
            assert_eq!(icm.includes(&guest), known, "{guest:x?}");
        }
    }

    #[test]
    fn a_chunk_must_end_inside_the_address_space() {
        assert_eq!(
            Icm::default().map(u64::MAX - 0xfff, 0, 0x2000),
            Err(DmaError::Overflow)
        );
    }

    #[test]
    fn a_buffer_is_scattered_over_its_pages() {
        let mut dma = Dma::default();
        dma.memory.add_ram(0, 0x10_000, true);
        dma.icm.map(0, 0x1000, 0x1000).unwrap();
        dma.icm.layout = Some(Layout::default());
        // Two pages, in reverse order, and a third that is not there.
        dma.memory.write(0x1000, &0x5001u64.to_be_bytes()).unwrap();
        dma.memory.write(0x1008, &0x4001u64.to_be_bytes()).unwrap();
        let buffer = Buffer::new(0, 12).unwrap();
        buffer.write(&dma, 0xffe, &[1, 2, 3, 4]).unwrap();
        assert_eq!(dma.memory.block::<2>(0x5ffe).unwrap(), [1, 2]);
        assert_eq!(dma.memory.block::<2>(0x4000).unwrap(), [3, 4]);
        let mut back = [0; 4];
        buffer.read(&dma, 0xffe, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
        assert_eq!(buffer.write(&dma, 0x2000, &[0]), Err(DmaError::Mtt(0x10)));
        assert_eq!(Buffer::new(0, 11), None);
        assert_eq!(Buffer::new(0, 63), None);
    }
}
