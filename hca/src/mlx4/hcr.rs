// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The host command register: seven big-endian dwords in BAR 0 through which the driver posts one
//! firmware command at a time.
//!
//! The driver writes the last dword, with GO, last. It may post again when GO is clear and T is as
//! it last wrote it: at once in event mode, whose completions come as EQEs, at the command's end in
//! polling mode.

use crate::mlx4::command::{Command, Status};

/// Offset of the HCR in BAR 0 (`MLX4_HCR_BASE` of `drivers/net/ethernet/mellanox/mlx4/mlx4.h`).
pub const HCR_BASE: u64 = 0x80680;
/// Its size (`MLX4_HCR_SIZE`, beside it).
pub const HCR_SIZE: u64 = 0x1c;

// Dwords, by the driver's byte offset.
const IN_PARAM: usize = 0;
const IN_MODIFIER: usize = 0x08 / 4;
const OUT_PARAM: usize = 0x0c / 4;
const TOKEN: usize = 0x14 / 4;
const STATUS: usize = 0x18 / 4;

const OPMOD_SHIFT: u32 = 12;
const E_BIT: u32 = 1 << 22;
const GO_BIT: u32 = 1 << 23;
const STATUS_SHIFT: u32 = 24;

/// The register block. Cleared by a device reset.
#[derive(Default)]
pub struct Hcr {
    dwords: [u32; (HCR_SIZE / 4) as usize],
}

impl Hcr {
    fn dword(&self, index: usize) -> u32 {
        self.dwords.get(index).copied().unwrap_or(0)
    }

    fn set_dword(&mut self, index: usize, value: u32) {
        if let Some(dword) = self.dwords.get_mut(index) {
            *dword = value;
        }
    }

    /// The dword at byte `offset` from HCR_BASE.
    pub fn read(&self, offset: u64) -> u32 {
        self.dword((offset / 4) as usize)
    }

    /// Writes the dword at byte `offset`. Answers with a command when the driver posts one.
    pub fn write(&mut self, offset: u64, value: u32) -> Option<Command> {
        let index = (offset / 4) as usize;
        // A write over a command in progress has no effect, as on silicon.
        if self.busy() {
            return None;
        }
        self.set_dword(index, value);
        if index != STATUS || value & GO_BIT == 0 {
            return None;
        }
        let wide = |index: usize| {
            u64::from(self.dword(index)) << 32 | u64::from(self.dword(index.wrapping_add(1)))
        };
        let command = Command {
            opcode: (value & 0xfff) as u16,
            opmod: (value >> OPMOD_SHIFT & 0xf) as u8,
            in_param: wide(IN_PARAM),
            in_modifier: self.dword(IN_MODIFIER),
            out_param: wide(OUT_PARAM),
            token: (self.dword(TOKEN) >> 16) as u16,
            event: value & E_BIT != 0,
        };
        if command.event {
            self.finish(Status::Ok, None);
        }
        Some(command)
    }

    /// A polled command is being executed.
    pub fn busy(&self) -> bool {
        self.dword(STATUS) & GO_BIT != 0
    }

    /// Ends the command: clears GO, keeps T, and shows a polled command's result.
    pub fn finish(&mut self, status: Status, immediate: Option<u64>) {
        if let Some(value) = immediate {
            self.set_dword(OUT_PARAM, (value >> 32) as u32);
            self.set_dword(OUT_PARAM + 1, value as u32);
        }
        let word = self.dword(STATUS) & !(GO_BIT | 0xff << STATUS_SHIFT);
        self.set_dword(STATUS, word | (status as u32) << STATUS_SHIFT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_BIT: u32 = 1 << 21;

    fn post(hcr: &mut Hcr, flags: u32) -> Option<Command> {
        for (offset, value) in [(0, 0x1), (4, 0x2000), (8, 7), (12, 0), (16, 0x3000)] {
            assert!(hcr.write(offset, value).is_none());
        }
        assert!(hcr.write(0x14, 0xabcd << 16).is_none());
        hcr.write(0x18, GO_BIT | flags | 3 << OPMOD_SHIFT | 0x24)
    }

    #[test]
    fn polled_command_keeps_go_until_it_ends() {
        let mut hcr = Hcr::default();
        let command = post(&mut hcr, T_BIT).unwrap();
        assert_eq!(command.opcode, 0x24);
        assert_eq!(command.opmod, 3);
        assert_eq!(command.in_param, 0x1_0000_2000);
        assert_eq!(command.out_param, 0x3000);
        assert_eq!((command.in_modifier, command.token), (7, 0xabcd));
        assert!(hcr.busy() && !command.event);
        assert!(hcr.write(8, 99).is_none());
        assert_eq!(hcr.read(8), 7);
        hcr.finish(Status::BadParam, Some(0x5_0000_0006));
        assert_eq!(hcr.read(0x18), 3 << 24 | T_BIT | 3 << OPMOD_SHIFT | 0x24);
        assert_eq!((hcr.read(0x0c), hcr.read(0x10)), (5, 6));
    }

    #[test]
    fn event_command_frees_the_register_at_once() {
        let mut hcr = Hcr::default();
        assert!(post(&mut hcr, E_BIT).unwrap().event);
        assert!(!hcr.busy());
        assert!(post(&mut hcr, E_BIT | T_BIT).is_some());
    }
}
