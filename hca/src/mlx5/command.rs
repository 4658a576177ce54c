// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Firmware commands: where they come from, and how they end.

use crate::engine::fault::opcode_number;
use crate::engine::memory::DmaError;
use crate::mlx5::ifc::{op, OPCODES};

/// log2 of the entries of the command queue.
pub const LOG_COMMANDS: u32 = 5;
/// log2 of the size of an entry.
pub const LOG_ENTRY: u32 = 6;

/// A command as it was in the queue.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its entry.
    pub slot: u8,
    /// All of its input, the header too.
    pub input: Vec<u8>,
    /// Bytes of output that the driver has room for.
    pub output_length: usize,
    /// The address of the output after the first bytes.
    pub output_pointer: u64,
    /// There was a queue for its end when it was posted: the driver polls otherwise.
    pub event: bool,
}

impl Command {
    /// Its opcode.
    pub fn opcode(&self) -> u16 {
        let bytes = self.input.first_chunk().copied();
        u16::from_be_bytes(bytes.unwrap_or_default())
    }
}

/// The end of a command: its output, whose first bytes are the status, or without one.
pub type Outcome = Result<Vec<u8>, Status>;

/// Command statuses (MLX5_CMD_STAT_*).
#[allow(missing_docs)]
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    num_enum::TryFromPrimitive,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum Status {
    Ok = 0x00,
    IntErr = 0x01,
    BadOp = 0x02,
    BadParam = 0x03,
    BadSysState = 0x04,
    BadRes = 0x05,
    ResBusy = 0x06,
    Lim = 0x08,
    BadResState = 0x09,
    Ix = 0x0a,
    NoRes = 0x0f,
    BadQpState = 0x10,
    BadPkt = 0x30,
    BadSizeOutsCqes = 0x40,
    BadInpLen = 0x50,
    BadOutpLen = 0x51,
}

impl From<DmaError> for Status {
    fn from(_: DmaError) -> Self {
        Self::IntErr
    }
}

/// The name of an opcode, or its number where the header has no name for it.
pub fn opcode_name(number: u16) -> String {
    let named = OPCODES.iter().find(|(_, opcode)| *opcode == number);
    named.map_or_else(|| format!("{number:#05x}"), |(name, _)| (*name).to_string())
}

/// The opcode a person means by `text`: the driver's name, with or without MLX5_CMD_OP_, or a
/// number.
pub fn parse_opcode(text: &str) -> Result<u16, String> {
    let name = text.strip_prefix("MLX5_CMD_OP_").unwrap_or(text);
    let named = OPCODES
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    if let Some((_, opcode)) = named {
        return Ok(*opcode);
    }
    opcode_number(name).ok_or_else(|| format!("no such command: {text}"))
}

/// The number of the status a person means by `text`: MLX5_CMD_STAT_* in snake case.
pub fn parse_status(text: &str) -> Result<u8, String> {
    let status = text.to_lowercase().parse::<Status>();
    let status = status.map_err(|_| format!("no such status: {text}"))?;
    Ok(status as u8)
}

/// The phase to which the driver has brought the card up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From a reset to ENABLE_HCA, and after DISABLE_HCA.
    #[default]
    Reset,
    /// To INIT_HCA, and after TEARDOWN_HCA.
    Enabled,
    /// Between these two.
    Initialised,
}

/// The phase that a command needs at least.
pub fn phase(opcode: u16) -> Phase {
    match opcode {
        op::ENABLE_HCA | op::DISABLE_HCA | op::NOP => Phase::Reset,
        op::QUERY_ISSI
        | op::SET_ISSI
        | op::QUERY_PAGES
        | op::MANAGE_PAGES
        | op::QUERY_HCA_CAP
        | op::SET_HCA_CAP
        | op::ACCESS_REG
        | op::SET_DRIVER_VERSION
        | op::INIT_HCA
        | op::TEARDOWN_HCA => Phase::Enabled,
        _ => Phase::Initialised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_go_by_name_or_number() {
        assert_eq!(parse_opcode("MLX5_CMD_OP_2RST_QP"), Ok(op::_2RST_QP));
        assert_eq!(parse_opcode("rst2init_qp"), Ok(op::RST2INIT_QP));
        assert_eq!(parse_opcode("0x500"), Ok(op::CREATE_QP));
        assert!(parse_opcode("MAKE_COFFEE").is_err());
        assert_eq!(opcode_name(op::_2ERR_QP), "2ERR_QP");
        assert_eq!(parse_status("bad_param"), Ok(3));
    }
}
