// SPDX-License-Identifier: GPL-2.0

//! The creator of a receive QP: a process, which may have ended, and the user for whom the QP
//! counts.
//!
//! That user and the uid of the process differ in a user namespace that a user made: QPs of its ids
//! count for that user.

use crate::{
    bindings,
    kernel_ext::process::{
        effective_uid,
        Process, //
    }, //
};

/// See the [module's documentation](self). Uids are those of the initial user namespace.
#[derive(Clone, Copy)]
pub(crate) struct Creator {
    process: Process,
    accounting_uid: u32,
}

impl Creator {
    /// Returns the calling process as a creator.
    pub(crate) fn current() -> Self {
        Self {
            process: Process::current(),
            // SAFETY: The function reads the credentials of the current task, and must be called in
            // process context, as QPs are created and destroyed.
            accounting_uid: unsafe { bindings::ib_xrc_rcv_accounting_uid() },
        }
    }

    /// Whether the effective uid of the calling process created the QP, or is the one for which it
    /// counts.
    ///
    /// An id of a user namespace is not that of the user who made the namespace: one who can take
    /// all the ids of it can act as them, but not the other way round.
    pub(crate) fn is_caller(&self) -> bool {
        let uid = effective_uid();

        uid == self.process.uid() || uid == self.accounting_uid()
    }

    /// Returns the process that created the QP.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the uid for which the QP counts.
    pub(crate) fn accounting_uid(&self) -> u32 {
        self.accounting_uid
    }
}
