// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about firmware, its memory and the ports.

use crate::engine::bytes::Fields;
use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::mlx4::card::Hca;
use crate::mlx4::command::{Command, Outcome, Output, Phase, Status, LOG_MAX_COMMANDS};
use crate::mlx4::cq::{LOG_MAX_CQES, LOG_MAX_CQS, LOG_RESERVED_CQS};
use crate::mlx4::eq::LOG_MAX_EQS;
use crate::mlx4::firmware::{
    dev_cap, entry_size, init_hca, query_fw, query_port, BOARD_ID, CATAS_BASE, CATAS_DWORDS,
    CLR_INT_BASE, CORE_CLOCK_MHZ, DIAG_RPRT_SIZE, ICM_AUX_PAGES, MAP_ICM_ENTRY_SIZE,
    MAX_MAP_ICM_ENTRIES, MOD_STAT_CFG_GUID_H, MOD_STAT_CFG_GUID_L, MOD_STAT_CFG_QUERY, OUT_SIZE,
    QUERY_ADAPTER_BOARD_ID, QUERY_HCA_CORE_CLOCK, SET_PORT_CAPABILITY_MASK, SET_PORT_IB,
};
use crate::mlx4::icm::{overlap, pages_to_bytes, Layout, Loan, Table, ICM_PAGE_SHIFT, LOG_CMPTS};
use crate::mlx4::identity::{IDENTITY, PORTS};
use crate::mlx4::mcg::{LOG_MAX_MCGS, LOG_QPS_PER_MCG};
use crate::mlx4::mpt::{LOG_MAX_MPTS, LOG_RESERVED_MPTS, MPT_SIZE};
use crate::mlx4::qp::{LOG_MAX_QPS, LOG_MAX_QP_WQES, LOG_MAX_READS, LOG_RESERVED_QPS};
use crate::mlx4::qpc::LOG_MAX_MESSAGE;
use crate::mlx4::srq::{LOG_MAX_SRQS, LOG_MAX_SRQ_WQES, LOG_RESERVED_SRQS};
use std::fmt::Arguments;
use std::ops::Range;

fn port_number(command: &Command) -> Result<u8, Status> {
    u8::try_from(command.in_modifier).map_err(|_| Status::BadIndex)
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
        log_reads: log_rdmarc,
        srq: table(SRQC_BASE, entry_size::SRQC),
        cq: table(CQC_BASE, entry_size::CQC),
        eq: table(EQC_BASE, entry_size::EQC),
        cmpt: table(CMPT_BASE, entry_size::CMPT),
    })
}

/// Two tables of `layout` that have an address in common; a table that ends beyond all addresses
/// has some in common with itself. INIT_HCA does not say how many MTTs there are.
fn overlapping(
    parameters: &[u8; init_hca::SIZE],
    layout: &Layout,
) -> Option<(&'static str, &'static str)> {
    use init_hca::*;
    let log = |at| (parameters.get_be64(at) & LOG_MASK) as u32;
    let mcgs = Table {
        base: parameters.get_be64(MC_BASE) & !LOG_MASK,
        log_share: u32::from(parameters.get_u8(LOG_MC_ENTRY_SZ) & 0x1f),
    };
    let log_mcgs = u32::from(parameters.get_u8(LOG_MC_TABLE_SZ) & 0x1f);
    let dmpt = Table {
        base: layout.dmpt_base,
        log_share: (MPT_SIZE as u64).ilog2(),
    };
    let mtt = Table {
        base: layout.mtt_base,
        log_share: entry_size::MTT.ilog2(),
    };
    let [qpc, auxc, altc, rdmarc] = layout.qp;
    let tables = [
        ("QPC", qpc, log(QPC_BASE)),
        ("AUXC", auxc, log(QPC_BASE)),
        ("ALTC", altc, log(QPC_BASE)),
        ("RDMARC", rdmarc, log(QPC_BASE)),
        ("SRQC", layout.srq, log(SRQC_BASE)),
        ("CQC", layout.cq, log(CQC_BASE)),
        ("EQC", layout.eq, log(EQC_BASE)),
        ("cMPT", layout.cmpt, LOG_CMPTS),
        ("dMPT", dmpt, layout.log_mpts),
        ("MTT", mtt, 0),
        ("MCG", mcgs, log_mcgs),
    ];
    let mut placed: Vec<(&str, Range<u64>)> = Vec::new();
    for (name, table, log_entries) in tables {
        let end = 1u64
            .checked_shl(table.log_share.saturating_add(log_entries))
            .and_then(|size| table.base.checked_add(size));
        let Some(end) = end else {
            return Some((name, name));
        };
        let range = table.base..end;
        let other = placed.iter().find(|(_, other)| overlap(other, &range));
        if let Some((other, _)) = other {
            return Some((other, name));
        }
        placed.push((name, range));
    }
    None
}

/// Pages that the driver lends to the device.
struct Chunk {
    icm: u64,
    guest: Range<u64>,
}

impl Chunk {
    /// The number of bytes.
    fn size(&self) -> u64 {
        self.guest.end.saturating_sub(self.guest.start)
    }

    /// The addresses that it is to have in ICM.
    fn icm(&self) -> Range<u64> {
        self.icm..self.icm.saturating_add(self.size())
    }
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
            (MAX_QP_SZ, LOG_MAX_QP_WQES),
            (RSVD_QP, LOG_RESERVED_QPS),
            (MAX_QP, LOG_MAX_QPS),
            (RSVD_SRQ, LOG_RESERVED_SRQS << 4),
            (MAX_SRQ, LOG_MAX_SRQS),
            (MAX_CQ_SZ, LOG_MAX_CQES),
            (RSVD_CQ, LOG_RESERVED_CQS),
            (MAX_CQ, LOG_MAX_CQS),
            (MAX_MPT, LOG_MAX_MPTS),
            (MAX_EQ, LOG_MAX_EQS),
            (RSVD_MTT, 4 << 4),
            (RSVD_MRW, LOG_RESERVED_MPTS),
            (MAX_REQ_QP, LOG_MAX_READS),
            (MAX_RES_QP, LOG_MAX_READS),
            (ACK_DELAY, 15),
            // MTU 4096, width 1x and 4x; 8 VLs.
            (MTU_WIDTH, 0x53),
            (VL_PORT, 8 << 4 | PORTS),
            (MAX_MSG_SZ, LOG_MAX_MESSAGE),
            (MAX_GID, 7),
            (MAX_PKEY, 7),
            // log2 of the size of BAR 2 in MiB.
            (UAR_SZ, (IDENTITY.bars[1] >> 20).ilog2() as u8),
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

    /// Returns the phase to which the device was brought up.
    pub fn phase(&self) -> Phase {
        match (self.card.firmware.running, &self.dma.icm.layout) {
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

    /// The mailbox of MAP_FA, MAP_ICM_AUX and MAP_ICM: {ICM address, guest address | log2 of
    /// pages}.
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
                let start = guest & !0xfff;
                let size = pages_to_bytes(1 << log_pages)?;
                let end = start.checked_add(size).ok_or(Status::BadParam)?;
                Ok(Chunk {
                    icm: entry.get_be64(0),
                    guest: start..end,
                })
            })
            .collect()
    }

    /// The same, none of which the device has already. `icm` says that they are mapped.
    fn fresh_chunks(&self, command: &Command, icm: bool) -> Result<Vec<Chunk>, Status> {
        let chunks = self.chunks(command)?;
        let firmware = &self.card.firmware;
        for (index, chunk) in chunks.iter().enumerate() {
            let before = chunks.get(..index).unwrap_or_default();
            let lent = [&firmware.area, &firmware.aux]
                .iter()
                .any(|loan| loan.includes(&chunk.guest))
                || self.dma.icm.includes(&chunk.guest)
                || (before.iter()).any(|other| overlap(&other.guest, &chunk.guest));
            let mapped = icm
                && (self.dma.icm.maps(&chunk.icm())
                    || (before.iter()).any(|other| overlap(&other.icm(), &chunk.icm())));
            if lent || mapped {
                return self.refuse_command(
                    Violation::PageLentTwice,
                    Status::IcmError,
                    format_args!("{:x?} at {:#x} of ICM", chunk.guest, chunk.icm),
                );
            }
        }
        Ok(chunks)
    }

    /// MAP_FA: pages for firmware itself, in as many commands as the driver likes.
    pub fn map_fa(&mut self, command: &Command) -> Outcome {
        for chunk in self.fresh_chunks(command, false)? {
            self.card.firmware.area.add(chunk.guest)?;
        }
        Ok(Output::None)
    }

    /// UNMAP_FA: firmware stops, and gives its pages back.
    pub fn unmap_fa(&mut self) -> Outcome {
        if self.card.firmware.aux.pages() != 0 {
            return self.too_early("UNMAP_FA before UNMAP_ICM_AUX");
        }
        self.card.firmware.area = Loan::default();
        self.card.firmware.running = false;
        Ok(Output::None)
    }

    /// RUN_FW.
    pub fn run_fw(&mut self) -> Outcome {
        if self.card.firmware.area.pages() < u64::from(query_fw::FW_PAGES) {
            return self.too_early("RUN_FW before MAP_FA of all that QUERY_FW asks for");
        }
        self.card.firmware.running = true;
        Ok(Output::None)
    }

    /// SET_ICM_SIZE: any size will do.
    pub fn set_icm_size(&mut self, command: &Command) -> Outcome {
        log::debug!("ICM of {:#x} bytes", command.in_param);
        self.card.firmware.icm_sized = true;
        Ok(Output::Immediate(ICM_AUX_PAGES))
    }

    /// MAP_ICM_AUX: as many pages as SET_ICM_SIZE asks for.
    pub fn map_icm_aux(&mut self, command: &Command) -> Outcome {
        if !self.card.firmware.icm_sized {
            return self.too_early("MAP_ICM_AUX before SET_ICM_SIZE");
        }
        for chunk in self.fresh_chunks(command, false)? {
            self.card.firmware.aux.add(chunk.guest)?;
        }
        Ok(Output::None)
    }

    /// UNMAP_ICM_AUX.
    pub fn unmap_icm_aux(&mut self) -> Outcome {
        if self.dma.icm.pages() != 0 {
            return self.too_early("UNMAP_ICM_AUX before UNMAP_ICM");
        }
        self.card.firmware.aux = Loan::default();
        Ok(Output::None)
    }

    /// MAP_ICM.
    pub fn map_icm(&mut self, command: &Command) -> Outcome {
        if self.card.firmware.aux.pages() < ICM_AUX_PAGES {
            return self.too_early("MAP_ICM before MAP_ICM_AUX");
        }
        for chunk in self.fresh_chunks(command, true)? {
            let size = chunk.size();
            self.dma.icm.map(chunk.icm, chunk.guest.start, size)?;
        }
        Ok(Output::None)
    }

    /// UNMAP_ICM: a number of pages from an ICM address.
    pub fn unmap_icm(&mut self, command: &Command) -> Outcome {
        let size = pages_to_bytes(u64::from(command.in_modifier))?;
        let taken = command.in_param..command.in_param.saturating_add(size);
        if let Some(layout) = &self.dma.icm.layout {
            let note = |what: Arguments<'_>| {
                self.dma
                    .violations
                    .note(Violation::IcmInUse, format_args!("{what} in {taken:#x?}"));
            };
            for (object, number) in self.objects() {
                let mut contexts = layout.contexts(object, number).flatten();
                if contexts.any(|address| taken.contains(&address)) {
                    note(format_args!("{object:?} {number:#x}"));
                }
            }
            for (object, number, mtts) in self.queue_mtts(layout) {
                if overlap(&mtts, &taken) {
                    note(format_args!("MTTs of {object:?} {number:#x}"));
                }
            }
            for (index, entry, mtts) in self.card.keys.in_icm(&self.dma, layout) {
                let translated = mtts.is_some_and(|mtts| overlap(&mtts, &taken));
                if translated || overlap(&entry, &taken) {
                    note(format_args!("key {index:#x}"));
                }
            }
        }
        self.dma.icm.unmap(command.in_param, size);
        Ok(Output::None)
    }

    /// INIT_HCA: where the tables are.
    pub fn init_hca(&mut self, command: &Command) -> Outcome {
        if self.card.firmware.aux.pages() < ICM_AUX_PAGES {
            return self.too_early("INIT_HCA before MAP_ICM_AUX");
        }
        let parameters: [u8; init_hca::SIZE] = self.mailbox(command)?;
        let layout = layout(&parameters)?;
        if let Some((one, other)) = overlapping(&parameters, &layout) {
            return self.refuse_command(
                Violation::TableOverlap,
                Status::BadParam,
                format_args!("{one} and {other}"),
            );
        }
        self.dma.icm.layout = Some(layout);
        self.card.firmware.init_hca = Some(Box::new(parameters));
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
        self.card.firmware.init_hca = None;
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

    /// CLOSE_PORT. A driver that is unloaded closes all ports, whether it has initialised them or
    /// not. The device does not mind connections (`mlx4_en` closes an Ethernet port first and ends
    /// its QPs then), but they lose all that they have under way.
    pub fn close_port(&mut self, command: &Command) -> Outcome {
        let number = port_number(command)?;
        let initialised = self.port(number).ok_or(Status::BadIndex)?.initialised;
        let user = self.qps.iter().find(|qp| {
            qp.service.connected() && qp.can_receive() && qp.context.path().port == number
        });
        if let Some(qp) = user.filter(|_| initialised) {
            self.dma.violations.note(
                Violation::PortInUse,
                format_args!("port {number} of QP {:#x}", qp.qpn),
            );
        }
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
        let init_hca = self.card.firmware.init_hca.as_ref();
        let mut out = init_hca.ok_or(Status::BadSysState)?.to_vec();
        out.set_be32(QUERY_HCA_CORE_CLOCK, CORE_CLOCK_MHZ);
        Ok(Output::Mailbox(out))
    }

    /// SET_NODE: the node's description.
    pub fn set_node(&mut self, command: &Command) -> Outcome {
        self.card.firmware.node_description = Some(self.mailbox(command)?);
        Ok(Output::None)
    }

    /// DIAG_RPRT: the model keeps none of these counters.
    pub fn diag_rprt(&self) -> Outcome {
        Ok(Output::Mailbox(vec![0; DIAG_RPRT_SIZE]))
    }
}
