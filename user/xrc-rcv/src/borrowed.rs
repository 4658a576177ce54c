// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The same calls on file descriptors and handles, for bindings in another language.
//!
//! Each call is one ioctl, or a few. Nothing here is remembered but the registrations of an event
//! channel, in [`Registered`]. Errors are bare [`Cause`](crate::Cause)s. Rust programs use
//! [`Device`](crate::Device), [`Domain`](crate::Domain) and
//! [`EventChannel`](crate::EventChannel).

mod context;
mod domain;

pub use context::Context;
pub use domain::Domain;

pub use crate::records::EventChannel;
pub use crate::registered::Registered;

pub use crate::uverbs::Result;
