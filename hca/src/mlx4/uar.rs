// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The state of the doorbell pages.

use std::collections::BTreeSet;

use crate::mlx4::icm::Object;
use crate::mlx4::identity::IDENTITY;

/// log2 of the size of a doorbell page.
pub const UAR_PAGE_SHIFT: u32 = 12;
/// The first pages have the doorbells of EQs, and no others (`mlx4_get_num_reserved_uar()` of
/// `drivers/net/ethernet/mellanox/mlx4/mlx4.h`).
const EQ_PAGES: u32 = 128;

/// Whether QPs and CQs may be rung from a page: there is one, and it is not one of the EQs'.
pub fn page_is_for_queues(page: u32) -> bool {
    page >= EQ_PAGES && u64::from(page) < IDENTITY.bars[1] >> UAR_PAGE_SHIFT
}

/// State of the doorbells.
#[derive(Default)]
pub struct Uar {
    /// Objects that a reset destroyed while they were in use: their users ring them for a while,
    /// without effect.
    pub(super) orphans: BTreeSet<(Object, u32)>,
    /// The first half of a CQ doorbell, and its page.
    pub(super) cq_high: Option<(u32, u32)>,
}

impl Uar {
    /// A reset takes these objects.
    pub fn reset(&mut self, objects: impl Iterator<Item = (Object, u32)>) {
        self.cq_high = None;
        self.orphans.extend(objects);
    }
}
