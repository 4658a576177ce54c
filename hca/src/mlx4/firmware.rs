// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The adapter's capabilities and state as firmware reports them (QUERY_*), and the commands that
//! initialise it.
//!
//! The capabilities are the least a ConnectX-3 driver runs XRC with: 32-byte CQEs and EQEs, A0
//! steering, no BlueFlame, no memory windows, no fast registration, two InfiniBand ports.

use crate::engine::bytes::Fields;
use crate::engine::hca::{Hca, PORTS};
use crate::engine::pci::BAR2_SIZE;
use crate::engine::violation::Violation;
use crate::mlx4::command::{Command, Outcome, Output, Status, LOG_MAX_COMMANDS};
use crate::mlx4::cq::{LOG_MAX_CQES, LOG_MAX_CQS};
use crate::mlx4::eq::LOG_MAX_EQS;
use crate::mlx4::icm::{pages_to_bytes, Layout, Table, ICM_PAGE_SHIFT};
use crate::mlx4::mcg::{LOG_MAX_MCGS, LOG_QPS_PER_MCG};
use crate::mlx4::mpt::{LOG_MAX_MPTS, MPT_SIZE};
use crate::mlx4::qp::{LOG_MAX_QPS, LOG_RESERVED_QPS};
use crate::mlx4::qpc::LOG_MAX_MESSAGE;
use crate::mlx4::srq::{LOG_MAX_SRQS, LOG_MAX_SRQ_WQES};

/// Offset in BAR 0 of the catastrophic error buffer, which QUERY_FW announces.
pub const CATAS_BASE: u64 = 0x1f000;
/// Its size in dwords.
pub const CATAS_DWORDS: u32 = 16;
/// Offset in BAR 0 of the interrupt clear register, of no use with MSI-X.
const CLR_INT_BASE: u64 = 0xf00d8;

/// Size of the outboxes of the QUERY commands.
const OUT_SIZE: usize = 0x100;

/// QUERY_FW.
mod query_fw {
    pub const SIZE: usize = 0x00;
    pub const VER: usize = 0x02;
    pub const CMD_IF_REV: usize = 0x0a;
    pub const MAX_CMD: usize = 0x0f;
    pub const CLR_INT_BASE: usize = 0x20;
    pub const ERR_START: usize = 0x30;
    pub const ERR_SIZE: usize = 0x38;

    /// Pages of RAM that firmware wants.
    pub const FW_PAGES: u16 = 16;
    /// 2.42.5000; the register has the last two the other way round.
    pub const FW_VERSION: [u16; 3] = [2, 5000, 42];
    /// MLX4_COMMAND_INTERFACE_MAX_REV.
    pub const CMD_IF_REV_NEW_PORT: u16 = 3;
}

/// QUERY_DEV_CAP.
mod dev_cap {
    pub const MAX_SRQ_SZ: usize = 0x10;
    pub const MAX_QP_SZ: usize = 0x11;
    pub const RSVD_QP: usize = 0x12;
    pub const MAX_QP: usize = 0x13;
    pub const RSVD_SRQ: usize = 0x14;
    pub const MAX_SRQ: usize = 0x15;
    pub const MAX_CQ_SZ: usize = 0x19;
    pub const RSVD_CQ: usize = 0x1a;
    pub const MAX_CQ: usize = 0x1b;
    pub const MAX_MPT: usize = 0x1d;
    pub const MAX_EQ: usize = 0x1f;
    pub const RSVD_MTT: usize = 0x20;
    pub const RSVD_MRW: usize = 0x22;
    pub const MAX_REQ_QP: usize = 0x29;
    pub const MAX_RES_QP: usize = 0x2b;
    pub const ACK_DELAY: usize = 0x35;
    pub const MTU_WIDTH: usize = 0x36;
    pub const VL_PORT: usize = 0x37;
    pub const MAX_MSG_SZ: usize = 0x38;
    pub const MAX_GID: usize = 0x3b;
    pub const MAX_PKEY: usize = 0x3f;
    pub const FLAGS: usize = 0x44;
    pub const UAR_SZ: usize = 0x49;
    pub const PAGE_SZ: usize = 0x4b;
    pub const MAX_SG_SQ: usize = 0x51;
    pub const MAX_DESC_SZ_SQ: usize = 0x52;
    pub const MAX_SG_RQ: usize = 0x55;
    pub const MAX_DESC_SZ_RQ: usize = 0x56;
    pub const MAX_QP_MCG: usize = 0x61;
    pub const MAX_MCG: usize = 0x63;
    pub const MAX_PD: usize = 0x65;
    pub const MAX_XRC: usize = 0x67;
    pub const RDMARC_ENTRY_SZ: usize = 0x80;
    pub const QPC_ENTRY_SZ: usize = 0x82;
    pub const AUX_ENTRY_SZ: usize = 0x84;
    pub const ALTC_ENTRY_SZ: usize = 0x86;
    pub const EQC_ENTRY_SZ: usize = 0x88;
    pub const CQC_ENTRY_SZ: usize = 0x8a;
    pub const SRQ_ENTRY_SZ: usize = 0x8c;
    pub const C_MPT_ENTRY_SZ: usize = 0x8e;
    pub const MTT_ENTRY_SZ: usize = 0x90;
    pub const D_MPT_ENTRY_SZ: usize = 0x92;
    pub const MAX_ICM_SZ: usize = 0xa0;

    // MLX4_DEV_CAP_FLAG_*.
    pub const FLAG_RC: u32 = 1 << 0;
    pub const FLAG_UC: u32 = 1 << 1;
    pub const FLAG_UD: u32 = 1 << 2;
    pub const FLAG_XRC: u32 = 1 << 3;
    pub const FLAG_SRQ: u32 = 1 << 6;
    pub const FLAG_APM: u32 = 1 << 17;
    pub const FLAG_ATOMIC: u32 = 1 << 18;
    pub const FLAG_UD_AV_PORT: u32 = 1 << 20;
    pub const FLAG_UD_MCAST: u32 = 1 << 21;
}

/// QUERY_PORT.
mod query_port {
    pub const SUPPORTED_TYPE: usize = 0x00;
    pub const MTU: usize = 0x01;
    pub const ETH_MTU: usize = 0x02;
    pub const WIDTH: usize = 0x06;
    pub const MAX_GID_PKEY: usize = 0x07;
    pub const MAX_MACVLAN: usize = 0x0a;
    pub const MAX_VL: usize = 0x0b;
    pub const MAC: usize = 0x10;

    pub const LINK_UP: u8 = 1 << 7;
    pub const TYPE_IB: u8 = 1 << 0;
}

/// INIT_HCA.
mod init_hca {
    pub const SIZE: usize = 0x200;
    pub const QPC_BASE: usize = 0x30;
    pub const SRQC_BASE: usize = 0x48;
    pub const CQC_BASE: usize = 0x50;
    pub const ALTC_BASE: usize = 0x60;
    pub const AUXC_BASE: usize = 0x70;
    pub const EQC_BASE: usize = 0x80;
    pub const RDMARC_BASE: usize = 0x90;
    pub const DMPT_BASE: usize = 0xf0;
    pub const LOG_MPT_SZ: usize = 0xfb;
    pub const MTT_BASE: usize = 0x100;
    pub const CMPT_BASE: usize = 0x108;

    /// The low bits of a table's base are log2 of its entries.
    pub const LOG_MASK: u64 = 0x1f;
}

/// Sizes of the entries of tables in ICM, as QUERY_DEV_CAP reports them.
mod entry_size {
    pub const RDMARC: u16 = 32;
    pub const QPC: u16 = 256;
    pub const AUXC: u16 = 64;
    pub const ALTC: u16 = 64;
    pub const EQC: u16 = 64;
    pub const CQC: u16 = 64;
    pub const SRQC: u16 = 32;
    pub const CMPT: u16 = 64;
    pub const MTT: u16 = 8;
}

/// SET_PORT for an InfiniBand port: its capabilities.
const SET_PORT_IB: u8 = 0;
const SET_PORT_CAPABILITY_MASK: usize = 0x04;

/// MOD_STAT_CFG with modifier 2: the physical port's GUID.
const MOD_STAT_CFG_QUERY: u8 = 2;
const MOD_STAT_CFG_GUID_H: usize = 0x14;
const MOD_STAT_CFG_GUID_L: usize = 0x1c;

const QUERY_ADAPTER_VSD: usize = 0x20;
const QUERY_ADAPTER_BOARD_ID: usize = QUERY_ADAPTER_VSD + 0xd0;
/// A board ID that names the model; its dwords are byte-swapped.
const BOARD_ID: &[u8; 16] = b"VIRTUAL_MLX4_MDL";

/// QUERY_HCA: frequency of the internal clock in MHz.
const QUERY_HCA_CORE_CLOCK: usize = 0x0c;
const CORE_CLOCK_MHZ: u32 = 427;

/// DIAG_RPRT: all counters there are.
const DIAG_RPRT_SIZE: usize = 0x400;

/// Pages of auxiliary ICM that SET_ICM_SIZE asks for.
const ICM_AUX_PAGES: u64 = 32;
/// Entries of one MAP_ICM mailbox.
const MAP_ICM_ENTRY_SIZE: usize = 16;
const MAX_MAP_ICM_ENTRIES: u32 = (crate::mlx4::command::MAILBOX_SIZE / MAP_ICM_ENTRY_SIZE) as u32;

/// How far the driver has brought the device up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From a reset to RUN_FW, and after UNMAP_FA.
    Reset,
    /// From RUN_FW, and after CLOSE_HCA.
    Running,
    /// From INIT_HCA to CLOSE_HCA.
    Initialised,
}

/// The state of firmware until the next reset.
#[derive(Default)]
pub struct Firmware {
    /// Pages of RAM lent to firmware itself (MAP_FA).
    pages: u64,
    /// RUN_FW was executed.
    running: bool,
    /// SET_ICM_SIZE was executed.
    icm_sized: bool,
    /// Pages lent to firmware to keep track of ICM (MAP_ICM_AUX).
    aux_pages: u64,
    /// The INIT_HCA mailbox, which QUERY_HCA returns.
    init_hca: Option<Box<[u8; init_hca::SIZE]>>,
    /// The node description that SET_NODE set.
    pub node_description: Option<[u8; 64]>,
}

/// Pages that the driver lends to the device.
struct Chunk {
    icm: u64,
    guest: u64,
    pages: u64,
}

fn layout(parameters: &[u8; init_hca::SIZE]) -> Result<Layout, Status> {
    use init_hca::*;
    let log_mpts = u32::from(parameters.get_u8(LOG_MPT_SZ) & 0x3f);
    if log_mpts > u32::from(LOG_MAX_MPTS) {
        return Err(Status::ExceedLim);
    }
    let table = |at: usize, entry: u16| Table {
        base: parameters.get_be64(at) & !LOG_MASK,
        log_share: entry.ilog2(),
    };
    let rdmarc = table(RDMARC_BASE, entry_size::RDMARC);
    let log_rdmarc = (parameters.get_be64(RDMARC_BASE) & LOG_MASK) as u32;
    Ok(Layout {
        dmpt_base: parameters.get_be64(DMPT_BASE),
        log_mpts,
        mtt_base: parameters.get_be64(MTT_BASE),
        qp: [
            table(QPC_BASE, entry_size::QPC),
            table(AUXC_BASE, entry_size::AUXC),
            table(ALTC_BASE, entry_size::ALTC),
            Table {
                log_share: rdmarc.log_share.saturating_add(log_rdmarc),
                ..rdmarc
            },
        ],
        srq: table(SRQC_BASE, entry_size::SRQC),
        cq: table(CQC_BASE, entry_size::CQC),
        eq: table(EQC_BASE, entry_size::EQC),
        cmpt: table(CMPT_BASE, entry_size::CMPT),
    })
}

impl Hca {
    /// QUERY_FW.
    pub fn query_fw(&self) -> Outcome {
        use query_fw::*;
        let mut out = vec![0; OUT_SIZE];
        out.set_be16(SIZE, FW_PAGES);
        for (part, at) in FW_VERSION.into_iter().zip((VER..).step_by(2)) {
            out.set_be16(at, part);
        }
        out.set_be16(CMD_IF_REV, CMD_IF_REV_NEW_PORT);
        out.set_u8(MAX_CMD, LOG_MAX_COMMANDS);
        out.set_be64(query_fw::CLR_INT_BASE, super::firmware::CLR_INT_BASE);
        out.set_be64(ERR_START, CATAS_BASE);
        out.set_be32(ERR_SIZE, CATAS_DWORDS);
        Ok(Output::Mailbox(out))
    }

    /// QUERY_DEV_CAP.
    pub fn query_dev_cap(&self) -> Outcome {
        use dev_cap::*;
        let mut out = vec![0; OUT_SIZE];
        for (at, value) in [
            (MAX_SRQ_SZ, LOG_MAX_SRQ_WQES),
            (MAX_QP_SZ, 14),
            (RSVD_QP, LOG_RESERVED_QPS),
            (MAX_QP, LOG_MAX_QPS),
            (RSVD_SRQ, 6 << 4),
            (MAX_SRQ, LOG_MAX_SRQS),
            (MAX_CQ_SZ, LOG_MAX_CQES),
            (RSVD_CQ, 7),
            (MAX_CQ, LOG_MAX_CQS),
            (MAX_MPT, LOG_MAX_MPTS),
            (MAX_EQ, LOG_MAX_EQS),
            (RSVD_MTT, 4 << 4),
            (RSVD_MRW, 4),
            (MAX_REQ_QP, 4),
            (MAX_RES_QP, 4),
            (ACK_DELAY, 15),
            // MTU 4096, width 1x and 4x; 8 VLs.
            (MTU_WIDTH, 0x53),
            (VL_PORT, 8 << 4 | PORTS),
            (MAX_MSG_SZ, LOG_MAX_MESSAGE),
            (MAX_GID, 7),
            (MAX_PKEY, 7),
            // log2 of the size of BAR 2 in MiB.
            (UAR_SZ, (BAR2_SIZE >> 20).ilog2() as u8),
            (PAGE_SZ, ICM_PAGE_SHIFT as u8),
            (MAX_SG_SQ, 32),
            (MAX_SG_RQ, 32),
            (MAX_QP_MCG, LOG_QPS_PER_MCG),
            (MAX_MCG, LOG_MAX_MCGS),
            (MAX_PD, 15),
            (MAX_XRC, 16),
        ] {
            out.set_u8(at, value);
        }
        for (at, value) in [
            (MAX_DESC_SZ_SQ, 1008),
            (MAX_DESC_SZ_RQ, 512),
            (RDMARC_ENTRY_SZ, entry_size::RDMARC),
            (QPC_ENTRY_SZ, entry_size::QPC),
            (AUX_ENTRY_SZ, entry_size::AUXC),
            (ALTC_ENTRY_SZ, entry_size::ALTC),
            (EQC_ENTRY_SZ, entry_size::EQC),
            (CQC_ENTRY_SZ, entry_size::CQC),
            (SRQ_ENTRY_SZ, entry_size::SRQC),
            (C_MPT_ENTRY_SZ, entry_size::CMPT),
            (MTT_ENTRY_SZ, entry_size::MTT),
            (D_MPT_ENTRY_SZ, MPT_SIZE as u16),
        ] {
            out.set_be16(at, value);
        }
        let flags = FLAG_RC
            | FLAG_UC
            | FLAG_UD
            | FLAG_XRC
            | FLAG_SRQ
            | FLAG_APM
            | FLAG_ATOMIC
            | FLAG_UD_AV_PORT
            | FLAG_UD_MCAST;
        out.set_be32(FLAGS, flags);
        out.set_be64(MAX_ICM_SZ, 1 << 42);
        Ok(Output::Mailbox(out))
    }

    /// QUERY_ADAPTER.
    pub fn query_adapter(&self) -> Outcome {
        let mut out = vec![0; OUT_SIZE];
        for (dword, at) in BOARD_ID
            .chunks_exact(4)
            .zip((QUERY_ADAPTER_BOARD_ID..).step_by(4))
        {
            out.set_be32(at, u32::from_le_bytes(dword.field(0)));
        }
        Ok(Output::Mailbox(out))
    }

    /// QUERY_PORT.
    pub fn query_port(&self, command: &Command) -> Outcome {
        use query_port::*;
        let number = command.in_modifier as u8;
        let port = self.port(number).ok_or(Status::BadIndex)?;
        let mut out = vec![0; OUT_SIZE];
        let link = if port.is_up() { LINK_UP } else { 0 };
        out.set_u8(SUPPORTED_TYPE, link | TYPE_IB);
        out.set_u8(MTU, 5);
        out.set_be16(ETH_MTU, 1500);
        out.set_u8(WIDTH, 3);
        out.set_u8(MAX_GID_PKEY, 3 << 4 | 3);
        out.set_u8(MAX_MACVLAN, 7 << 4 | 7);
        out.set_u8(MAX_VL, 8);
        out.set_be64(MAC, self.port_guid(number) & 0xffff_ffff_ffff);
        Ok(Output::Mailbox(out))
    }

    /// MOD_STAT_CFG: nothing to configure; modifier 2 asks for a port's GUID.
    pub fn mod_stat_cfg(&self, command: &Command) -> Outcome {
        if command.opmod != MOD_STAT_CFG_QUERY {
            return Ok(Output::None);
        }
        let guid = self.port_guid((command.in_modifier >> 8) as u8);
        let mut out = vec![0; OUT_SIZE];
        out.set_be32(MOD_STAT_CFG_GUID_H, (guid >> 32) as u32);
        out.set_be32(MOD_STAT_CFG_GUID_L, guid as u32);
        Ok(Output::Mailbox(out))
    }

    /// How far the device has been brought up.
    pub fn phase(&self) -> Phase {
        match (self.firmware.running, &self.dma.icm.layout) {
            (_, Some(_)) => Phase::Initialised,
            (true, None) => Phase::Running,
            (false, None) => Phase::Reset,
        }
    }

    /// Refuses a command for which another would have to come first.
    fn too_early(&self, what: &str) -> Outcome {
        self.refuse_command(
            Violation::CommandOrder,
            Status::BadSysState,
            format_args!("{what}"),
        )
    }

    /// The mailbox of MAP_FA, MAP_ICM_AUX and MAP_ICM: {ICM address, guest address | log2 of pages}.
    fn chunks(&self, command: &Command) -> Result<Vec<Chunk>, Status> {
        if command.in_modifier > MAX_MAP_ICM_ENTRIES {
            return Err(Status::BadParam);
        }
        let size = (command.in_modifier as usize).saturating_mul(MAP_ICM_ENTRY_SIZE);
        let mut entries = vec![0; size];
        self.dma.memory.read(command.in_param, &mut entries)?;
        entries
            .chunks_exact(MAP_ICM_ENTRY_SIZE)
            .map(|entry| {
                let guest = entry.get_be64(8);
                let log_pages = (guest & 0xfff) as u32;
                if log_pages > 20 {
                    return Err(Status::BadParam);
                }
                Ok(Chunk {
                    icm: entry.get_be64(0),
                    guest: guest & !0xfff,
                    pages: 1 << log_pages,
                })
            })
            .collect()
    }

    fn lent(&self, command: &Command) -> Result<u64, Status> {
        Ok(self.chunks(command)?.iter().map(|chunk| chunk.pages).sum())
    }

    /// MAP_FA: pages for firmware itself, in as many commands as the driver likes.
    pub fn map_fa(&mut self, command: &Command) -> Outcome {
        let pages = self.lent(command)?;
        self.firmware.pages = self.firmware.pages.saturating_add(pages);
        Ok(Output::None)
    }

    /// UNMAP_FA: firmware stops, and gives its pages back.
    pub fn unmap_fa(&mut self) -> Outcome {
        if self.firmware.aux_pages != 0 {
            return self.too_early("UNMAP_FA before UNMAP_ICM_AUX");
        }
        self.firmware.pages = 0;
        self.firmware.running = false;
        Ok(Output::None)
    }

    /// RUN_FW.
    pub fn run_fw(&mut self) -> Outcome {
        if self.firmware.pages < u64::from(query_fw::FW_PAGES) {
            return self.too_early("RUN_FW before MAP_FA of all that QUERY_FW asks for");
        }
        self.firmware.running = true;
        Ok(Output::None)
    }

    /// SET_ICM_SIZE: any size will do.
    pub fn set_icm_size(&mut self, command: &Command) -> Outcome {
        log::debug!("ICM of {:#x} bytes", command.in_param);
        self.firmware.icm_sized = true;
        Ok(Output::Immediate(ICM_AUX_PAGES))
    }

    /// MAP_ICM_AUX: as many pages as SET_ICM_SIZE asks for.
    pub fn map_icm_aux(&mut self, command: &Command) -> Outcome {
        if !self.firmware.icm_sized {
            return self.too_early("MAP_ICM_AUX before SET_ICM_SIZE");
        }
        let pages = self.lent(command)?;
        self.firmware.aux_pages = self.firmware.aux_pages.saturating_add(pages);
        Ok(Output::None)
    }

    /// UNMAP_ICM_AUX.
    pub fn unmap_icm_aux(&mut self) -> Outcome {
        if self.dma.icm.pages() != 0 {
            return self.too_early("UNMAP_ICM_AUX before UNMAP_ICM");
        }
        self.firmware.aux_pages = 0;
        Ok(Output::None)
    }

    /// MAP_ICM.
    pub fn map_icm(&mut self, command: &Command) -> Outcome {
        if self.firmware.aux_pages < ICM_AUX_PAGES {
            return self.too_early("MAP_ICM before MAP_ICM_AUX");
        }
        for chunk in self.chunks(command)? {
            let size = pages_to_bytes(chunk.pages)?;
            self.dma.icm.map(chunk.icm, chunk.guest, size)?;
        }
        Ok(Output::None)
    }

    /// UNMAP_ICM: a number of pages from an ICM address.
    pub fn unmap_icm(&mut self, command: &Command) -> Outcome {
        let size = pages_to_bytes(u64::from(command.in_modifier))?;
        let taken = command.in_param..command.in_param.saturating_add(size);
        if let Some(layout) = &self.dma.icm.layout {
            for (object, number) in self.objects() {
                let mut contexts = layout.contexts(object, number).flatten();
                if contexts.any(|address| taken.contains(&address)) {
                    self.dma.violations.note(
                        Violation::IcmInUse,
                        format_args!("{object:?} {number:#x} in {taken:#x?}"),
                    );
                }
            }
        }
        self.dma.icm.unmap(command.in_param, size);
        Ok(Output::None)
    }

    /// INIT_HCA: where the tables are.
    pub fn init_hca(&mut self, command: &Command) -> Outcome {
        if self.firmware.aux_pages < ICM_AUX_PAGES {
            return self.too_early("INIT_HCA before MAP_ICM_AUX");
        }
        let parameters: [u8; init_hca::SIZE] = self.mailbox(command)?;
        self.dma.icm.layout = Some(layout(&parameters)?);
        self.firmware.init_hca = Some(Box::new(parameters));
        Ok(Output::None)
    }

    /// CLOSE_HCA.
    pub fn close_hca(&mut self) -> Outcome {
        if let Some((object, number)) = self.objects().next() {
            return self.refuse_command(
                Violation::ObjectInUse,
                Status::ResourceBusy,
                format_args!("CLOSE_HCA with {object:?} {number:#x}"),
            );
        }
        self.dma.icm.layout = None;
        self.firmware.init_hca = None;
        Ok(Output::None)
    }

    /// INIT_PORT: the port joins the subnet.
    pub fn init_port(&mut self, command: &Command) -> Outcome {
        let number = port_number(command)?;
        if self.port(number).ok_or(Status::BadIndex)?.initialised {
            return self.refuse_command(
                Violation::PortOrder,
                Status::BadSysState,
                format_args!("port {number} is initialised"),
            );
        }
        self.change_port(number, |port| port.initialised = true);
        Ok(Output::None)
    }

    /// CLOSE_PORT. A driver that is unloaded closes all ports, whether it has initialised them or not.
    pub fn close_port(&mut self, command: &Command) -> Outcome {
        let number = port_number(command)?;
        self.port(number).ok_or(Status::BadIndex)?;
        self.change_port(number, |port| port.initialised = false);
        Ok(Output::None)
    }

    /// SET_PORT: of an InfiniBand port's settings, the capabilities.
    pub fn set_port_attributes(&mut self, command: &Command) -> Outcome {
        if command.opmod != SET_PORT_IB {
            return Err(Status::BadOp);
        }
        let number = port_number(command)?;
        let mailbox: [u8; 8] = self.mailbox(command)?;
        let port = self.port_mut(number).ok_or(Status::BadIndex)?;
        port.capability_mask = mailbox.get_be32(SET_PORT_CAPABILITY_MASK);
        Ok(Output::None)
    }

    /// QUERY_HCA: the parameters of INIT_HCA, and the clock.
    pub fn query_hca(&self) -> Outcome {
        let init_hca = self.firmware.init_hca.as_ref();
        let mut out = init_hca.ok_or(Status::BadSysState)?.to_vec();
        out.set_be32(QUERY_HCA_CORE_CLOCK, CORE_CLOCK_MHZ);
        Ok(Output::Mailbox(out))
    }

    /// SET_NODE: the node's description.
    pub fn set_node(&mut self, command: &Command) -> Outcome {
        self.firmware.node_description = Some(self.mailbox(command)?);
        Ok(Output::None)
    }

    /// DIAG_RPRT: the model keeps none of these counters.
    pub fn diag_rprt(&self) -> Outcome {
        Ok(Output::Mailbox(vec![0; DIAG_RPRT_SIZE]))
    }
}

fn port_number(command: &Command) -> Result<u8, Status> {
    u8::try_from(command.in_modifier).map_err(|_| Status::BadIndex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx4::testing::{Bench, QpSetup, HEAP};

    fn mailbox(outcome: Outcome) -> Vec<u8> {
        match outcome {
            Ok(Output::Mailbox(data)) => data,
            _ => Vec::new(),
        }
    }

    #[test]
    fn the_driver_accepts_the_firmware() {
        let bench = Bench::new();
        let out = mailbox(bench.hca.query_fw());
        // mlx4_QUERY_FW() swaps the last two parts.
        assert_eq!(out.get_be64(0), 16 << 48 | 2 << 32 | 5000 << 16 | 42);
        assert_eq!(out.get_be16(0x0a), 3);
        assert_eq!(out.get_be64(0x30), 0x1f000);
        let out = mailbox(bench.hca.query_dev_cap());
        assert_eq!(out.get_be32(0x44), 0x0036_004f);
        assert_eq!(out.get_u8(0x37), 0x82);
        assert_eq!(out.get_u8(0x49), 1);
    }

    #[test]
    fn a_port_without_cable_says_so() {
        let mut bench = Bench::new();
        let query =
            |bench: &Bench, port| mailbox(bench.hca.query_port(&Bench::command(0x43, port)));
        assert_eq!(query(&bench, 2)[0], 0x81);
        bench.hca.set_cable(2, false);
        assert_eq!(query(&bench, 2)[0], 0x01);
        assert!(bench.hca.query_port(&Bench::command(0x43, 3)).is_err());
    }

    #[test]
    fn icm_is_lent_by_mailbox() {
        let mut bench = Bench::new();
        let pages = bench.hca.dma.icm.pages();
        let chunks = [(3 << 32, 0x4000, 1), ((3 << 32) + 0x2000, 0x9000, 0)];
        assert_eq!(bench.lend(0xffa, &chunks), Ok(()));
        assert_eq!(bench.hca.dma.icm.pages(), pages + 3);
        assert_eq!(bench.hca.dma.icm.translate((3 << 32) + 0x1004), Ok(0x5004));
        // More entries than a mailbox holds, and a chunk larger than any.
        assert_eq!(bench.run(0xffa, 257, 0, &[]), Err(Status::BadParam));
        assert_eq!(bench.lend(0xffa, &[(0, 0x4000, 60)]), Err(Status::BadParam));
    }

    #[test]
    fn commands_have_their_order() {
        // MAP_FA, RUN_FW, SET_ICM_SIZE, MAP_ICM_AUX, MAP_ICM, INIT_HCA, and an object.
        type Step = fn(&mut Bench) -> Result<(), Status>;
        let steps: [Step; 7] = [
            |bench| bench.lend(0xfff, &[(0, HEAP, 4)]),
            |bench| bench.run(0xff6, 0, 0, &[]).map(|_| ()),
            |bench| bench.run(0xffd, 0, 0, &[]).map(|_| ()),
            |bench| bench.lend(0xffc, &[(0, HEAP, 5)]),
            |bench| {
                bench.lend(
                    0xffa,
                    &[(0, HEAP, 20), (1 << 32, HEAP, 20), (2 << 32, HEAP, 20)],
                )
            },
            |bench| bench.run(0x007, 0, 0, &Bench::init_hca()).map(|_| ()),
            |bench| bench.run(0x009, 1, 0, &[]).map(|_| ()),
        ];
        for left_out in 0..steps.len() - 1 {
            let mut bench = Bench::reset();
            for step in &steps[..left_out] {
                assert_eq!(step(&mut bench), Ok(()));
            }
            // Nothing that comes later works without it, except that MAP_ICM needs no objects.
            let refused = steps[left_out + 1..].iter().map(|step| step(&mut bench));
            let refused: Vec<_> = refused.filter(|result| result.is_err()).collect();
            let after_map_icm = left_out == 4;
            assert_eq!(refused.is_empty(), after_map_icm, "without step {left_out}");
            if !after_map_icm {
                assert!(refused
                    .iter()
                    .all(|result| *result == Err(Status::BadSysState)));
                assert_eq!(bench.violations(), [Violation::CommandOrder]);
            }
        }
    }

    #[test]
    fn pages_are_returned_in_reverse_order() {
        let mut bench = Bench::new();
        let early = Err(Status::BadSysState);
        // UNMAP_FA, UNMAP_ICM_AUX and INIT_HCA of a device that works.
        assert_eq!(bench.run(0xffe, 0, 0, &[]), early);
        assert_eq!(bench.run(0xffb, 0, 0, &[]), early);
        assert_eq!(bench.run(0x007, 0, 0, &Bench::init_hca()), early);
        assert_eq!(bench.run(0x008, 0, 0, &[]), Ok(None));
        assert_eq!(bench.run(0x008, 0, 0, &[]), early);
        assert_eq!(bench.run(0xffb, 0, 0, &[]), early);
        for icm in [0, 1 << 32, 2 << 32] {
            assert_eq!(bench.run_immediate(0xff9, 1 << 20, 0, &[], icm), Ok(None));
        }
        assert_eq!(bench.run(0xffe, 0, 0, &[]), early);
        assert_eq!(bench.run(0xffb, 0, 0, &[]), Ok(None));
        assert_eq!(bench.run(0xffe, 0, 0, &[]), Ok(None));
        assert_eq!(bench.run(0xff6, 0, 0, &[]), early);
        assert_eq!(bench.violations(), [Violation::CommandOrder]);
    }

    #[test]
    fn the_hca_closes_when_it_is_empty() {
        let mut bench = Bench::connected();
        assert_eq!(bench.run(0x008, 0, 0, &[]), Err(Status::ResourceBusy));
        assert_eq!(bench.violations(), [Violation::ObjectInUse]);
        let mut parameters = Bench::init_hca();
        parameters.set_u8(0xfb, 30);
        let mut bench = Bench::new();
        bench.run(0x008, 0, 0, &[]).unwrap();
        assert_eq!(bench.run(0x007, 0, 0, &parameters), Err(Status::ExceedLim));
    }

    #[test]
    fn objects_need_icm_for_all_that_is_kept_of_them() {
        const QPN: u32 = 0x1000;
        const CMPT: u64 = 2 << 32;
        let setup = QpSetup::new(0, 0x41);
        let qpn = u64::from(QPN);
        // Context, auxiliary and alternate one, RDMA READ resources, control MPT.
        for at in [
            (1 << 32) + qpn * 256,
            (1 << 32) + 0x4000_0000 + qpn * 64,
            (1 << 32) + 0x3000_0000 + qpn * 64,
            (1 << 32) + 0x6000_0000 + qpn * 512,
            CMPT + qpn * 64,
        ] {
            let mut bench = Bench::connected();
            bench.run_immediate(0xff9, 1, 0, &[], at).unwrap();
            assert_eq!(bench.create_qp(QPN, &setup), Err(Status::IcmError));
            assert_eq!(bench.violations(), [Violation::ContextWithoutIcm]);
            assert_eq!(bench.create_qp(QPN + 0x100, &setup), Ok(()));
        }
        // The contexts of SRQ, CQ and EQ, and their control MPTs.
        for at in [
            (1 << 32) + 0x1000_0000,
            (1 << 32) + 0x2000_0000,
            (1 << 32) + 0x5000_0000,
            CMPT + (1 << 30),
            CMPT + (2 << 30),
            CMPT + (3 << 30),
        ] {
            let mut bench = Bench::new();
            bench.run_immediate(0xff9, 1, 0, &[], at).unwrap();
            let outcomes = [
                bench.create_eq(1, 2),
                bench.create_cq(1, 2),
                bench.create_srq(1, 2, 0, 0).map(|()| None),
            ];
            assert!(outcomes.contains(&Err(Status::IcmError)));
            assert!(bench.violations().contains(&Violation::ContextWithoutIcm));
        }
    }

    #[test]
    fn icm_under_an_object_is_missed() {
        let mut bench = Bench::connected();
        bench.qp_init(0x41, &QpSetup::new(0, 0x40));
        bench
            .run_immediate(0xff9, 16, 0, &[], (1 << 32) + 0x10_0000)
            .unwrap();
        assert_eq!(bench.violations(), []);
        bench.run_immediate(0xff9, 16, 0, &[], 1 << 32).unwrap();
        assert_eq!(bench.violations(), [Violation::IcmInUse]);
    }

    #[test]
    fn a_port_is_up_from_init_to_close() {
        let mut bench = Bench::new();
        bench.eq(1, 4);
        let up = |bench: &Bench| bench.hca.port(2).unwrap().is_up();
        assert_eq!(bench.run(0x009, 2, 0, &[]), Err(Status::BadSysState));
        assert_eq!(bench.violations(), [Violation::PortOrder]);
        bench.run(0x00a, 2, 0, &[]).unwrap();
        assert!(!up(&bench));
        // A driver that is unloaded closes it again.
        bench.run(0x00a, 2, 0, &[]).unwrap();
        bench.run(0x009, 2, 0, &[]).unwrap();
        assert!(up(&bench));
        assert_eq!(bench.event_types(), [0x09, 0x09]);
        assert_eq!(bench.run(0x009, 3, 0, &[]), Err(Status::BadIndex));
    }

    #[test]
    fn a_ports_capabilities_are_set_by_the_driver() {
        let mut bench = Bench::new();
        let mut mailbox = [0; 8];
        mailbox.set_be32(4, 0x0251_0000);
        bench.run(0x00c, 2, 0, &mailbox).unwrap();
        assert_eq!(bench.hca.port(2).unwrap().capability_mask, 0x0251_0000);
        assert_ne!(bench.hca.port(1).unwrap().capability_mask, 0x0251_0000);
    }
}
