// SPDX-License-Identifier: GPL-2.0

//! A process that does its steps of each program.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

use crate::channel_ioctl::ChannelIoctl;
use crate::device::{self, QpCount};
use crate::errno::errno;
use crate::futex::{self, HOUR};
use crate::methods::{Ioctl, Objects, Place};
use crate::program::*;
use crate::room::Room;
use crate::shared::{Fact, NewChannel, RECORDS, Shared, State};
use crate::uapi::*;

const FILES: [Option<&str>; DOMAINS] = [Some("a"), Some("b"), None];
/// Of so many UNREG and DESTROY, one is followed by a count of the device's QPs: that takes longer
/// than the call.
const COUNTED: usize = 8;

/// Does the steps of one process, or of all.
pub struct Worker {
    /// The process whose step it does.
    id: Cell<usize>,
    does_all: bool,
    shared: &'static Shared,
    room: Room,
    qp_count: QpCount,
    /// The first descriptor that steps opened.
    first_fd: i32,
}

/// Does the steps of a process of all programs.
pub fn serve(id: usize, shared: &'static Shared) -> ! {
    let worker = Worker::new(id, false, shared);
    worker.close_all();
    let state = &shared.workers[id];
    loop {
        let generation = shared.generation.load(SeqCst);
        if state.completed.load(SeqCst) == generation {
            futex::wait(&shared.generation, generation, !0, HOUR);
            continue;
        }
        worker.program();
        state.completed.store(generation, SeqCst);
        shared.finished.fetch_add(1, SeqCst);
        futex::wake(&shared.finished, !0);
    }
}

impl Worker {
    fn new(id: usize, does_all: bool, shared: &'static Shared) -> Worker {
        let (room, qp_count) = (Room::new(), QpCount::new());
        // SAFETY: No pointers are passed to the call.
        let first_fd = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3) };
        close(first_fd);
        Worker {
            id: id.into(),
            does_all,
            shared,
            room,
            qp_count,
            first_fd,
        }
    }

    /// Returns a worker that does the steps of all processes, in this one.
    pub fn alone(shared: &'static Shared) -> Worker {
        Worker::new(0, true, shared)
    }

    /// Runs a program in which no process is killed.
    pub fn run_alone(&self) {
        self.program();
    }

    fn state(&self) -> &'static State {
        &self.shared.workers[self.id.get()]
    }

    /// Does the steps that are its own, from the first that no predecessor has begun.
    fn program(&self) {
        let race = self.shared.race.load(SeqCst) != 0;
        let count = self.shared.count.load(SeqCst) as usize;
        for index in self.state().next.load(SeqCst) as usize..count {
            let step = self.shared.step(index);
            if self.does_all {
                self.id.set(step.process());
                self.shared.counts.steps.fetch_add(1, SeqCst);
            } else if step.process() != self.id.get() {
                continue;
            } else if !race {
                self.wait_for_turn(index);
            }
            self.state().next.store(index as u32 + 1, SeqCst);
            let mut fact = Fact::default();
            let result = self.step(&step, &mut fact);
            self.note_descriptors(&mut fact);
            if !race && may_end_qps(&step.call, index) {
                let device = self.shared.device.index.load(SeqCst);
                fact.device_qps = self.qp_count.read(device);
            }
            self.shared.finish(index, result, fact);
            if !race && !self.does_all {
                self.shared.pass(self.id.get(), index);
            }
        }
    }

    fn note_descriptors(&self, fact: &mut Fact) {
        fact.file = self.state().file_number.get().map(u64::from);
        for (fact, number) in fact.channels.iter_mut().zip(&self.state().channel_numbers) {
            *fact = number.get().map(u64::from);
        }
    }

    fn wait_for_turn(&self, index: usize) {
        loop {
            let turn = self.shared.turn.load(SeqCst);
            if turn as usize == index {
                return;
            }
            futex::wait(&self.shared.turn, turn, 1 << self.id.get(), HOUR);
        }
    }

    /// Returns the descriptor of the file, which is opened if there is none.
    fn file(&self) -> Result<i32, i32> {
        if let Some(fd) = self.state().file.get() {
            return Ok(fd as i32);
        }
        let fd = device::open(self.shared.device.uverbs.load(SeqCst))?;
        self.state().file.replace(Some(fd as u32));
        let number = self.shared.files.fetch_add(1, SeqCst) + 1;
        self.state().file_number.replace(Some(number));
        Ok(fd)
    }

    /// Returns the handle of a domain, which is opened if it is not open.
    fn open_domain(&self, which: usize, file: i32, fact: &mut Fact) -> Result<u64, i32> {
        let domain = &self.state().domains[which];
        if let Some(handle) = domain.get() {
            return Ok(handle.into());
        }
        let path = FILES[which].map(|name| format!("/tmp/fuzz{}-{name}", device::number()));
        let handle = device::open_domain(file, path.as_deref())?;
        domain.replace(Some(handle));
        fact.opened[which] = Some(handle.into());
        Ok(handle.into())
    }

    /// Returns the handle of the domain that a call names.
    fn domain(&self, call: &Call, file: i32, fact: &mut Fact) -> Result<u64, i32> {
        if let Call::Channel { channel, .. } = call {
            return self.open_domain(domain_of(slot_of(*channel).unwrap_or(0)), file, fact);
        }
        match call.domain() {
            Some(which) if which < DOMAINS as u64 => self.open_domain(which as usize, file, fact),
            other => Ok(other.unwrap_or(0)),
        }
    }

    fn objects(&self, call: &Call, file: i32, fact: &mut Fact) -> Result<Objects, i32> {
        let domain = self.domain(call, file, fact)?;
        fact.domain = Some(domain);
        fact.qp = self.qp(call);
        let channel = match call.channel() {
            _ if matches!(call, Call::Channel { .. }) => None,
            Some(slot) if slot < SLOTS as u64 => {
                Some(self.channel(slot as usize, file, fact)? as u64)
            }
            other => other,
        };
        Ok(Objects {
            domain,
            channel,
            qp: fact.qp,
        })
    }

    /// Returns the number of the QP that a call names.
    fn qp(&self, call: &Call) -> u64 {
        match call.qp() {
            None => 0,
            Some(slot) if slot < SLOTS as u64 => self.shared.qps[slot as usize].load(SeqCst).into(),
            Some(number) => number & u64::from(u32::MAX),
        }
    }

    /// Returns the descriptor of a channel, which is created if there is none.
    fn channel(&self, slot: usize, file: i32, fact: &mut Fact) -> Result<i32, i32> {
        let state = self.state();
        if state.channels[slot].get().is_none() {
            let domain = self.open_domain(domain_of(slot), file, fact)?;
            let mut ioctl = Ioctl::new_channel(domain);
            let result = self.tally(Name::Channel, ioctl.call(file));
            if result < 0 {
                fact.failed_channel = Some(domain);
                return Err(result);
            }
            self.keep_channel(slot, &ioctl, domain, None, fact);
        }
        fact.channel = state.channel_numbers[slot].get().map(u64::from);
        Ok(state.channels[slot].get().map_or(-1, |fd| fd as i32))
    }

    fn keep_channel(&self, slot: usize, ioctl: &Ioctl, domain: u64, size: Arg, fact: &mut Fact) {
        if let Some(fd) = ioctl.answer(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD) {
            // SAFETY: No pointers are passed to the call.
            unsafe { libc::fcntl(fd as i32, libc::F_SETFL, libc::O_NONBLOCK) };
            let number = self.shared.channels.fetch_add(1, SeqCst) + 1;
            fact.new_channel = Some(NewChannel {
                number: number.into(),
                domain,
            });
            let size = size.map_or(XRC_RCV_RECORD_SIZE_VER1, |size| size as u32);
            self.set_channel(slot, Some((fd as u32, number, size)));
        }
    }

    /// Replaces a channel, by its descriptor, its number and the size of its records.
    fn set_channel(&self, slot: usize, channel: Option<(u32, u32, u32)>) {
        let state = self.state();
        if let Some(fd) = state.channels[slot].replace(channel.map(|(fd, ..)| fd)) {
            close(fd as i32);
        }
        state.channel_numbers[slot].replace(channel.map(|(_, number, _)| number));
        state.record_sizes[slot].replace(channel.map(|(.., size)| size));
    }

    /// Makes the call of a step. Returns its result.
    fn step(&self, step: &Step, fact: &mut Fact) -> i32 {
        match step.call {
            Call::Read { .. } => self.read(&step.call, fact),
            Call::Poll { channel } => self.poll(channel, fact),
            Call::CloseChannel { channel } => {
                if let Some(slot) = slot_of(channel) {
                    self.set_channel(slot, None);
                }
                0
            }
            Call::TakeChannel { channel, worker } => self.take_channel(channel, worker),
            Call::TakeFile { worker } => self.take_file(worker),
            Call::CloseDomain { domain } => self.close_domain(domain, fact),
            Call::CloseFile {} => {
                self.close_file();
                0
            }
            Call::Kill { worker } => self.kill(worker),
            Call::Remove {} => match self.shared.device.index.swap(0, SeqCst) {
                0 => -libc::ENODEV,
                index => device::remove(index),
            },
            Call::End {} => {
                self.end();
                0
            }
            Call::IoctlReg { .. } | Call::IoctlUnreg { .. } => self
                .channel_ioctl(&step.call, fact)
                .unwrap_or_else(|error| error),
            _ => self.ioctl(step, fact).unwrap_or_else(|error| error),
        }
    }

    /// Counts a call of the module with its result.
    fn tally(&self, name: Name, result: i32) -> i32 {
        let succeeded = u64::from(result >= 0);
        let counts = &self.shared.counts;
        counts.calls.fetch_add(1, SeqCst);
        counts.succeeded.fetch_add(succeeded, SeqCst);
        let of_call = &counts.by_call[name as usize];
        of_call.calls.fetch_add(1, SeqCst);
        of_call.succeeded.fetch_add(succeeded, SeqCst);
        result
    }

    fn ioctl(&self, step: &Step, fact: &mut Fact) -> Result<i32, i32> {
        let file = self.file()?;
        let objects = self.objects(&step.call, file, fact)?;
        let place = Place {
            room: &self.room,
            peer: device::number(),
        };
        let Some(mut ioctl) = Ioctl::new(step, &objects, &place) else {
            return Ok(0);
        };
        let result = self.tally(step.call.name(), ioctl.call(file));
        if result == 0 && !step.spoils.make_another() {
            self.remember(step, &ioctl, &objects, fact);
        }
        Ok(result)
    }

    fn channel_ioctl(&self, call: &Call, fact: &mut Fact) -> Result<i32, i32> {
        let fd = self.channel_of(call.channel(), fact)?;
        fact.qp = self.qp(call);
        let Some(ioctl) = ChannelIoctl::new(call, fact.qp as u32, &self.room) else {
            return Ok(0);
        };
        let result = self.tally(call.name(), ioctl.call(fd));
        fact.done = Some(self.room.done().into());
        Ok(result)
    }

    /// Keeps what a call that succeeded has returned.
    fn remember(&self, step: &Step, ioctl: &Ioctl, objects: &Objects, fact: &mut Fact) {
        let word = |id| {
            let address = ioctl.answer(id);
            address.and_then(|address| self.room.value_at::<u32>(address))
        };
        match step.call {
            Call::Alloc { qp, .. } => {
                let serial = ioctl.answer(XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL);
                let serial = serial.and_then(|address| self.room.value_at(address));
                fact.new_serial = serial.unwrap_or(0);
                let number = word(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN).unwrap_or(0);
                fact.new_qp = number.into();
                if let Some(slot) = slot_of(qp) {
                    self.shared.qps[slot].store(number, SeqCst);
                }
            }
            Call::List { .. } => {
                fact.total = word(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL).map(u64::from);
            }
            Call::Channel { channel, size, .. } => {
                // The size that was passed, even if the attribute was spoiled, is not known then:
                // there are no records to be looked at.
                let size = if step.spoils.is_empty() {
                    size
                } else {
                    Some(0)
                };
                if let Some(slot) = slot_of(channel) {
                    self.keep_channel(slot, ioctl, objects.domain, size, fact);
                }
            }
            _ => (),
        }
    }

    /// Returns the descriptor of a channel that is called itself.
    fn channel_of(&self, channel: Arg, fact: &mut Fact) -> Result<i32, i32> {
        match slot_of(channel) {
            Some(slot) => self.channel(slot, self.file()?, fact),
            None => Ok(-1),
        }
    }

    fn read(&self, call: &Call, fact: &mut Fact) -> i32 {
        let Call::Read {
            channel,
            room,
            pointer,
        } = *call
        else {
            return 0;
        };
        let fd = match self.channel_of(channel, fact) {
            Ok(fd) => fd,
            Err(error) => return error,
        };
        let length = room.unwrap_or(256) % 0x1_0000;
        let address = pointer.map_or(self.room.output(0), |which| self.room.hostile(which));
        // SAFETY: The address is of the room, with so much memory behind it, or of nothing of this
        // process.
        let size = unsafe { libc::syscall(libc::SYS_read, fd, address, length) };
        let result = self.tally(Name::Read, if size < 0 { -errno() } else { size as i32 });
        if let Some(slot) = slot_of(channel) {
            let size = self.state().record_sizes[slot].get();
            fact.record_size = size.filter(|size| *size != 0).map(u64::from);
            if pointer.is_none() {
                self.note_records(result, fact);
            }
        }
        result
    }

    /// Keeps the records of so many bytes.
    fn note_records(&self, bytes: i32, fact: &mut Fact) {
        let size = fact.record_size.unwrap_or(0) as usize;
        let bytes = usize::try_from(bytes).unwrap_or(0);
        let count = bytes.checked_div(size).unwrap_or(0);
        let records = self.room.values(size, count.min(RECORDS));
        for (fact, record) in fact.records.iter_mut().zip(records) {
            *fact = record;
        }
    }

    fn poll(&self, channel: Arg, fact: &mut Fact) -> i32 {
        let fd = match self.channel_of(channel, fact) {
            Ok(channel) => channel,
            Err(error) => return error,
        };
        let result = match poll(fd, 0) {
            Ok(revents) => revents.into(),
            Err(error) => error,
        };
        self.tally(Name::Poll, result)
    }

    fn take_channel(&self, channel: Arg, from: Arg) -> i32 {
        let Some(slot) = slot_of(channel) else {
            return 0;
        };
        let other = &self.shared.workers[process_of(from)];
        let fd = self.take(other, other.channels[slot].get());
        let size = other.record_sizes[slot].get();
        if let (Ok(fd), Some(number), Some(size)) = (fd, other.channel_numbers[slot].get(), size) {
            // SAFETY: No pointers are passed to the call.
            unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
            self.set_channel(slot, Some((fd as u32, number, size)));
        } else if let Ok(fd) = fd {
            // The other process has closed the channel meanwhile.
            close(fd);
        }
        fd.err().unwrap_or(0)
    }

    /// Uses the file of another process from here on, with all objects in it.
    fn take_file(&self, from: Arg) -> i32 {
        let (mine, other) = (self.state(), &self.shared.workers[process_of(from)]);
        if std::ptr::eq(mine, other) {
            return 0;
        }
        let fd = match self.take(other, other.file.get()) {
            Ok(fd) => fd,
            Err(error) => return error,
        };
        if let Some(before) = mine.file.replace(Some(fd as u32)) {
            close(before as i32);
        }
        mine.file_number.replace(other.file_number.get());
        for (mine, other) in mine.domains.iter().zip(&other.domains) {
            mine.replace(other.get());
        }
        0
    }

    /// Returns a new descriptor of the file that another process has.
    fn take(&self, other: &State, fd: Option<u32>) -> Result<i32, i32> {
        let pid = if self.does_all {
            std::process::id() as i32
        } else {
            other.pid.load(SeqCst)
        };
        // SAFETY: No pointers are passed to the call.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if pidfd < 0 {
            return Err(-errno());
        }
        let fd = fd.map_or(-1, |fd| fd as i32);
        // SAFETY: No pointers are passed to the call.
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd, fd, 0) } as i32;
        let result = if taken < 0 { Err(-errno()) } else { Ok(taken) };
        close(pidfd);
        result
    }

    fn close_domain(&self, domain: Arg, fact: &mut Fact) -> i32 {
        let which = domain.unwrap_or(0) as usize % DOMAINS;
        let Some(handle) = self.state().domains[which].replace(None) else {
            return 0;
        };
        match self.file() {
            Ok(file) => {
                fact.domain = Some(handle.into());
                device::close_domain(file, handle)
            }
            Err(error) => error,
        }
    }

    fn close_file(&self) {
        if let Some(fd) = self.state().file.get() {
            close(fd as i32);
        }
        self.state().forget_file();
    }

    fn kill(&self, victim: Arg) -> i32 {
        let pid = self.shared.pid(process_of(victim));
        // SAFETY: No pointers are passed to the call.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if pidfd < 0 {
            return 0;
        }
        // SAFETY: No pointers are passed to the call.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // Its files are closed when it has ended.
        let _ = poll(pidfd, 240_000);
        close(pidfd);
        0
    }

    /// Closes what the process has.
    fn end(&self) {
        let state = self.state();
        // The descriptors of the other processes are this one's as well, and are closed later.
        if self.does_all && self.id.get() + 1 < PROCESSES {
            for fd in std::iter::once(&state.file).chain(&state.channels) {
                if let Some(fd) = fd.get() {
                    close(fd as i32);
                }
            }
        } else {
            self.close_all();
        }
        state.forget();
    }

    fn close_all(&self) {
        // SAFETY: Nothing of this process uses these descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, self.first_fd, u32::MAX, 0) };
    }
}

/// Whether QPs may end with the call, and are counted afterwards.
fn may_end_qps(call: &Call, index: usize) -> bool {
    let often = matches!(
        call,
        Call::Unreg { .. } | Call::IoctlUnreg { .. } | Call::Destroy { .. }
    );
    call.closes() || often && index % COUNTED == 0
}

/// Waits for input. Returns the events, or a negative errno.
fn poll(fd: i32, milliseconds: i32) -> Result<i16, i32> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: One element is passed, which is valid during the call.
    match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
        0.. => Ok(poll.revents),
        _ => Err(-errno()),
    }
}

fn close(fd: i32) {
    // SAFETY: The descriptor is of a step, and nothing else uses it.
    unsafe { libc::close(fd) };
}
