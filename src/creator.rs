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

    /// Whether the effective uid of the calling process created the QP, or is the one for which it
    /// counts.
    ///
    /// An id of a user namespace is not that of the user who made the namespace: one who can take
    /// all the ids of it can act as them, but not the other way round.
    pub(crate) fn is_caller(&self) -> bool {
        // SAFETY: The function reads the credentials of the current task, and must be called in
        // process context, as commands are.
        let uid = unsafe { bindings::ib_xrc_rcv_effective_uid() };

        uid == self.uid() || uid == self.accounting_uid()
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
