// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Errors, with the object that they concern.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

/// The result of the calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The device has no receive QPs: the module `ib_xrc_rcv` is not loaded, was loaded after
    /// ib_uverbs had exposed the device, or the device has no XRC. Its errno is `EOPNOTSUPP`.
    Unavailable,
    /// The `ibv_xrcd` does not hold a domain handle where this crate looks for it: it is closed,
    /// or the installed rdma-core has changed its private layout. Its errno is `EBADF`.
    UnknownDomain,
    /// The kernel's or the provider's errno.
    Os(i32),
    /// A request completed with an error, which has broken the connection. Its errno is `EIO`.
    #[cfg(feature = "verbs")]
    #[cfg_attr(docsrs, doc(cfg(feature = "verbs")))]
    Completion(crate::completion::Completion),
}

impl Cause {
    /// The errno that stands for this cause in the C interface; never 0.
    pub fn errno(self) -> i32 {
        match self {
            Cause::Unavailable => libc::EOPNOTSUPP,
            Cause::UnknownDomain => libc::EBADF,
            Cause::Os(errno) => errno,
            #[cfg(feature = "verbs")]
            Cause::Completion(_) => libc::EIO,
        }
    }

    pub(crate) fn last() -> Cause {
        // SAFETY: The C library gives every thread an errno of its own.
        Cause::Os(unsafe { *libc::__errno_location() })
    }
}

/// The C library's words for an errno.
fn message(errno: i32) -> String {
    let mut buffer = [0; 128];
    // SAFETY: `buffer` is writable for its size, and is zero-terminated afterwards.
    unsafe { libc::strerror_r(errno, buffer.as_mut_ptr(), buffer.len()) };
    // SAFETY: `strerror_r()` ends what it writes into `buffer` with a zero.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Unavailable => f.write_str(
                "the device has no kernel-owned XRC receive QPs \
                 (is ib_xrc_rcv loaded, and was it before ib_uverbs?)",
            ),
            Cause::UnknownDomain => f.write_str("not an open XRC domain"),
            Cause::Os(errno) => write!(f, "{} (os error {errno})", message(*errno)),
            #[cfg(feature = "verbs")]
            Cause::Completion(completion) => fmt::Display::fmt(completion, f),
        }
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Unavailable => f.write_str("Unavailable"),
            Cause::UnknownDomain => f.write_str("UnknownDomain"),
            Cause::Os(errno) => f
                .debug_struct("Os")
                .field("code", errno)
                .field("message", &message(*errno))
                .finish(),
            #[cfg(feature = "verbs")]
            Cause::Completion(completion) => fmt::Debug::fmt(completion, f),
        }
    }
}

impl std::error::Error for Cause {}

/// A call that failed: the operation, its object, and the cause.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Clone, PartialEq, Eq)]
struct Details {
    device: Arc<str>,
    operation: &'static str,
    qp_num: Option<u32>,
    file: Option<PathBuf>,
    cause: Cause,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &self.0;
        let mut fields = f.debug_struct("Error");
        fields
            .field("device", &details.device)
            .field("operation", &details.operation);
        if let Some(qp_num) = details.qp_num {
            fields.field("qp_num", &format_args!("{qp_num:#x}"));
        }
        if let Some(file) = &details.file {
            fields.field("file", file);
        }
        fields.field("cause", &details.cause).finish()
    }
}

impl Error {
    pub(crate) fn new(device: &Arc<str>, operation: &'static str, cause: Cause) -> Error {
        Error(Box::new(Details {
            device: device.clone(),
            operation,
            qp_num: None,
            file: None,
            cause,
        }))
    }

    pub(crate) fn of_qp(mut self, qp_num: u32) -> Error {
        self.0.qp_num = Some(qp_num);
        self
    }

    pub(crate) fn of_file(mut self, file: Option<PathBuf>) -> Error {
        self.0.file = file;
        self
    }

    /// The reason why the call failed.
    pub fn cause(&self) -> Cause {
        self.0.cause
    }

    /// The errno that stands for the cause; never 0.
    pub fn errno(&self) -> i32 {
        self.0.cause.errno()
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// The number of the receive QP, if the call was about one.
    pub fn qp_num(&self) -> Option<u32> {
        self.0.qp_num
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details {
            device,
            operation,
            qp_num,
            file,
            cause,
        } = &*self.0;
        write!(f, "{device}: {operation}")?;
        if let Some(qp_num) = qp_num {
            write!(f, " {qp_num:#x}")?;
        }
        if let Some(file) = file {
            write!(f, " {}", file.display())?;
        }
        write!(f, ": {cause}")
    }
}

impl std::error::Error for Error {}

impl From<Cause> for io::Error {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Os(errno) => io::Error::from_raw_os_error(errno),
            Cause::Unavailable => io::Error::new(io::ErrorKind::Unsupported, cause),
            Cause::UnknownDomain => io::Error::new(io::ErrorKind::InvalidInput, cause),
            #[cfg(feature = "verbs")]
            Cause::Completion(_) => io::Error::other(cause),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(io::Error::from(error.cause()).kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_object() {
        let device = Arc::from("mlx4_0");
        let error =
            Error::new(&device, "register with receive QP", Cause::Os(libc::EINVAL)).of_qp(0x11);
        assert_eq!(
            error.to_string(),
            "mlx4_0: register with receive QP 0x11: Invalid argument (os error 22)"
        );
        assert_eq!(
            format!("{error:?}"),
            "Error { device: \"mlx4_0\", operation: \"register with receive QP\", qp_num: 0x11, \
             cause: Os { code: 22, message: \"Invalid argument\" } }"
        );
        let error = Error::new(&device, "open the domain of", Cause::Os(libc::EAGAIN))
            .of_file(Some("/tmp/domain".into()));
        assert_eq!(
            error.to_string(),
            "mlx4_0: open the domain of /tmp/domain: Resource temporarily unavailable (os error 11)"
        );
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::WouldBlock);
        let error = Error::new(&device, "query the capabilities", Cause::Unavailable);
        assert_eq!(error.errno(), libc::EOPNOTSUPP);
    }
}
