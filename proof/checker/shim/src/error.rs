// SPDX-License-Identifier: GPL-2.0

//! `kernel::error`

use core::{convert::Infallible, fmt, num::TryFromIntError};

/// A negative errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(i32);

pub type Result<T = (), E = Error> = core::result::Result<T, E>;

macro_rules! codes {
    ($($name:ident = $value:literal,)*) => {
        /// The constants of the kernel crate.
        pub mod code {
            $(pub const $name: super::Error = super::Error(-$value);)*
        }

        impl fmt::Debug for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match -self.0 {
                    $($value => f.write_str(stringify!($name)),)*
                    other => write!(f, "errno {other}"),
                }
            }
        }
    };
}

codes! {
    EPERM = 1,
    ENOENT = 2,
    EINTR = 4,
    EIO = 5,
    EBADF = 9,
    EAGAIN = 11,
    ENOMEM = 12,
    EACCES = 13,
    EFAULT = 14,
    EBUSY = 16,
    EEXIST = 17,
    ENODEV = 19,
    EINVAL = 22,
    EOVERFLOW = 75,
    ERESTARTSYS = 512,
}

impl Error {
    pub fn from_errno(errno: i32) -> Self {
        Self(errno)
    }

    pub fn to_errno(self) -> i32 {
        self.0
    }

    /// Returns the `ERR_PTR()`.
    pub fn to_ptr<T>(self) -> *mut T {
        core::ptr::without_provenance_mut(self.0 as isize as usize)
    }
}

/// Returns the status of a function of C.
pub fn to_result(status: i32) -> Result {
    match status {
        ..0 => Err(Error(status)),
        _ => Ok(()),
    }
}

/// Returns the pointer, or the error of an `ERR_PTR()`.
pub fn from_err_ptr<T>(pointer: *mut T) -> Result<*mut T> {
    match pointer.addr() as isize {
        errno @ -4095..0 => Err(Error(errno as i32)),
        _ => Ok(pointer),
    }
}

/// Returns the value, or the errno.
pub fn from_result<T: From<i16>>(call: impl FnOnce() -> Result<T>) -> T {
    call().unwrap_or_else(|e| T::from(e.0 as i16))
}

impl From<TryFromIntError> for Error {
    fn from(_: TryFromIntError) -> Self {
        code::EINVAL
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
