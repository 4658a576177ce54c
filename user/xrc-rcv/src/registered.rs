// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The registrations of event channels, as this process made them.
//!
//! A record of the kernel's has the total of its events in the life of the QP. A caller gets the
//! cookie of the registration, the number of events since the last that was returned, and none that
//! its mask excludes. A record of no registration that is known here, be it that it has ended or
//! that another process made it, is not returned. OVERRUN, which is of no registration, is.
//!
//! A channel of all QPs is registered with each by the kernel: one is noted here with its first
//! record, with the label as its cookie, and forgotten with its last.
//!
//! UNREG of a number ends the registrations with all QPs that have or had it. While there is one
//! with a later QP of the number, the older ones, whose QPs are gone, end here alone.
//!
//! The tables of all channels have one lock, held for a look-up or a change and over no system
//! call. `fork()` takes it, so that the child finds it free and the tables consistent. A call that
//! makes or ends registrations of a channel holds that channel's lock of calls: a thread that reads
//! a record before the call has returned, and does not know the registration, waits for the call.
//! So no event of a new registration is lost. ALLOC may take long: calls of ALLOC share the lock,
//! and readers of other registrations do not wait.

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::ffi::xrc_rcv_event;
use crate::uapi::{
    XRC_RCV_EVENT_OVERRUN, XRC_RCV_EVENT_QP_ADDED, XRC_RCV_EVENT_QP_GONE, xrc_rcv_record,
    xrc_rcv_reg_info,
};
use crate::uverbs::Result;

/// The registrations of one event channel that this process made.
#[derive(Debug)]
pub struct Registered {
    /// The key of the channel's table.
    channel: u64,
    /// The uverbs file through which this process created the channel, and its device.
    file: Option<(RawFd, libc::dev_t)>,
}

/// The parameters of a registration.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) cookie: u64,
    /// Bit n is set for events of type n.
    pub(crate) events: u64,
}

struct Registration {
    /// The serial number of its QP, which no other QP of the domain has.
    serial: u64,
    choice: Choice,
    /// The total of each type when its last event was returned, or else of the registration;
    /// [`UNKNOWN`] if a channel of all QPs is younger than the QP.
    counts: [u64; 17],
}

/// The total of no event.
const UNKNOWN: u64 = u64::MAX;

#[derive(Default)]
struct Table {
    /// Those with the QPs that have or had a number, the oldest first: mostly one.
    registrations: HashMap<u32, Vec<Registration>>,
    /// The channel is registered with all QPs.
    is_of_all: bool,
    calls: Arc<RwLock<()>>,
}

struct Tables {
    /// The number of channels that there ever were.
    created: u64,
    channels: BTreeMap<u64, Table>,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables {
    created: 0,
    channels: BTreeMap::new(),
});

fn lock() -> MutexGuard<'static, Tables> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Registered {
    fn default() -> Registered {
        prepare_for_fork();
        let mut tables = lock();
        tables.created += 1;
        let channel = tables.created;
        tables.channels.insert(channel, Table::default());
        Registered {
            channel,
            file: None,
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let table = lock().channels.remove(&self.channel);
        // It may be large.
        drop(table);
    }
}

impl Registered {
    /// Those of a channel that is registered with all QPs.
    pub fn of_all() -> Registered {
        let registered = Registered::default();
        registered.with_table(|table| table.is_of_all = true);
        registered
    }

    /// Those of a channel that was created through this file.
    pub(crate) fn created_through(mut self, file: BorrowedFd<'_>) -> Registered {
        self.file = Some((file.as_raw_fd(), device(file)));
        self
    }

    /// Whether the channel may be of the device of this file: it was not created on another.
    pub(crate) fn may_be_of(&self, file: BorrowedFd<'_>) -> bool {
        // The descriptor is mostly the same, which saves a system call.
        self.file.is_none_or(|(created, created_on)| {
            created == file.as_raw_fd() || created_on == device(file)
        })
    }

    /// Calls a function with the channel's table.
    fn with_table<T>(&self, function: impl FnOnce(&mut Table) -> T) -> T {
        function(lock().channels.entry(self.channel).or_default())
    }

    fn calls(&self) -> Arc<RwLock<()>> {
        self.with_table(|table| table.calls.clone())
    }

    /// Calls REG with QPs. `call` returns for how many of them it has filled an element, and why
    /// not for the next. A registration that is known already stays as it is.
    pub(crate) fn register(
        &self,
        qp_nums: &[u32],
        choice: Choice,
        call: impl FnOnce(&mut [xrc_rcv_reg_info]) -> (usize, Result<()>),
    ) -> (usize, Result<()>) {
        let mut infos = vec![xrc_rcv_reg_info::default(); qp_nums.len()];
        let calls = self.calls();
        let _turn = calls.write().unwrap_or_else(PoisonError::into_inner);
        let (done, result) = call(&mut infos);
        self.with_table(|table| {
            for (qp_num, info) in qp_nums.iter().zip(&infos).take(done) {
                let new = Registration {
                    serial: info.serial,
                    choice,
                    counts: info.counts,
                };
                table.note(*qp_num, new);
            }
        });
        (done, result)
    }

    /// Calls ALLOC. `call` sets the serial number, and returns the QP number.
    pub(crate) fn alloc(
        &self,
        choice: Choice,
        call: impl FnOnce(&mut u64) -> Result<u32>,
    ) -> Result<u32> {
        let calls = self.calls();
        let _turn = calls.read().unwrap_or_else(PoisonError::into_inner);
        let mut serial = 0;
        let qp_num = call(&mut serial)?;
        let new = Registration {
            serial,
            choice,
            counts: Default::default(),
        };
        self.with_table(|table| table.note(qp_num, new));
        Ok(qp_num)
    }

    /// Ends the oldest registration with each of the QP numbers. Calls UNREG with those of which
    /// there is no other: `call` returns how many of them were processed, and why not the next.
    pub(crate) fn unregister(
        &self,
        qp_nums: &[u32],
        call: impl FnOnce(&[u32]) -> (usize, Result<()>),
    ) -> (usize, Result<()>) {
        let calls = self.calls();
        let _turn = calls.write().unwrap_or_else(PoisonError::into_inner);
        if self.with_table(|table| table.is_of_all) {
            // The kernel ends the registrations with the channel.
            return (qp_nums.len(), Ok(()));
        }
        let (done, result) = match self.with_table(|table| table.last_of_their_numbers(qp_nums)) {
            None => call(qp_nums),
            Some(last) => {
                let numbers: Vec<_> = last.iter().map(|index| qp_nums[*index]).collect();
                let (done, result) = match &numbers[..] {
                    [] => (0, Ok(())),
                    numbers => call(numbers),
                };
                (last.get(done).copied().unwrap_or(qp_nums.len()), result)
            }
        };
        self.with_table(|table| {
            for qp_num in qp_nums.iter().take(done) {
                table.remove(*qp_num, 0);
            }
        });
        (done, result)
    }

    /// Calls `event` with the event of each record that has one.
    pub(crate) fn translate(
        &self,
        records: impl Iterator<Item = xrc_rcv_record> + Clone,
        event: impl FnMut(xrc_rcv_event),
    ) {
        let calls = self.with_table(|table| {
            let knows = |record: xrc_rcv_record| {
                table.is_of_all
                    || record.type_ == XRC_RCV_EVENT_OVERRUN
                    || table.registration(record.qp_num, record.serial).is_some()
            };
            (!records.clone().all(knows)).then(|| table.calls.clone())
        });
        if let Some(calls) = calls {
            // A call may just have registered, and not be noted.
            drop(calls.write().unwrap_or_else(PoisonError::into_inner));
        }
        self.with_table(|table| {
            let events = records.filter_map(|record| match record.type_ {
                XRC_RCV_EVENT_OVERRUN => Some(xrc_rcv_event {
                    type_: record.type_,
                    count: 1,
                    ..Default::default()
                }),
                _ => table.event(&record),
            });
            events.for_each(event);
        });
    }
}

/// The device that a file is of; that of no file if it is closed.
fn device(file: BorrowedFd<'_>) -> libc::dev_t {
    // SAFETY: `stat` consists of integers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is there to be written.
    unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) };
    stat.st_rdev
}

impl Table {
    /// Notes a registration that a call has made, unless it is known. With a channel of all QPs a
    /// call makes none: the kernel has, and the cookie of its events is the label.
    fn note(&mut self, qp_num: u32, registration: Registration) {
        if !self.is_of_all {
            self.insert(qp_num, registration);
        }
    }

    /// Inserts a registration, unless there is one with the QP.
    fn insert(&mut self, qp_num: u32, registration: Registration) {
        let of_number = self.registrations.entry(qp_num).or_default();
        if let Err(place) = place(of_number, registration.serial) {
            of_number.reserve_exact(1);
            of_number.insert(place, registration);
        }
    }

    fn registration(&mut self, qp_num: u32, serial: u64) -> Option<&mut Registration> {
        let of_number = self.registrations.get_mut(&qp_num)?;
        let place = place(of_number, serial).ok()?;
        Some(&mut of_number[place])
    }

    fn remove(&mut self, qp_num: u32, place: usize) {
        if let Some(of_number) = self.registrations.get_mut(&qp_num) {
            if of_number.len() > 1 {
                of_number.remove(place);
            } else {
                self.registrations.remove(&qp_num);
            }
        }
    }

    /// Returns the event of a record, if there is a registration that wants it.
    fn event(&mut self, record: &xrc_rcv_record) -> Option<xrc_rcv_event> {
        let (qp_num, serial) = (record.qp_num, record.serial);
        if self.is_of_all {
            let is_new = record.type_ == XRC_RCV_EVENT_QP_ADDED;
            let choice = Choice {
                cookie: record.label,
                events: u64::MAX,
            };
            let counts = [if is_new { 0 } else { UNKNOWN }; 17];
            let new = Registration {
                serial,
                choice,
                counts,
            };
            self.insert(qp_num, new);
        }
        let event = self.registration(qp_num, serial)?.event(record);
        if self.is_of_all && record.type_ == XRC_RCV_EVENT_QP_GONE {
            let place = place(self.registrations.get(&qp_num)?, serial).ok()?;
            self.remove(qp_num, place);
        }
        event
    }

    fn count(&self, qp_num: u32) -> usize {
        self.registrations.get(&qp_num).map_or(0, Vec::len)
    }

    /// The indices of the numbers that leave no registration with a QP of the number, if those
    /// before each end the oldest ones. `None` if these are all numbers.
    fn last_of_their_numbers(&self, qp_nums: &[u32]) -> Option<Vec<usize>> {
        if qp_nums.iter().all(|qp_num| self.count(*qp_num) <= 1) {
            return None;
        }
        let mut ended = BTreeMap::new();
        let mut last = vec![];
        for (index, qp_num) in qp_nums.iter().enumerate() {
            let ended = ended.entry(*qp_num).or_insert(0);
            *ended += 1;
            if self.count(*qp_num) <= *ended {
                last.push(index);
            }
        }
        Some(last)
    }
}

/// The place of the registration with a QP among those of its number, or the place for it.
fn place(of_number: &[Registration], serial: u64) -> std::result::Result<usize, usize> {
    of_number.binary_search_by_key(&serial, |registration| registration.serial)
}

impl Registration {
    /// Takes note of a record, and returns its event: `None` if the mask excludes it, or another
    /// thread has returned a later record before, or it was read for an earlier registration with
    /// the QP.
    fn event(&mut self, record: &xrc_rcv_record) -> Option<xrc_rcv_event> {
        let bit = 1u64.checked_shl(record.type_)?;
        if self.choice.events & bit == 0 {
            return None;
        }
        let count = match self.counts.get_mut(record.type_ as usize) {
            Some(returned) => {
                if *returned == UNKNOWN {
                    *returned = record.count.saturating_sub(1);
                }
                let count = record.count.saturating_sub(*returned);
                *returned += count;
                u32::try_from(count).unwrap_or(u32::MAX)
            }
            // QP_GONE, which comes once, or a type of a later version, whose total at the
            // registration is not known.
            None => 1,
        };
        (count != 0).then_some(xrc_rcv_event {
            cookie: self.choice.cookie,
            last_ns: record.last_ns,
            qp_num: record.qp_num,
            type_: record.type_,
            count,
            reserved: 0,
        })
    }
}

/// The lock while the process forks.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Tables>>>);

// SAFETY: Only the thread that forks, and its copy in the child, use it: the lock is theirs
// meanwhile.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let tables = lock();
    // SAFETY: This thread has the lock, and so `FORKING` to itself.
    unsafe { *FORKING.0.get() = Some(tables) };
}

extern "C" fn after_fork_in_parent() {
    // SAFETY: This thread has the lock, and so `FORKING` to itself.
    drop(unsafe { (*FORKING.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    // SAFETY: The child's only thread is the copy of the thread that holds the lock.
    if let Some(mut tables) = unsafe { (*FORKING.0.get()).take() } {
        for table in tables.channels.values_mut() {
            // A thread that was in a call is not in the child.
            if table.calls.try_write().is_err() {
                table.calls = Arc::default();
            }
        }
    }
}

/// Once in the life of the process.
fn prepare_for_fork() {
    // Not a `Once`, which would stay locked in a child that is forked meanwhile.
    static PREPARED: AtomicBool = AtomicBool::new(false);

    if !PREPARED.swap(true, Ordering::Relaxed) {
        let handlers = (before_fork, after_fork_in_parent, after_fork_in_child);
        // SAFETY: The handlers are functions of this program. Without memory for them, all is as if
        // they did not exist.
        unsafe { libc::pthread_atfork(Some(handlers.0), Some(handlers.1), Some(handlers.2)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Cause;
    use std::os::fd::AsFd;
    use std::sync::mpsc::channel;

    /// A QP number, and which of the QPs of the domain has or had it.
    type Qp = (u32, u64);

    fn record(qp: Qp, type_: u32, count: u64) -> xrc_rcv_record {
        xrc_rcv_record {
            last_ns: 7,
            serial: qp.1,
            count,
            qp_num: qp.0,
            type_,
            label: 0x1abe1,
        }
    }

    #[test]
    fn a_channel_of_all_has_the_labels_of_its_qps() {
        let registered = Registered::of_all();
        let events = |records: &[xrc_rcv_record]| {
            let mut events = vec![];
            registered.translate(records.iter().copied(), |event| {
                events.push((event.type_, event.cookie, event.count));
            });
            events
        };
        let (new, old) = ((5, 1), (6, 2));
        let added = record(new, XRC_RCV_EVENT_QP_ADDED, 1);
        let gone = |qp| record(qp, XRC_RCV_EVENT_QP_GONE, 1);
        // Of a QP that existed before, events before are not known.
        assert_eq!(
            events(&[
                added,
                record(new, 3, 4),
                record(old, 3, 9),
                record(old, 3, 11)
            ]),
            [
                (XRC_RCV_EVENT_QP_ADDED, 0x1abe1, 1),
                (3, 0x1abe1, 4),
                (3, 0x1abe1, 1),
                (3, 0x1abe1, 2)
            ]
        );
        assert_eq!(
            events(&[gone(new), gone(old)]),
            [(XRC_RCV_EVENT_QP_GONE, 0x1abe1, 1); 2]
        );
        assert_eq!(registered.len(), 0);
    }

    #[test]
    fn a_call_makes_no_registration_with_a_channel_of_all() {
        let registered = Registered::of_all();
        let created = |serial: &mut u64| {
            *serial = QP.1;
            // A reader is faster than the caller of ALLOC.
            let records = [record(QP, XRC_RCV_EVENT_QP_ADDED, 1), record(QP, 3, 2)];
            assert_eq!(registered.events(&records), [(0x1abe1, 1), (0x1abe1, 2)]);
            Ok(QP.0)
        };
        assert_eq!(registered.alloc(with_cookie(42), created), Ok(QP.0));
        registered.add(&[QP, (18, 5)], 1, with_cookie(43));
        assert_eq!(registered.events(&[record(QP, 3, 3)]), [(0x1abe1, 1)]);
        assert_eq!(registered.events(&[record((18, 5), 3, 2)]), [(0x1abe1, 1)]);
    }

    impl Registered {
        /// Registers as if the kernel did so with QPs of these serial numbers and this total of
        /// each type.
        fn add(&self, qps: &[Qp], total: u64, choice: Choice) {
            let qp_nums: Vec<_> = qps.iter().map(|qp| qp.0).collect();
            let filled = self.register(&qp_nums, choice, |infos| {
                for (info, (_, serial)) in infos.iter_mut().zip(qps) {
                    (info.serial, info.counts) = (*serial, [total; 17]);
                }
                (infos.len(), Ok(()))
            });
            assert_eq!(filled, (qps.len(), Ok(())));
        }

        fn remove(&self, qp_nums: &[u32]) {
            let done = self.unregister(qp_nums, |numbers| (numbers.len(), Ok(())));
            assert_eq!(done, (qp_nums.len(), Ok(())));
        }

        /// The numbers that UNREG is called with.
        fn passed(&self, qp_nums: &[u32]) -> Vec<u32> {
            let mut passed = vec![];
            let done = self.unregister(qp_nums, |numbers| {
                passed.extend_from_slice(numbers);
                (numbers.len(), Ok(()))
            });
            assert_eq!(done, (qp_nums.len(), Ok(())));
            passed
        }

        /// The cookies and the counts of the events of records.
        fn events(&self, records: &[xrc_rcv_record]) -> Vec<(u64, u32)> {
            let mut events = vec![];
            self.translate(records.iter().copied(), |event| {
                events.push((event.cookie, event.count));
            });
            events
        }

        /// The number of registrations.
        fn len(&self) -> usize {
            self.with_table(|table| table.registrations.values().map(Vec::len).sum())
        }
    }

    const QP: Qp = (17, 4);

    fn with_cookie(cookie: u64) -> Choice {
        let events = u64::MAX;
        Choice { cookie, events }
    }

    #[test]
    fn counts_are_those_since_the_last_event_of_the_type() {
        let registered = Registered::default();
        registered.add(&[QP], 5, with_cookie(42));
        assert_eq!(registered.events(&[record(QP, 3, 7)]), [(42, 2)]);
        assert_eq!(registered.events(&[record(QP, 16, 6)]), [(42, 1)]);
        let two = [record(QP, 3, 8), record(QP, 3, 11)];
        assert_eq!(registered.events(&two), [(42, 1), (42, 3)]);
        // QP_GONE has no total.
        assert_eq!(registered.events(&[record(QP, 63, 1)]), [(42, 1)]);
        // Of an own QP, all are new.
        let alloc = |serial: &mut u64| {
            *serial = 5;
            Ok(18)
        };
        assert_eq!(registered.alloc(with_cookie(43), alloc), Ok(18));
        assert_eq!(registered.events(&[record((18, 5), 3, 2)]), [(43, 2)]);
    }

    #[test]
    fn a_count_stays_at_its_maximum() {
        let registered = Registered::default();
        registered.add(&[QP], 5, with_cookie(42));
        let most = u64::from(u32::MAX);
        for (total, count) in [(5 + most, u32::MAX), (10 + 2 * most, u32::MAX)] {
            assert_eq!(registered.events(&[record(QP, 3, total)]), [(42, count)]);
        }
        assert_eq!(
            registered.events(&[record(QP, 3, 12 + 2 * most)]),
            [(42, 2)]
        );
    }

    #[test]
    fn a_thread_that_is_late_returns_nothing_again() {
        let registered = Registered::default();
        registered.add(&[QP], 0, with_cookie(42));
        // Two threads have read these, the second of them first.
        assert_eq!(registered.events(&[record(QP, 3, 7)]), [(42, 7)]);
        assert_eq!(registered.events(&[record(QP, 3, 5)]), []);
        assert_eq!(registered.events(&[record(QP, 3, 8)]), [(42, 1)]);
    }

    #[test]
    fn masks_exclude_events() {
        let registered = Registered::default();
        let cookie = 42;
        let events = (1 << 4) | (1 << 63);
        registered.add(&[QP], 0, Choice { cookie, events });
        let records = [3, 4, 16, 63, 64, u32::MAX].map(|type_| record(QP, type_, 1));
        assert_eq!(registered.events(&records), [(42, 1), (42, 1)]);
        // Without a mask there are those of later versions, too.
        registered.add(&[(18, 5)], 0, with_cookie(43));
        assert_eq!(registered.events(&[record((18, 5), 40, 9)]), [(43, 1)]);
    }

    #[test]
    fn a_record_of_no_registration_has_no_event() {
        let registered = Registered::default();
        let other = Registered::default();
        other.add(&[QP], 0, with_cookie(1));
        assert_eq!(registered.events(&[record(QP, 3, 1)]), []);
        registered.add(&[QP], 0, with_cookie(42));
        let records = [
            record((18, 4), 3, 1),
            record(QP, 3, 1),
            record((17, 5), 3, 1),
        ];
        assert_eq!(registered.events(&records), [(42, 1)]);
        // A thread has read a record before the registration ended.
        registered.remove(&[17]);
        assert_eq!(
            registered.events(&[record(QP, 3, 2), record(QP, 63, 1)]),
            []
        );
    }

    #[test]
    fn a_record_of_an_earlier_registration_is_not_one_of_the_next() {
        let registered = Registered::default();
        registered.add(&[QP], 0, with_cookie(1));
        registered.remove(&[17]);
        registered.add(&[QP], 5, with_cookie(2));
        // A thread has read it before the first ended.
        assert_eq!(registered.events(&[record(QP, 3, 5)]), []);
        assert_eq!(registered.events(&[record(QP, 3, 6)]), [(2, 1)]);
    }

    #[test]
    fn a_registration_stays_as_it_is() {
        let registered = Registered::default();
        let (cookie, events) = (1, 1 << 3);
        registered.add(&[QP], 0, Choice { cookie, events });
        registered.add(&[QP, QP, (18, 5)], 5, with_cookie(2));
        let records = [record(QP, 3, 5), record(QP, 4, 6), record((18, 5), 3, 6)];
        assert_eq!(registered.events(&records), [(1, 5), (2, 1)]);
        assert_eq!(registered.len(), 2);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_qp() {
        let registered = Registered::default();
        registered.add(&[QP], 0, with_cookie(1));
        registered.add(&[(17, 9)], 0, with_cookie(2));
        let records = [record(QP, 3, 1), record((17, 9), 3, 1), record(QP, 63, 1)];
        assert_eq!(registered.events(&records), [(1, 1), (2, 1), (1, 1)]);
        // The oldest ends first, and the numbers beside do not.
        registered.add(&[(16, 3), (18, 2)], 0, with_cookie(3));
        registered.remove(&[17]);
        let records = [record(QP, 3, 2), record((17, 9), 3, 2)];
        assert_eq!(registered.events(&records), [(2, 1)]);
        registered.remove(&[17, 17]);
        let records = [
            record((17, 9), 3, 3),
            record((16, 3), 3, 1),
            record((18, 2), 3, 1),
        ];
        assert_eq!(registered.events(&records), [(3, 1), (3, 1)]);
    }

    #[test]
    fn a_channel_has_the_device_that_it_was_created_on() {
        let open = |path| std::fs::File::open(path).unwrap();
        let (file, again, other) = (open("/dev/null"), open("/dev/null"), open("/dev/zero"));
        let registered = Registered::of_all().created_through(file.as_fd());
        assert!(registered.may_be_of(file.as_fd()) && registered.may_be_of(again.as_fd()));
        assert!(!registered.may_be_of(other.as_fd()));
        assert_eq!(registered.events(&[record(QP, 3, 1)]), [(0x1abe1, 1)]);
        let registered = Registered::default();
        assert!(registered.may_be_of(file.as_fd()) && registered.may_be_of(other.as_fd()));
    }

    #[test]
    fn the_kernel_ends_the_last_registration_with_a_number() {
        let registered = Registered::default();
        registered.add(&[QP, (17, 9), (18, 2)], 0, with_cookie(1));
        // The QP of the older one is gone.
        assert_eq!(registered.passed(&[17]), []);
        assert_eq!(registered.events(&[record(QP, 63, 1)]), []);
        assert_eq!(registered.passed(&[17, 19, 18]), [17, 19, 18]);
        assert_eq!(registered.len(), 0);
        registered.add(&[QP, (17, 9), (18, 2)], 0, with_cookie(1));
        assert_eq!(registered.passed(&[17, 18, 17, 17]), [18, 17, 17]);
        assert_eq!(registered.len(), 0);
        // It fails with the second of the two numbers that it gets: the one before was done.
        registered.add(&[QP, (17, 9), (18, 2)], 0, with_cookie(1));
        let failed = Err(Cause::Os(libc::EINTR));
        let ended = registered.unregister(&[17, 18, 17], |numbers| {
            assert_eq!(numbers, [18, 17]);
            (1, failed)
        });
        assert_eq!(ended, (2, failed));
        assert_eq!(registered.len(), 1);
        assert_eq!(registered.unregister(&[17], |_| (0, failed)), (0, failed));
        assert_eq!(registered.events(&[record((17, 9), 3, 1)]), [(1, 1)]);
    }

    #[test]
    fn overrun_is_of_no_registration() {
        let registered = Registered::default();
        let overrun = record((0, 0), XRC_RCV_EVENT_OVERRUN, 1);
        assert_eq!(registered.events(&[overrun]), [(0, 1)]);
        registered.add(&[QP], 0, with_cookie(42));
        let records = [overrun, record(QP, 3, 1)];
        assert_eq!(registered.events(&records), [(0, 1), (42, 1)]);
    }

    #[test]
    fn the_part_of_an_array_that_was_done_counts() {
        let registered = Registered::default();
        let failed = (1, Err(Cause::Os(libc::EINVAL)));
        let filled = registered.register(&[17, 18], with_cookie(42), |infos| {
            infos.iter_mut().for_each(|info| info.serial = 4);
            failed
        });
        assert_eq!(filled, failed);
        let records = [record(QP, 3, 1), record((18, 4), 3, 1)];
        assert_eq!(registered.events(&records), [(42, 1)]);
        registered.add(&[(18, 4)], 0, with_cookie(43));
        assert_eq!(registered.unregister(&[17, 18], |_| failed), failed);
        let records = [record(QP, 3, 2), record((18, 4), 3, 1)];
        assert_eq!(registered.events(&records), [(43, 1)]);
        let refused = registered.alloc(with_cookie(44), |_| Err(Cause::Os(libc::EDQUOT)));
        assert_eq!(refused, Err(Cause::Os(libc::EDQUOT)));
        assert_eq!(registered.len(), 1);
    }

    /// The events of a record that a thread looks at while the kernel has done the call of another,
    /// which goes on after that.
    fn events_in_a_call(
        registered: &Registered,
        record: xrc_rcv_record,
        call: impl FnOnce(Box<dyn FnOnce()>) + Send,
    ) -> Vec<(u64, u32)> {
        let ((made, was_made), (looks, looked)) = (channel(), channel());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                call(Box::new(move || {
                    made.send(()).unwrap();
                    looked.recv().unwrap();
                }));
            });
            was_made.recv().unwrap();
            let mut events = vec![];
            let look = |record| {
                // The thread receives the first of these only.
                let _ = looks.send(());
                record
            };
            registered.translate(std::iter::once(record).map(look), |event| {
                events.push((event.cookie, event.count));
            });
            events
        })
    }

    #[test]
    fn events_of_a_registration_that_is_being_made_are_waited_for() {
        let registered = Registered::default();
        let allocs = |in_call: Box<dyn FnOnce()>| {
            let allocated = registered.alloc(with_cookie(42), |serial| {
                *serial = 4;
                in_call();
                Ok(17)
            });
            assert_eq!(allocated, Ok(17));
        };
        let events = events_in_a_call(&registered, record(QP, 3, 1), allocs);
        assert_eq!(events, [(42, 1)]);

        let registers = |in_call: Box<dyn FnOnce()>| {
            let filled = registered.register(&[18], with_cookie(43), |infos| {
                infos[0].serial = 5;
                in_call();
                (1, Ok(()))
            });
            assert_eq!(filled, (1, Ok(())));
        };
        let events = events_in_a_call(&registered, record((18, 5), 3, 1), registers);
        assert_eq!(events, [(43, 1)]);
    }

    #[test]
    fn events_of_other_registrations_are_not_waited_for() {
        let registered = Registered::default();
        registered.add(&[QP], 0, with_cookie(42));
        // From within a call: if this waited, it would do so for ever.
        let allocated = registered.alloc(with_cookie(43), |serial| {
            *serial = 5;
            assert_eq!(registered.events(&[record(QP, 3, 1)]), [(42, 1)]);
            // Nor does another ALLOC.
            assert!(registered.calls().try_read().is_ok());
            Ok(18)
        });
        assert_eq!(allocated, Ok(18));
        let ended = registered.unregister(&[18], |_| {
            assert_eq!(registered.events(&[record(QP, 3, 2)]), [(42, 1)]);
            (1, Ok(()))
        });
        assert_eq!(ended, (1, Ok(())));
    }

    #[test]
    fn no_event_is_lost_or_returned_twice_by_threads() {
        const EVENTS: u64 = 5000;

        let registered = Registered::default();
        registered.add(&[QP], 0, with_cookie(42));
        let totals = Mutex::new(1..=EVENTS);
        let sum: u64 = std::thread::scope(|scope| {
            let reads = || {
                let mut sum = 0;
                loop {
                    let total = totals.lock().unwrap().next();
                    let Some(total) = total else { break };
                    for (_, count) in registered.events(&[record(QP, 3, total)]) {
                        sum += u64::from(count);
                    }
                }
                sum
            };
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(reads)).collect();
            let churn = scope.spawn(|| {
                for serial in 0..EVENTS {
                    registered.add(&[(18, serial)], 0, with_cookie(1));
                    registered.remove(&[18]);
                }
            });
            churn.join().unwrap();
            readers
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(sum, EVENTS);
        assert_eq!(registered.len(), 1);
    }

    #[test]
    fn nothing_is_left_of_a_channel() {
        let registered = Registered::default();
        let channel = registered.channel;
        registered.add(&[QP], 0, with_cookie(1));
        drop(registered);
        assert!(!lock().channels.contains_key(&channel));
    }

    /// Runs a function in a forked child, in which only the thread that forks goes on. Returns
    /// whether it returned true, within four minutes.
    fn in_child(function: impl FnOnce() -> bool) -> bool {
        // SAFETY: The child calls nothing but the function, and ends.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: An alarm ends a child that waits for a lock; it does not unwind.
                unsafe {
                    libc::alarm(240);
                    libc::_exit(i32::from(!function()))
                }
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is to be written.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                status == 0
            }
        }
    }

    #[test]
    fn a_child_finds_the_locks_free() {
        let registered = Registered::default();
        registered.add(&[QP], 3, with_cookie(42));
        let allocated = registered.alloc(with_cookie(1), |serial| {
            // The call is another thread's for the child.
            *serial = 5;
            std::thread::scope(|scope| {
                let forks = || {
                    in_child(|| {
                        registered.add(&[(19, 6)], 0, with_cookie(43));
                        let records = [record(QP, 3, 5), record((19, 6), 3, 1)];
                        registered.events(&records) == [(42, 2), (43, 1)]
                            && registered.events(&[record((18, 5), 3, 1)]).is_empty()
                    })
                };
                assert!(scope.spawn(forks).join().unwrap());
            });
            Ok(18)
        });
        assert_eq!(allocated, Ok(18));
        // The parent's table is its own.
        let records = [record(QP, 3, 5), record((19, 6), 3, 1)];
        assert_eq!(registered.events(&records), [(42, 2)]);
    }

    #[test]
    fn a_child_finds_the_tables_consistent() {
        let ends = AtomicBool::new(false);
        let registered = Registered::default();
        registered.add(&[QP], 0, with_cookie(42));
        std::thread::scope(|scope| {
            for first in [100, 200] {
                let (registered, ends) = (&registered, &ends);
                scope.spawn(move || {
                    let qps: Vec<_> = (first..first + 100).map(|qp_num| (qp_num, 1)).collect();
                    let qp_nums: Vec<_> = qps.iter().map(|qp| qp.0).collect();
                    while !ends.load(Ordering::Relaxed) {
                        registered.add(&qps, 0, with_cookie(1));
                        registered.remove(&qp_nums);
                    }
                });
            }
            let child_reads =
                |total| in_child(|| registered.events(&[record(QP, 3, total)]) == [(42, 1)]);
            let all = (0..50).all(|_| child_reads(1));
            ends.store(true, Ordering::Relaxed);
            assert!(all);
        });
    }
}
