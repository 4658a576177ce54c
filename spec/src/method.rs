// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The methods of processes, and the errors that each can return.

use crate::{Errno::*, Errnos, Mutant};

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident $name:literal,)*) => {
        /// A method of the module, or a call of an event channel.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Method { $($(#[$doc])* $method),* }

        impl Method {
            /// All of them.
            pub const ALL: &[Method] = &[$($method),*];

            /// Returns the name in `semantics.rst`.
            pub fn name(self) -> &'static str {
                match self { $($method => $name),* }
            }
        }
    };
}

// In the order of `semantics.rst`.
methods! {
    Alloc "ALLOC",
    Modify "MODIFY",
    Query "QUERY",
    Reg "REG",
    Unreg "UNREG",
    Destroy "DESTROY",
    QueryDomain "QUERY_DOMAIN",
    QueryCaps "QUERY_CAPS",
    EventChannelAlloc "EVENT_CHANNEL_ALLOC",
    /// `read(2)` of an event channel.
    Read "read",
}

use Method::*;

/// Errors of the address of a QP on RoCE, that its route or neighbour is not known among them.
const ADDRESS: Errnos = Errnos::of(&[ENODATA, ENETUNREACH, EHOSTUNREACH, ETIMEDOUT, ENOBUFS]);

/// Errors of any method of uverbs, be the objects as they may.
const ANY: Errnos = Errnos::of(&[EINVAL, EFAULT, ENOMEM, EPROTONOSUPPORT, EIO]);

/// Errors of a handle of a domain: it is unknown, or another thread closes it.
const HANDLE: Errnos = Errnos::of(&[ENOENT, EBUSY]);

impl Method {
    /// Whether the caller names a domain by a handle.
    pub fn names_handle(self) -> bool {
        !matches!(self, Reg | Unreg | QueryCaps | Read)
    }

    /// Whether the caller names an event channel by a descriptor.
    pub fn names_channel(self) -> bool {
        matches!(self, Alloc | Reg | Unreg)
    }

    /// Whether a signal that kills the caller ends the call.
    pub fn can_be_killed(self) -> bool {
        matches!(
            self,
            Alloc | Modify | Query | Reg | Unreg | QueryDomain | EventChannelAlloc | Read
        )
    }

    /// Whether the call returns the errors of the provider.
    pub fn has_provider_errors(self) -> bool {
        matches!(self, Alloc | Modify | Query | QueryDomain)
    }

    /// Returns all errors of the call, but for those of the provider.
    pub fn errors(self) -> Errnos {
        let own = match self {
            Alloc => Errnos::of(&[EACCES, EOPNOTSUPP, EDQUOT, EPERM, EAGAIN]).or(ADDRESS),
            Modify => Errnos::of(&[EACCES, EOPNOTSUPP]).or(ADDRESS),
            Reg => Errnos::of(&[EACCES, EDQUOT]),
            Destroy => Errnos::of(&[EACCES, EBUSY]),
            EventChannelAlloc => Errnos::of(&[EPERM, EMFILE, ENFILE, EDQUOT]),
            Read => return Errnos::of(&[EINVAL, EAGAIN, EINTR, EFAULT, EIO]),
            Query | Unreg | QueryDomain | QueryCaps => Errnos::NONE,
        };
        let mut errors = ANY.or(own);
        if self.names_handle() {
            errors = errors.or(HANDLE);
        }
        errors.add_if(self.names_channel(), EBADF);
        errors.add_if(self.can_be_killed(), EINTR);
        if self == Destroy && Mutant::BusyUndocumented.is_made() {
            errors = errors.without(Errnos::of(&[EBUSY]));
        }
        errors
    }
}
