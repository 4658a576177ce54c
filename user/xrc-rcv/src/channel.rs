// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Event channels: file descriptors from which the events of receive QPs are read.
//!
//! A channel is owned by whoever created it and dies when closed. The kernel keeps at most one
//! unread record per registration and event type and counts repetitions in it, so a channel that
//! nobody reads neither grows nor loses anything.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::uapi::{XRC_RCV_EVENT_QP_GONE, xrc_rcv_event};

/// The type of an event: `enum ibv_event_type` and [`EventType::QP_GONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(u32);

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        impl EventType {
            $($(#[$doc])* pub const $name: EventType = EventType($value);)*

            /// The event's name, if this version of the crate knows one.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(EventType::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

event_types! {
    /// Something broke that the transport cannot report.
    QP_FATAL = 1;
    /// The peer's request was invalid.
    QP_REQ_ERR = 2;
    /// The peer's request violated access rights.
    QP_ACCESS_ERR = 3;
    /// The first message arrived before the QP was told to send.
    COMM_EST = 4;
    /// The send queue is drained.
    SQ_DRAINED = 5;
    /// The connection migrated to its alternate path.
    PATH_MIG = 6;
    /// The connection failed to migrate.
    PATH_MIG_ERR = 7;
    /// A QP in error state took its last receive from an SRQ.
    QP_LAST_WQE_REACHED = 16;
    /// The QP was destroyed under its registration.
    QP_GONE = XRC_RCV_EVENT_QP_GONE;
}

impl EventType {
    /// The event type of the kernel's number.
    pub fn from_raw(raw: u32) -> EventType {
        EventType(raw)
    }

    /// The kernel's number.
    pub fn raw(self) -> u32 {
        self.0
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "event {}", self.0),
        }
    }
}

/// One record read from an event channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Event(xrc_rcv_event);

impl Event {
    /// What was given when the registration was made.
    pub fn cookie(&self) -> u64 {
        self.0.cookie
    }

    /// The number of the receive QP.
    pub fn qp_num(&self) -> u32 {
        self.0.qpn
    }

    /// What happened.
    pub fn event_type(&self) -> EventType {
        EventType(self.0.r#type)
    }

    /// How often it happened since it was last read; stays at `u32::MAX` once there.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// When it first happened since it was last read, on the clock `CLOCK_MONOTONIC`.
    pub fn first(&self) -> Duration {
        Duration::from_nanos(self.0.first_ns)
    }

    /// The kernel's own struct.
    pub fn as_raw(&self) -> &xrc_rcv_event {
        &self.0
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on QP {:#x}", self.event_type(), self.qp_num())?;
        if self.count() > 1 {
            write!(f, " ({} times)", self.count())?;
        }
        Ok(())
    }
}

/// Records read at once.
pub type Events = std::vec::IntoIter<Event>;

/// A file descriptor from which the events of registrations are read; poll it for input.
#[derive(Debug)]
pub struct EventChannel {
    fd: OwnedFd,
}

impl EventChannel {
    /// How many records [`wait`](Self::wait) takes at once.
    const BATCH: usize = 64;

    /// Reads as many records as there are and fit into `events`, and says how many.
    ///
    /// Waits for the first one, unless the channel is non-blocking.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the channel is non-blocking and has none, `EIO` if the device is gone and all
    /// records are read, `EINTR`.
    pub fn read(&self, events: &mut [Event]) -> Result<usize> {
        // SAFETY: `events` is writable for its size, and any bytes are valid `Event`s.
        let read = unsafe {
            libc::read(
                self.fd.as_raw_fd(),
                events.as_mut_ptr().cast(),
                size_of_val(events),
            )
        };
        usize::try_from(read)
            .map(|bytes| bytes / size_of::<Event>())
            .map_err(|_| Error::last())
    }

    /// Waits until there are events, and returns them. On a non-blocking channel there may be none.
    pub fn wait(&self) -> Result<Events> {
        let mut events = vec![Event::default(); Self::BATCH];
        let count = loop {
            match self.read(&mut events) {
                Err(Error::Os(libc::EINTR)) => continue,
                Err(Error::Os(libc::EAGAIN)) => break 0,
                result => break result?,
            }
        };
        events.truncate(count);
        Ok(events.into_iter())
    }

    /// Makes reads return instead of waiting, or wait again.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: F_GETFL touches no memory.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = if nonblocking {
            flags | libc::O_NONBLOCK
        } else {
            flags & !libc::O_NONBLOCK
        };
        // SAFETY: F_SETFL touches no memory.
        match unsafe { libc::fcntl(fd, libc::F_SETFL, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl IntoRawFd for EventChannel {
    fn into_raw_fd(self) -> RawFd {
        self.fd.into_raw_fd()
    }
}

impl From<OwnedFd> for EventChannel {
    fn from(fd: OwnedFd) -> EventChannel {
        EventChannel { fd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::FromRawFd;

    fn pipe() -> (EventChannel, std::fs::File) {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for the two descriptors.
        assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
        // SAFETY: Both are new and nobody else's.
        unsafe {
            (
                EventChannel::from(OwnedFd::from_raw_fd(fds[0])),
                std::fs::File::from_raw_fd(fds[1]),
            )
        }
    }

    fn record(qpn: u32, event_type: u32, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(42u64.to_ne_bytes());
        bytes.extend(1_500_000_000u64.to_ne_bytes());
        for word in [qpn, event_type, count, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn records_are_decoded() {
        let (channel, mut kernel) = pipe();
        kernel.write_all(&record(0x11, 3, 1)).unwrap();
        kernel.write_all(&record(0x12, 63, 9)).unwrap();
        let events: Vec<Event> = channel.wait().unwrap().collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].cookie(), 42);
        assert_eq!(events[0].first(), Duration::from_millis(1500));
        assert_eq!(events[0].to_string(), "QP_ACCESS_ERR on QP 0x11");
        assert_eq!(events[1].event_type(), EventType::QP_GONE);
        assert_eq!(events[1].to_string(), "QP_GONE on QP 0x12 (9 times)");
    }

    #[test]
    fn a_nonblocking_channel_may_have_none() {
        let (channel, _kernel) = pipe();
        channel.set_nonblocking(true).unwrap();
        assert_eq!(channel.wait().unwrap().count(), 0);
        assert_eq!(
            channel.read(&mut [Event::default()]),
            Err(Error::Os(libc::EAGAIN))
        );
    }

    #[test]
    fn unknown_types_are_shown_by_number() {
        assert_eq!(EventType::from_raw(40).to_string(), "event 40");
    }
}
