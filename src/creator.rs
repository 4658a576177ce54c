// SPDX-License-Identifier: GPL-2.0

//! The creator of a receive QP, by effective uid, and the user for whom the QP counts.
//!
//! The two differ in a user namespace that a user made: QPs of its ids count for that user.

use crate::bindings;

/// See the [module's documentation](self). Uids are those of the initial user namespace.
#[derive(Clone, Copy)]
pub(crate) struct Creator {
    uid: u32,
    accounting_uid: u32,
}

#[allow(dead_code)] // Until rights are asked by it.
impl Creator {
    /// Returns the calling process as a creator.
    pub(crate) fn current() -> Self {
        // SAFETY: The functions read the credentials of the current task, and must be called in
        // process context, as QPs are created and destroyed.
        unsafe {
            Self {
                uid: bindings::ib_xrc_rcv_effective_uid(),
                accounting_uid: bindings::ib_xrc_rcv_accounting_uid(),
            }
        }
    }

    /// Returns the effective uid that created the QP.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the uid for which the QP counts.
    pub(crate) fn accounting_uid(&self) -> u32 {
        self.accounting_uid
    }
}
