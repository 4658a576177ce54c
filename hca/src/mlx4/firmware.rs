// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The adapter's capabilities and state as firmware reports them (QUERY_*), and the commands that
//! initialise it.
//!
//! The capabilities are the least a ConnectX-3 driver runs XRC with: 32-byte CQEs and EQEs, A0
//! steering, no BlueFlame, no memory windows, no fast registration, two InfiniBand ports.

use crate::mlx4::command::MAILBOX_SIZE;
use crate::mlx4::icm::Loan;

/// Offset in BAR 0 of the catastrophic error buffer, which QUERY_FW announces.
pub const CATAS_BASE: u64 = 0x1f000;
/// Its size in dwords.
pub const CATAS_DWORDS: u32 = 16;
/// Offset in BAR 0 of the interrupt clear register, of no use with MSI-X.
pub(super) const CLR_INT_BASE: u64 = 0xf00d8;

/// Size of the outboxes of the QUERY commands.
pub(super) const OUT_SIZE: usize = 0x100;

/// QUERY_FW.
pub(super) mod query_fw {
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
pub(super) mod dev_cap {
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
pub(super) mod query_port {
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
pub(super) mod init_hca {
    pub const SIZE: usize = 0x200;
    pub const QPC_BASE: usize = 0x30;
    pub const SRQC_BASE: usize = 0x48;
    pub const CQC_BASE: usize = 0x50;
    pub const ALTC_BASE: usize = 0x60;
    pub const AUXC_BASE: usize = 0x70;
    pub const EQC_BASE: usize = 0x80;
    pub const RDMARC_BASE: usize = 0x90;
    pub const MC_BASE: usize = 0xc0;
    pub const LOG_MC_ENTRY_SZ: usize = 0xd3;
    pub const LOG_MC_TABLE_SZ: usize = 0xdb;
    pub const DMPT_BASE: usize = 0xf0;
    pub const LOG_MPT_SZ: usize = 0xfb;
    pub const MTT_BASE: usize = 0x100;
    pub const CMPT_BASE: usize = 0x108;

    /// The low bits of a table's base are log2 of its entries.
    pub const LOG_MASK: u64 = 0x1f;
}

/// Sizes of the entries of tables in ICM, as QUERY_DEV_CAP reports them.
pub(super) mod entry_size {
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
pub(super) const SET_PORT_IB: u8 = 0;
pub(super) const SET_PORT_CAPABILITY_MASK: usize = 0x04;

/// MOD_STAT_CFG with modifier 2: the physical port's GUID.
pub(super) const MOD_STAT_CFG_QUERY: u8 = 2;
pub(super) const MOD_STAT_CFG_GUID_H: usize = 0x14;
pub(super) const MOD_STAT_CFG_GUID_L: usize = 0x1c;

const QUERY_ADAPTER_VSD: usize = 0x20;
pub(super) const QUERY_ADAPTER_BOARD_ID: usize = QUERY_ADAPTER_VSD + 0xd0;
/// A board ID that names the model; its dwords are byte-swapped.
pub(super) const BOARD_ID: &[u8; 16] = b"VIRTUAL_MLX4_MDL";

/// QUERY_HCA: frequency of the internal clock in MHz.
pub(super) const QUERY_HCA_CORE_CLOCK: usize = 0x0c;
pub(super) const CORE_CLOCK_MHZ: u32 = 427;

/// DIAG_RPRT: all counters there are.
pub(super) const DIAG_RPRT_SIZE: usize = 0x400;

/// Pages of auxiliary ICM that SET_ICM_SIZE asks for.
pub(super) const ICM_AUX_PAGES: u64 = 32;
/// Entries of one MAP_ICM mailbox.
pub(super) const MAP_ICM_ENTRY_SIZE: usize = 16;
pub(super) const MAX_MAP_ICM_ENTRIES: u32 = (MAILBOX_SIZE / MAP_ICM_ENTRY_SIZE) as u32;

/// The state of firmware until the next reset.
#[derive(Default)]
pub struct Firmware {
    /// RAM lent to firmware itself (MAP_FA).
    pub(super) area: Loan,
    /// RUN_FW was executed.
    pub(super) running: bool,
    /// SET_ICM_SIZE was executed.
    pub(super) icm_sized: bool,
    /// RAM lent to firmware to keep track of ICM (MAP_ICM_AUX).
    pub(super) aux: Loan,
    /// The INIT_HCA mailbox, which QUERY_HCA returns.
    pub(super) init_hca: Option<Box<[u8; init_hca::SIZE]>>,
    /// The node description that SET_NODE set.
    pub node_description: Option<[u8; 64]>,
}

#[cfg(test)]
mod tests {
    use crate::engine::bytes::Fields;
    use crate::engine::violation::Violation;
    use crate::mlx4::command::Outcome;
    use crate::mlx4::command::Output;
    use crate::mlx4::command::Status;
    use crate::mlx4::testing::{Bench, QpSetup, ICM_GUEST, LENT};

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
    fn a_page_is_lent_once() {
        const FREE: u64 = 4 << 32;
        let mut bench = Bench::new();
        let pages = bench.hca.dma.icm.pages();
        // Pages of the firmware, of auxiliary ICM and of contexts; one page twice at once; ICM that
        // is mapped, and twice at once.
        for chunks in [
            &[(FREE, LENT[0] + 0xf000, 0)][..],
            &[(FREE, LENT[1], 0)],
            &[(FREE, LENT[2] + 0x5000, 0)],
            &[(FREE, 0x4000, 1), (FREE + 0x2000, 0x5000, 0)],
            &[(1 << 32, 0x4000, 0)],
            &[(FREE, 0x4000, 1), (FREE + 0x1000, 0x9000, 0)],
        ] {
            assert_eq!(bench.lend(0xffa, chunks), Err(Status::IcmError));
            assert_eq!(bench.violations(), [Violation::PageLentTwice]);
            assert_eq!(bench.hca.dma.icm.pages(), pages);
        }
        // A page that was taken back may be lent again.
        bench.run_immediate(0xff9, 1, 0, &[], 1 << 32).unwrap();
        assert_eq!(bench.lend(0xffa, &[(1 << 32, LENT[2], 0)]), Ok(()));
        // MAP_FA and MAP_ICM_AUX.
        let mut bench = Bench::reset();
        let area = [(0, LENT[0], 4)];
        bench.lend(0xfff, &area).unwrap();
        assert_eq!(bench.lend(0xfff, &area), Err(Status::IcmError));
        bench.run(0xff6, 0, 0, &[]).unwrap();
        bench.run(0xffd, 0, 0, &[]).unwrap();
        assert_eq!(bench.lend(0xffc, &area), Err(Status::IcmError));
        assert_eq!(bench.violations(), [Violation::PageLentTwice]);
    }

    #[test]
    fn tables_have_places_of_their_own() {
        // Bases of tables: QPC, SRQC, CQC, ALTC, AUXC, EQC, RDMARC, MCG, dMPT, MTT and cMPT.
        const BASES: [usize; 11] = [
            0x30, 0x48, 0x50, 0x60, 0x70, 0x80, 0x90, 0xc0, 0xf0, 0x100, 0x108,
        ];
        let mut bench = Bench::new();
        bench.run(0x008, 0, 0, &[]).unwrap();
        let good = Bench::init_hca();
        for one in BASES {
            for other in BASES.into_iter().filter(|other| *other != one) {
                let mut parameters = good;
                let low = good.get_be64(one) & 0x1f;
                parameters.set_be64(one, good.get_be64(other) & !0x1f | low);
                let refused = bench.run(0x007, 0, 0, &parameters);
                assert_eq!(refused, Err(Status::BadParam), "{one:#x} at {other:#x}");
                assert_eq!(bench.violations(), [Violation::TableOverlap]);
            }
        }
        // The last CQ's context reaches into the next table.
        let mut parameters = good;
        parameters.set_be64(0x60, good.get_be64(0x50) + (64 << 16) - 32 & !0x1f);
        assert_eq!(bench.run(0x007, 0, 0, &parameters), Err(Status::BadParam));
        // The end of the address space.
        parameters = good;
        parameters.set_be64(0x108, u64::MAX << 20);
        assert_eq!(bench.run(0x007, 0, 0, &parameters), Err(Status::BadParam));
        assert_eq!(bench.violations(), [Violation::TableOverlap]);
        assert_eq!(bench.run(0x007, 0, 0, &good), Ok(None));
    }

    #[test]
    fn commands_have_their_order() {
        // MAP_FA, RUN_FW, SET_ICM_SIZE, MAP_ICM_AUX, MAP_ICM, INIT_HCA, and an object.
        type Step = fn(&mut Bench) -> Result<(), Status>;
        let steps: [Step; 7] = [
            |bench| bench.lend(0xfff, &[(0, LENT[0], 4)]),
            |bench| bench.run(0xff6, 0, 0, &[]).map(|_| ()),
            |bench| bench.run(0xffd, 0, 0, &[]).map(|_| ()),
            |bench| bench.lend(0xffc, &[(0, LENT[1], 5)]),
            |bench| {
                let contexts = [(1 << 32, LENT[2], 20), (2 << 32, LENT[3], 20)];
                bench.lend(0xffa, &[&[(0, ICM_GUEST, 8)], &contexts[..]].concat())
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
            // The pages of the first numbers that are not reserved, too.
            bench.run_immediate(0xff9, 4, 0, &[], at).unwrap();
            let outcomes = [
                bench.create_eq(1, 2),
                bench.create_cq(0x80, 2),
                bench.create_srq(0x40, 2, 0, 0).map(|()| None),
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
    fn icm_that_translates_is_missed() {
        const DMPTS: u64 = 0x8_0000;
        let unmap = |bench: &mut Bench, at| {
            bench.run_immediate(0xff9, 1, 0, &[], at).unwrap();
            bench.violations()
        };
        // The entry of a region, and the entries of the next page.
        let mut bench = Bench::new();
        bench.region(0x10, 0x1_0000, 0x1000, 0x1f << 10);
        assert_eq!(unmap(&mut bench, DMPTS + 0x1000), []);
        assert_eq!(unmap(&mut bench, DMPTS), [Violation::IcmInUse]);
        // The MTTs of each kind of objects, all in one page.
        type Create = fn(&mut Bench);
        let creates: [Create; 4] = [
            |bench| _ = bench.region(0x10, 0x1_0000, 0x1000, 0x1f << 10),
            |bench| bench.eq(1, 4),
            |bench| _ = bench.create_srq(0x45, 2, 0, 0),
            |_| {},
        ];
        for (index, create) in creates.iter().enumerate() {
            let mut bench = Bench::new();
            create(&mut bench);
            assert_eq!(unmap(&mut bench, 0x1000), []);
            let missed: &[_] = match index {
                3 => &[],
                _ => &[Violation::IcmInUse],
            };
            assert_eq!(unmap(&mut bench, 0), missed);
        }
        // A QP whose MTTs are not in the page of its CQs', and those CQs.
        let mut bench = Bench::connected();
        bench.buffer(0x200);
        bench.qp_init(0x40, &QpSetup::new(0, 0x41));
        assert_eq!(unmap(&mut bench, 0x1000), [Violation::IcmInUse]);
        bench.modify(0x21, 0x40, &[]).unwrap();
        assert_eq!(unmap(&mut bench, 0x1000), []);
        assert_eq!(unmap(&mut bench, 0), [Violation::IcmInUse]);
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
    fn a_port_that_closes_under_a_connection_is_noticed() {
        let mut bench = Bench::connected();
        let close = |bench: &mut Bench, port| {
            bench.run(0x00a, port, 0, &[]).unwrap();
            bench.violations()
        };
        let open = |bench: &mut Bench, port| bench.run(0x009, port, 0, &[]).unwrap();
        let setup = QpSetup::new(0, 0x41);
        bench.qp_init(0x42, &setup);
        bench.qp_rts(0x43, &QpSetup::new(3, 0));
        assert_eq!(close(&mut bench, 1), []);
        open(&mut bench, 1);
        bench.qp_rtr(0x40, &setup);
        assert_eq!(close(&mut bench, 2), []);
        assert_eq!(close(&mut bench, 1), [Violation::PortInUse]);
        assert_eq!(close(&mut bench, 1), []);
        open(&mut bench, 1);
        // 2ERR
        bench.modify(0x1e, 0x40, &[]).unwrap();
        assert_eq!(close(&mut bench, 1), []);
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
