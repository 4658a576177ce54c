// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Multicast groups: a table the driver manages itself, by index, hashing GIDs with our help. We
//! only look up who is in a group.

use std::collections::BTreeMap;

use crate::engine::bytes::Fields;
use crate::engine::hca::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Status};

/// log2 of the table's entries.
pub const LOG_MAX_MCGS: u8 = 13;
/// log2 of the QPs of an entry, as QUERY_DEV_CAP reports it.
pub const LOG_QPS_PER_MCG: u8 = 8;

// struct mlx4_mgm: header, then members.
const MGM_MEMBERS_COUNT: usize = 0x04;
const MGM_GID: usize = 0x10;
const MGM_QP: usize = 0x20;
/// MLX4_DEFAULT_MGM_LOG_ENTRY_SIZE is 10.
const MGM_SIZE: usize = 1 << 10;
const MEMBERS_MASK: u32 = 0xff_ffff;

/// The group table. Empty after a reset.
#[derive(Default)]
pub struct Mcgs {
    entries: BTreeMap<u32, [u8; MGM_SIZE]>,
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

impl Hca {
    fn mcg_index(command: &Command) -> Result<u32, Status> {
        if command.in_modifier >> LOG_MAX_MCGS != 0 {
            return Err(Status::BadIndex);
        }
        Ok(command.in_modifier)
    }

    /// READ_MCG.
    pub fn read_mcg(&mut self, command: &Command) -> Outcome {
        let index = Self::mcg_index(command)?;
        let entry = self.mcgs.entries.get(&index);
        Ok(Output::Mailbox(
            entry.copied().unwrap_or([0; MGM_SIZE]).to_vec(),
        ))
    }

    /// WRITE_MCG.
    pub fn write_mcg(&mut self, command: &Command) -> Outcome {
        let index = Self::mcg_index(command)?;
        let entry = self.mailbox(command)?;
        self.mcgs.entries.insert(index, entry);
        Ok(Output::None)
    }

    /// MGID_HASH: where in the first half of the table the chain of a GID begins.
    pub fn mgid_hash(&mut self, command: &Command) -> Outcome {
        let gid: [u8; 16] = self.mailbox(command)?;
        let folded = (gid.get_be64(0) ^ gid.get_be64(8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = u32::from(LOG_MAX_MCGS.saturating_sub(1));
        Ok(Output::Immediate(folded >> 64u32.saturating_sub(bits)))
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
