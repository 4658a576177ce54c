// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Descriptors that tokio's runtime waits for.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime wait until the descriptor of `inner` is readable.
///
/// # Safety
///
/// The descriptor is open and the same until `inner` is dropped.
#[allow(
    deprecated,
    reason = "tokio has register_with_interest() since 1.54, and Debian 13 has tokio 1.43"
)]
pub(crate) unsafe fn readable<T: AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(inner, Interest::READABLE)
}
