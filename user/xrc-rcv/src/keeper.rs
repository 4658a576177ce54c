// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The socket of `xrc-rcv hold`, which keeps descriptors of a process for its successor.
//! `xrc-rcv-hold(5)` describes the protocol.

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The greatest length of a packet.
const PACKET: usize = 8192;
/// The length of a message with one descriptor, and the room for it.
const ONE: usize = size_of::<libc::c_int>();
const CONTROL: usize = {
    // SAFETY: The function calculates a length.
    unsafe { libc::CMSG_SPACE(ONE as u32) as usize }
};

/// Room for the descriptor of a packet.
#[repr(C)]
union Control {
    _alignment: libc::cmsghdr,
    bytes: [u8; CONTROL],
}

/// A connection to `xrc-rcv hold --socket`, which keeps descriptors that outlive this process.
///
/// A descriptor has a name, of 1 to 64 letters, digits and characters of `.-_`, which no other
/// descriptor of its user has. Only processes of the user who gave it get it. Files of any kind are
/// kept: an open [`Device`](crate::Device), an [`EventChannel`](crate::EventChannel), a `memfd`.
///
/// The calls wait for the service, which answers at once.
///
/// # Examples
///
/// A server keeps its table, and a successor finds it:
///
/// ```no_run
/// use xrc_rcv::Keeper;
///
/// # fn example() -> std::io::Result<()> {
/// let keeper = Keeper::connect("/run/xrc-rcv/kv.socket")?;
/// let table = match keeper.get("table")? {
///     Some(fd) => std::fs::File::from(fd),
///     None => {
///         let table = std::fs::File::open("/dev/shm/table")?;
///         keeper.keep("table", &table)?;
///         table
///     }
/// };
/// # drop(table);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Keeper(OwnedFd);

impl Keeper {
    /// Connects to the socket of the service.
    ///
    /// # Errors
    ///
    /// Those of `connect(2)`; `EINVAL` if the path is too long for a socket, and `EDQUOT` if the
    /// user has as many connections as the service allows.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Keeper> {
        // SAFETY: `sockaddr_un` is all integers, for which zero is a value.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let path = path.as_ref().as_os_str().as_bytes();
        // The last byte stays zero.
        if path.is_empty() || path.contains(&0) || path.len() >= address.sun_path.len() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        // SAFETY: The call touches no memory.
        let fd = checked(unsafe {
            libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)
        } as isize)?;
        // SAFETY: It was just opened.
        let socket = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: `address` is an address of `length` bytes.
        let result =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        checked(result as isize)?;
        let keeper = Keeper(socket);
        // It takes no descriptor before it has accepted the connection.
        keeper.request("list", None)?;
        Ok(keeper)
    }

    /// Has the service keep a descriptor. When it returns, the descriptor outlives this process.
    ///
    /// # Errors
    ///
    /// `EEXIST` if one of that name is kept, or the same open file by any other name; `EINVAL` for
    /// another kind of name, and `EDQUOT` if the user has as many as the service allows.
    pub fn keep(&self, name: &str, fd: impl AsFd) -> io::Result<()> {
        self.request(&format!("keep {name}"), Some(fd.as_fd()))
            .map(drop)
    }

    /// The descriptor of that name, which stays with the service.
    ///
    /// # Errors
    ///
    /// Those of the socket, such as `EPIPE` if the service has ended.
    pub fn get(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        match self.request(&format!("get {name}"), None) {
            Ok((_, Some(fd))) => Ok(Some(fd)),
            Ok((_, None)) => Err(ErrorKind::InvalidData.into()),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the service close the descriptor of that name, and returns whether there was one. No
    /// later process of the service has it.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        match self.request(&format!("drop {name}"), None) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names of the descriptors that this user has with the service, in their order.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn names(&self) -> io::Result<Vec<String>> {
        let (text, _) = self.request("list", None)?;
        let names = text.lines().skip(1);
        let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        Ok(names.map(name).collect())
    }

    /// Sends a request, and returns the answer.
    fn request(
        &self,
        text: &str,
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<(String, Option<OwnedFd>)> {
        match self.send(text.as_bytes(), fd) {
            // A last answer says why.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            result => result?,
        }
        let (text, fd) = self.receive()?;
        match text.strip_prefix("error ") {
            Some(error) => {
                let errno = error.split(' ').next().and_then(|errno| errno.parse().ok());
                Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EPROTO)))
            }
            None if text.starts_with("ok") => Ok((text, fd)),
            // A packet without a byte is the end of the connection.
            None if text.is_empty() => Err(io::Error::from_raw_os_error(libc::EPIPE)),
            None => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        }
    }

    fn send(&self, text: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut part = libc::iovec {
            iov_base: text.as_ptr().cast_mut().cast(),
            iov_len: text.len(),
        };
        let mut control = Control {
            bytes: [0; CONTROL],
        };
        // SAFETY: `msghdr` is integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = CONTROL as _;
            // SAFETY: The header is within `control`, which has room for one descriptor.
            unsafe {
                let header = libc::CMSG_FIRSTHDR(&message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(ONE as u32) as _;
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                data.write_unaligned(fd.as_raw_fd());
            }
        }
        // SAFETY: Text and control are readable for their lengths; the call writes to neither.
        retried(|| unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, libc::MSG_NOSIGNAL) })?;
        Ok(())
    }

    fn receive(&self) -> io::Result<(String, Option<OwnedFd>)> {
        let mut text = [0; PACKET];
        let mut part = libc::iovec {
            iov_base: text.as_mut_ptr().cast(),
            iov_len: PACKET,
        };
        let mut control = Control {
            bytes: [0; CONTROL],
        };
        // SAFETY: `msghdr` is integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        // The room that alignment adds would be that of a second descriptor.
        // SAFETY: The function calculates a length.
        message.msg_controllen = unsafe { libc::CMSG_LEN(ONE as u32) } as _;
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: Text and control are writable for their lengths.
        let length = retried(|| unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut message, flags) })?;
        // SAFETY: The kernel has set the lengths in `message` to those of what it wrote.
        let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
        let fd = (!header.is_null()).then(|| {
            // SAFETY: The service sends no other message than one with a descriptor, for which
            // there is room, and which belongs to nothing else.
            unsafe {
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                OwnedFd::from_raw_fd(data.read_unaligned())
            }
        });
        Ok((String::from_utf8_lossy(&text[..length]).into_owned(), fd))
    }
}

/// The result of a call of the C library.
fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// That of a call that is repeated when a signal interrupts it.
fn retried(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match checked(call()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// For event loops: readable when the service has ended.
impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A keeper, and the service's end of its connection.
    fn pair() -> (Keeper, Keeper) {
        let mut fds = [0; 2];
        let (family, kind) = (libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC);
        // SAFETY: There is room for two descriptors.
        let result = unsafe { libc::socketpair(family, kind, 0, fds.as_mut_ptr()) };
        checked(result as isize).unwrap();
        // SAFETY: Both were just opened.
        let [one, other] = fds.map(|fd| Keeper(unsafe { OwnedFd::from_raw_fd(fd) }));
        (one, other)
    }

    #[test]
    fn a_descriptor_is_sent_and_returned() {
        let (keeper, service) = pair();
        let served = std::thread::spawn(move || {
            let (text, fd) = service.receive().unwrap();
            service.send(b"ok", None).unwrap();
            let (again, none) = service.receive().unwrap();
            assert!(none.is_none());
            service.send(b"ok", fd.as_ref().map(AsFd::as_fd)).unwrap();
            (text, again)
        });
        let (mut reader, writer) = UnixStream::pair().unwrap();
        keeper.keep("pipe", &writer).unwrap();
        drop(writer);
        let kept = keeper.get("pipe").unwrap().unwrap();
        // No program that this process executes has it.
        // SAFETY: The call touches no memory.
        let flags = unsafe { libc::fcntl(kept.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        let texts = served.join().unwrap();
        assert_eq!(texts, ("keep pipe".into(), "get pipe".into()));
        io::Write::write_all(&mut std::fs::File::from(kept), b"x").unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn answers_are_results() {
        let (keeper, service) = pair();
        for answer in [
            "error 17 File exists",
            "error 2",
            "error 2",
            "ok",
            "ok 2\na 5\nb-1 0",
            "what",
        ] {
            service.send(answer.as_bytes(), None).unwrap();
        }
        let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(keeper.keep("x", io::stdout())), Some(libc::EEXIST));
        assert!(keeper.get("x").unwrap().is_none());
        assert!(!keeper.remove("x").unwrap() && keeper.remove("x").unwrap());
        assert_eq!(keeper.names().unwrap(), ["a", "b-1"]);
        assert_eq!(errno(keeper.keep("x", io::stdout())), Some(libc::EPROTO));
        // Its requests have not been read.
        drop(service);
        let errno = errno(keeper.keep("x", io::stdout()));
        assert!([Some(libc::EPIPE), Some(libc::ECONNRESET)].contains(&errno));
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error() {
        for path in ["", "/nonexistent/socket", &"x".repeat(200)] {
            Keeper::connect(path).unwrap_err();
        }
    }
}
