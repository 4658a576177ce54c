// SPDX-License-Identifier: GPL-2.0

//! Runs programs in the workers, and looks at what they leave.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::device::{self, Device, QpCount};
use crate::errno::result_name;
use crate::oracle;
use crate::program::{Call, Name, PROCESSES, Program, Step};
use crate::shared::{NONE, Shared};
use crate::worker::{self, Worker};

/// A program takes a fraction of a second, but for removals of the device, and guests that are
/// short of CPU.
pub const LIMIT: Duration = Duration::from_secs(600);
/// Without a race all files are closed by the end of the last step. In a race, the last use of a
/// file may end in the kernel, which closes it a moment later.
const RACE_ENDS: Duration = Duration::from_secs(240);

/// Words of KASAN's, lockdep's and other reports that should not be in the kernel's log.
const REPORTS: &[&str] = &[
    "BUG",
    "WARNING",
    "KASAN",
    "UBSAN",
    "Oops",
    "general protection",
    "INFO: possible",
    "INFO: task",
    "INFO: rcu",
    "INFO: suspicious",
    "INFO: trying",
    "DEBUG_LOCKS",
    "refcount_t",
    "corruption",
    "rust_kernel: panicked",
    "unregister_netdevice: waiting",
];

/// The processes that do the steps of a program.
#[derive(Clone, Copy)]
enum Manner {
    /// One process does the steps of all, with files of their own.
    Alone,
    /// Each process does its own, one after the other.
    Turns,
    /// Each process does its own, at the same time.
    Race,
}

pub struct Director {
    pub shared: &'static Shared,
    device: Device,
    qp_count: QpCount,
    log: File,
    /// If there is one, it does programs without a race and without kills in this process.
    alone: Option<Worker>,
}

impl Director {
    /// Starts the workers. The device is there, and this process has one thread.
    pub fn new(shared: &'static Shared) -> Director {
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .expect("the kernel's log can be read");
        log.seek(SeekFrom::End(0))
            .expect("the kernel's log has an end");
        // SAFETY: The handler does nothing; the signal ends a wait.
        unsafe { libc::signal(libc::SIGCHLD, child_died as *const () as libc::sighandler_t) };
        let device = Device::find();
        let director = Director {
            shared,
            device,
            qp_count: QpCount::new(),
            log,
            alone: None,
        };
        director.announce();
        for id in 0..PROCESSES {
            director.fork(id);
        }
        director
    }

    /// Uses other processes for races and kills only from here on: a switch to another process
    /// takes longer than many a call.
    pub fn do_alone(&mut self) {
        self.alone = Some(Worker::alone(self.shared));
    }

    fn announce(&self) {
        let device = &self.shared.device;
        device.uverbs.store(self.device.uverbs, SeqCst);
        device.index.store(self.device.index, SeqCst);
        let own = self.qp_count.read(self.device.index);
        device
            .own_qps
            .store(own.expect("the device has QPs"), SeqCst);
    }

    fn fork(&self, id: usize) {
        // SAFETY: No pointers are passed.
        let director = unsafe { libc::getpid() };
        // SAFETY: This process has one thread.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            // SAFETY: No pointers are passed.
            let parent = unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::getppid()
            };
            if parent != director {
                std::process::exit(1);
            }
            worker::serve(id, self.shared);
        }
        self.shared.set_pid(id, pid);
    }

    /// Replaces workers that have died.
    fn reap(&mut self) -> Result<(), String> {
        loop {
            let mut status = 0;
            // SAFETY: The place for the status is valid.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                return Ok(());
            }
            let Some(id) = (0..PROCESSES).find(|id| self.shared.pid(*id) == pid) else {
                continue;
            };
            if !libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGKILL {
                return Err(format!("process {id} ended with status {status:#x}"));
            }
            self.shared.counts.kills.fetch_add(1, SeqCst);
            self.shared.died(id);
            self.fork(id);
        }
    }

    /// Runs a program. Returns the results of its steps, or what it has shown to be wrong.
    pub fn run(&mut self, program: &Program) -> Result<Vec<i32>, String> {
        let counts = &self.shared.counts;
        let calls_before = counts.calls.load(SeqCst);
        let own_qps = self.shared.device.own_qps.load(SeqCst);
        let manner = self.run_steps(program)?;
        counts.programs.fetch_add(1, SeqCst);
        let calls = counts.calls.load(SeqCst) - calls_before;
        counts.by_manner[manner as usize].fetch_add(calls, SeqCst);
        self.restore_device(program.race, own_qps)?;
        self.read_log()?;
        let count = program.steps.len();
        let results: Vec<_> = self.shared.results[..count + PROCESSES]
            .iter()
            .map(|result| result.load(SeqCst))
            .collect();
        for (step, result) in program.steps.iter().zip(&results) {
            let another = step.spoils.make_another();
            if !another && !is_documented(program, step, *result) {
                return Err(format!("{step}: {}", result_name(*result)));
            }
        }
        if !program.race {
            let fact = |index| self.shared.fact(index);
            let compared = oracle::check(program, &results, fact, own_qps)?;
            counts.compared.fetch_add(compared, SeqCst);
        }
        Ok(results[..count].to_vec())
    }

    fn run_steps(&mut self, program: &Program) -> Result<Manner, String> {
        let has_kill = program
            .steps
            .iter()
            .any(|step| matches!(step.call, Call::Kill { .. }));
        if program.race {
            self.in_workers(program)?;
            return Ok(Manner::Race);
        }
        if let (Some(alone), false) = (&self.alone, has_kill) {
            self.shared.write(false, &program.steps);
            alone.run_alone();
            return Ok(Manner::Alone);
        }
        self.in_workers(program)?;
        Ok(Manner::Turns)
    }

    /// Waits until the device has no QPs of the program, or adds it again if the program has
    /// removed it.
    fn restore_device(&mut self, race: bool, own_qps: u64) -> Result<(), String> {
        if self.shared.device.index.load(SeqCst) == 0 {
            self.shared.counts.removals.fetch_add(1, SeqCst);
            device::add();
            self.device = Device::find();
            self.announce();
            return Ok(());
        }
        let most = if race { RACE_ENDS } else { Duration::ZERO };
        self.device.wait_until_unused(most, &self.qp_count, own_qps)
    }

    fn in_workers(&mut self, program: &Program) -> Result<(), String> {
        self.shared.start(program.race, &program.steps);
        let begin = Instant::now();
        loop {
            let finished = self.shared.finished.load(SeqCst);
            self.reap()?;
            if self.shared.all_completed() {
                break;
            }
            if begin.elapsed() > LIMIT {
                return Err(self.stacks());
            }
            self.shared.wait(finished);
        }
        // A worker may have been killed after its last step.
        self.reap()
    }

    /// Returns the stacks of the workers, of which one does not come to its end.
    fn stacks(&self) -> String {
        let mut text = format!("no end within {} s", LIMIT.as_secs());
        for id in 0..PROCESSES {
            let stack = fs::read_to_string(format!("/proc/{}/stack", self.shared.pid(id)));
            text += &format!("\nprocess {id}:\n{}", stack.unwrap_or_default());
        }
        text
    }

    fn read_log(&mut self) -> Result<(), String> {
        let mut record = [0; 8192];
        loop {
            match self.log.read(&mut record) {
                Ok(size) => {
                    let text = String::from_utf8_lossy(&record[..size]);
                    if REPORTS.iter().any(|report| text.contains(report)) {
                        return Err(format!("the kernel's log: {}", text.trim_end()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Overwritten: the next one is there.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => (),
                Err(error) => return Err(format!("the kernel's log: {error}")),
            }
        }
    }
}

extern "C" fn child_died(_: i32) {}

/// Whether semantics.rst has a result for the call, or the program has brought it about itself.
fn is_documented(program: &Program, step: &Step, result: i32) -> bool {
    if result >= 0 || result == NONE {
        return true;
    }
    let call = &step.call;
    let has = |is_wanted: fn(&Call) -> bool| program.steps.iter().any(|step| is_wanted(&step.call));
    let removes = has(|call| matches!(call, Call::Remove {}));
    // Steps that use a descriptor of another process, which may have closed it meanwhile, and
    // opened another one.
    let takes_file = has(|call| matches!(call, Call::TakeFile { .. }));
    let takes = takes_file || has(|call| matches!(call, Call::TakeChannel { .. }));
    let is_ioctl = call.is_method() || call.is_of_channel();
    let is_spoiled = !step.spoils.is_empty();
    let reads = matches!(call, Call::Read { .. });
    let names_channel = call.is_of_channel()
        || matches!(
            call,
            Call::Alloc { .. } | Call::Reg { .. } | Call::Unreg { .. }
        );
    let has_attributes = matches!(call, Call::Alloc { .. } | Call::Modify { .. });
    let closes_domain = matches!(call, Call::CloseDomain { .. });
    match -result {
        libc::EINVAL => is_ioctl || reads || closes_domain,
        libc::EFAULT => is_ioctl || reads,
        // Of a handle, which a channel is created with, too; or the device file is not there yet.
        libc::ENOENT => is_ioctl && call.name() != Name::Caps || closes_domain || takes || removes,
        // No event channel.
        libc::EBADF => names_channel || reads || takes,
        // An attribute that is longer than known.
        libc::EOPNOTSUPP => has_attributes || is_spoiled,
        libc::EPROTONOSUPPORT => is_spoiled,
        // A registration; or a handle that another process is destroying.
        libc::EBUSY => matches!(call, Call::Destroy { .. }) || program.race,
        libc::EAGAIN => reads,
        // The file that the channel was created with is closed.
        libc::EIO if reads || call.is_of_channel() => true,
        // Of the provider, for an address that cannot be resolved.
        libc::ETIMEDOUT => has_attributes,
        // The device is away.
        libc::EIO | libc::ENODEV | libc::ENXIO => removes,
        libc::ESRCH => {
            matches!(call, Call::TakeFile { .. } | Call::TakeChannel { .. })
                && has(|call| matches!(call, Call::Kill { .. }))
        }
        // write(2) to the file of another process.
        libc::EACCES => takes_file,
        libc::ENOTTY | libc::EISDIR => takes,
        _ => false,
    }
}
