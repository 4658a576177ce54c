// SPDX-License-Identifier: GPL-2.0

//! The memory that all processes of a program share.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::counts::Counts;
use crate::futex;
use crate::program::Program;
use crate::program::{DOMAINS, PROCESSES, SLOTS, STEPS, Step};
use crate::uapi::xrc_rcv_record;

/// The result of a step that was not run, or whose process was killed in it.
pub const NONE: i32 = i32::MIN;
const MOST: usize = STEPS + PROCESSES;

/// The director writes the program while no worker has one.
#[repr(C)]
pub struct Shared {
    /// The number of the program.
    pub generation: AtomicU32,
    /// The step whose turn it is, unless in a race.
    pub turn: AtomicU32,
    pub race: AtomicU32,
    pub count: AtomicU32,
    /// The number of times that a worker has finished, which the director waits for.
    pub finished: AtomicU32,
    steps: UnsafeCell<[MaybeUninit<Step>; MOST]>,
    pub results: [AtomicI32; MOST],
    /// The facts of the steps, each of which one process writes.
    facts: [UnsafeCell<MaybeUninit<Fact>>; MOST],
    /// The number of files that were opened.
    pub files: AtomicU32,
    /// The number of channels that were created.
    pub channels: AtomicU32,
    pub device: Device,
    pub qps: [AtomicU32; SLOTS],
    pub workers: [State; PROCESSES],
    pub counts: Counts,
}

/// The objects that a step named or made, by their numbers.
#[derive(Clone, Copy, Default)]
pub struct Fact {
    /// The file of its process afterwards, by a number that no other file has.
    pub file: Option<u64>,
    /// The handles of the domains that it opened.
    pub opened: [Option<u64>; DOMAINS],
    /// The handle of the domain that it named.
    pub domain: Option<u64>,
    /// The channel that it named, by a number that no other channel has.
    pub channel: Option<u64>,
    pub new_channel: Option<NewChannel>,
    /// The handle of the domain through which no channel could be created, which the step would
    /// name: the result is that of the creation, and its own call was not made.
    pub failed_channel: Option<u64>,
    /// The channels that its process has afterwards.
    pub channels: [Option<u64>; SLOTS],
    /// The number of the QP that it named.
    pub qp: u64,
    /// The number of the QP that it created.
    pub new_qp: u64,
    /// The serial number of that QP.
    pub new_serial: u64,
    /// The records that it read: one without a serial number is none.
    pub records: [xrc_rcv_record; RECORDS],
    /// The size of the records of the channel that it read, if it is known.
    pub record_size: Option<u64>,
    /// The number of QPs that a list says.
    pub total: Option<u64>,
    /// The number of QP numbers that an ioctl of a channel says it has processed.
    pub done: Option<u64>,
    /// The number of QPs that the device has afterwards, if they were counted.
    pub device_qps: Option<u64>,
}

/// The largest number of records that are read at once.
pub const RECORDS: usize = 16;

/// A channel that a step created.
#[derive(Clone, Copy)]
pub struct NewChannel {
    pub number: u64,
    /// The handle of its domain.
    pub domain: u64,
}

/// The device's numbers.
#[repr(C)]
pub struct Device {
    /// 0 while it is away.
    pub index: AtomicU32,
    pub uverbs: AtomicU32,
    /// The number of its QPs that are not the module's.
    pub own_qps: AtomicU64,
}

/// A number, or none, which memory that is zero has.
#[repr(transparent)]
pub struct Maybe(AtomicU64);

impl Maybe {
    /// The bit that says that there is one.
    const IS_SOME: u64 = 1 << 32;

    fn decode(value: u64) -> Option<u32> {
        (value & Self::IS_SOME != 0).then_some(value as u32)
    }

    /// Returns the number.
    pub fn get(&self) -> Option<u32> {
        Self::decode(self.0.load(SeqCst))
    }

    /// Replaces the number, and returns the one before.
    pub fn replace(&self, number: Option<u32>) -> Option<u32> {
        let new = number.map_or(0, |number| Self::IS_SOME | u64::from(number));
        Self::decode(self.0.swap(new, SeqCst))
    }
}

/// The state of a worker, for the others and for its successor.
#[repr(C)]
pub struct State {
    pub pid: AtomicI32,
    /// The last program that it finished.
    pub completed: AtomicU32,
    /// The step that follows the last that it began.
    pub next: AtomicU32,
    /// The descriptor of its file.
    pub file: Maybe,
    /// The number of that file.
    pub file_number: Maybe,
    /// The handles of the domains that the file has open.
    pub domains: [Maybe; DOMAINS],
    /// The descriptors of its channels.
    pub channels: [Maybe; SLOTS],
    /// The numbers of these channels.
    pub channel_numbers: [Maybe; SLOTS],
    /// The sizes of the records of these channels.
    pub record_sizes: [Maybe; SLOTS],
}

// SAFETY: All members are atomic but the steps and the facts. The director writes steps, and reads
// and writes facts, while all workers have completed their program. During a program, the worker of
// a step alone writes its fact. Where the director does the steps, all of it is this process's.
// `program` is for a process that does nothing any more.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new() -> &'static Shared {
        let anywhere = std::ptr::null_mut();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let size = size_of::<Shared>();
        // SAFETY: The memory is new, and no other part of the program knows of it.
        let memory = unsafe { libc::mmap(anywhere, size, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED, "no shared memory");
        // SAFETY: The memory is zero, which all members may be, large enough, aligned to a page,
        // and stays.
        unsafe { &*memory.cast::<Shared>() }
    }

    /// Lets the workers begin.
    pub fn start(&self, race: bool, steps: &[Step]) {
        self.write(race, steps);
        self.generation.fetch_add(1, SeqCst);
        futex::wake(&self.generation, !0);
    }

    /// Writes a program. The caller does the steps, or starts the workers.
    pub fn write(&self, race: bool, steps: &[Step]) {
        let ends = (0..PROCESSES).map(Step::end);
        let mut count = 0;
        for step in steps.iter().copied().chain(ends) {
            // SAFETY: All workers have completed the last program, and there is room for the steps.
            unsafe { (*self.steps.get())[count].write(step) };
            self.results[count].store(NONE, SeqCst);
            // SAFETY: All workers have completed the last program, so none writes facts.
            unsafe { (*self.facts[count].get()).write(Fact::default()) };
            count += 1;
        }
        self.count.store(count as u32, SeqCst);
        self.race.store(u32::from(race), SeqCst);
        self.turn.store(0, SeqCst);
        for worker in &self.workers {
            worker.next.store(0, SeqCst);
        }
        for qp in &self.qps {
            qp.store(0, SeqCst);
        }
    }

    /// Returns a step of the program.
    pub fn step(&self, index: usize) -> Step {
        // SAFETY: Steps below `count` were written before the generation, which the caller has
        // read, or by the caller.
        unsafe { (*self.steps.get())[index].assume_init() }
    }

    /// Returns the program, as it was written last, of a process that is stuck in it.
    pub fn program(&self) -> Program {
        let count = (self.count.load(SeqCst) as usize).saturating_sub(PROCESSES);
        Program {
            race: self.race.load(SeqCst) != 0,
            steps: (0..count).map(|index| self.step(index)).collect(),
        }
    }

    /// Returns the fact of a step, after all workers have completed the program.
    pub fn fact(&self, index: usize) -> Fact {
        debug_assert!(self.all_completed());
        // SAFETY: It was written with the program, and the workers write none before the next
        // program, which is the caller's to start.
        unsafe { (*self.facts[index].get()).assume_init() }
    }

    /// Sets the result and the fact of a step of the caller's.
    pub fn finish(&self, index: usize, result: i32, fact: Fact) {
        // SAFETY: The step is this worker's, and the director waits, or is this process.
        unsafe { (*self.facts[index].get()).write(fact) };
        self.results[index].store(result, SeqCst);
    }

    /// Waits until a worker finishes, or for a moment.
    pub fn wait(&self, finished: u32) {
        futex::wait(&self.finished, finished, !0, 20_000_000);
    }

    /// Whether all workers have completed the program.
    pub fn all_completed(&self) -> bool {
        let generation = self.generation.load(SeqCst);
        self.workers
            .iter()
            .all(|worker| worker.completed.load(SeqCst) == generation)
    }

    /// Accounts for a worker that has died: its files are closed, and a successor does the rest.
    pub fn died(&self, id: usize) {
        let state = &self.workers[id];
        state.forget();
        let turn = self.turn.load(SeqCst);
        if self.race.load(SeqCst) == 0 && state.next.load(SeqCst) == turn + 1 {
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

    /// Passes the turn on, after a step of a worker's.
    pub fn pass(&self, id: usize, index: usize) {
        let next = index + 1;
        self.turn.store(next as u32, SeqCst);
        if next < self.count.load(SeqCst) as usize {
            let process = self.step(next).process();
            if process != id {
                futex::wake(&self.turn, 1 << process);
            }
        }
    }
}

impl State {
    /// Forgets the file and the channels, which are closed.
    pub fn forget(&self) {
        self.forget_file();
        for channel in self
            .channels
            .iter()
            .chain(&self.channel_numbers)
            .chain(&self.record_sizes)
        {
            channel.replace(None);
        }
    }

    /// Forgets the file.
    pub fn forget_file(&self) {
        self.file.replace(None);
        self.file_number.replace(None);
        for domain in &self.domains {
            domain.replace(None);
        }
    }
}
