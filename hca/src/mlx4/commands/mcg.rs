// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about multicast groups.

use crate::engine::bytes::Fields;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Status};
use crate::mlx4::mcg::{LOG_MAX_MCGS, MGM_SIZE};

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
        let entry = self.card.mcgs.entries.get(&index);
        Ok(Output::Mailbox(
            entry.copied().unwrap_or([0; MGM_SIZE]).to_vec(),
        ))
    }

    /// WRITE_MCG.
    pub fn write_mcg(&mut self, command: &Command) -> Outcome {
        let index = Self::mcg_index(command)?;
        let entry = self.mailbox(command)?;
        self.card.mcgs.entries.insert(index, entry);
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
