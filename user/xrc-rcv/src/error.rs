// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! What can go wrong, as a value that keeps the kernel's errno.

use std::{fmt, io};

/// The result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The device has no receive QPs: the module `ib_xrc_rcv` is not loaded, was loaded after
    /// ib_uverbs had exposed the device, or the device has no XRC. Its errno is `ENOSYS`.
    Unavailable,
    /// The `ibv_xrcd` does not hold a domain handle where this crate looks for it: it is closed,
    /// or the installed rdma-core has changed its private layout. Its errno is `EBADF`.
    UnknownDomain,
    /// The kernel's or the provider's errno.
    Os(i32),
}

impl Error {
    /// The errno that stands for this error in the C interface; never 0.
    pub fn errno(self) -> i32 {
        match self {
            Error::Unavailable => libc::ENOSYS,
            Error::UnknownDomain => libc::EBADF,
            Error::Os(errno) => errno,
        }
    }

    pub(crate) fn last() -> Error {
        Error::Os(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unavailable => f.write_str(
                "the device has no kernel-owned XRC receive QPs \
                 (is ib_xrc_rcv loaded, and was it before ib_uverbs?)",
            ),
            Error::UnknownDomain => f.write_str("not an open XRC domain"),
            Error::Os(errno) => io::Error::from_raw_os_error(*errno).fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Os(errno) => io::Error::from_raw_os_error(errno),
            Error::Unavailable => io::Error::new(io::ErrorKind::Unsupported, error),
            Error::UnknownDomain => io::Error::new(io::ErrorKind::InvalidInput, error),
        }
    }
}
