// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The same calls on file descriptors and handles, for bindings in another language.
//!
//! Nothing here allocates, locks or remembers: each call is one ioctl, or a few. Errors are bare
//! [`Cause`](crate::Cause)s. Rust programs use [`Device`](crate::Device) and
//! [`Domain`](crate::Domain).

mod context;
mod domain;

pub use context::Context;
pub use domain::Domain;

pub use crate::uverbs::Result;
