// SPDX-License-Identifier: GPL-2.0

//! A process that does its steps of each program, and what all of them share.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::device::{self, QpCount};
use crate::methods::{Ioctl, Objects, Room, errno};
#[cfg(feature = "guided")]
use crate::program::Program;
use crate::program::{Call, DOMAINS, Kind, SLOTS, STEPS, Step, WORKERS, domain_of};
use crate::uapi::*;

/// The result of a step that was not run, or whose process was killed in it.
pub const NONE: i32 = i32::MIN;
const MOST: usize = STEPS + WORKERS;
/// `enum rdma_driver_id`
const DRIVER: u32 = 14;
const FILES: [Option<&str>; DOMAINS] = [Some("a"), Some("b"), None];
/// How many calls that may end a QP have one after which QPs are counted.
const COUNTED: usize = 8;

/// In memory that all processes share. The director writes the program while no worker has one.
#[repr(C)]
pub struct Shared {
    /// The number of the program.
    generation: AtomicU32,
    /// The step whose turn it is, unless in a race.
    pub turn: AtomicU32,
    pub race: AtomicU32,
    pub count: AtomicU32,
    /// Of ends of workers, which the director waits for.
    finished: AtomicU32,
    steps: UnsafeCell<[MaybeUninit<Step>; MOST]>,
    pub results: [AtomicI32; MOST],
    /// What the steps named and made; each is that of one process.
    facts: [UnsafeCell<Fact>; MOST],
    /// Files that were opened, and channels.
    files: AtomicU32,
    channels: AtomicU32,
    pub device: Device,
    qps: [AtomicU32; SLOTS],
    workers: [State; WORKERS],
    pub counts: Counts,
}

#[repr(C)]
pub struct Counts {
    /// Calls of the module: all ioctls, read(2) and poll(2) of its channels; and those that succeeded.
    pub calls: AtomicU64,
    pub succeeded: AtomicU64,
    /// By call.
    pub by_call: [[AtomicU64; 2]; 24],
    /// Calls of the programs that were done by one process, in turns and as a race.
    pub by_manner: [AtomicU64; 3],
    /// Steps that were begun by the one process.
    pub steps: AtomicU64,
    pub programs: AtomicU64,
    /// Steps whose results were compared with the model.
    pub compared: AtomicU64,
    pub kills: AtomicU64,
    pub removals: AtomicU64,
}

/// What a step named, with its numbers, and made.
#[derive(Clone, Copy, Default)]
pub struct Fact {
    /// The file of its process afterwards: a number of its own, or 0.
    pub file: u64,
    /// The handles of the domains that it opened, plus 1.
    pub opened: [u64; DOMAINS],
    /// The handle of the domain.
    pub domain: u64,
    /// The number of the channel that it named, or 0.
    pub channel: u64,
    /// The number of the channel that it created, or 0, with the handle of its domain.
    pub new_channel: u64,
    pub channel_domain: u64,
    /// The numbers of the channels that its process has afterwards, or 0.
    pub channels: [u64; SLOTS],
    pub qp: u64,
    pub new_qp: u64,
    /// The number of QPs that a list says, plus 1.
    pub total: u64,
    /// The number of QPs that the device has afterwards, plus 1, if they were counted.
    pub device_qps: u64,
}

/// The device's numbers; no index: it is away.
#[repr(C)]
pub struct Device {
    pub index: AtomicU32,
    pub uverbs: AtomicU32,
    /// How many QPs it has that are not the module's.
    pub own_qps: AtomicU64,
}

/// Of a worker, for the others and for its successor.
#[repr(C)]
struct State {
    pid: AtomicI32,
    /// The last program that it finished.
    completed: AtomicU32,
    /// The step that it began last, plus 1.
    claimed: AtomicU32,
    /// Its file and what it has in it; 0: none.
    file: AtomicI32,
    /// The number of that file.
    file_number: AtomicU32,
    domains: [AtomicU32; DOMAINS],
    channels: [AtomicI32; SLOTS],
    /// The numbers of these.
    channel_numbers: [AtomicU32; SLOTS],
}

// SAFETY: All is atomic but the steps and the facts. The director writes steps, and reads and writes facts, while all
// workers have completed their program. During a program, the worker of a step alone writes its fact. Where the
// director does the steps, all of it is this process's. `program` is for one that does nothing any more.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new() -> &'static Shared {
        let anywhere = std::ptr::null_mut();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let size = size_of::<Shared>();
        // SAFETY: New memory, of which no other part of the program knows.
        let memory = unsafe { libc::mmap(anywhere, size, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED, "no shared memory");
        // SAFETY: The memory is zero, which all members may be, large enough, aligned to a page, and stays.
        unsafe { &*memory.cast::<Shared>() }
    }

    /// Lets the workers begin.
    pub fn start(&self, race: bool, steps: &[Step]) {
        self.write(race, steps);
        self.generation.fetch_add(1, SeqCst);
        futex_wake(&self.generation, !0);
    }

    /// The caller does the steps, or starts the workers.
    pub fn write(&self, race: bool, steps: &[Step]) {
        let ends = (0..WORKERS).map(Step::end);
        let mut count = 0;
        for step in steps.iter().copied().chain(ends) {
            // SAFETY: All workers have completed the last program, and there is room for the steps.
            unsafe { (*self.steps.get())[count].write(step) };
            self.results[count].store(NONE, SeqCst);
            // SAFETY: As above.
            unsafe { *self.facts[count].get() = Fact::default() };
            count += 1;
        }
        self.count.store(count as u32, SeqCst);
        self.race.store(u32::from(race), SeqCst);
        self.turn.store(0, SeqCst);
        for worker in &self.workers {
            worker.claimed.store(0, SeqCst);
        }
        for qp in &self.qps {
            qp.store(0, SeqCst);
        }
    }

    pub fn step(&self, index: usize) -> Step {
        // SAFETY: Steps below `count` were written before the generation, which the caller has read, or by the caller.
        unsafe { (*self.steps.get())[index].assume_init() }
    }

    /// The program, as it was written last, of a process that is stuck in it.
    #[cfg(feature = "guided")]
    pub fn program(&self) -> Program {
        let count = (self.count.load(SeqCst) as usize).saturating_sub(WORKERS);
        Program {
            race: self.race.load(SeqCst) != 0,
            steps: (0..count).map(|index| self.step(index)).collect(),
        }
    }

    /// The facts of a step, after all workers have completed the program.
    pub fn fact(&self, index: usize) -> Fact {
        debug_assert!(self.all_completed());
        // SAFETY: The workers write none before the next program, which is the caller's to start.
        unsafe { *self.facts[index].get() }
    }

    /// Waits until a worker ends its part, or a moment.
    pub fn wait(&self, finished: u32) {
        futex_wait(&self.finished, finished, !0, 20_000_000);
    }

    pub fn finished(&self) -> u32 {
        self.finished.load(SeqCst)
    }

    pub fn all_completed(&self) -> bool {
        let generation = self.generation.load(SeqCst);
        self.workers
            .iter()
            .all(|worker| worker.completed.load(SeqCst) == generation)
    }

    /// A worker has died: what it had is closed, and another one does the rest.
    pub fn died(&self, id: usize) {
        let state = &self.workers[id];
        state.forget();
        let turn = self.turn.load(SeqCst);
        if self.race.load(SeqCst) == 0 && state.claimed.load(SeqCst) == turn + 1 {
            // It has killed itself.
            self.results[turn as usize].store(0, SeqCst);
            self.pass(id, turn as usize);
        }
    }

    pub fn pid(&self, id: usize) -> i32 {
        self.workers[id].pid.load(SeqCst)
    }

    pub fn set_pid(&self, id: usize, pid: i32) {
        self.workers[id].pid.store(pid, SeqCst);
    }

    fn pass(&self, id: usize, index: usize) {
        let next = index + 1;
        self.turn.store(next as u32, SeqCst);
        if next < self.count.load(SeqCst) as usize {
            let worker = usize::from(self.step(next).worker);
            if worker != id {
                futex_wake(&self.turn, 1 << worker);
            }
        }
    }
}

impl State {
    fn forget(&self) {
        self.file.store(0, SeqCst);
        self.file_number.store(0, SeqCst);
        self.domains
            .iter()
            .for_each(|domain| domain.store(0, SeqCst));
        self.channels
            .iter()
            .for_each(|channel| channel.store(0, SeqCst));
        self.channel_numbers
            .iter()
            .for_each(|number| number.store(0, SeqCst));
    }
}

fn futex_wait(word: &AtomicU32, value: u32, bits: u32, nanoseconds: u64) {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The place for the time is `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let total = now.tv_nsec as u64 + nanoseconds;
    now.tv_sec += (total / 1_000_000_000) as i64;
    now.tv_nsec = (total % 1_000_000_000) as i64;
    // SAFETY: The word and the time are valid during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            value,
            &raw const now,
            std::ptr::null::<u32>(),
            bits,
        )
    };
}

fn futex_wake(word: &AtomicU32, bits: u32) {
    // SAFETY: The word is valid during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            i32::MAX,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            bits,
        )
    };
}

const HOUR: u64 = 3_600_000_000_000;

/// Does the steps of one process, or of all.
pub struct Worker {
    /// Whose step it does.
    id: Cell<usize>,
    does_all: bool,
    shared: &'static Shared,
    room: Room,
    qp_count: QpCount,
    /// The first descriptor that steps opened.
    first_fd: i32,
}

/// The life of a worker.
pub fn serve(id: usize, shared: &'static Shared) -> ! {
    let worker = Worker::new(id, false, shared);
    worker.close_all();
    let state = &shared.workers[id];
    loop {
        let generation = shared.generation.load(SeqCst);
        if state.completed.load(SeqCst) == generation {
            futex_wait(&shared.generation, generation, !0, HOUR);
            continue;
        }
        worker.program();
        state.completed.store(generation, SeqCst);
        shared.finished.fetch_add(1, SeqCst);
        futex_wake(&shared.finished, !0);
    }
}

impl Worker {
    fn new(id: usize, does_all: bool, shared: &'static Shared) -> Worker {
        let (room, qp_count) = (Room::new(), QpCount::new());
        // SAFETY: No pointers are passed.
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

    /// One that does the steps of all processes, in this one.
    #[cfg(feature = "guided")]
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

    fn program(&self) {
        let race = self.shared.race.load(SeqCst) != 0;
        let count = self.shared.count.load(SeqCst) as usize;
        for index in self.state().claimed.load(SeqCst) as usize..count {
            let step = self.shared.step(index);
            if self.does_all {
                self.id.set(step.worker.into());
                self.shared.counts.steps.fetch_add(1, SeqCst);
            } else if usize::from(step.worker) != self.id.get() {
                continue;
            } else if !race {
                self.wait_for_turn(index);
            }
            self.state().claimed.store(index as u32 + 1, SeqCst);
            let mut fact = Fact {
                domain: u64::MAX,
                ..Default::default()
            };
            let result = self.step(&step, &mut fact);
            fact.file = self.state().file_number.load(SeqCst).into();
            for (fact, number) in fact.channels.iter_mut().zip(&self.state().channel_numbers) {
                *fact = number.load(SeqCst).into();
            }
            if !race && step.call.may_end_qps(index, COUNTED) {
                let device = self.shared.device.index.load(SeqCst);
                fact.device_qps = self.qp_count.read(device).map_or(0, |count| count + 1);
            }
            // SAFETY: The step is this worker's, and the director waits, or is this process.
            unsafe { *self.shared.facts[index].get() = fact };
            self.shared.results[index].store(result, SeqCst);
            if !race && !self.does_all {
                self.shared.pass(self.id.get(), index);
            }
        }
    }

    fn wait_for_turn(&self, index: usize) {
        loop {
            let turn = self.shared.turn.load(SeqCst);
            if turn as usize == index {
                return;
            }
            futex_wait(&self.shared.turn, turn, 1 << self.id.get(), HOUR);
        }
    }

    /// The argument of a kind, if the step has one.
    fn arg(step: &Step, kind: Kind) -> Option<u64> {
        let index = step.call.args().iter().position(|(_, of)| *of == kind)?;
        step.args[index]
    }

    fn slot(step: &Step, kind: Kind) -> Option<usize> {
        Worker::arg(step, kind)
            .filter(|value| *value < SLOTS as u64)
            .map(|value| value as usize)
    }

    fn other(&self, step: &Step) -> usize {
        Worker::arg(step, Kind::Worker).unwrap_or(0) as usize % WORKERS
    }

    /// Its file, which it opens if it has none.
    fn file(&self) -> Result<i32, i32> {
        match self.state().file.load(SeqCst) {
            0 => {
                let fd = device::open(self.shared.device.uverbs.load(SeqCst))?;
                self.state().file.store(fd, SeqCst);
                let number = self.shared.files.fetch_add(1, SeqCst) + 1;
                self.state().file_number.store(number, SeqCst);
                Ok(fd)
            }
            fd => Ok(fd),
        }
    }

    /// The handle of the step's domain.
    fn domain(&self, step: &Step, file: i32, fact: &mut Fact) -> Result<u64, i32> {
        match Worker::arg(step, Kind::Domain) {
            Some(which) if which < DOMAINS as u64 => self.open_domain(which as usize, file, fact),
            Some(other) => Ok(other),
            None => Ok(0),
        }
    }

    /// The handle of a domain, which it opens if it has not.
    fn open_domain(&self, which: usize, file: i32, fact: &mut Fact) -> Result<u64, i32> {
        let domain = &self.state().domains[which];
        // Handles begin at 0.
        match domain.load(SeqCst) {
            0 => {
                let path = FILES[which].map(|name| format!("/tmp/fuzz{}-{name}", device::number()));
                let handle = device::open_domain(file, path.as_deref())?;
                domain.store(handle + 1, SeqCst);
                fact.opened[which] = u64::from(handle) + 1;
                Ok(handle.into())
            }
            handle => Ok(u64::from(handle) - 1),
        }
    }

    fn objects(&self, step: &Step, file: i32, fact: &mut Fact) -> Result<Objects, i32> {
        let slot_or = |kind, table: &dyn Fn(usize) -> u64| {
            Worker::slot(step, kind)
                .map(table)
                .or_else(|| Worker::arg(step, kind))
        };
        fact.domain = match step.call {
            Call::Channel => {
                let slot = Worker::slot(step, Kind::Channel).unwrap_or(0);
                self.open_domain(domain_of(slot), file, fact)?
            }
            _ => self.domain(step, file, fact)?,
        };
        fact.qp = slot_or(Kind::Qp, &|slot| self.shared.qps[slot].load(SeqCst).into()).unwrap_or(0)
            & 0xffff_ffff;
        Ok(Objects {
            domain: fact.domain,
            channel: match Worker::arg(step, Kind::Channel) {
                _ if step.call == Call::Channel => None,
                Some(slot) if slot < SLOTS as u64 => {
                    Some(self.channel(slot as usize, file, fact)? as u64)
                }
                other => other,
            },
            qp: fact.qp,
        })
    }

    /// Its channel, which it creates if it has none.
    fn channel(&self, slot: usize, file: i32, fact: &mut Fact) -> Result<i32, i32> {
        let state = self.state();
        if state.channels[slot].load(SeqCst) == 0 {
            let domain = self.open_domain(domain_of(slot), file, fact)?;
            let mut ioctl = Ioctl::new_channel(domain, DRIVER);
            let result = self.tally(Call::Channel, ioctl.call(file));
            if result < 0 {
                return Err(result);
            }
            self.keep_channel(slot, &ioctl, domain, fact);
        }
        fact.channel = state.channel_numbers[slot].load(SeqCst).into();
        Ok(state.channels[slot].load(SeqCst))
    }

    fn keep_channel(&self, slot: usize, ioctl: &Ioctl, domain: u64, fact: &mut Fact) {
        if let Some(fd) = ioctl.answer(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD) {
            // SAFETY: No pointers are passed.
            unsafe { libc::fcntl(fd as i32, libc::F_SETFL, libc::O_NONBLOCK) };
            let number = self.shared.channels.fetch_add(1, SeqCst) + 1;
            fact.new_channel = number.into();
            fact.channel_domain = domain;
            self.set_channel(slot, fd as i32, number);
        }
    }

    /// Its channel is another one from here on, or none.
    fn set_channel(&self, slot: usize, fd: i32, number: u32) {
        close(self.state().channels[slot].swap(fd, SeqCst));
        self.state().channel_numbers[slot].store(number, SeqCst);
    }

    fn step(&self, step: &Step, fact: &mut Fact) -> i32 {
        match step.call {
            Call::Read => self.read(step, fact),
            Call::Poll => self.poll(step, fact),
            Call::CloseChannel => {
                let Some(slot) = Worker::slot(step, Kind::Channel) else {
                    return 0;
                };
                self.set_channel(slot, 0, 0);
                0
            }
            Call::TakeChannel => {
                let Some(slot) = Worker::slot(step, Kind::Channel) else {
                    return 0;
                };
                let other = &self.shared.workers[self.other(step)];
                let fd = self.take(other, other.channels[slot].load(SeqCst));
                if fd >= 0 {
                    // SAFETY: No pointers are passed.
                    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
                    self.set_channel(slot, fd, other.channel_numbers[slot].load(SeqCst));
                }
                fd.min(0)
            }
            Call::TakeFile => self.take_file(step),
            Call::CloseDomain => {
                let which = Worker::arg(step, Kind::Domain).unwrap_or(0) as usize % DOMAINS;
                match self.state().domains[which].swap(0, SeqCst) {
                    0 => 0,
                    handle => match self.file() {
                        Ok(file) => {
                            fact.domain = u64::from(handle) - 1;
                            device::close_domain(file, handle - 1)
                        }
                        Err(error) => error,
                    },
                }
            }
            Call::CloseFile => {
                close(self.state().file.swap(0, SeqCst));
                self.state().file_number.store(0, SeqCst);
                self.state()
                    .domains
                    .iter()
                    .for_each(|domain| domain.store(0, SeqCst));
                0
            }
            Call::Kill => self.kill(step),
            Call::Remove => match self.shared.device.index.swap(0, SeqCst) {
                0 => -libc::ENODEV,
                index => device::remove(index),
            },
            Call::End => {
                // Others, whose descriptors these are as well, end later.
                if self.does_all && self.id.get() + 1 < WORKERS {
                    close(self.state().file.load(SeqCst));
                    for channel in &self.state().channels {
                        close(channel.load(SeqCst));
                    }
                } else {
                    self.close_all();
                }
                self.state().forget();
                0
            }
            _ => self.ioctl(step, fact),
        }
    }

    fn tally(&self, call: Call, result: i32) -> i32 {
        let succeeded = u64::from(result >= 0);
        let counts = &self.shared.counts;
        counts.calls.fetch_add(1, SeqCst);
        counts.succeeded.fetch_add(succeeded, SeqCst);
        let [calls, successes] = &counts.by_call[call as usize];
        calls.fetch_add(1, SeqCst);
        successes.fetch_add(succeeded, SeqCst);
        result
    }

    fn ioctl(&self, step: &Step, fact: &mut Fact) -> i32 {
        let file = match self.file() {
            Ok(file) => file,
            Err(error) => return error,
        };
        let objects = match self.objects(step, file, fact) {
            Ok(objects) => objects,
            Err(error) => return error,
        };
        let Some(mut ioctl) = Ioctl::new(step, &objects, &self.room, DRIVER) else {
            return 0;
        };
        let result = self.tally(step.call, ioctl.call(file));
        if result == 0 && step.spoil.is_none_or(|spoil| !spoil.makes_another()) {
            self.remember(step, &ioctl, fact);
        }
        result
    }

    fn remember(&self, step: &Step, ioctl: &Ioctl, fact: &mut Fact) {
        match step.call {
            Call::Alloc => {
                let number = ioctl.answer(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN);
                let number = number
                    .and_then(|address| self.room.word_at(address))
                    .unwrap_or(0);
                fact.new_qp = number.into();
                if let Some(slot) = Worker::slot(step, Kind::Qp) {
                    self.shared.qps[slot].store(number, SeqCst);
                }
            }
            Call::List => {
                let total = ioctl.answer(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL);
                fact.total = total
                    .and_then(|address| self.room.word_at(address))
                    .map_or(0, |total| u64::from(total) + 1);
            }
            Call::Channel => {
                if let Some(slot) = Worker::slot(step, Kind::Channel) {
                    self.keep_channel(slot, ioctl, fact.domain, fact);
                }
            }
            _ => (),
        }
    }

    /// The channel that the step reads or polls, or a negative errno.
    fn channel_of(&self, step: &Step, fact: &mut Fact) -> Result<i32, i32> {
        match Worker::slot(step, Kind::Channel) {
            Some(slot) => self.channel(slot, self.file()?, fact),
            None => Ok(-1),
        }
    }

    fn read(&self, step: &Step, fact: &mut Fact) -> i32 {
        let channel = match self.channel_of(step, fact) {
            Ok(channel) => channel,
            Err(error) => return error,
        };
        let room = step.args[1].unwrap_or(256) % 0x1_0000;
        let address = step.args[2].map_or(self.room.output(0), |which| self.room.hostile(which));
        // SAFETY: All addresses are of the room, or of nothing of this process.
        let size = unsafe { libc::syscall(libc::SYS_read, channel, address, room) };
        self.tally(step.call, if size < 0 { -errno() } else { size as i32 })
    }

    fn poll(&self, step: &Step, fact: &mut Fact) -> i32 {
        let mut poll = libc::pollfd {
            fd: match self.channel_of(step, fact) {
                Ok(channel) => channel,
                Err(error) => return error,
            },
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: There is one.
        let result = unsafe { libc::poll(&mut poll, 1, 0) };
        let result = if result < 0 {
            -errno()
        } else {
            poll.revents.into()
        };
        self.tally(step.call, result)
    }

    /// Uses the file of another from here on, with all objects in it.
    fn take_file(&self, step: &Step) -> i32 {
        let (mine, other) = (self.state(), &self.shared.workers[self.other(step)]);
        if std::ptr::eq(mine, other) {
            return 0;
        }
        let fd = self.take(other, other.file.load(SeqCst));
        if fd < 0 {
            return fd;
        }
        close(mine.file.swap(fd, SeqCst));
        mine.file_number
            .store(other.file_number.load(SeqCst), SeqCst);
        for (mine, other) in mine.domains.iter().zip(&other.domains) {
            mine.store(other.load(SeqCst), SeqCst);
        }
        0
    }

    fn kill(&self, step: &Step) -> i32 {
        let pid = self.shared.pid(self.other(step));
        // SAFETY: No pointers are passed.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if pidfd < 0 {
            return 0;
        }
        // SAFETY: No pointers are passed.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // Its files are closed then.
        let mut poll = libc::pollfd {
            fd: pidfd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: There is one.
        unsafe { libc::poll(&mut poll, 1, 60_000) };
        close(pidfd);
        0
    }

    /// The same descriptor as another process has: a new one, or a negative errno.
    fn take(&self, other: &State, fd: i32) -> i32 {
        let pid = if self.does_all {
            std::process::id() as i32
        } else {
            other.pid.load(SeqCst)
        };
        // SAFETY: No pointers are passed.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if pidfd < 0 {
            return -errno();
        }
        let fd = if fd > 0 { fd } else { -1 };
        // SAFETY: No pointers are passed.
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd, fd, 0) } as i32;
        let result = if taken < 0 { -errno() } else { taken };
        close(pidfd);
        result
    }

    fn close_all(&self) {
        // SAFETY: Nothing of this process uses these.
        unsafe { libc::syscall(libc::SYS_close_range, self.first_fd, u32::MAX, 0) };
    }
}

fn close(fd: i32) {
    if fd > 0 {
        // SAFETY: Only steps use it.
        unsafe { libc::close(fd) };
    }
}
