// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The state of the doorbell pages.

use std::collections::BTreeSet;

use crate::mlx4::icm::Object;

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
