// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about memory keys.

use crate::engine::bytes::Fields;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Status};
use crate::mlx4::mpt::{entry_address, LOG_RESERVED_MPTS, MPT_FLAGS, MPT_FLAG_SW_OWNS, MPT_SIZE};

impl Hca {
    fn mpt_index(&self, command: &Command) -> Result<u32, Status> {
        let index = command.in_modifier;
        if index >> self.dma.icm.layout()?.log_mpts != 0 {
            return Err(Status::BadIndex);
        }
        Ok(index)
    }

    fn set_mpt_owner(&mut self, index: u32, owner: u32) -> Result<(), Status> {
        let address = entry_address(&self.dma, index)?;
        let flags = u32::from_be_bytes(self.dma.memory.block(address)?);
        let flags = flags & !MPT_FLAG_SW_OWNS | owner;
        self.dma.memory.write(address, &flags.to_be_bytes())?;
        Ok(())
    }

    /// SW2HW_MPT: the entry comes in the mailbox and is written to the table.
    pub fn sw2hw_mpt(&mut self, command: &Command) -> Outcome {
        let index = self.mpt_index(command)?;
        if self.card.keys.hardware.contains(&index) {
            return Err(Status::BadResState);
        }
        if index >> LOG_RESERVED_MPTS == 0 {
            return self.refuse_command(
                Violation::ReservedKey,
                Status::BadResource,
                format_args!("key {index:#x}"),
            );
        }
        let mut entry: [u8; MPT_SIZE] = self.mailbox(command)?;
        let flags = entry.get_be32(MPT_FLAGS) & !MPT_FLAG_SW_OWNS;
        entry.set_be32(MPT_FLAGS, flags);
        let address = entry_address(&self.dma, index)?;
        self.dma.memory.write(address, &entry)?;
        self.card.keys.software.remove(&index);
        self.card.keys.hardware.insert(index);
        Ok(Output::None)
    }

    /// HW2SW_MPT: the region closes. Modifier 0 returns the entry.
    pub fn hw2sw_mpt(&mut self, command: &Command) -> Outcome {
        let index = self.mpt_index(command)?;
        if !self.card.keys.hardware.remove(&index) {
            return Err(Status::BadIndex);
        }
        self.card.keys.software.insert(index);
        self.set_mpt_owner(index, MPT_FLAG_SW_OWNS)?;
        match command.opmod {
            0 => self.read_mpt(index),
            _ => Ok(Output::None),
        }
    }

    /// QUERY_MPT.
    pub fn query_mpt(&mut self, command: &Command) -> Outcome {
        let index = self.mpt_index(command)?;
        self.read_mpt(index)
    }

    fn read_mpt(&self, index: u32) -> Outcome {
        let entry: [u8; MPT_SIZE] = self.dma.memory.block(entry_address(&self.dma, index)?)?;
        Ok(Output::Mailbox(entry.to_vec()))
    }

    /// SYNC_TPT: the driver has edited entries it got back and set them to be the device's again.
    pub fn sync_tpt(&mut self) -> Outcome {
        let given: Vec<u32> = self.card.keys.software.iter().copied().collect();
        for index in given {
            // The page under a freed entry may have been taken back.
            let owner = entry_address(&self.dma, index)
                .and_then(|address| self.dma.memory.block::<1>(address));
            match owner {
                Ok([0]) => {
                    // Only the status byte was cleared; the region is whole again.
                    self.set_mpt_owner(index, 0)?;
                    self.card.keys.software.remove(&index);
                    self.card.keys.hardware.insert(index);
                }
                Ok(_) => {}
                Err(_) => {
                    self.card.keys.software.remove(&index);
                }
            }
        }
        Ok(Output::None)
    }
}
