// SPDX-License-Identifier: GPL-2.0

//! The right of a caller in a domain, which it has a handle of, or over a QP of it.
//!
//! It is asked at the time of the call, of the inode of the domain and the credentials of the
//! caller: how the file was opened does not matter, nor which rights a process had that has dropped
//! them since. No lock of the module is held meanwhile: a file system may ask a server.

use crate::{
    creator::Creator,
    rdma::xrcd::Xrcd, //
};
use kernel::prelude::*;

/// See the [module's documentation](self). Each right includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// To query QPs, and to receive their events.
    Use,
    /// To create, to modify, and to keep QPs: the caller may write to the domain's file.
    Write,
    /// To destroy QPs that others keep: the caller owns the domain's file, or the domain has none;
    /// or it is the creator of the QP.
    Own,
}

impl Right {
    /// Returns the right of the calling process in a domain, over a QP with a creator if that is
    /// given.
    pub(crate) fn of_caller(xrcd: &Xrcd, creator: Option<&Creator>) -> Self {
        if creator.is_some_and(Creator::is_caller) || xrcd.caller_owns() {
            Self::Own
        } else if xrcd.caller_may_write() {
            Self::Write
        } else {
            Self::Use
        }
    }

    /// Fails with `EACCES` unless it includes the right that a call needs.
    pub(crate) fn check(self, needed: Self) -> Result {
        if self < needed {
            return Err(EACCES);
        }
        Ok(())
    }
}
