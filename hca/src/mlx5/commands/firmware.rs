// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about firmware, its memory and its capabilities.

use crate::engine::bytes::Fields;
use crate::engine::management::OUI_MELLANOX;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Phase, Status};
use crate::mlx5::cq::LOG_MAX_ENTRIES;
use crate::mlx5::ifc::{
    atomic_caps, cmd_hca_cap, manage_pages_in, manage_pages_out, query_adapter_out,
    query_adapter_param_block, query_hca_cap_in, query_hca_cap_out, query_issi_out, query_pages_in,
    query_pages_out, query_special_contexts_out, set_hca_cap_in, set_issi_in, Bits, Field,
};
use crate::mlx5::memory::addresses;
use crate::mlx5::qpc::{LOG_MAX_MESSAGE, LOG_MAX_READS};
use crate::mlx5::queues::LOG_MAX_WQES;
use crate::mlx5::wqe::TERMINATOR_LKEY;

/// Interface steps that the card has, as a mask.
const ISSIS: u64 = 0b11;
/// Pages that firmware needs before ENABLE_HCA's successors, and for INIT_HCA.
const BOOT_PAGES: u64 = 16;
const INIT_PAGES: u64 = 32;
/// QUERY_PAGES: for boot, for initialization.
const PAGES_BOOT: u64 = 1;
const PAGES_INIT: u64 = 2;
/// MANAGE_PAGES: the driver cannot give, gives, takes.
const PAGES_CANNOT: u64 = 0;
const PAGES_GIVE: u64 = 1;
const PAGES_TAKE: u64 = 2;
/// A guest cannot make the model keep more.
const MAX_PAGES: usize = 1 << 20;
/// Board id.
const PSID: &[u8; 16] = b"VIRTUAL_MLX5_MDL";
/// UAR pages are of up to 64 KiB.
const MAX_LOG_UAR_PAGE: u32 = 4;
/// Keys that no region has.
const RESERVED_LKEY: u64 = 0x700;
const NULL_MKEY: u64 = 0x701;

/// MLX5_CAP_GENERAL and MLX5_CAP_ATOMIC.
const CAP_GENERAL: u64 = 0;
const CAP_ATOMIC: u64 = 3;

/// Capabilities; all others are 0.
const GENERAL: &[(Field, u64)] = &[
    (cmd_hca_cap::LOG_MAX_SRQ_SZ, 15),
    (cmd_hca_cap::LOG_MAX_QP_SZ, LOG_MAX_WQES as u64),
    (cmd_hca_cap::LOG_MAX_QP, 17),
    (cmd_hca_cap::LOG_MAX_SRQ, 16),
    (cmd_hca_cap::LOG_MAX_CQ_SZ, LOG_MAX_ENTRIES as u64),
    (cmd_hca_cap::CQ_RESIZE, 1),
    (cmd_hca_cap::LOG_MAX_CQ, 16),
    (cmd_hca_cap::LOG_MAX_MKEY, 20),
    (cmd_hca_cap::LOG_MAX_EQ, 6),
    (cmd_hca_cap::LOG_MAX_KLM_LIST_SIZE, 16),
    (cmd_hca_cap::LOG_MAX_RA_RES_QP, LOG_MAX_READS as u64),
    (cmd_hca_cap::LOG_MAX_RA_REQ_QP, LOG_MAX_READS as u64),
    (cmd_hca_cap::LOCAL_CA_ACK_DELAY, 15),
    // InfiniBand.
    (cmd_hca_cap::PORT_TYPE, 0),
    (cmd_hca_cap::NUM_PORTS, 1),
    (cmd_hca_cap::LOG_MAX_MSG, LOG_MAX_MESSAGE as u64),
    (cmd_hca_cap::LOG_PG_SZ, 12),
    (cmd_hca_cap::MAX_WQE_SZ_SQ, 1024),
    (cmd_hca_cap::MAX_WQE_SZ_RQ, 512),
    (cmd_hca_cap::LOG_MAX_PD, 20),
    (cmd_hca_cap::LOG_MAX_XRCD, 16),
    (cmd_hca_cap::LOG_MAX_MCG, 13),
    (cmd_hca_cap::MAX_QP_MCG, 240),
    (cmd_hca_cap::XRC, 1),
    (cmd_hca_cap::APM, 1),
    // QPs that send as QP1, of a P_Key each: mlx5_ib sends datagrams of all P_Keys over QP1's own
    // otherwise, with the first one.
    (cmd_hca_cap::SET_DETH_SQPN, 1),
    // Memory windows, and keys that peers invalidate.
    (cmd_hca_cap::IMAICL, 1),
    (cmd_hca_cap::ATOMIC, 1),
    (cmd_hca_cap::UAR_SZ, 5),
    (cmd_hca_cap::LOG_BF_REG_SIZE, 9),
    // 8 GIDs, 128 P_Keys.
    (cmd_hca_cap::GID_TABLE_SIZE, 0),
    (cmd_hca_cap::PKEY_TABLE_SIZE, 0),
    (cmd_hca_cap::IB_VIRT, 1),
    (cmd_hca_cap::BLOCK_LB_MC, 1),
    // Up to this version.
    (cmd_hca_cap::CQE_VERSION, 1),
    (cmd_hca_cap::QKV, 1),
    (cmd_hca_cap::PKV, 1),
];

/// Compare and swap, fetch and add, of 8 bytes. The requester writes the old value in the host's
/// byte order.
const ATOMIC: &[(Field, u64)] = &[
    (atomic_caps::ATOMIC_OPERATIONS, 3),
    (atomic_caps::ATOMIC_SIZE_QP, 8),
    (atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE, 1),
    (atomic_caps::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1, 1),
];

impl Hca {
    /// ENABLE_HCA, and other changes of the phase.
    pub fn enter(&mut self, from: Phase, to: Phase) -> Outcome {
        if self.card.phase != from {
            return self.refuse_command(
                Violation::CommandOrder,
                Status::BadSysState,
                format_args!("{to:?} after {:?}", self.card.phase),
            );
        }
        self.card.phase = to;
        Ok(Vec::new())
    }

    /// DISABLE_HCA. The driver uses its memory for other things afterwards, so firmware that still
    /// has pages would write to those.
    pub fn disable_hca(&mut self) -> Outcome {
        self.enter(Phase::Enabled, Phase::Reset)?;
        let pages = std::mem::take(&mut self.dma.icm.0).len();
        if pages != 0 {
            self.dma.violations.note(
                Violation::PagesLeft,
                format_args!("DISABLE_HCA with {pages} pages"),
            );
        }
        self.card.issi = None;
        self.card.configured = false;
        self.card.log_uar_page = 0;
        Ok(Vec::new())
    }

    /// INIT_HCA: the ports join the subnet.
    pub fn init_hca(&mut self) -> Outcome {
        if (self.dma.icm.0.len() as u64) < BOOT_PAGES.saturating_add(INIT_PAGES) {
            return self.refuse_command(
                Violation::CommandOrder,
                Status::BadSysState,
                format_args!("INIT_HCA before all pages"),
            );
        }
        self.enter(Phase::Enabled, Phase::Initialised)?;
        if self.card.issi.is_none() || !self.card.configured {
            self.dma.violations.note(
                Violation::InitOrder,
                format_args!(
                    "INIT_HCA with ISSI {:?}, capabilities set: {}",
                    self.card.issi, self.card.configured
                ),
            );
        }
        self.change_port(1, |port| port.initialised = true);
        Ok(Vec::new())
    }

    /// TEARDOWN_HCA.
    pub fn teardown_hca(&mut self) -> Outcome {
        let card = &self.card;
        for (kind, count) in [
            ("QPs", self.qps.iter().count()),
            ("SRQs", card.srqs.queues.len()),
            ("CQs", card.cqs.queues.len()),
            ("EQs", card.events.queues.len()),
            ("keys", card.mkeys.0.len()),
            ("PDs", card.pds.len()),
            ("XRC domains", card.xrcds.len()),
            ("UAR pages", card.uars.len()),
        ] {
            if count != 0 {
                self.dma.violations.note(
                    Violation::ObjectInUse,
                    format_args!("TEARDOWN_HCA with {count} {kind}"),
                );
            }
        }
        self.enter(Phase::Initialised, Phase::Enabled)?;
        self.change_port(1, |port| port.initialised = false);
        Ok(Vec::new())
    }

    /// QUERY_ISSI.
    pub fn query_issi(&self) -> Outcome {
        let mut out = vec![0; query_issi_out::SIZE];
        out.set_bits(query_issi_out::SUPPORTED_ISSI_DW0, ISSIS);
        out.set_bits(
            query_issi_out::CURRENT_ISSI,
            u64::from(self.card.issi.unwrap_or(0)),
        );
        Ok(out)
    }

    /// SET_ISSI.
    pub fn set_issi(&mut self, input: &[u8]) -> Outcome {
        let issi = input.bits(set_issi_in::CURRENT_ISSI);
        if issi > 63 || ISSIS >> issi & 1 == 0 {
            return Err(Status::BadParam);
        }
        self.card.issi = Some(issi as u16);
        Ok(Vec::new())
    }

    /// QUERY_PAGES: how many more firmware needs.
    pub fn query_pages(&self, input: &[u8]) -> Outcome {
        let given = self.dma.icm.0.len() as u64;
        let wanted = match input.bits(query_pages_in::OP_MOD) {
            PAGES_BOOT => BOOT_PAGES,
            PAGES_INIT => BOOT_PAGES.saturating_add(INIT_PAGES),
            _ => given,
        };
        let mut out = vec![0; query_pages_out::SIZE];
        out.set_bits(query_pages_out::NUM_PAGES, wanted.saturating_sub(given));
        Ok(out)
    }

    /// MANAGE_PAGES.
    pub fn manage_pages(&mut self, input: &[u8]) -> Outcome {
        let count = input.bits(manage_pages_in::INPUT_NUM_ENTRIES) as usize;
        match input.bits(manage_pages_in::OP_MOD) {
            PAGES_CANNOT => Ok(Vec::new()),
            PAGES_GIVE => {
                let given = addresses(input.get(manage_pages_in::SIZE..).unwrap_or_default());
                let known = self.dma.icm.0.len();
                if given.len() < count || known.saturating_add(count) > MAX_PAGES {
                    return Err(Status::BadParam);
                }
                let given = given.iter().take(count).copied();
                let mut all = self.dma.icm.0.clone();
                if let Some(page) = given.into_iter().find(|page| !all.insert(*page)) {
                    return self.refuse_command(
                        Violation::PageLentTwice,
                        Status::BadParam,
                        format_args!("page {page:#x}"),
                    );
                }
                self.dma.icm.0 = all;
                Ok(Vec::new())
            }
            PAGES_TAKE => {
                let needed = match self.card.phase {
                    Phase::Initialised => BOOT_PAGES.saturating_add(INIT_PAGES),
                    _ => 0,
                };
                let pages = &mut self.dma.icm.0;
                let spare = pages.len().saturating_sub(needed as usize);
                if count > spare && needed != 0 {
                    self.dma.violations.note(
                        Violation::IcmInUse,
                        format_args!("{count} pages are taken before TEARDOWN_HCA"),
                    );
                }
                let taken = (0..count.min(spare)).map_while(|_| pages.pop_first());
                let taken: Vec<u64> = taken.collect();
                let mut out = vec![0; manage_pages_out::SIZE];
                let field = manage_pages_out::OUTPUT_NUM_ENTRIES;
                out.set_bits(field, taken.len() as u64);
                for page in taken {
                    out.extend_from_slice(&page.to_be_bytes());
                }
                Ok(out)
            }
            _ => Err(Status::BadParam),
        }
    }

    /// QUERY_HCA_CAP: a group of capabilities; what is set now is the most there can be.
    pub fn query_hca_cap(&self, input: &[u8]) -> Outcome {
        let mut out = vec![0; query_hca_cap_out::SIZE];
        let capability = query_hca_cap_out::CAPABILITY;
        match input.bits(query_hca_cap_in::OP_MOD) >> 1 {
            CAP_GENERAL => {
                for (field, value) in GENERAL {
                    out.set_bits(capability.part(*field), *value);
                }
                let log = u64::from(self.card.log_uar_page);
                out.set_bits(capability.part(cmd_hca_cap::LOG_UAR_PAGE_SZ), log);
            }
            CAP_ATOMIC => {
                for (field, value) in ATOMIC {
                    out.set_bits(capability.part(*field), *value);
                }
            }
            _ => {}
        }
        Ok(out)
    }

    /// SET_HCA_CAP: the size of UAR pages; others of the general capabilities have one value only.
    pub fn set_hca_cap(&mut self, input: &[u8]) -> Outcome {
        if input.bits(set_hca_cap_in::OP_MOD) >> 1 == CAP_GENERAL {
            let log = set_hca_cap_in::CAPABILITY.part(cmd_hca_cap::LOG_UAR_PAGE_SZ);
            let log = input.bits32(log);
            if log > MAX_LOG_UAR_PAGE {
                return Err(Status::BadParam);
            }
            self.card.log_uar_page = log;
            self.card.configured = true;
        }
        Ok(Vec::new())
    }

    /// QUERY_ADAPTER.
    pub fn query_adapter(&self) -> Outcome {
        let mut out = vec![0; query_adapter_out::SIZE];
        let vendor =
            query_adapter_out::QUERY_ADAPTER_STRUCT.part(query_adapter_param_block::IEEE_VENDOR_ID);
        out.set_bits(vendor, OUI_MELLANOX.into());
        // The board id ends the answer.
        let at = query_adapter_out::SIZE.saturating_sub(PSID.len());
        out.set_field(at, PSID);
        Ok(out)
    }

    /// QUERY_SPECIAL_CONTEXTS: keys that are none.
    pub fn query_special_contexts(&self) -> Outcome {
        use query_special_contexts_out as special;
        let mut out = vec![0; special::SIZE];
        out.set_bits(special::RESD_LKEY, RESERVED_LKEY);
        out.set_bits(special::NULL_MKEY, NULL_MKEY);
        let terminator = u64::from(TERMINATOR_LKEY);
        out.set_bits(special::TERMINATE_SCATTER_LIST_MKEY, terminator);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_torn_down_without_objects() {
        let teardown = |change: fn(&mut Hca)| {
            let mut hca = Hca::new(0);
            hca.card.phase = Phase::Initialised;
            change(&mut hca);
            hca.teardown_hca().unwrap();
            hca.dma.violations.take()
        };
        assert_eq!(teardown(|_| {}), []);
        let left: [fn(&mut Hca); 3] = [
            |hca| _ = hca.card.pds.insert(1),
            |hca| _ = hca.card.xrcds.insert(1),
            |hca| _ = hca.card.uars.insert(4),
        ];
        for change in left {
            assert_eq!(teardown(change), [Violation::ObjectInUse]);
        }
    }

    #[test]
    fn the_card_is_initialised_with_its_pages() {
        let mut hca = Hca::new(0);
        hca.card.phase = Phase::Enabled;
        assert_eq!(hca.init_hca(), Err(Status::BadSysState));
        assert_eq!(hca.dma.violations.take(), [Violation::CommandOrder]);
        hca.dma.icm.0 = (0..BOOT_PAGES + INIT_PAGES).collect();
        hca.card.issi = Some(1);
        hca.card.configured = true;
        assert!(hca.init_hca().is_ok());
        assert_eq!(hca.dma.violations.take(), []);
    }

    #[test]
    fn the_card_is_initialised_after_its_interface_and_its_capabilities_are_chosen() {
        let set_issi = |hca: &mut Hca| {
            let mut input = vec![0; set_issi_in::SIZE];
            input.set_bits(set_issi_in::CURRENT_ISSI, 1);
            hca.set_issi(&input).unwrap();
        };
        let set_caps = |hca: &mut Hca| {
            hca.set_hca_cap(&[0; set_hca_cap_in::SIZE]).unwrap();
        };
        let init = |issi: bool, caps: bool| {
            let mut hca = Hca::new(0);
            hca.card.phase = Phase::Enabled;
            hca.dma.icm.0 = (0..BOOT_PAGES + INIT_PAGES).collect();
            if issi {
                set_issi(&mut hca);
            }
            if caps {
                set_caps(&mut hca);
            }
            hca.init_hca().unwrap();
            hca
        };
        let mut hca = init(true, true);
        assert_eq!(hca.dma.violations.take(), []);
        for (issi, caps) in [(false, false), (true, false), (false, true)] {
            let violations = init(issi, caps).dma.violations.take();
            assert_eq!(violations, [Violation::InitOrder]);
        }
        // After DISABLE_HCA the driver chooses anew.
        hca.teardown_hca().unwrap();
        hca.dma.icm.0.clear();
        hca.disable_hca().unwrap();
        hca.enter(Phase::Reset, Phase::Enabled).unwrap();
        hca.dma.icm.0 = (0..BOOT_PAGES + INIT_PAGES).collect();
        hca.init_hca().unwrap();
        assert_eq!(hca.dma.violations.take(), [Violation::InitOrder]);
    }

    #[test]
    fn the_card_is_disabled_without_pages() {
        let disable = |pages: u64| {
            let mut hca = Hca::new(0);
            hca.card.phase = Phase::Enabled;
            hca.dma.icm.0 = (0..pages).collect();
            hca.disable_hca().unwrap();
            // They are the driver's again.
            assert!(hca.dma.icm.0.is_empty());
            hca.dma.violations.take()
        };
        assert_eq!(disable(0), []);
        assert_eq!(disable(1), [Violation::PagesLeft]);
    }

    /// MANAGE_PAGES.
    fn manage(hca: &mut Hca, op_mod: u64, count: u64, pages: &[u64]) -> Result<u64, Status> {
        let mut input = vec![0; manage_pages_in::SIZE];
        input.set_bits(manage_pages_in::OP_MOD, op_mod);
        input.set_bits(manage_pages_in::INPUT_NUM_ENTRIES, count);
        for page in pages {
            input.extend_from_slice(&page.to_be_bytes());
        }
        let out = hca.manage_pages(&input)?;
        Ok(match op_mod {
            PAGES_TAKE => out.bits(manage_pages_out::OUTPUT_NUM_ENTRIES),
            _ => 0,
        })
    }

    #[test]
    fn a_page_is_lent_once() {
        let mut hca = Hca::new(0);
        let give =
            |hca: &mut Hca, pages: &[u64]| manage(hca, PAGES_GIVE, pages.len() as u64, pages);
        assert_eq!(give(&mut hca, &[0x1000, 0x2000]), Ok(0));
        for pages in [&[0x3000, 0x1000][..], &[0x3000, 0x3000]] {
            assert_eq!(give(&mut hca, pages), Err(Status::BadParam));
            assert_eq!(hca.dma.violations.take(), [Violation::PageLentTwice]);
            assert_eq!(hca.dma.icm.0.len(), 2);
        }
        assert_eq!(manage(&mut hca, PAGES_TAKE, 1, &[]), Ok(1));
        assert_eq!(give(&mut hca, &[0x1000]), Ok(0));
    }

    #[test]
    fn firmware_keeps_the_pages_that_it_needs() {
        const NEEDED: u64 = BOOT_PAGES + INIT_PAGES;
        let mut hca = Hca::new(0);
        hca.dma.icm.0 = (0..NEEDED + 2).collect();
        hca.card.phase = Phase::Initialised;
        let take = |hca: &mut Hca, count| {
            let taken = manage(hca, PAGES_TAKE, count, &[]);
            (taken, hca.dma.violations.take())
        };
        assert_eq!(take(&mut hca, 1), (Ok(1), vec![]));
        assert_eq!(take(&mut hca, 2), (Ok(1), vec![Violation::IcmInUse]));
        assert_eq!(take(&mut hca, 1), (Ok(0), vec![Violation::IcmInUse]));
        hca.card.phase = Phase::Enabled;
        assert_eq!(take(&mut hca, NEEDED), (Ok(NEEDED), vec![]));
    }
}
