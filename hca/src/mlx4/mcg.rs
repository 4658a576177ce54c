// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Multicast groups: a table the driver manages itself, by index, hashing GIDs with our help. We
//! only look up who is in a group.

use crate::engine::bytes::Fields;
use std::collections::BTreeMap;

/// log2 of the table's entries.
pub const LOG_MAX_MCGS: u8 = 13;
/// log2 of the QPs of an entry, as QUERY_DEV_CAP reports it.
pub const LOG_QPS_PER_MCG: u8 = 8;

// struct mlx4_mgm: header, then members.
const MGM_MEMBERS_COUNT: usize = 0x04;
const MGM_GID: usize = 0x10;
const MGM_QP: usize = 0x20;
/// MLX4_DEFAULT_MGM_LOG_ENTRY_SIZE is 10.
pub(super) const MGM_SIZE: usize = 1 << 10;
const MEMBERS_MASK: u32 = 0xff_ffff;

/// The group table. Empty after a reset.
#[derive(Default)]
pub struct Mcgs {
    pub(super) entries: BTreeMap<u32, [u8; MGM_SIZE]>,
}

impl Mcgs {
    /// The QPs that joined group `gid`.
    pub fn members(&self, gid: &[u8; 16]) -> Vec<u32> {
        self.entries
            .values()
            .filter(|entry| entry.field::<16>(MGM_GID) == *gid)
            .flat_map(|entry| {
                let count = (entry.get_be32(MGM_MEMBERS_COUNT) & MEMBERS_MASK) as usize;
                let members = entry.get(MGM_QP..).unwrap_or_default().chunks_exact(4);
                members.take(count).map(|member| member.get_be24(0))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_are_found_and_limited() {
        let mut entry = [0; MGM_SIZE];
        entry.set_be32(MGM_MEMBERS_COUNT, 2);
        entry.set_field(MGM_GID, &[7; 16]);
        entry.set_be32(MGM_QP, 0x4000_0240);
        entry.set_be32(MGM_QP + 4, 0x241);
        let mut mcgs = Mcgs::default();
        mcgs.entries.insert(3, entry);
        assert_eq!(mcgs.members(&[7; 16]), [0x240, 0x241]);
        assert!(mcgs.members(&[8; 16]).is_empty());
        entry.set_be32(MGM_MEMBERS_COUNT, u32::MAX);
        mcgs.entries.insert(3, entry);
        assert_eq!(mcgs.members(&[7; 16]).len(), (MGM_SIZE - MGM_QP) / 4);
    }
}
