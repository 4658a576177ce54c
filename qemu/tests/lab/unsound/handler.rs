// SPDX-License-Identifier: GPL-2.0
// E0478|E0495
//! An event handler that borrows data which a forgotten queue pair would outlive.

use crate::rdma::qp::EventHandler;
use kernel::sync::ArcBorrow;

pub(crate) struct Borrowing<'a>(&'a u32);

impl<'a> EventHandler for Borrowing<'a> {
    fn event(self: ArcBorrow<'_, Self>, _qpn: u32, event: u32) {
        let _ = *self.0 == event;
    }
}
