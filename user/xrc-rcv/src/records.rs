// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The records of an event channel, which become events of the registrations that the process made
//! with it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::channel_ioctl;
use crate::error::Cause;
use crate::ffi::xrc_rcv_event;
use crate::registered::{Choice, Registered};
use crate::uapi::*;
use crate::uverbs::{Result, as_bytes, from_bytes};

/// The number of records that are read at once: as many as the kernel returns.
pub(crate) const BATCH: usize = 16;

/// An open event channel, with the registrations that the process made.
#[derive(Clone, Copy, Debug)]
pub struct EventChannel<'channel> {
    fd: BorrowedFd<'channel>,
    record_size: usize,
    registered: &'channel Registered,
}

impl<'channel> EventChannel<'channel> {
    /// The event channel `fd`, with records of `record_size` bytes. `registered` is the same for
    /// all calls with the channel.
    pub fn new(
        fd: BorrowedFd<'channel>,
        record_size: usize,
        registered: &'channel Registered,
    ) -> EventChannel<'channel> {
        EventChannel {
            fd,
            record_size,
            registered,
        }
    }

    pub(crate) fn registered(&self) -> &'channel Registered {
        self.registered
    }

    /// Registers with receive QPs of the channel's domain, in order. Returns how many it is
    /// registered with, and why not with the next.
    pub(crate) fn register(&self, qp_nums: &[u32], choice: Choice) -> (usize, Result<()>) {
        self.registered.register(qp_nums, choice, |infos| {
            channel_ioctl::register(self.fd, qp_nums, infos)
        })
    }

    /// Ends the registrations with receive QPs, in order. Returns how many numbers it is not
    /// registered with any more, and why with the next.
    pub fn unregister(&self, qp_nums: &[u32]) -> (usize, Result<()>) {
        self.registered.unregister(qp_nums, |qp_nums| {
            channel_ioctl::unregister(self.fd, qp_nums)
        })
    }

    /// As [`crate::EventChannel::read_records`].
    pub fn read_records(&self, places: &mut [u8], size: usize) -> Result<usize> {
        let room = places.len().checked_div(size).unwrap_or(0);
        let known = size.min(size_of::<xrc_rcv_event>());
        let mut places = places.chunks_exact_mut(size.max(1));
        self.read(room, |event| {
            if let Some(place) = places.next() {
                place[..known].copy_from_slice(&as_bytes(&event)[..known]);
                place[known..].fill(0);
            }
        })
    }

    /// Reads until there is an event, up to `room` of them, and returns their number.
    pub(crate) fn read(&self, room: usize, mut event: impl FnMut(xrc_rcv_event)) -> Result<usize> {
        loop {
            match self.read_once(room, &mut event)? {
                // There were only records without an event.
                0 => {}
                count => return Ok(count),
            }
        }
    }

    /// Reads records once, up to `room` of them, and returns the number of their events, for which
    /// it calls `event`.
    pub(crate) fn read_once(
        &self,
        room: usize,
        mut event: impl FnMut(xrc_rcv_event),
    ) -> Result<usize> {
        let size = self.record_size;
        let sizes = XRC_RCV_RECORD_SIZE_VER1 as usize..=XRC_RCV_RECORD_SIZE_MAX as usize;
        if room == 0 || !sizes.contains(&size) {
            return Err(Cause::Os(libc::EINVAL));
        }
        let mut buffer = [0u8; BATCH * XRC_RCV_RECORD_SIZE_MAX as usize];
        let records = &mut buffer[..room.min(BATCH) * size];
        // SAFETY: `records` is writable for its size.
        let read = unsafe {
            libc::read(
                self.fd.as_raw_fd(),
                records.as_mut_ptr().cast(),
                records.len(),
            )
        };
        let read = usize::try_from(read).map_err(|_| Cause::last())?;
        if read == 0 {
            // The end of another kind of file; that of a channel is this error.
            return Err(Cause::Os(libc::EIO));
        }
        let mut count = 0;
        let records = records[..read].chunks_exact(size);
        self.registered
            .translate(records.map(from_bytes::<xrc_rcv_record>), |translated| {
                count += 1;
                event(translated);
            });
        Ok(count)
    }
}

impl AsFd for EventChannel<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
