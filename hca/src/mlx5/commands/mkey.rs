// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about memory keys, and the requests that change one (UMR).

use crate::engine::bytes::Fields;
use crate::engine::completion::LocalError;
use crate::engine::key::{Access, KeyError, Region};
use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::engine::work::Segment;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::ifc::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, mkc, query_mkey_in, query_mkey_out, Bits,
    Field,
};
use crate::mlx5::memory::addresses;
use crate::mlx5::mkey::{Mkey, MAX_TRANSLATIONS};
use crate::mlx5::wqe::parse_segments;

const FIRST: u32 = 0x10;
const LIMIT: u32 = 1 << 20;
/// Translations in an octoword.
const PER_OCTOWORD: usize = 2;

// A UMR WQE: control segment, UMR control segment, context, translations.
const UMR_KEY: usize = 0x0c;
const UMR_FLAGS: usize = 0x10;
const UMR_OCTOWORDS: usize = 0x14;
const UMR_OFFSET: usize = 0x16;
const UMR_MASK: usize = 0x18;
const UMR_OFFSET_HIGH: usize = 0x20;
const UMR_CONTEXT: usize = 0x40;
const UMR_TRANSLATIONS: usize = 0x80;
/// MLX5_UMR_INLINE.
const UMR_INLINE: u8 = 1 << 7;
/// MLX5_UMR_CHECK_FREE.
const UMR_CHECK_FREE: u8 = 1 << 5;
/// MLX5_UMR_TRANSLATION_OFFSET_EN.
const UMR_OFFSET_ENABLED: u8 = 1 << 4;
/// What a mask may name (MLX5_MKEY_MASK_*), by its bit.
const UMR_FIELDS: &[(u32, Field)] = &[
    (0, mkc::LEN),
    (1, mkc::LOG_PAGE_SIZE),
    (6, mkc::START_ADDR),
    (7, mkc::PD),
    (13, mkc::MKEY_7_0),
    (14, mkc::QPN),
    (17, mkc::LR),
    (18, mkc::LW),
    (19, mkc::RR),
    (20, mkc::RW),
    (21, mkc::A),
    (29, mkc::FREE),
];

impl Hca {
    /// CREATE_MKEY.
    pub fn create_mkey(&mut self, input: &[u8]) -> Outcome {
        let at = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.byte();
        let context = input.get(at..at.saturating_add(mkc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?.to_vec();
        let octowords = input.bits(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE);
        let list = input.get(create_mkey_in::SIZE..).unwrap_or_default();
        let mut pages = addresses(list);
        let count = (octowords as usize).saturating_mul(PER_OCTOWORD);
        if count > pages.len() {
            return Err(Status::BadInpLen);
        }
        pages.truncate(count);
        self.check_pd(context.bits32(mkc::PD))?;
        let mkeys = std::mem::take(&mut self.card.mkeys.0);
        let index = (self.card).number(FIRST, LIMIT, |index| mkeys.contains_key(&index));
        self.card.mkeys.0 = mkeys;
        let index = index.ok_or(Status::NoRes)?;
        let mkey = Mkey { context, pages };
        self.check_rights(index, &mkey);
        self.card.mkeys.0.insert(index, mkey);
        let mut out = vec![0; create_mkey_out::SIZE];
        out.set_bits(create_mkey_out::MKEY_INDEX, u64::from(index));
        Ok(out)
    }

    fn check_rights(&self, index: u32, mkey: &Mkey) {
        if mkey.favours_peers() {
            self.dma
                .violations
                .note(Violation::KeyRights, format_args!("key {index:#x}"));
        }
    }

    /// DESTROY_MKEY.
    pub fn destroy_mkey(&mut self, input: &[u8]) -> Outcome {
        let index = input.bits32(destroy_mkey_in::MKEY_INDEX);
        match self.card.mkeys.0.remove(&index) {
            Some(_) => Ok(Vec::new()),
            None => Err(Status::Ix),
        }
    }

    /// QUERY_MKEY.
    pub fn query_mkey(&mut self, input: &[u8]) -> Outcome {
        let index = input.bits32(query_mkey_in::MKEY_INDEX);
        let mkey = self.card.mkeys.0.get(&index).ok_or(Status::Ix)?;
        let mut out = vec![0; query_mkey_out::MEMORY_KEY_MKEY_ENTRY.byte()];
        out.extend_from_slice(&mkey.context);
        Ok(out)
    }

    /// Reads a list of translations; a QP without a protection domain may use a key of any.
    fn translations(&self, pd: Option<u32>, segments: &[Segment]) -> Result<Vec<u8>, LocalError> {
        let mut list = Vec::new();
        for segment in segments {
            let Segment::Memory {
                length,
                lkey,
                address,
            } = segment
            else {
                return Err(LocalError::Operation);
            };
            let mkey = self.card.mkeys.0.get(&(lkey >> 8));
            let theirs = mkey.map(|mkey| mkey.context.bits32(mkc::PD));
            let pd = pd.or(theirs).ok_or(KeyError::Invalid(*lkey))?;
            let length = *length as usize;
            if list.len().saturating_add(length) > MAX_TRANSLATIONS {
                return Err(LocalError::Operation);
            }
            let region =
                (self.card.mkeys).open(*lkey, pd, *address, length as u64, Access::LocalRead)?;
            let start = list.len();
            list.resize(start.saturating_add(length), 0);
            region.read(&self.dma, list.get_mut(start..).unwrap_or_default())?;
        }
        Ok(list)
    }

    /// A UMR request of QP `qpn`: changes fields of a key, and its list of pages.
    pub fn update_mkey(&mut self, qpn: u32, wqe: &[u8]) -> Result<(), LocalError> {
        if wqe.len() < UMR_TRANSLATIONS {
            return Err(LocalError::Operation);
        }
        let key = wqe.get_be32(UMR_KEY);
        let flags = wqe.get_u8(UMR_FLAGS);
        let size = usize::from(wqe.get_be16(UMR_OCTOWORDS)).saturating_mul(16);
        let offset = match flags & UMR_OFFSET_ENABLED {
            0 => 0,
            _ => wqe.get_be32(UMR_OFFSET_HIGH) << 16 | u32::from(wqe.get_be16(UMR_OFFSET)),
        };
        let list = match flags & UMR_INLINE {
            0 => {
                let qp = self.qps.get(qpn).ok_or(LocalError::Operation)?;
                let pd = match qp.context.registers_memory() {
                    true => None,
                    false => Some(qp.context.pd()),
                };
                let segments = parse_segments(wqe, UMR_TRANSLATIONS).unwrap_or_default();
                self.translations(pd, &segments)?
            }
            _ => wqe.get(UMR_TRANSLATIONS..).unwrap_or_default().to_vec(),
        };
        let list = list.get(..size.min(list.len())).unwrap_or_default();
        let mkeys = &mut self.card.mkeys.0;
        let mkey = mkeys.get_mut(&(key >> 8)).ok_or(LocalError::Operation)?;
        if flags & UMR_CHECK_FREE != 0 && !mkey.context.flag(mkc::FREE) {
            return Err(LocalError::Operation);
        }
        let first = (offset as usize).saturating_mul(PER_OCTOWORD);
        let new = addresses(list);
        let end = first.saturating_add(new.len());
        if end > MAX_TRANSLATIONS {
            return Err(LocalError::Operation);
        }
        let mask = wqe.get_be64(UMR_MASK);
        let context = wqe.get(UMR_CONTEXT..).unwrap_or_default();
        for (bit, field) in UMR_FIELDS {
            if mask >> bit & 1 != 0 {
                mkey.context.copy_bits(context, *field);
            }
        }
        if !new.is_empty() {
            if mkey.pages.len() < end {
                mkey.pages.resize(end, 0);
            }
            for (page, new) in mkey.pages.iter_mut().skip(first).zip(new) {
                *page = new;
            }
        }
        if let Some(mkey) = self.card.mkeys.0.get(&(key >> 8)) {
            self.check_rights(key >> 8, mkey);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lets_its_owner_write_where_peers_may() {
        let create = |rights: &[Field]| {
            let mut hca = Hca::new(0);
            hca.card.pds.insert(0);
            let mut input = vec![0; create_mkey_in::SIZE];
            for right in rights {
                let field = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.part(*right);
                input.set_bits(field, 1);
            }
            hca.create_mkey(&input).unwrap();
            hca.dma.violations.take()
        };
        assert_eq!(create(&[mkc::RW, mkc::LW]), []);
        assert_eq!(create(&[mkc::RR]), []);
        assert_eq!(create(&[mkc::RW]), [Violation::KeyRights]);
        assert_eq!(create(&[mkc::A]), [Violation::KeyRights]);
        assert_eq!(create(&[mkc::RW, mkc::FREE]), []);
    }
}
