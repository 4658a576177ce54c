// SPDX-License-Identifier: GPL-2.0

//! Runs programs in the workers, and looks at what they leave.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::device::{self, Device, QpCount};
use crate::model;
use crate::program::{Call, Program, Step, WORKERS, result_name};
use crate::worker::{self, NONE, Shared, Worker};

/// A program takes a fraction of a second, but for removals of the device, and guests that are short of CPU.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Without a race all files are closed by the end of the last step. In one, the last use of a file may end in the
/// kernel, which closes it a moment later.
const RACE_ENDS: Duration = Duration::from_secs(10);

/// What checkers of the kernel report, and what else should not be in its log.
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

/// How the steps of a program are done.
#[derive(Clone, Copy)]
enum Manner {
    /// By one process for all of them, which have files of their own.
    Alone,
    /// By each process, one after the other.
    Turns,
    /// By each process, at the same time.
    Race,
}

pub struct Director {
    pub shared: &'static Shared,
    device: Device,
    qp_count: QpCount,
    log: File,
    /// Does programs without a race and without kills in this process, if it is there.
    alone: Option<Worker>,
}

impl Director {
    /// The device is there, and this process has one thread.
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
        for id in 0..WORKERS {
            director.fork(id);
        }
        director
    }

    /// From here on it needs other processes for races and kills only: a switch to another process takes longer than
    /// many a call.
    #[cfg(feature = "guided")]
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
            let Some(id) = (0..WORKERS).find(|id| self.shared.pid(*id) == pid) else {
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

    /// Runs it: the results of its steps, or what it has shown to be wrong.
    pub fn run(&mut self, program: &Program) -> Result<Vec<i32>, String> {
        let counts = &self.shared.counts;
        let calls_before = counts.calls.load(SeqCst);
        let has_kill = program.steps.iter().any(|step| step.call == Call::Kill);
        let alone = self.alone.as_ref();
        let own_qps = self.shared.device.own_qps.load(SeqCst);
        let manner = if program.race {
            self.in_workers(program)?;
            Manner::Race
        } else if let (Some(alone), false) = (alone, has_kill) {
            self.shared.write(false, &program.steps);
            alone.run_alone();
            Manner::Alone
        } else {
            self.in_workers(program)?;
            Manner::Turns
        };
        counts.programs.fetch_add(1, SeqCst);
        let calls = counts.calls.load(SeqCst) - calls_before;
        counts.by_manner[manner as usize].fetch_add(calls, SeqCst);
        let removed = self.shared.device.index.load(SeqCst) == 0;
        if removed {
            counts.removals.fetch_add(1, SeqCst);
            device::add();
            self.device = Device::find();
            self.announce();
        } else {
            let most = if program.race {
                RACE_ENDS
            } else {
                Duration::ZERO
            };
            self.device
                .wait_until_unused(most, &self.qp_count, own_qps)?;
        }
        self.read_log()?;
        let count = program.steps.len();
        let results: Vec<_> = self.shared.results[..count + WORKERS]
            .iter()
            .map(|r| r.load(SeqCst))
            .collect();
        for (step, result) in program.steps.iter().zip(&results) {
            let another = step.spoil.is_some_and(|spoil| spoil.makes_another());
            if !another && !is_documented(program, step, *result) {
                return Err(format!("{step}: {}", result_name(*result)));
            }
        }
        if !program.race {
            let fact = |index| self.shared.fact(index);
            let compared = model::check(program, &results, fact, own_qps)?;
            counts.compared.fetch_add(compared, SeqCst);
        }
        Ok(results[..count].to_vec())
    }

    fn in_workers(&mut self, program: &Program) -> Result<(), String> {
        self.shared.start(program.race, &program.steps);
        let begin = Instant::now();
        loop {
            let finished = self.shared.finished();
            self.reap()?;
            if self.shared.all_completed() {
                break;
            }
            if begin.elapsed() > LIMIT {
                return Err(self.stacks());
            }
            self.shared.wait(finished);
        }
        // One that was killed after its last step.
        self.reap()
    }

    /// Where the workers are, of which one does not come to its end.
    fn stacks(&self) -> String {
        let mut text = format!("no end within {} s", LIMIT.as_secs());
        for id in 0..WORKERS {
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

/// Whether a result is one that semantics.rst has for the call, or that the program has brought about itself.
fn is_documented(program: &Program, step: &Step, result: i32) -> bool {
    let call = step.call;
    let has = |wanted: Call| program.steps.iter().any(|step| step.call == wanted);
    if result >= 0 || result == NONE {
        return true;
    }
    let is_method = call.attributes() != 0;
    let is_spoiled = step.spoil.is_some();
    // Steps that use a descriptor of another process, which may have closed it meanwhile, and opened another one.
    let takes = has(Call::TakeFile) || has(Call::TakeChannel);
    match -result {
        libc::EINVAL => is_method || matches!(call, Call::Read | Call::CloseDomain),
        libc::EFAULT => is_method || call == Call::Read,
        // Of a handle, which a channel is created with, too; or the device file is not there yet.
        libc::ENOENT => {
            is_method && call != Call::Caps
                || call == Call::CloseDomain
                || takes
                || has(Call::Remove)
        }
        // No event channel.
        libc::EBADF => matches!(call, Call::Alloc | Call::Reg | Call::Unreg | Call::Read) || takes,
        // An attribute that is longer than known.
        libc::EOPNOTSUPP => matches!(call, Call::Alloc | Call::Modify) || is_spoiled,
        libc::EPROTONOSUPPORT => is_spoiled,
        // A registration; or a handle that another process is destroying.
        libc::EBUSY => call == Call::Destroy || program.race,
        libc::EAGAIN => call == Call::Read,
        // The file that the channel was made with is closed.
        libc::EIO if call == Call::Read => true,
        // Of the provider, for an address that cannot be resolved.
        libc::ETIMEDOUT => matches!(call, Call::Alloc | Call::Modify),
        // The device is away.
        libc::EIO | libc::ENODEV | libc::ENXIO => has(Call::Remove),
        libc::ESRCH => matches!(call, Call::TakeFile | Call::TakeChannel) && has(Call::Kill),
        // write(2) to the file of another process.
        libc::EACCES => has(Call::TakeFile),
        libc::ENOTTY | libc::EISDIR => takes,
        _ => false,
    }
}
