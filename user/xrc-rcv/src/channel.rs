// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Event channels: file descriptors from which the events of receive QPs are read.
//!
//! The kernel keeps at most one unread record per registration and event type and counts
//! repetitions in it, so a channel that is not read neither grows nor loses anything, except for
//! the records of QPs that were destroyed before many others ([`EventType::OVERRUN`]). Its records
//! have the size that its creator asked for. This process returns the events of the registrations
//! that it made: their cookies, event masks and counts are its own.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bitflags::bitflags;

use crate::error::{Cause, Error, Result};
use crate::ffi::xrc_rcv_event;
use crate::records::{self, BATCH};
use crate::registered::Registered;
use crate::uapi::{XRC_RCV_EVENT_OVERRUN, XRC_RCV_EVENT_QP_ADDED, XRC_RCV_EVENT_QP_GONE};

/// The type of an event: `enum ibv_event_type`, [`EventType::QP_ADDED`], [`EventType::QP_GONE`] and
/// [`EventType::OVERRUN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(u32);

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $description:expr;)*) => {
        impl EventType {
            $($(#[$doc])* pub const $name: EventType = EventType($value);)*

            /// All that receive QPs have and this version of the crate knows.
            pub const ALL: &'static [EventType] = &[$(EventType::$name),*];

            /// The event's name, if this version of the crate knows one.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(EventType::$name => Some(stringify!($name)),)*
                    EventType::OVERRUN => Some("OVERRUN"),
                    _ => None,
                }
            }

            /// The event's description as `ibv_event_type_str()` has it, if this version of the
            /// crate knows one.
            pub fn description(self) -> Option<&'static CStr> {
                match self {
                    $(EventType::$name => Some($description),)*
                    EventType::OVERRUN => Some(c"events of receive QPs lost"),
                    _ => None,
                }
            }
        }

        bitflags! {
            /// A set of [`EventType`]s: the event mask of a registration
            /// ([`RegisterOptions::events`](crate::RegisterOptions::events)), or the types that a
            /// kernel reports.
            ///
            /// `all()` has the types that this version of the crate knows.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct EventTypes: u64 {
                $(
                    #[doc = concat!("[`EventType::", stringify!($name), "`]")]
                    const $name = 1 << $value;
                )*
            }
        }
    };
}

event_types! {
    /// Something broke that the transport cannot report.
    QP_FATAL = 1, c"local work queue catastrophic error";
    /// The peer's request was invalid.
    QP_REQ_ERR = 2, c"invalid request local work queue error";
    /// The peer's request violated access rights.
    QP_ACCESS_ERR = 3, c"local access violation work queue error";
    /// The first message arrived before the QP was modified to RTS.
    COMM_EST = 4, c"communication established";
    /// The send queue is drained.
    SQ_DRAINED = 5, c"send queue drained";
    /// The connection migrated to its alternate path.
    PATH_MIG = 6, c"path migrated";
    /// The connection failed to migrate.
    PATH_MIG_ERR = 7, c"path migration request error";
    /// A QP in error state took its last receive from an SRQ.
    QP_LAST_WQE_REACHED = 16, c"last WQE reached";
    /// The QP was created, see
    /// [`Domain::create_event_channel_of_all`](crate::Domain::create_event_channel_of_all).
    QP_ADDED = XRC_RCV_EVENT_QP_ADDED, c"receive QP created";
    /// The QP was destroyed under its registration.
    QP_GONE = XRC_RCV_EVENT_QP_GONE, c"receive QP destroyed";
}

impl EventType {
    /// Events of QPs that were destroyed are lost, [`QP_GONE`](Self::QP_GONE) among them: the
    /// channel was not read while more QPs were destroyed than the kernel remembers. It has no
    /// cookie and no QP number, and no event mask excludes it.
    /// [`Domain::query_page`](crate::Domain::query_page) lists the QPs that exist.
    pub const OVERRUN: EventType = EventType(XRC_RCV_EVENT_OVERRUN);

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
    /// The cookie of the registration
    /// ([`RegisterOptions::cookie`](crate::RegisterOptions::cookie)); the label of the QP if the
    /// channel is [of all](crate::Domain::create_event_channel_of_all).
    pub fn cookie(&self) -> u64 {
        self.0.cookie
    }

    /// The number of the receive QP.
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// The type of the event.
    pub fn event_type(&self) -> EventType {
        EventType(self.0.type_)
    }

    /// The number of times that it happened since it was last read; stays at `u32::MAX` once there.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// When it last happened, on the clock `CLOCK_MONOTONIC` of the reader's time namespace.
    pub fn last(&self) -> Duration {
        Duration::from_nanos(self.0.last_ns)
    }

    /// The struct of the C library.
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

/// Events read at once.
#[derive(Clone, Debug, Default)]
pub struct Events(std::vec::IntoIter<Event>);

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Events {}

/// A file descriptor that has registrations with the receive QPs of a domain, and from which their
/// events are read; poll it for input.
///
/// It is closed when it and its [`Registration`](crate::Registration)s are dropped.
///
/// An event is returned to the process that made the registration, with this object. Where a forked
/// child, or a process to which the descriptor was passed, reads events of others' registrations,
/// they are lost.
#[derive(Debug)]
pub struct EventChannel {
    shared: Arc<Shared>,
    /// The name of the device, for errors.
    device: Option<Arc<str>>,
}

/// The part of an event channel that its registrations keep.
#[derive(Debug)]
pub(crate) struct Shared {
    fd: OwnedFd,
    /// The size of the channel's records.
    record_size: usize,
    registered: Registered,
}

impl Shared {
    pub(crate) fn borrowed(&self) -> records::EventChannel<'_> {
        records::EventChannel::new(self.fd.as_fd(), self.record_size, &self.registered)
    }
}

impl EventChannel {
    /// A channel that was created elsewhere, with records of `event_size` bytes. No event of a
    /// registration that was made elsewhere is returned.
    pub fn from_fd(fd: OwnedFd, event_size: usize) -> EventChannel {
        EventChannel::new(fd, event_size, Registered::default())
    }

    pub(crate) fn new(fd: OwnedFd, record_size: usize, registered: Registered) -> EventChannel {
        EventChannel {
            shared: Arc::new(Shared {
                fd,
                record_size,
                registered,
            }),
            device: None,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The channel for the calls of `borrowed`.
    pub fn borrowed(&self) -> records::EventChannel<'_> {
        self.shared.borrowed()
    }

    pub(crate) fn of_device(mut self, device: Arc<str>) -> EventChannel {
        self.device = Some(device);
        self
    }

    /// The size of the channel's records, in bytes.
    pub fn event_size(&self) -> usize {
        self.shared.record_size
    }

    /// Reads unread events, as many as fit into `events`, up to 16, and returns their number.
    ///
    /// Waits for the first one, unless the channel is non-blocking. An event that the mask of a
    /// registration excludes makes the channel readable, and is not returned: a blocking channel
    /// waits for another then.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the channel is non-blocking and has none, `EIO` if the device was removed and
    /// all events are read, `EINTR`.
    pub fn read(&self, events: &mut [Event]) -> Result<usize> {
        let mut places = events.iter_mut();
        self.borrowed()
            .read(places.len(), |event| {
                if let Some(place) = places.next() {
                    *place = Event(event);
                }
            })
            .map_err(|cause| self.error(cause))
    }

    /// As [`read`](Self::read), into `places` of `size` bytes each, each a `struct xrc_rcv_event`
    /// of the C library, of any length: it gets as much as both it and this crate know, and the
    /// rest is cleared.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `EINVAL` if there is no place.
    pub fn read_records(
        &self,
        places: &mut [u8],
        size: usize,
    ) -> std::result::Result<usize, Cause> {
        self.borrowed().read_records(places, size)
    }

    /// Waits until there are events, for no longer than `timeout` if given, and returns them; there
    /// are none if the time is up, or the channel is non-blocking.
    ///
    /// Each event is returned to one reader. With several readers of one channel, those that wait
    /// with a timeout need it to be non-blocking, or may wait longer for an event that another
    /// read.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was removed and all events are read.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Events> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut events = Vec::new();
        while events.is_empty() {
            if end.is_some() {
                match poll_until(self.as_fd(), end) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(cause) => return Err(self.error(cause)),
                }
            }
            // Once: the time may be up before there is an event.
            let add = |event| events.push(Event(event));
            match self.borrowed().read_once(BATCH, add) {
                Ok(_) | Err(Cause::Os(libc::EINTR)) => {}
                Err(Cause::Os(libc::EAGAIN)) => break,
                Err(cause) => return Err(self.error(cause)),
            }
        }
        Ok(Events(events.into_iter()))
    }

    /// Makes reads return instead of waiting, or wait again.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let fd = self.as_raw_fd();
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

    pub(crate) fn error(&self, cause: Cause) -> Error {
        let device = self
            .device
            .clone()
            .unwrap_or_else(|| "event channel".into());
        Error::new(&device, "read events", cause)
    }
}

/// Whether `fd` has input before `end`, if there is one.
pub(crate) fn poll_until(
    fd: BorrowedFd<'_>,
    end: Option<Instant>,
) -> std::result::Result<bool, Cause> {
    loop {
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // Rounded up, so that the time is up when poll() says so.
        let left = end.map_or(-1, |end| {
            let left = end.saturating_duration_since(Instant::now());
            left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32
        });
        // SAFETY: `poll` is one descriptor.
        match unsafe { libc::poll(&mut poll, 1, left) } {
            0 if end.is_some_and(|end| Instant::now() >= end) => return Ok(false),
            1 => return Ok(true),
            0 => {}
            _ => match Cause::last() {
                Cause::Os(libc::EINTR) => {}
                cause => return Err(cause),
            },
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.fd.as_raw_fd()
    }
}

impl EventChannel {
    /// The descriptor, for the caller to close.
    ///
    /// # Errors
    ///
    /// The channel, if a [`Registration`](crate::Registration) keeps it open.
    pub fn try_into_fd(self) -> std::result::Result<OwnedFd, EventChannel> {
        self.try_into_parts().map(|(fd, _)| fd)
    }

    /// As [`try_into_fd`](Self::try_into_fd), with the registrations of this process, for the calls
    /// of `borrowed`.
    pub fn try_into_parts(self) -> std::result::Result<(OwnedFd, Registered), EventChannel> {
        let EventChannel { shared, device } = self;
        match Arc::try_unwrap(shared) {
            Ok(shared) => Ok((shared.fd, shared.registered)),
            Err(shared) => Err(EventChannel { shared, device }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::receive_qp::RegisterOptions;
    use crate::uapi::{XRC_RCV_RECORD_SIZE_VER1, xrc_rcv_record};
    use std::io::Write;
    use std::os::fd::FromRawFd;

    /// A channel without registrations, whose records are written to a pipe.
    fn unregistered_pipe(record_size: usize) -> (EventChannel, std::fs::File) {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for the two descriptors.
        assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
        // SAFETY: Both were just created, and nothing else owns them.
        unsafe {
            (
                EventChannel::from_fd(OwnedFd::from_raw_fd(fds[0]), record_size),
                std::fs::File::from_raw_fd(fds[1]),
            )
        }
    }

    /// Registers as if the kernel did so with each QP: its serial number is 1, its totals are 0.
    pub(crate) fn register(channel: &EventChannel, qp_nums: &[u32], options: &RegisterOptions<'_>) {
        let registered = channel.borrowed().registered();
        let (done, result) = registered.register(qp_nums, options.choice(), |infos| {
            infos.iter_mut().for_each(|info| info.serial = 1);
            (infos.len(), Ok(()))
        });
        assert_eq!((done, result), (qp_nums.len(), Ok(())));
    }

    /// A channel that is registered with QPs 1 to 100, with cookie 42.
    pub(crate) fn pipe(record_size: usize) -> (EventChannel, std::fs::File) {
        let (channel, kernel) = unregistered_pipe(record_size);
        let qp_nums: Vec<_> = (1..=100).collect();
        register(&channel, &qp_nums, &RegisterOptions::new().cookie(42));
        (channel, kernel)
    }

    pub(crate) const SIZE: usize = size_of::<xrc_rcv_record>();

    pub(crate) fn record(qpn: u32, event_type: u32, count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(1_500_000_000u64.to_ne_bytes());
        bytes.extend(1u64.to_ne_bytes());
        bytes.extend(count.to_ne_bytes());
        bytes.extend(qpn.to_ne_bytes());
        bytes.extend(event_type.to_ne_bytes());
        bytes.extend(0u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_are_translated() {
        let (channel, mut kernel) = pipe(SIZE);
        kernel.write_all(&record(0x11, 3, 1)).unwrap();
        kernel.write_all(&record(0x12, 4, 9)).unwrap();
        kernel.write_all(&record(0x12, 63, 1)).unwrap();
        let events: Vec<Event> = channel.wait(None).unwrap().collect();
        assert_eq!(events.len(), 3);
        assert_eq!(events[0].cookie(), 42);
        assert_eq!(events[0].last(), Duration::from_millis(1500));
        assert_eq!(events[0].to_string(), "QP_ACCESS_ERR on QP 0x11");
        assert_eq!(events[1].to_string(), "COMM_EST on QP 0x12 (9 times)");
        assert_eq!(events[2].event_type(), EventType::QP_GONE);
        assert_eq!(events[2].count(), 1);
    }

    #[test]
    fn a_nonblocking_channel_may_have_none() {
        let (channel, mut kernel) = pipe(SIZE);
        channel.set_nonblocking(true).unwrap();
        assert_eq!(channel.wait(None).unwrap().count(), 0);
        let error = channel.read(&mut [Event::default()]).unwrap_err();
        assert_eq!(error.cause(), Cause::Os(libc::EAGAIN));
        // A record that has no event is none.
        for _ in 0..2 * BATCH {
            kernel.write_all(&record(101, 3, 1)).unwrap();
        }
        let error = channel.read(&mut [Event::default()]).unwrap_err();
        assert_eq!(error.cause(), Cause::Os(libc::EAGAIN));
        kernel.write_all(&record(101, 3, 1)).unwrap();
        assert_eq!(channel.wait(None).unwrap().count(), 0);
    }

    #[test]
    fn a_blocking_channel_waits_for_an_event() {
        let (channel, mut kernel) = unregistered_pipe(SIZE);
        let fatal = RegisterOptions::new().events(EventTypes::QP_FATAL);
        register(&channel, &[1], &fatal);
        register(&channel, &[2], &RegisterOptions::new());
        std::thread::scope(|scope| {
            let reads = || {
                let mut events = [Event::default(); 3];
                let count = channel.read(&mut events).unwrap();
                (count, events[0].qp_num())
            };
            let reader = scope.spawn(reads);
            // A pipe has no readers' queue to be looked at: the first record that has no event is
            // read before or after the reader waits.
            for _ in 0..2 * BATCH {
                kernel.write_all(&record(1, 3, 1)).unwrap();
                kernel.write_all(&record(3, 3, 1)).unwrap();
            }
            kernel.write_all(&record(2, 3, 1)).unwrap();
            assert_eq!(reader.join().unwrap(), (1, 2));
        });
    }

    #[test]
    fn longer_records_are_stepped_through_by_their_size() {
        let (channel, mut kernel) = pipe(SIZE + 16);
        for qpn in [0x11, 0x12, 0x13] {
            kernel.write_all(&record(qpn, 3, 1)).unwrap();
            kernel.write_all(&[0xff; 16]).unwrap();
        }
        let mut two = [Event::default(); 2];
        assert_eq!(channel.read(&mut two).unwrap(), 2);
        assert_eq!([two[0].qp_num(), two[1].qp_num()], [0x11, 0x12]);
        let rest: Vec<Event> = channel.wait(None).unwrap().collect();
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].to_string(), "QP_ACCESS_ERR on QP 0x13");
    }

    #[test]
    fn places_may_be_of_another_version() {
        const EVENT: usize = size_of::<Event>();

        let (channel, mut kernel) = pipe(SIZE);
        for size in [EVENT - 8, EVENT, EVENT + 16] {
            for (qpn, count) in [(0x11, size as u64), (0x12, 2 * size as u64)] {
                kernel.write_all(&record(qpn, 3, count)).unwrap();
            }
            let mut places = vec![0xaa; 2 * size + 8];
            assert_eq!(channel.read_records(&mut places, size), Ok(2));
            for (place, qpn) in places.chunks_exact(size).zip([0x11u32, 0x12]) {
                assert_eq!(place[..8], 42u64.to_ne_bytes());
                assert_eq!(place[16..20], qpn.to_ne_bytes());
                assert_eq!(place[20..24], 3u32.to_ne_bytes());
                assert!(place.iter().skip(EVENT).all(|byte| *byte == 0));
            }
            assert_eq!(places[2 * size..], [0xaa; 8]);
        }
        for (room, size) in [(4, EVENT), (EVENT, 0), (0, 0)] {
            assert_eq!(
                channel.read_records(&mut [0; EVENT][..room], size),
                Err(Cause::Os(libc::EINVAL))
            );
        }
    }

    #[test]
    fn a_channel_has_records_of_some_version() {
        let first = XRC_RCV_RECORD_SIZE_VER1 as usize;
        for size in [0, first - 8, 264, usize::MAX] {
            let (channel, _kernel) = pipe(size);
            let error = channel.read(&mut [Event::default()]).unwrap_err();
            assert_eq!(error.cause(), Cause::Os(libc::EINVAL));
        }
    }

    #[test]
    fn the_end_of_a_file_is_an_error() {
        let (channel, kernel) = pipe(SIZE);
        drop(kernel);
        let error = channel.read(&mut [Event::default()]).unwrap_err();
        assert_eq!(error.cause(), Cause::Os(libc::EIO));
    }

    #[test]
    fn waiting_has_an_end() {
        let (channel, mut kernel) = pipe(SIZE);
        let (begin, time) = (Instant::now(), Duration::from_millis(20));
        assert_eq!(channel.wait(Some(time)).unwrap().count(), 0);
        assert!(begin.elapsed() >= time);
        // Also of a channel that blocks, and is readable without an event.
        kernel.write_all(&record(101, 3, 1)).unwrap();
        assert_eq!(channel.wait(Some(time)).unwrap().count(), 0);
        assert!(begin.elapsed() >= 2 * time);
        kernel.write_all(&record(0x11, 3, 1)).unwrap();
        assert_eq!(channel.wait(Some(Duration::MAX)).unwrap().len(), 1);
        let fd = channel.try_into_fd().unwrap();
        assert!(fd.as_raw_fd() >= 0);
    }

    #[test]
    fn unknown_types_are_shown_by_number() {
        assert_eq!(EventType::from_raw(40).to_string(), "event 40");
    }
}
