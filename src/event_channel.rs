// SPDX-License-Identifier: GPL-2.0

//! An event channel: the events of the registrations of a member, as its processes read them, or
//! its handler in the kernel.
//!
//! The [`Member`](crate::member::Member) owns it. A read walks the [log](crate::log) of the domain
//! from the cursor of the channel on, and copies the events of those QPs that the member is
//! registered with. The lock of the log is held meanwhile, so that an event is read once, and no
//! event of a registration after it has ended. So a record whose page is missing is not copied; the
//! page is brought in without the lock, and the record read again.
//!
//! A registration that has ended with its QP is forgotten when its last event is read. If events
//! were lost because the QP has left the log before, the next record is OVERRUN. A member of all
//! QPs passes the end of each.
//!
//! After the QPs of a removed device have ended, or the descriptor or the uverbs file was closed,
//! no event is added. Unread events can still be read; then `read(2)` returns `EIO`.

use crate::{
    event::{
        Event,
        EventMask,
        EventType, //
    },
    kernel_ext::{
        cond_resched,
        in_time_namespace,
        process::{
            is_killed,
            Process, //
        },
        uaccess::UserBuffer,
        wait_queue::WaitQueue, //
    },
    listener::Listener,
    log::Log,
    member_set::{
        Room,
        ROW, //
    },
    qp_status::QpStatus,
    registrations::{
        DomainLog,
        Registrations, //
    },
    uapi::{
        xrc_rcv_record,
        RecordSize,
        XRC_RCV_EVENT_OVERRUN, //
    }, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// The maximum number of records that a read returns, and of events that are passed with interrupts
/// disabled.
const BATCH: usize = 16;

/// The number of times that a page is brought in for a record: it may be swapped out meanwhile.
const ATTEMPTS: usize = 16;

/// See the [module's documentation](self).
pub(crate) struct EventChannel {
    record_size: RecordSize<xrc_rcv_record>,
    log: Arc<DomainLog>,
    listener: Arc<Listener>,
}

/// The result of walking a part of the log.
enum Walk {
    /// So many records were written; or there is one, and no place for it.
    Found(usize),
    /// There is a record, which was not written.
    Fault,
    /// More of the log follows.
    More,
    /// There is no record.
    End,
}

/// Returns the record of an event of a QP.
fn record(status: &QpStatus, event: Event) -> xrc_rcv_record {
    xrc_rcv_record {
        last_ns: in_time_namespace(event.time),
        ..event.to_record(status.qpn(), status.serial(), status.label())
    }
}

/// The record that says that events were lost.
const OVERRUN: xrc_rcv_record = xrc_rcv_record {
    last_ns: 0,
    serial: 0,
    count: 1,
    qp_num: 0,
    type_: XRC_RCV_EVENT_OVERRUN,
    label: 0,
};

impl Drop for EventChannel {
    fn drop(&mut self) {
        // The member has ended its registrations.
        let removed = {
            let mut log = self.log.lock();

            log.members.remove(self.listener.number())
        };

        drop(removed);
    }
}

/// Writes a record to the next place. Returns why the walk ends if it does not.
fn put(
    record: xrc_rcv_record,
    places: usize,
    copied: &mut usize,
    write: &mut impl FnMut(usize, xrc_rcv_record) -> bool,
) -> Option<Walk> {
    if *copied == places {
        return Some(Walk::Found(places));
    }
    if !write(*copied, record) {
        return Some(Walk::Fault);
    }
    *copied += 1;
    None
}

/// Gives a new member of the domain its number. Each row is looked at with the lock held anew.
fn join(log: &DomainLog, listener: &Arc<Listener>) -> Result {
    let free = log.lock().members.free();

    for row in free.. {
        let has_room = log.lock().members.has_room(row);

        if !has_room {
            let room = Room::new(row * ROW)?;
            let left = log.lock().members.grow(room);

            drop(left);
        }
        if log.lock().members.add(row, listener) {
            return Ok(());
        }
    }
    Err(ENOMEM)
}

impl EventChannel {
    /// Creates a channel of a log, which reports the events of a mask to a process, in records of a
    /// size, or to a kernel user.
    pub(crate) fn new(
        log: Arc<DomainLog>,
        mask: EventMask,
        record_size: RecordSize<xrc_rcv_record>,
        process: Option<Process>,
    ) -> Result<Self> {
        let end = log.lock().end();
        let listener = Listener::new(mask, end, process)?;

        join(&log, &listener)?;
        Ok(Self {
            record_size,
            log,
            listener,
        })
    }

    /// Returns the listener.
    pub(crate) fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }

    /// Takes unread events from the log, as many as there are places for. Returns [`Walk::More`] if
    /// the caller is killed before one is found.
    ///
    /// `write` writes a record to a place, with the lock of the log held, and returns whether it
    /// did: if not, the event stays unread.
    fn take(&self, places: usize, mut write: impl FnMut(usize, xrc_rcv_record) -> bool) -> Walk {
        let mut copied = 0;

        loop {
            match self.walk(places, &mut copied, &mut write) {
                // A full buffer is returned at once, and the rest of the log is for the next read.
                Walk::More if (copied == 0 || copied < places) && !is_killed() => cond_resched(),
                walk if copied == 0 => return walk,
                _ => return Walk::Found(copied),
            }
        }
    }

    /// As [`take`](Self::take), from the next [`BATCH`] events: adds the number of records that it
    /// takes to `copied`, and returns why it takes no more.
    fn walk(
        &self,
        places: usize,
        copied: &mut usize,
        write: &mut impl FnMut(usize, xrc_rcv_record) -> bool,
    ) -> Walk {
        // Dropped after the lock is released.
        let _removed;
        let mut log = self.log.lock();
        let member = self.listener.number();
        let mut put = |record| put(record, places, copied, write);

        // The caller may wait then, and is woken for what happens from now on.
        log.members.set_idle(member, false);
        if self.has_lost(&log) {
            if let Some(stop) = put(OVERRUN) {
                return stop;
            }
            self.listener.note_lost_read(log.evicted());
        }
        for _ in 0..BATCH {
            let Some((kind, qp, position)) = log.after(self.listener.cursor()) else {
                return Walk::End;
            };

            if qp.is_unread(&log, &self.listener, kind) {
                if qp.is_evicted(&log) {
                    // The worker has not come to this member.
                    self.listener.lose();
                    _removed = Arc::<Registrations>::from(qp).forget(&mut log, member);
                    drop(log);
                    self.listener.wake_later();
                    return Walk::More;
                }
                if let Some(stop) = put(record(qp.status(), qp.events(kind))) {
                    return stop;
                }
            }
            self.listener.advance(position);
            // Its last event.
            if kind == EventType::QP_GONE {
                // Not the last reference: the log has one, or `_removed`.
                _removed = Arc::<Registrations>::from(qp).forget(&mut log, member);
                return Walk::More;
            }
        }
        Walk::More
    }

    /// Whether events were lost, and the member has not read that.
    fn has_lost(&self, log: &Log<Registrations>) -> bool {
        self.listener.has_lost()
            || log.members.follows(self.listener.number())
                && self.listener.has_lost_end(log.evicted())
    }

    /// Ends the registration with all QPs, if there is one, which keeps no QP. Unread events are
    /// discarded.
    pub(crate) fn unregister_from_all(&self) {
        while self.pass_ends() {
            cond_resched();
        }
    }

    /// Passes the next [`BATCH`] QPs that were destroyed. After the last one the registration ends:
    /// returns `false`.
    fn pass_ends(&self) -> bool {
        // Dropped after the lock is released.
        let mut removed: [Option<Arc<Registrations>>; BATCH] = [const { None }; BATCH];
        let mut log = self.log.lock();
        let member = self.listener.number();

        if !log.members.is_of_all(member) {
            return false;
        }
        for place in &mut removed {
            let Some((qp, position)) = log.gone_after(self.listener.cursor()) else {
                log.members.unregister_from_all(member);
                return false;
            };
            // Not the last reference: the log has one, or `removed`.
            let qp: Arc<Registrations> = qp.into();

            *place = qp.forget(&mut log, member);
            self.listener.advance(position);
        }
        true
    }

    /// Takes the next unread event.
    pub(crate) fn next_record(&self) -> Option<xrc_rcv_record> {
        let mut next = None;

        self.take(1, |_, record| next.replace(record).is_none());
        next
    }

    /// Writes a record to a place of the buffer. Returns whether it was written as a whole.
    fn write(&self, buffer: &UserBuffer, place: usize, record: xrc_rcv_record) -> bool {
        let (known, _) = self.record_size.fit(&record);

        buffer.write_nofault(place * self.record_size.bytes(), known)
    }

    /// Writes the zeroes that follow a record where the process knows a longer one, to as many
    /// places of the buffer as there are, until a page is missing. Returns the number of places.
    ///
    /// Without the lock: the buffer can be memory of a device, where each store takes long.
    fn write_zeroes(&self, buffer: &UserBuffer, places: usize) -> usize {
        let size = self.record_size.bytes();
        let zeroes = self.record_size.zeroes();
        let has_place = |place: usize| {
            zeroes.is_empty() || buffer.write_nofault((place + 1) * size - zeroes.len(), zeroes)
        };

        (0..places).take_while(|place| has_place(*place)).count()
    }

    /// Waits for events, and copies them. Returns their number, or `None` if a page is missing.
    fn copy(&self, buffer: &UserBuffer, places: usize, nonblocking: bool) -> Result<Option<usize>> {
        // The condition sleeps where the walk drops the last reference to a QP with so many members
        // that its rows are in memory of `vmalloc()`.
        self.listener.wait_queue().wait_interruptible(|| {
            // After the end no event is added: a walk that begins later misses none.
            let has_ended = self.listener.has_ended();

            match self.take(places, |place, record| self.write(buffer, place, record)) {
                Walk::Found(copied) => Some(Ok(Some(copied))),
                Walk::Fault => Some(Ok(None)),
                Walk::More => Some(Err(EINTR)),
                Walk::End if has_ended => Some(Err(EIO)),
                Walk::End => nonblocking.then_some(Err(EAGAIN)),
            }
        })?
    }

    /// Implements `read(2)`: writes whole records to the `length` bytes at `buffer`, and returns
    /// their size.
    pub(crate) fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize> {
        let size = self.record_size.bytes();

        if length < size {
            return Err(EINVAL);
        }

        let places = (length / size).min(BATCH);
        let buffer = UserBuffer::new(buffer, places * size);

        for _ in 0..ATTEMPTS {
            let places = self.write_zeroes(&buffer, places);

            if places != 0 {
                if let Some(copied) = self.copy(&buffer, places, nonblocking)? {
                    return Ok(copied * size);
                }
            }
            buffer.fault_in(size)?;
            if is_killed() {
                return Err(EINTR);
            }
        }
        Err(EFAULT)
    }

    /// Returns the queue whose tasks are woken when the result of [`Self::poll`] changes.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        self.listener.wait_queue()
    }

    /// Implements `poll(2)`: returns a mask of `EPOLL…` bits.
    pub(crate) fn poll(&self) -> u32 {
        let mut mask = 0;

        if self.listener.has_ended() {
            mask |= bindings::POLLHUP;
        }
        if self.is_readable() {
            mask |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        mask
    }

    /// Whether there is a record, or the caller was killed before it passed the whole log: an epoll
    /// instance that asks on behalf of several processes would take "no" for all of them, and wait
    /// for a signal that has been given.
    fn is_readable(&self) -> bool {
        !matches!(self.take(0, |_, _| false), Walk::End)
    }

    /// Ends the channel: no event is added after this, or after the end of the QPs of the domain.
    pub(crate) fn end(&self, with_domain: bool) {
        let ends = !with_domain || {
            let mut log = self.log.lock();

            self.listener.end_with_qps();
            log.members.note_ending()
        };

        if ends {
            self.listener.end();
        }
    }
}
