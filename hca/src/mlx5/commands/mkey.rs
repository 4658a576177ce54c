// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about memory keys, and the requests that change one (UMR).

use crate::engine::bytes::Fields;
use crate::engine::completion::LocalError;
use crate::engine::key::{Access, KeyError, Region, User};
use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::engine::work::Segment;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::ifc::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, mkc, query_mkey_in, query_mkey_out, Bits,
    Field,
};
use crate::mlx5::memory::words;
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
/// MLX5_UMR_CHECK_FREE: only a key that is in use changes.
const UMR_IN_USE: u8 = 2 << 5;
/// MLX5_UMR_CHECK_NOT_FREE, MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE: only a key that is free changes.
const UMR_FREE: u8 = 1 << 5;
/// MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN: only a key of the QP changes.
const UMR_CHECK_QPN: u8 = 1 << 3;
/// MLX5_UMR_TRANSLATION_OFFSET_EN.
const UMR_OFFSET_ENABLED: u8 = 1 << 4;
/// What a mask may name (MLX5_MKEY_MASK_*), by its bit.
const UMR_FIELDS: &[(u32, Field)] = &[
    (0, mkc::LEN),
    (1, mkc::LOG_PAGE_SIZE),
    (6, mkc::START_ADDR),
    (7, mkc::PD),
    (8, mkc::EN_RINVAL),
    (13, mkc::MKEY_7_0),
    (14, mkc::QPN),
    (17, mkc::LR),
    (18, mkc::LW),
    (19, mkc::RR),
    (20, mkc::RW),
    (21, mkc::A),
    (25, mkc::RELAXED_ORDERING_WRITE),
    (29, mkc::FREE),
    (47, mkc::RELAXED_ORDERING_READ),
];
/// The fields that a user's QP does not change.
const OF_THE_DRIVER: u64 = 1 << 7;

impl Hca {
    /// CREATE_MKEY.
    pub fn create_mkey(&mut self, input: &[u8]) -> Outcome {
        let at = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.byte();
        let context = input.get(at..at.saturating_add(mkc::SIZE));
        let context = context.ok_or(Status::BadInpLen)?.to_vec();
        let octowords = input.bits(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE);
        let list = input.get(create_mkey_in::SIZE..).unwrap_or_default();
        let mut translations = words(list);
        let count = (octowords as usize).saturating_mul(PER_OCTOWORD);
        if count > translations.len() {
            return Err(Status::BadInpLen);
        }
        translations.truncate(count);
        self.check_pd(context.bits32(mkc::PD))?;
        let mkeys = std::mem::take(&mut self.card.mkeys.0);
        let index = (self.card).number(FIRST, LIMIT, |index| mkeys.contains_key(&index));
        self.card.mkeys.0 = mkeys;
        let index = index.ok_or(Status::NoRes)?;
        let mkey = Mkey {
            context,
            translations,
        };
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

    /// Reads a list of translations; the driver's QP has no protection domain, and may use a key of
    /// any.
    fn translations(
        &self,
        qpn: u32,
        pd: Option<u32>,
        segments: &[Segment],
    ) -> Result<Vec<u8>, LocalError> {
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
            let user = User { pd, qpn };
            let region =
                (self.card.mkeys).open(*lkey, user, *address, length as u64, Access::LocalRead)?;
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
        let qp = self.qps.get(qpn).ok_or(LocalError::Operation)?;
        let pd = (!qp.context.registers_memory()).then(|| qp.context.pd());
        let list = match flags & UMR_INLINE {
            0 => {
                let segments = parse_segments(wqe, UMR_TRANSLATIONS).unwrap_or_default();
                self.translations(qpn, pd, &segments)?
            }
            _ => wqe.get(UMR_TRANSLATIONS..).unwrap_or_default().to_vec(),
        };
        let list = list.get(..size.min(list.len())).unwrap_or_default();
        let mkeys = &mut self.card.mkeys.0;
        let refused = LocalError::Bind(key);
        let Some(mkey) = mkeys.get_mut(&(key >> 8)) else {
            return Err(refused);
        };
        let mask = wqe.get_be64(UMR_MASK);
        let free = mkey.context.flag(mkc::FREE);
        let foreign =
            pd.is_some_and(|pd| pd != mkey.context.bits32(mkc::PD) || mask & OF_THE_DRIVER != 0);
        if foreign
            || !mkey.context.flag(mkc::UMR_EN)
            || flags & UMR_FREE != 0 && !free
            || flags & UMR_IN_USE != 0 && free
            || flags & UMR_CHECK_QPN != 0 && mkey.qpn().is_some_and(|of| of != qpn)
        {
            return Err(refused);
        }
        let first = (offset as usize).saturating_mul(PER_OCTOWORD);
        let new = words(list);
        let end = first.saturating_add(new.len());
        if end > MAX_TRANSLATIONS {
            return Err(LocalError::Operation);
        }
        let context = wqe.get(UMR_CONTEXT..).unwrap_or_default();
        for (bit, field) in UMR_FIELDS {
            if mask >> bit & 1 != 0 {
                mkey.context.copy_bits(context, *field);
            }
        }
        if !new.is_empty() {
            if mkey.translations.len() < end {
                mkey.translations.resize(end, 0);
            }
            for (word, new) in mkey.translations.iter_mut().skip(first).zip(new) {
                *word = new;
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
    use crate::mlx5::ifc::{create_qp_in, create_qp_out, qpc};

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

    const PD: u32 = 1;
    const UAR: u32 = 5;
    const KEY: u32 = 0x1000;

    /// A request of a QP about the key [`KEY`] of such a context: its flags, the bits of its mask,
    /// and fields.
    fn update(
        context: &[(Field, u64)],
        flags: u8,
        mask: &[u32],
        fields: &[(Field, u64)],
    ) -> Result<Hca, LocalError> {
        let mut hca = Hca::new(0);
        hca.card.pds.insert(PD);
        hca.card.uars.insert(UAR);
        let mut input = vec![0; create_qp_in::SIZE];
        for (field, value) in [(qpc::PD, PD), (qpc::RQ_TYPE, 3), (qpc::UAR_PAGE, UAR)] {
            input.set_bits(create_qp_in::QPC.part(field), u64::from(value));
        }
        input.extend_from_slice(&0x10_0000u64.to_be_bytes());
        let created = hca.create_qp(&input).unwrap();
        let qpn = created.bits32(create_qp_out::QPN);
        let mut mkey = Mkey {
            context: vec![0; mkc::SIZE],
            translations: Vec::new(),
        };
        for (field, value) in [&[(mkc::PD, u64::from(PD)), (mkc::UMR_EN, 1)], context].concat() {
            mkey.context.set_bits(field, value);
        }
        hca.card.mkeys.0.insert(KEY >> 8, mkey);
        let mut wqe = [0; UMR_TRANSLATIONS];
        wqe.set_be32(UMR_KEY, KEY);
        wqe.set_u8(UMR_FLAGS, flags | UMR_INLINE);
        let mask = mask.iter().fold(0u64, |mask, bit| mask | 1 << bit);
        wqe.set_be64(UMR_MASK, mask);
        let (_, new) = wqe.split_at_mut(UMR_CONTEXT);
        for (field, value) in fields {
            new.set_bits(*field, *value);
        }
        hca.update_mkey(qpn, &wqe).map(|()| hca)
    }

    #[test]
    fn a_request_registers_a_free_key_and_invalidates_it() {
        const RIGHTS: [u32; 4] = [8, 13, 18, 29];
        let new = [(mkc::EN_RINVAL, 1), (mkc::MKEY_7_0, 7), (mkc::LW, 1)];
        let register = |free| update(&[(mkc::FREE, free)], UMR_FREE, &RIGHTS, &new);
        let hca = register(1).unwrap();
        let context = &hca.card.mkeys.0[&(KEY >> 8)].context;
        for (field, value) in [(mkc::FREE, 0), (mkc::EN_RINVAL, 1), (mkc::MKEY_7_0, 7)] {
            assert_eq!(context.bits(field), value);
        }
        // It is in use.
        assert!(register(0).is_err());
        let hca = update(&[], 0, &[29], &[(mkc::FREE, 1)]).unwrap();
        assert!(hca.card.mkeys.0[&(KEY >> 8)].context.flag(mkc::FREE));
    }

    #[test]
    fn a_qp_changes_keys_of_its_domain_that_requests_may_change() {
        assert!(update(&[], 0, &[], &[]).is_ok());
        assert!(update(&[(mkc::UMR_EN, 0)], 0, &[], &[]).is_err());
        assert!(update(&[(mkc::PD, 2)], 0, &[], &[]).is_err());
        // To another domain.
        assert!(update(&[], 0, &[7], &[(mkc::PD, 2)]).is_err());
        assert!(update(&[(mkc::FREE, 1)], UMR_IN_USE, &[], &[]).is_err());
        assert!(update(&[(mkc::QPN, 0x1234)], UMR_CHECK_QPN, &[], &[]).is_err());
        assert!(update(&[(mkc::QPN, 0xff_ffff)], UMR_CHECK_QPN, &[], &[]).is_ok());
    }
}
