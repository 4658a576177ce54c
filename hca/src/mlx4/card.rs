// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The parts of a ConnectX-3.

use crate::mlx4::command::Command;
use crate::mlx4::cq::Cqs;
use crate::mlx4::eq::Events;
use crate::mlx4::firmware::Firmware;
use crate::mlx4::hcr::Hcr;
use crate::mlx4::icm::{Buffer, Layout, Object};
use crate::mlx4::mcg::Mcgs;
use crate::mlx4::mpt::Keys;
use crate::mlx4::qp::{Specials, XRC_QPN_BIT};
use crate::mlx4::srq::Srqs;
use crate::mlx4::uar::Uar;
use std::collections::BTreeMap;
use std::ops::Range;

/// A ConnectX-3.
pub type Hca = crate::engine::hca::Hca<ConnectX3>;

/// The part that is a ConnectX-3's own.
#[derive(Default)]
pub struct ConnectX3 {
    /// The command register.
    pub hcr: Hcr,
    /// Doorbell pages.
    pub uar: Uar,
    /// Event queues and interrupts.
    pub events: Events,
    /// Completion queues.
    pub cqs: Cqs,
    /// Shared receive queues.
    pub srqs: Srqs,
    /// The QPs that are QP0 and QP1.
    pub specials: Specials,
    /// Memory keys.
    pub keys: Keys,
    /// Multicast groups.
    pub mcgs: Mcgs,
    /// The state of firmware.
    pub firmware: Firmware,
    /// Commands that wait for their latency.
    pub commands: BTreeMap<u64, Command>,
}

/// A QP of one; the number of an XRC target has [`XRC_QPN_BIT`].
pub type Qp = crate::engine::hca::Qp<ConnectX3>;

impl Hca {
    /// Every object with a context in ICM.
    pub fn objects(&self) -> impl Iterator<Item = (Object, u32)> + '_ {
        let of = |object| move |number| (object, number);
        let qps = self.qps.iter().map(|qp| qp.qpn & !XRC_QPN_BIT);
        (qps.map(of(Object::Qp)))
            .chain(self.card.srqs.numbers().map(of(Object::Srq)))
            .chain(self.card.cqs.numbers().map(of(Object::Cq)))
            .chain(self.card.events.numbers().map(of(Object::Eq)))
    }

    /// The ICM addresses of the MTTs of every queue.
    pub fn queue_mtts<'a>(
        &'a self,
        layout: &'a Layout,
    ) -> impl Iterator<Item = (Object, u32, Range<u64>)> + 'a {
        let of = move |object| {
            move |(number, (buffer, bytes)): (u32, (Buffer, u64))| {
                (object, number, buffer.mtts(layout, bytes))
            }
        };
        let qps = self.qps.iter().map(|qp| (qp.qpn, qp.queues.extent()));
        (qps.map(of(Object::Qp)))
            .chain(self.card.srqs.extents().map(of(Object::Srq)))
            .chain(self.card.cqs.extents().map(of(Object::Cq)))
            .chain(self.card.events.extents().map(of(Object::Eq)))
    }
}
