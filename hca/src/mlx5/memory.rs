// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory that the driver gives to the card: pages for firmware, and buffers as lists of pages.

use std::collections::BTreeSet;

use crate::engine::memory::DmaError;

/// The size of the pages that firmware is lent (MLX5_ADAPTER_PAGE_SHIFT).
pub const PAGE_SHIFT: u32 = 12;
/// Size of an entry of a list of pages.
const ENTRY_SIZE: usize = 8;
/// Bits of an entry that are no address.
pub const ENTRY_FLAGS: u64 = 0xfff;
/// An offset into the first page counts in so many parts of it.
const LOG_OFFSETS: u32 = 6;

/// The pages that firmware was lent.
#[derive(Default)]
pub struct Pages(pub BTreeSet<u64>);

/// Guest RAM, and the pages lent.
pub type Dma = crate::engine::memory::Dma<Pages>;

/// The words of a list.
pub fn words(list: &[u8]) -> Vec<u64> {
    list.chunks_exact(ENTRY_SIZE)
        .filter_map(|entry| Some(u64::from_be_bytes(entry.try_into().ok()?)))
        .collect()
}

/// The addresses in a list of pages.
pub fn addresses(list: &[u8]) -> Vec<u64> {
    let words = words(list).into_iter();
    words.map(|entry| entry & !ENTRY_FLAGS).collect()
}

/// A buffer of the driver's in pages of `1 << shift` bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    pages: Vec<u64>,
    shift: u32,
    /// The offset of its first byte in its first page.
    start: u64,
}

impl Buffer {
    /// A queue's, by the fields of its context: log2 of its pages in units of 4096 bytes, the
    /// offset into the first one in 64ths of it, and the list of pages. None: there are fewer than
    /// `size` bytes.
    pub fn of_queue(log_page: u32, offset: u64, list: &[u8], size: u64) -> Option<Self> {
        let shift = log_page
            .checked_add(PAGE_SHIFT)
            .filter(|shift| *shift < 48)?;
        let start = offset << shift.saturating_sub(LOG_OFFSETS);
        let buffer = Self {
            pages: addresses(list),
            shift,
            start,
        };
        (buffer.room() >= size).then_some(buffer)
    }

    /// Pages of a memory region that begins at `start` of the first one.
    pub fn of_region(pages: Vec<u64>, shift: u32, start: u64) -> Self {
        Self {
            pages,
            shift,
            start,
        }
    }

    fn room(&self) -> u64 {
        let bytes = (self.pages.len() as u64).saturating_mul(1 << self.shift);
        bytes.saturating_sub(self.start)
    }

    /// Calls `visit` with each piece of `offset..offset+length`: distance from `offset`, guest
    /// address, bytes.
    pub fn pieces(
        &self,
        offset: u64,
        length: usize,
        mut visit: impl FnMut(usize, u64, usize) -> Result<(), DmaError>,
    ) -> Result<(), DmaError> {
        let mut done = 0usize;
        let first = offset.checked_add(self.start).ok_or(DmaError::Overflow)?;
        while done < length {
            let at = first.checked_add(done as u64).ok_or(DmaError::Overflow)?;
            let within = at & (1u64 << self.shift).wrapping_sub(1);
            let room = (1u64 << self.shift).saturating_sub(within);
            let count = length
                .saturating_sub(done)
                .min(usize::try_from(room).unwrap_or(usize::MAX));
            let index = usize::try_from(at >> self.shift).map_err(|_| DmaError::Overflow)?;
            let page = self.pages.get(index).ok_or(DmaError::Mtt(at))?;
            let address = page.checked_add(within).ok_or(DmaError::Overflow)?;
            visit(done, address, count)?;
            done = done.saturating_add(count);
        }
        Ok(())
    }

    /// Reads the buffer.
    pub fn read(&self, dma: &Dma, offset: u64, data: &mut [u8]) -> Result<(), DmaError> {
        self.pieces(offset, data.len(), |done, address, count| {
            match data.get_mut(done..done.saturating_add(count)) {
                Some(piece) => dma.memory.read(address, piece),
                None => Err(DmaError::Overflow),
            }
        })
    }

    /// Writes the buffer.
    pub fn write(&self, dma: &Dma, offset: u64, data: &[u8]) -> Result<(), DmaError> {
        self.pieces(offset, data.len(), |done, address, count| {
            match data.get(done..done.saturating_add(count)) {
                Some(piece) => dma.memory.write(address, piece),
                None => Err(DmaError::Overflow),
            }
        })
    }
}
