// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Commands about protection domains, XRC domains, UAR pages and counters: numbers, nothing more.

use crate::engine::qp::Context;
use crate::engine::violation::Violation;
use crate::mlx5::card::Hca;
use crate::mlx5::command::{Outcome, Status};
use crate::mlx5::identity::IDENTITY;
use crate::mlx5::ifc::{
    alloc_pd_out, alloc_q_counter_out, alloc_uar_out, alloc_xrcd_out, dealloc_pd_in,
    dealloc_uar_in, dealloc_xrcd_in, mkc, Bits,
};

/// The first UAR page behind the registers.
const FIRST_UAR: u32 = 4;
const PDS: u32 = 1 << 20;
const XRCDS: u32 = 1 << 16;

impl Hca {
    fn in_use<T>(&self, what: &str, number: u32) -> Result<T, Status> {
        self.refuse_command(
            Violation::ObjectInUse,
            Status::ResBusy,
            format_args!("{what} {number:#x} is freed in use"),
        )
    }

    /// ALLOC_UAR.
    pub fn alloc_uar(&mut self) -> Outcome {
        let mut uars = std::mem::take(&mut self.card.uars);
        let end = (IDENTITY.bars[0] >> self.card.uar_shift()) as u32;
        let free = self.card.number(FIRST_UAR, end, |uar| uars.contains(&uar));
        uars.extend(free);
        self.card.uars = uars;
        let mut out = vec![0; alloc_uar_out::SIZE];
        out.set_bits(alloc_uar_out::UAR, u64::from(free.ok_or(Status::NoRes)?));
        Ok(out)
    }

    /// DEALLOC_UAR.
    pub fn dealloc_uar(&mut self, input: &[u8]) -> Outcome {
        let uar = input.bits32(dealloc_uar_in::UAR);
        let by_qp =
            (self.qps.iter()).any(|qp| qp.context.uar_page() == uar && !qp.context.has_no_sq());
        if by_qp
            || (self.card.cqs.queues.values()).any(|cq| cq.uar == uar)
            || (self.card.events.queues.values()).any(|eq| eq.uar == uar)
        {
            return self.in_use("UAR page", uar);
        }
        match self.card.uars.remove(&uar) {
            true => Ok(Vec::new()),
            false => Err(Status::Ix),
        }
    }

    /// ALLOC_PD.
    pub fn alloc_pd(&mut self) -> Outcome {
        let mut pds = std::mem::take(&mut self.card.pds);
        let free = self.card.number(1, PDS, |pd| pds.contains(&pd));
        pds.extend(free);
        self.card.pds = pds;
        let mut out = vec![0; alloc_pd_out::SIZE];
        out.set_bits(alloc_pd_out::PD, u64::from(free.ok_or(Status::NoRes)?));
        Ok(out)
    }

    /// DEALLOC_PD.
    pub fn dealloc_pd(&mut self, input: &[u8]) -> Outcome {
        let pd = input.bits32(dealloc_pd_in::PD);
        let card = &self.card;
        let used = self.qps.iter().any(|qp| qp.context.pd() == pd)
            || card.srqs.queues.values().any(|srq| srq.pd == pd)
            || (card.mkeys.0.values())
                .any(|key| !key.context.flag(mkc::FREE) && key.context.bits32(mkc::PD) == pd);
        if used {
            return self.in_use("PD", pd);
        }
        match self.card.pds.remove(&pd) {
            true => Ok(Vec::new()),
            false => Err(Status::Ix),
        }
    }

    /// ALLOC_XRCD.
    pub fn alloc_xrcd(&mut self) -> Outcome {
        let mut xrcds = std::mem::take(&mut self.card.xrcds);
        let free = self.card.number(1, XRCDS, |xrcd| xrcds.contains(&xrcd));
        xrcds.extend(free);
        self.card.xrcds = xrcds;
        let mut out = vec![0; alloc_xrcd_out::SIZE];
        out.set_bits(alloc_xrcd_out::XRCD, u64::from(free.ok_or(Status::NoRes)?));
        Ok(out)
    }

    /// DEALLOC_XRCD.
    pub fn dealloc_xrcd(&mut self, input: &[u8]) -> Outcome {
        let xrcd = input.bits32(dealloc_xrcd_in::XRCD);
        let used = self
            .qps
            .iter()
            .any(|qp| qp.is_xrc_target() && qp.context.xrcd() == xrcd)
            || self.card.srqs.queues.values().any(|srq| srq.xrcd == xrcd);
        if used {
            return self.in_use("XRC domain", xrcd);
        }
        match self.card.xrcds.remove(&xrcd) {
            true => Ok(Vec::new()),
            false => Err(Status::Ix),
        }
    }

    /// ALLOC_Q_COUNTER: they count nothing.
    pub fn alloc_q_counter(&mut self) -> Outcome {
        let mut out = vec![0; alloc_q_counter_out::SIZE];
        out.set_bits(alloc_q_counter_out::COUNTER_SET_ID, 1);
        Ok(out)
    }

    /// An object names a protection domain that is there.
    pub fn check_pd(&self, pd: u32) -> Result<(), Status> {
        match self.card.pds.contains(&pd) {
            true => Ok(()),
            false => self.refuse_command(
                Violation::UnknownObject,
                Status::BadRes,
                format_args!("PD {pd:#x}"),
            ),
        }
    }
}
