// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The parts of a ConnectX-6.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::mlx5::command::{Command, Phase};
use crate::mlx5::cq::Cqs;
use crate::mlx5::eq::Events;
use crate::mlx5::mkey::Mkeys;
use crate::mlx5::srq::Srqs;

/// A ConnectX-6.
pub type Hca = crate::engine::hca::Hca<ConnectX6>;

/// A QP of one.
pub type Qp = crate::engine::hca::Qp<ConnectX6>;

/// The part that is a ConnectX-6's own.
#[derive(Default)]
pub struct ConnectX6 {
    /// The address of the command queue.
    pub command_queue: u64,
    /// The interface of the function (MLX5_INITIAL_SEG_NIC_INTERFACE_*), as it was written.
    pub interface: u32,
    /// The phase to which the driver has brought the card up.
    pub phase: Phase,
    /// The interface step that the driver has chosen since ENABLE_HCA (SET_ISSI); without one it is
    /// 0.
    pub issi: Option<u16>,
    /// The driver has set general capabilities since then (SET_HCA_CAP).
    pub configured: bool,
    /// When the card was first looked at: its timers count from there.
    pub start: Option<Instant>,
    /// The first half of a CQ doorbell, and its page.
    pub cq_high: Option<(u32, u32)>,
    /// Event queues and interrupts.
    pub events: Events,
    /// Completion queues.
    pub cqs: Cqs,
    /// Shared receive queues.
    pub srqs: Srqs,
    /// Memory keys.
    pub mkeys: Mkeys,
    /// Protection domains.
    pub pds: BTreeSet<u32>,
    /// XRC domains.
    pub xrcds: BTreeSet<u32>,
    /// log2 of the size of a UAR page in units of 4 KiB, as the driver has set it (SET_HCA_CAP).
    pub log_uar_page: u32,
    /// UAR pages that were given out.
    pub uars: BTreeSet<u32>,
    /// QP0 and QP1.
    pub specials: [Option<u32>; 2],
    /// Members of multicast groups.
    pub groups: BTreeSet<([u8; 16], u32)>,
    /// The last number of objects: none comes twice before all have.
    pub last: u32,
    /// The node's description, if the driver has set one.
    pub node_description: Option<[u8; 64]>,
    /// Commands that wait for their latency.
    pub commands: BTreeMap<u64, Command>,
}

impl ConnectX6 {
    /// log2 of the size of a UAR page in bytes: the system's pages, where these are larger.
    pub fn uar_shift(&self) -> u32 {
        self.log_uar_page.saturating_add(12)
    }

    /// A number for an object, from `first`, that is not taken.
    pub fn number(&mut self, first: u32, limit: u32, taken: impl Fn(u32) -> bool) -> Option<u32> {
        let span = limit.checked_sub(first)?;
        (0..span)
            .map(|_| {
                self.last = self.last.wrapping_add(1);
                first.wrapping_add(self.last.checked_rem(span).unwrap_or(0))
            })
            .find(|number| !taken(*number))
    }
}
