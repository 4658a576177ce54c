// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory keys: made by CREATE_MKEY, changed by UMR requests.

use std::collections::BTreeMap;

use crate::engine::key::{self, Access, KeyError};
use crate::engine::memory::DmaError;
use crate::mlx5::ifc::{mkc, Bits, Field};
use crate::mlx5::memory::{Buffer, Dma, Pages};

/// Entries of a list of translations that a guest can make the model keep.
pub const MAX_TRANSLATIONS: usize = 1 << 22;
/// MLX5_MKC_ACCESS_MODE_PA: addresses are guest-physical.
const MODE_PHYSICAL: u64 = 0;
/// MLX5_MKC_ACCESS_MODE_MTT: a list of pages.
const MODE_PAGES: u64 = 1;

/// The bit of an access in a key's context.
fn permission(access: Access) -> Field {
    match access {
        Access::LocalRead => mkc::LR,
        Access::LocalWrite => mkc::LW,
        Access::RemoteRead => mkc::RR,
        Access::RemoteWrite => mkc::RW,
        Access::Atomic => mkc::A,
    }
}

/// A stretch of memory that a key opened.
pub struct Region {
    /// None: `address` is guest-physical.
    buffer: Option<Buffer>,
    /// Guest-physical address, or offset into the buffer.
    address: u64,
}

impl key::Region<Pages> for Region {
    fn read(&self, dma: &Dma, data: &mut [u8]) -> Result<(), DmaError> {
        match &self.buffer {
            Some(buffer) => buffer.read(dma, self.address, data),
            None => dma.memory.read(self.address, data),
        }
    }

    fn write(&self, dma: &Dma, data: &[u8]) -> Result<(), DmaError> {
        match &self.buffer {
            Some(buffer) => buffer.write(dma, self.address, data),
            None => dma.memory.write(self.address, data),
        }
    }

    fn fetch_update(&self, dma: &Dma, update: impl Fn(u64) -> u64) -> Result<u64, DmaError> {
        let mut at = Err(DmaError::Overflow);
        match &self.buffer {
            Some(buffer) => buffer.pieces(self.address, 1, |_, address, _| {
                at = Ok(address);
                Ok(())
            })?,
            None => at = Ok(self.address),
        }
        dma.memory.fetch_update(at?, update)
    }
}

/// A key.
pub struct Mkey {
    /// Its context.
    pub context: Vec<u8>,
    /// Its pages.
    pub pages: Vec<u64>,
}

impl Mkey {
    /// Peers may write, and the owner may not.
    pub fn favours_peers(&self) -> bool {
        let may = |access| self.context.flag(permission(access));
        let peers = may(Access::RemoteWrite) || may(Access::Atomic);
        peers && !may(Access::LocalWrite) && !self.context.flag(mkc::FREE)
    }

    fn mode(&self) -> u64 {
        self.context.bits(mkc::ACCESS_MODE_4_2) << 2 | self.context.bits(mkc::ACCESS_MODE_1_0)
    }
}

/// The keys of a card, by their index: a key without its low byte, which the driver varies.
#[derive(Default)]
pub struct Mkeys(pub BTreeMap<u32, Mkey>);

impl Mkeys {
    /// Opens `length` bytes at virtual `address` with `key` for a queue of protection domain `pd`.
    pub fn open(
        &self,
        key: u32,
        pd: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        let mkey = self.0.get(&(key >> 8)).ok_or(KeyError::Invalid(key))?;
        let context = &mkey.context;
        if context.flag(mkc::FREE) || context.bits32(mkc::MKEY_7_0) != key & 0xff {
            return Err(KeyError::Invalid(key));
        }
        let theirs = context.bits32(mkc::PD);
        if theirs != pd {
            return Err(KeyError::Pd {
                key,
                theirs,
                ours: pd,
            });
        }
        if !context.flag(permission(access)) {
            return Err(KeyError::Permission(key, access));
        }
        let bounds = KeyError::Bounds(key, address, length);
        let start = context.bits(mkc::START_ADDR);
        if !context.flag(mkc::LENGTH64) {
            let within = address.checked_sub(start);
            let end = within.and_then(|within| within.checked_add(length));
            if end.is_none_or(|end| end > context.bits(mkc::LEN)) {
                return Err(bounds);
            }
        }
        match mkey.mode() {
            MODE_PHYSICAL => Ok(Region {
                buffer: None,
                address,
            }),
            MODE_PAGES => {
                let shift = context.bits32(mkc::LOG_PAGE_SIZE).min(47);
                let first = start & (1u64 << shift).wrapping_sub(1);
                // The list is long: only the part that is read.
                let from = address.wrapping_sub(start).wrapping_add(first);
                let index = usize::try_from(from >> shift).map_err(|_| bounds)?;
                let count = usize::try_from((length >> shift).saturating_add(2));
                let pages = mkey.pages.get(index..).unwrap_or_default();
                let pages = pages.iter().copied().take(count.unwrap_or(usize::MAX));
                let within = from & (1u64 << shift).wrapping_sub(1);
                Ok(Region {
                    buffer: Some(Buffer::of_region(pages.collect(), shift, within)),
                    address: 0,
                })
            }
            _ => Err(KeyError::Invalid(key)),
        }
    }
}
