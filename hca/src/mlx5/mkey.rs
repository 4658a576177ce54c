// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory keys: made by CREATE_MKEY, changed by UMR requests.

use std::collections::BTreeMap;

use crate::engine::key::{self, Access, KeyError, User};
use crate::engine::memory::DmaError;
use crate::mlx5::ifc::{mkc, Bits, Field};
use crate::mlx5::memory::{Buffer, Dma, Pages, ENTRY_FLAGS};

/// Entries of a list of translations that a guest can make the model keep.
pub const MAX_TRANSLATIONS: usize = 1 << 22;
/// MLX5_MKC_ACCESS_MODE_PA: addresses are guest-physical.
const MODE_PHYSICAL: u64 = 0;
/// MLX5_MKC_ACCESS_MODE_MTT: a list of pages.
const MODE_PAGES: u64 = 1;
/// MLX5_MKC_ACCESS_MODE_KLMS: a list of pieces of other regions (struct mlx5_klm).
const MODE_PIECES: u64 = 2;
/// Words of an entry of a list of pieces: length and key, address.
const WORDS_OF_PIECE: usize = 2;
/// The number of a key that belongs to no QP.
const ANY_QP: u32 = 0xff_ffff;

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

/// The access that a key needs so that another one gives this access to a piece of its region.
fn underlying(access: Access) -> Access {
    match access {
        Access::LocalRead | Access::RemoteRead => Access::LocalRead,
        Access::LocalWrite | Access::RemoteWrite | Access::Atomic => Access::LocalWrite,
    }
}

/// A stretch of memory that a key opened: pieces, one after the other.
#[derive(Debug)]
pub struct Region(Vec<Piece>);

/// One piece.
#[derive(Debug)]
struct Piece {
    /// None: `address` is guest-physical.
    buffer: Option<Buffer>,
    /// Guest-physical address, or offset into the buffer.
    address: u64,
    length: u64,
}

impl Region {
    /// Calls `visit` with each piece of `length` bytes from the first: its place among them, itself
    /// and its length.
    fn pieces(
        &self,
        length: usize,
        mut visit: impl FnMut(usize, &Piece, usize) -> Result<(), DmaError>,
    ) -> Result<(), DmaError> {
        let mut done = 0usize;
        for piece in &self.0 {
            let left = length.saturating_sub(done);
            let count = left.min(usize::try_from(piece.length).unwrap_or(usize::MAX));
            visit(done, piece, count)?;
            done = done.saturating_add(count);
        }
        match done == length {
            true => Ok(()),
            false => Err(DmaError::Overflow),
        }
    }
}

impl key::Region<Pages> for Region {
    fn read(&self, dma: &Dma, data: &mut [u8]) -> Result<(), DmaError> {
        self.pieces(data.len(), |done, piece, count| {
            let data = data.get_mut(done..done.saturating_add(count));
            let data = data.unwrap_or_default();
            match &piece.buffer {
                Some(buffer) => buffer.read(dma, piece.address, data),
                None => dma.memory.read(piece.address, data),
            }
        })
    }

    fn write(&self, dma: &Dma, data: &[u8]) -> Result<(), DmaError> {
        self.pieces(data.len(), |done, piece, count| {
            let data = data.get(done..done.saturating_add(count));
            let data = data.unwrap_or_default();
            match &piece.buffer {
                Some(buffer) => buffer.write(dma, piece.address, data),
                None => dma.memory.write(piece.address, data),
            }
        })
    }

    fn fetch_update(&self, dma: &Dma, update: impl Fn(u64) -> u64) -> Result<u64, DmaError> {
        let mut at = Err(DmaError::Overflow);
        self.pieces(1, |_, piece, count| match &piece.buffer {
            Some(buffer) => buffer.pieces(piece.address, count, |_, address, _| {
                at = Ok(address);
                Ok(())
            }),
            None => {
                at = Ok(piece.address);
                Ok(())
            }
        })?;
        dma.memory.fetch_update(at?, update)
    }
}

/// A key.
pub struct Mkey {
    /// Its context.
    pub context: Vec<u8>,
    /// Its translations, as they came: pages of a word each, or pieces of two.
    pub translations: Vec<u64>,
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

    /// The QP that it belongs to, if it belongs to one.
    pub fn qpn(&self) -> Option<u32> {
        let qpn = self.context.bits32(mkc::QPN);
        (qpn != ANY_QP).then_some(qpn)
    }

    /// The piece that begins `within` bytes after the start of its list of pages.
    fn of_pages(&self, within: u64, length: u64) -> Option<Piece> {
        let start = self.context.bits(mkc::START_ADDR);
        let shift = self.context.bits32(mkc::LOG_PAGE_SIZE).min(47);
        let mask = (1u64 << shift).wrapping_sub(1);
        // The list is long: only the part that is read.
        let from = within.wrapping_add(start & mask);
        let index = usize::try_from(from >> shift).ok()?;
        let count = usize::try_from((length >> shift).saturating_add(2)).unwrap_or(usize::MAX);
        let pages = self.translations.get(index..).unwrap_or_default();
        let pages = pages.iter().take(count).map(|entry| entry & !ENTRY_FLAGS);
        Some(Piece {
            buffer: Some(Buffer::of_region(pages.collect(), shift, from & mask)),
            address: 0,
            length,
        })
    }
}

/// The keys of a card, by their index: a key without its low byte, which the driver varies.
#[derive(Default)]
pub struct Mkeys(pub BTreeMap<u32, Mkey>);

impl Mkeys {
    /// The key, if a queue of `user` has it.
    fn of(&self, key: u32, user: User) -> Result<&Mkey, KeyError> {
        let mkey = self.0.get(&(key >> 8)).ok_or(KeyError::Invalid(key))?;
        let context = &mkey.context;
        if context.flag(mkc::FREE) || context.bits32(mkc::MKEY_7_0) != key & 0xff {
            return Err(KeyError::Invalid(key));
        }
        let theirs = context.bits32(mkc::PD);
        if theirs != user.pd {
            return Err(KeyError::Pd {
                key,
                theirs,
                ours: user.pd,
            });
        }
        match mkey.qpn().filter(|qpn| *qpn != user.qpn) {
            None => Ok(mkey),
            Some(theirs) => Err(KeyError::Qp {
                key,
                theirs,
                ours: user.qpn,
            }),
        }
    }

    /// Whether a message to `user` may invalidate `key`.
    pub fn may_invalidate(&self, key: u32, user: User) -> Result<(), KeyError> {
        let mkey = self.of(key, user)?;
        match mkey.context.flag(mkc::EN_RINVAL) {
            true => Ok(()),
            false => Err(KeyError::Lasting(key)),
        }
    }

    /// Such a message has arrived: the key opens nothing, until a request makes it anew.
    pub fn invalidate(&mut self, key: u32) {
        if let Some(mkey) = self.0.get_mut(&(key >> 8)) {
            mkey.context.set_bits(mkc::FREE, 1);
        }
    }

    /// Opens `length` bytes at virtual `address` with `key` for the queue `user`.
    pub fn open(
        &self,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        let mkey = self.of(key, user)?;
        let within = check(key, mkey, address, length, access)?;
        if mkey.mode() != MODE_PIECES {
            let piece = plain(key, mkey, address, within, length)?;
            return Ok(Region(vec![piece]));
        }
        let bounds = KeyError::Bounds(key, address, length);
        let mut pieces = Vec::new();
        let (mut skip, mut left) = (within, length);
        for entry in mkey.translations.chunks_exact(WORDS_OF_PIECE) {
            let &[first, start] = entry else {
                continue;
            };
            let (bytes, of) = (first >> 32, first as u32);
            let here = bytes.saturating_sub(skip).min(left);
            if here != 0 {
                let address = start.wrapping_add(skip);
                // A list of pieces has none of another list.
                let mkey = self.of(of, user)?;
                let within = check(of, mkey, address, here, underlying(access))?;
                pieces.push(plain(of, mkey, address, within, here)?);
            }
            skip = skip.saturating_sub(bytes);
            left = left.saturating_sub(here);
        }
        match left {
            0 => Ok(Region(pieces)),
            _ => Err(bounds),
        }
    }
}

/// Checks an access to a key, and returns how far its address is from the region's first.
fn check(
    key: u32,
    mkey: &Mkey,
    address: u64,
    length: u64,
    access: Access,
) -> Result<u64, KeyError> {
    let context = &mkey.context;
    if !context.flag(permission(access)) {
        return Err(KeyError::Permission(key, access));
    }
    let start = context.bits(mkc::START_ADDR);
    if context.flag(mkc::LENGTH64) {
        return Ok(address.wrapping_sub(start));
    }
    let within = address.checked_sub(start);
    let end = within.and_then(|within| within.checked_add(length));
    match (within, end) {
        (Some(within), Some(end)) if end <= context.bits(mkc::LEN) => Ok(within),
        _ => Err(KeyError::Bounds(key, address, length)),
    }
}

/// The memory of a key that is no list of pieces.
fn plain(key: u32, mkey: &Mkey, address: u64, within: u64, length: u64) -> Result<Piece, KeyError> {
    match mkey.mode() {
        MODE_PHYSICAL => Ok(Piece {
            buffer: None,
            address,
            length,
        }),
        MODE_PAGES => {
            let piece = mkey.of_pages(within, length);
            piece.ok_or(KeyError::Bounds(key, address, length))
        }
        _ => Err(KeyError::Invalid(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::key::Region as _;
    use crate::mlx5::card::Hca;

    const PD: u32 = 1;
    const QPN: u32 = 0x41;
    const USER: User = User { pd: PD, qpn: QPN };
    const RAM: u64 = 0x10_0000;
    /// A region of two pages that are not neighbours, from the middle of the first.
    const REGION: u32 = 0x1000;
    const START: u64 = 0x7800;
    /// Pieces of it.
    const PIECES: u32 = 0x1100;

    fn key(mode: u64, fields: &[(Field, u64)], translations: &[u64]) -> Mkey {
        let mut context = vec![0; mkc::SIZE];
        context.set_bits(mkc::ACCESS_MODE_1_0, mode);
        context.set_bits(mkc::PD, u64::from(PD));
        context.set_bits(mkc::QPN, u64::from(ANY_QP));
        context.set_bits(mkc::LOG_PAGE_SIZE, 12);
        for (field, value) in fields {
            context.set_bits(*field, *value);
        }
        Mkey {
            context,
            translations: translations.to_vec(),
        }
    }

    fn piece(length: u64, address: u64) -> [u64; 2] {
        [length << 32 | u64::from(REGION), address]
    }

    /// A card with these regions, the latter with such fields.
    fn card(fields: &[(Field, u64)]) -> Hca {
        let mut hca = Hca::new(0);
        hca.dma.memory.add_ram(RAM, 0x3000, true);
        hca.write_config(4, &[0x06, 0x04]);
        let owned = [
            (mkc::LR, 1),
            (mkc::LW, 1),
            (mkc::START_ADDR, START),
            (mkc::LEN, 0x1000),
        ];
        let region = key(MODE_PAGES, &owned, &[RAM | 3, RAM + 0x2000 | 3]);
        let lent = [(mkc::RR, 1), (mkc::START_ADDR, 0x100), (mkc::LEN, 0x20)];
        let list = [piece(0x10, START + 0x7f8), piece(0x10, START)].concat();
        let pieces = key(MODE_PIECES, &[&lent, fields].concat(), &list);
        let keys = [(REGION >> 8, region), (PIECES >> 8, pieces)];
        hca.card.mkeys.0.extend(keys);
        hca
    }

    fn read(hca: &Hca, address: u64, length: usize) -> Option<Vec<u8>> {
        let keys = &hca.card.mkeys;
        let bytes = length as u64;
        let region = keys.open(PIECES, USER, address, bytes, Access::RemoteRead);
        let mut data = vec![0; length];
        region.ok()?.read(&hca.dma, &mut data).ok()?;
        Some(data)
    }

    #[test]
    fn pieces_of_a_region_follow_each_other() {
        let hca = card(&[]);
        let memory = &hca.dma.memory;
        memory.write(RAM + 0x800, b"ABCDEFGHIJKLMNOP").unwrap();
        memory.write(RAM + 0xff8, b"abcdefgh").unwrap();
        memory.write(RAM + 0x2000, b"ijklmnop").unwrap();
        let all = b"abcdefghijklmnopABCDEFGHIJKLMNOP";
        assert_eq!(read(&hca, 0x100, 32).as_deref(), Some(&all[..]));
        assert_eq!(read(&hca, 0x10c, 8).as_deref(), Some(&b"mnopABCD"[..]));
        assert_eq!(read(&hca, 0x110, 17), None);
        assert_eq!(read(&hca, 0xff, 8), None);
        let written = hca
            .card
            .mkeys
            .open(PIECES, USER, 0x100, 8, Access::RemoteWrite);
        assert!(written.is_err());
    }

    #[test]
    fn a_piece_is_one_of_a_region_that_is_there() {
        let mut hca = card(&[]);
        hca.card.mkeys.invalidate(REGION);
        assert_eq!(read(&hca, 0x100, 8), None);
        let mut hca = card(&[]);
        let mkey = hca.card.mkeys.0.get_mut(&(PIECES >> 8)).unwrap();
        // It would have no end.
        mkey.translations[0] = 0x10 << 32 | u64::from(PIECES);
        assert_eq!(read(&hca, 0x100, 8), None);
    }

    #[test]
    fn a_key_of_a_qp_is_no_other_ones() {
        let hca = card(&[(mkc::QPN, u64::from(QPN))]);
        assert!(read(&hca, 0x100, 8).is_some());
        let hca = card(&[(mkc::QPN, u64::from(QPN) + 1)]);
        assert!(read(&hca, 0x100, 8).is_none());
    }

    #[test]
    fn peers_invalidate_the_keys_that_allow_it() {
        let mut hca = card(&[(mkc::EN_RINVAL, 1)]);
        let keys = &mut hca.card.mkeys;
        assert!(keys.may_invalidate(REGION, USER).is_err());
        assert!(keys.may_invalidate(PIECES + 1, USER).is_err());
        let strange = User { pd: 2, ..USER };
        assert!(keys.may_invalidate(PIECES, strange).is_err());
        assert!(keys.may_invalidate(PIECES, USER).is_ok());
        keys.invalidate(PIECES);
        assert!(keys.may_invalidate(PIECES, USER).is_err());
        assert_eq!(read(&hca, 0x100, 8), None);
    }
}
