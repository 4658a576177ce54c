// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Firmware commands: their opcodes, statuses and phases.

use std::ops::RangeInclusive;

use crate::engine::fault::opcode_number;
use crate::engine::memory::DmaError;

/// Size of a command mailbox, which passes what does not fit into the two parameters of the HCR
/// (`MLX4_MAILBOX_SIZE` of `include/linux/mlx4/cmd.h`).
pub const MAILBOX_SIZE: usize = 4096;
/// log2 of the commands the driver may have outstanding, as QUERY_FW reports it.
pub const LOG_MAX_COMMANDS: u8 = 4;

/// The phase to which the driver has brought the device up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From a reset to RUN_FW, and after UNMAP_FA.
    Reset,
    /// From RUN_FW, and after CLOSE_HCA.
    Running,
    /// From INIT_HCA to CLOSE_HCA.
    Initialised,
}

/// A command as posted in the HCR.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its opcode.
    pub opcode: u16,
    /// The opcode modifier.
    pub opmod: u8,
    /// An address or an immediate value.
    pub in_param: u64,
    /// Usually an object's number.
    pub in_modifier: u32,
    /// The address of the output mailbox.
    pub out_param: u64,
    /// Returned in the completion EQE.
    pub token: u16,
    /// Ends with an EQE instead of the HCR.
    pub event: bool,
}

/// The result of a successful command.
pub enum Output {
    /// Nothing.
    None,
    /// A value in the HCR or the completion EQE.
    Immediate(u64),
    /// The first bytes of the output mailbox.
    Mailbox(Vec<u8>),
}

/// The end of a command.
pub type Outcome = Result<Output, Status>;

/// Command statuses (`CMD_STAT_*` of `drivers/net/ethernet/mellanox/mlx4/cmd.c`, which makes an
/// errno of each).
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
    /// Success.
    Ok = 0x00,
    /// Internal error, such as a bus error on a mailbox.
    InternalErr = 0x01,
    /// Opcode or modifier not supported.
    BadOp = 0x02,
    /// A parameter or modifier out of range.
    BadParam = 0x03,
    /// Not possible before or after INIT_HCA, or with the system as it is.
    BadSysState = 0x04,
    /// The resource is reserved.
    BadResource = 0x05,
    /// The resource is in use, or too many commands are.
    ResourceBusy = 0x06,
    /// A required capability is exceeded.
    ExceedLim = 0x08,
    /// The resource is not in the right state or owner.
    BadResState = 0x09,
    /// No such index.
    BadIndex = 0x0a,
    /// The non-volatile memory is corrupt.
    BadNvmem = 0x0b,
    /// An ICM page is not mapped.
    IcmError = 0x0c,
    /// Transition not possible from the QP's state.
    BadQpState = 0x10,
    /// A segment table parameter is bad.
    BadSegParam = 0x20,
    /// The memory region still has windows bound.
    RegBound = 0x21,
    /// Local attached memory is not present.
    LamNotPre = 0x22,
    /// A bad management packet.
    BadPkt = 0x30,
    /// More CQEs outstanding than the new CQ can hold.
    BadSize = 0x40,
    /// A multi-function device is required.
    MultiFuncReq = 0x50,
}

impl From<DmaError> for Status {
    fn from(error: DmaError) -> Self {
        match error {
            DmaError::Icm(_) | DmaError::Mtt(_) => Self::IcmError,
            DmaError::NoHca => Self::BadSysState,
            DmaError::Unmapped(_)
            | DmaError::ReadOnly(_)
            | DmaError::BusMaster
            | DmaError::Overflow => Self::InternalErr,
        }
    }
}

/// The opcodes the model answers, named as `include/linux/mlx4/cmd.h` does.
#[allow(non_camel_case_types, missing_docs, clippy::upper_case_acronyms)]
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    num_enum::TryFromPrimitive,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(ascii_case_insensitive)]
#[repr(u16)]
pub enum Opcode {
    QUERY_DEV_CAP = 0x003,
    QUERY_FW = 0x004,
    QUERY_ADAPTER = 0x006,
    INIT_HCA = 0x007,
    CLOSE_HCA = 0x008,
    INIT_PORT = 0x009,
    CLOSE_PORT = 0x00a,
    QUERY_HCA = 0x00b,
    SET_PORT = 0x00c,
    SW2HW_MPT = 0x00d,
    QUERY_MPT = 0x00e,
    HW2SW_MPT = 0x00f,
    MAP_EQ = 0x012,
    SW2HW_EQ = 0x013,
    HW2SW_EQ = 0x014,
    SW2HW_CQ = 0x016,
    HW2SW_CQ = 0x017,
    QUERY_CQ = 0x018,
    RST2INIT_QP = 0x019,
    INIT2RTR_QP = 0x01a,
    RTR2RTS_QP = 0x01b,
    RTS2RTS_QP = 0x01c,
    SQERR2RTS_QP = 0x01d,
    #[strum(serialize = "2ERR_QP")]
    _2ERR_QP = 0x01e,
    RTS2SQD_QP = 0x01f,
    SQD2RTS_QP = 0x020,
    #[strum(serialize = "2RST_QP")]
    _2RST_QP = 0x021,
    QUERY_QP = 0x022,
    CONF_SPECIAL_QP = 0x023,
    MAD_IFC = 0x024,
    READ_MCG = 0x025,
    WRITE_MCG = 0x026,
    MGID_HASH = 0x027,
    MODIFY_CQ = 0x02c,
    INIT2INIT_QP = 0x02d,
    SYNC_TPT = 0x02f,
    DIAG_RPRT = 0x030,
    NOP = 0x031,
    MOD_STAT_CFG = 0x034,
    SW2HW_SRQ = 0x035,
    HW2SW_SRQ = 0x036,
    QUERY_SRQ = 0x037,
    SQD2SQD_QP = 0x038,
    ARM_SRQ = 0x040,
    QUERY_PORT = 0x043,
    SET_NODE = 0x05a,
    RUN_FW = 0xff6,
    UNMAP_ICM = 0xff9,
    MAP_ICM = 0xffa,
    UNMAP_ICM_AUX = 0xffb,
    MAP_ICM_AUX = 0xffc,
    SET_ICM_SIZE = 0xffd,
    UNMAP_FA = 0xffe,
    MAP_FA = 0xfff,
}

impl Opcode {
    /// Its name without the MLX4_CMD_ prefix.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the phases in which it may be given.
    pub(super) fn phases(self) -> RangeInclusive<Phase> {
        use Opcode::*;
        match self {
            QUERY_FW => Phase::Reset..=Phase::Initialised,
            MAP_FA | RUN_FW => Phase::Reset..=Phase::Reset,
            UNMAP_FA => Phase::Reset..=Phase::Running,
            SET_ICM_SIZE | MAP_ICM_AUX | UNMAP_ICM_AUX | INIT_HCA => {
                Phase::Running..=Phase::Running
            }
            MOD_STAT_CFG | QUERY_DEV_CAP | QUERY_PORT | MAP_ICM | UNMAP_ICM | NOP => {
                Phase::Running..=Phase::Initialised
            }
            _ => Phase::Initialised..=Phase::Initialised,
        }
    }
}

/// The number of the status a person means by `text`: CMD_STAT_* in snake case.
pub fn parse_status(text: &str) -> Result<u8, String> {
    let status = text.to_lowercase().parse::<Status>();
    let status = status.map_err(|_| format!("no such status: {text}"))?;
    Ok(status as u8)
}

/// The name of an opcode, or its number where the model has no name for it.
pub fn opcode_name(number: u16) -> String {
    match Opcode::try_from(number) {
        Ok(opcode) => opcode.name().to_string(),
        Err(_) => format!("{number:#05x}"),
    }
}

/// The opcode a person means by `text`: the driver's name, with or without MLX4_CMD_, or a number.
pub fn parse_opcode(text: &str) -> Result<u16, String> {
    let name = text.strip_prefix("MLX4_CMD_").unwrap_or(text);
    if let Ok(opcode) = name.parse::<Opcode>() {
        return Ok(opcode as u16);
    }
    opcode_number(name)
        .filter(|number| *number <= 0xfff)
        .ok_or_else(|| format!("no such command: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_go_by_name_or_number() {
        assert_eq!(parse_opcode("MLX4_CMD_2RST_QP"), Ok(0x21));
        assert_eq!(parse_opcode("rst2init_qp"), Ok(0x19));
        assert_eq!(parse_opcode("0xff9"), Ok(0xff9));
        assert_eq!(parse_opcode("49"), Ok(0x31));
        assert!(parse_opcode("0x1000").is_err());
        assert!(parse_opcode("MAKE_COFFEE").is_err());
        assert_eq!(opcode_name(0x21), "2RST_QP");
        assert_eq!(opcode_name(0x61), "0x061");
    }
}
