// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv bench`: the cost of receive QPs beside mainline's target QPs, on a device of this
//! machine.
//!
//! Everything is done with both in the same run, in turns. A figure is the median of its rounds, a
//! ratio the median of the rounds' ratios. All of it is control path: packets are the same.

mod events;
mod mainline;
mod report;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use schemars::JsonSchema;
use serde::Serialize;
use xrc_rcv::verbs::TargetQp;
use xrc_rcv::{
    Access, AllocOptions, Device, Domain, EventChannel, Lifetime, Mtu, QpAttr, QpState,
    RegisterOptions, Registration,
};

use crate::cli::Bench;
use crate::snapshot::JSON_VERSION;
use crate::sysfs;

/// Calls that are timed together.
const CALLS: usize = 100;
/// Rounds of them.
const ROUNDS: usize = 15;
/// Objects whose memory is looked at together.
const OBJECTS: usize = 4000;
/// How many QPs are torn down, and in how many rounds.
const TEARDOWNS: [(usize, usize); 2] = [(1000, 5), (10000, 3)];
/// The most readers of one QP's events.
const READERS: usize = 1024;

/// The file of xrc-rcv bench --output.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "bench")]
pub(crate) struct Results {
    /// The version of this vocabulary: keys may be added to it, none is changed or removed.
    #[schemars(extend("enum" = [JSON_VERSION]))]
    version: u32,
    /// The kernel's release.
    kernel: String,
    /// The device.
    ifname: String,
    /// CPUs of this machine.
    cpus: usize,
    /// The reason why mainline was not measured, a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    mainline_skipped: Option<String>,
    measurements: Vec<Measurement>,
}

/// The same with receive QPs and with mainline's QPs.
#[derive(Debug, Serialize, JsonSchema, PartialEq)]
#[schemars(rename = "measurement")]
struct Measurement {
    /// The operation.
    measurement: &'static str,
    /// The number of objects.
    n: usize,
    /// The unit of ib_xrc_rcv and mainline.
    unit: &'static str,
    rounds: usize,
    /// The median of the rounds.
    ib_xrc_rcv: f64,
    /// The median of the rounds; null if it did not happen, see delivered, or was not measured.
    mainline: Option<f64>,
    /// The median of ratios; null if there is none.
    ratio: Option<f64>,
    /// ib_xrc_rcv to mainline, for each round in which both could be measured.
    ratios: Vec<f64>,
    /// The number of n readers to which mainline delivered the events of a QP.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered: Option<usize>,
}

impl Measurement {
    fn new(
        measurement: &'static str,
        n: usize,
        unit: &'static str,
        rounds: &[(f64, Option<f64>)],
    ) -> Measurement {
        let ours = median(rounds.iter().map(|round| round.0));
        let theirs: Option<Vec<f64>> = rounds.iter().map(|round| round.1).collect();
        let mainline = theirs.as_ref().map(|theirs| median(theirs.iter().copied()));
        // A figure that is too small to be measured has no ratio: a few objects fit into slabs that
        // are there already, and take no memory.
        let can_compare = ours > 0.0 && mainline.is_some_and(|theirs| theirs > 0.0);
        let ratios: Vec<f64> = rounds
            .iter()
            .zip(theirs.into_iter().flatten())
            .filter(|_| can_compare)
            .map(|((ours, _), theirs)| ours / theirs)
            .filter(|ratio| ratio.is_finite())
            .collect();
        Measurement {
            measurement,
            n,
            unit,
            rounds: rounds.len(),
            ib_xrc_rcv: ours,
            mainline,
            ratio: (!ratios.is_empty()).then(|| median(ratios.iter().copied())),
            ratios,
            delivered: None,
        }
    }
}

impl Measurement {
    /// A measurement of an operation that mainline does not have.
    fn alone(
        measurement: &'static str,
        n: usize,
        unit: &'static str,
        rounds: &[f64],
    ) -> Measurement {
        Measurement {
            measurement,
            n,
            unit,
            rounds: rounds.len(),
            ib_xrc_rcv: median(rounds.iter().copied()),
            mainline: None,
            ratio: None,
            ratios: Vec::new(),
            delivered: None,
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Measures, and prints the results, to a terminal of `width` columns if it is one.
pub(crate) fn run(args: &Bench, out: &mut impl Write, width: Option<usize>) -> Result<()> {
    let (name, port) = port(args.device.as_deref())?;
    raise_limit_of_files()?;
    let file = File::from(rustix::fs::memfd_create(
        "xrc-rcv-bench",
        rustix::fs::MemfdFlags::CLOEXEC,
    )?);
    let mut bench = Runner {
        attr: ready_to_receive(&port),
        device: &name,
        file: &file,
        divisor: args.divisor,
        with_mainline: true,
    };
    let mainline_skipped = bench.mainline_crashes()?;
    if let Some(reason) = &mainline_skipped {
        eprintln!("xrc-rcv: {reason}");
        bench.with_mainline = false;
    }
    let results = Results {
        version: JSON_VERSION,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .into(),
        cpus: thread::available_parallelism()?.get(),
        mainline_skipped,
        measurements: bench.measure()?,
        ifname: name.clone(),
    };
    if let Some(path) = &args.output {
        let json = serde_json::to_string_pretty(&results)? + "\n";
        fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(out.write_all(report::text(&results, width).as_bytes())?)
}

/// The device to measure, and its first active port.
fn port(device: Option<&str>) -> Result<(String, sysfs::Port)> {
    let root = Path::new(sysfs::ROOT);
    for found in sysfs::devices(root)? {
        if device.is_none_or(|name| name == found.name) {
            if let Some(port) = sysfs::active_port(root, &found.name)? {
                return Ok((found.name, port));
            }
        }
    }
    match device {
        Some(name) => bail!("no RDMA device {name} with an active port in this network namespace"),
        None => bail!("no RDMA device with an active port in this network namespace"),
    }
}

/// Every reader of events has three files open, and its counterpart two. Only root gets more than
/// the hard limit.
fn raise_limit_of_files() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let set = |limit| {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit,
                maximum: limit,
            },
        )
    };
    let hard = getrlimit(Resource::Nofile).maximum;
    let enough = hard.map(|hard| hard.max(8 * READERS as u64));
    Ok(set(enough).or_else(|_| set(hard))?)
}

/// The attributes that take a target to RTR, with the port itself as its peer. Nothing is ever
/// sent.
fn ready_to_receive(port: &sysfs::Port) -> QpAttr {
    QpAttr::new()
        .with_pkey_index(0)
        .with_port(port.number)
        .with_access(Access::REMOTE_WRITE)
        .with_path(port.path)
        .with_path_mtu(Mtu::Mtu256)
        .with_dest_qp_num(0x11)
        .with_rq_psn(0)
        .with_max_dest_rd_atomic(1)
        .with_min_rnr_timer(1)
}

/// A process that uses the domain: an open device, and its channel.
struct Party {
    domain: Domain,
    channel: EventChannel,
}

impl Party {
    fn new(device: &Device, file: &File) -> Result<Party> {
        let domain = device.open_domain(Some(file.as_fd()))?;
        Ok(Party {
            channel: domain
                .create_event_channel()
                .context("the device has no receive QPs to measure")?,
            domain,
        })
    }
}

/// One of the two ways of having a QP, at the steps that both have.
trait Side {
    /// A part in a QP.
    type Held;

    /// Creates a QP and takes it to RTR.
    fn create(&self, party: &Party) -> Result<Self::Held>;
    fn join(&self, party: &Party, qp_num: u32) -> Result<Self::Held>;
    fn qp_num(held: &Self::Held) -> u32;
    /// The last one to leave ends the QP.
    fn leave(held: Self::Held) -> Result<()>;
}

/// `xrc_rcv_alloc_qp()`, `xrc_rcv_reg_qp()`, `xrc_rcv_unreg_qp()`.
struct Ours(QpAttr);

impl Side for Ours {
    type Held = Registration;

    fn create(&self, party: &Party) -> Result<Registration> {
        let options = AllocOptions::new().channel(&party.channel).attr(self.0);
        Ok(party.domain.alloc(&options)?)
    }

    fn join(&self, party: &Party, qp_num: u32) -> Result<Registration> {
        let options = RegisterOptions::new().channel(&party.channel);
        Ok(party.domain.register(qp_num, &options)?)
    }

    fn qp_num(held: &Registration) -> u32 {
        held.qp_num()
    }

    fn leave(held: Registration) -> Result<()> {
        Ok(held.unregister()?)
    }
}

/// `ibv_create_qp()` and two `ibv_modify_qp()`, `ibv_open_qp()`, `ibv_destroy_qp()`.
#[derive(Clone, Copy)]
struct Mainline(QpAttr);

impl Side for Mainline {
    type Held = TargetQp;

    fn create(&self, party: &Party) -> Result<TargetQp> {
        let qp = TargetQp::create(&party.domain)?;
        qp.modify(&to_init(&self.0))?;
        qp.modify(
            &QpAttr::new()
                .with_state(QpState::Rtr)
                .with_path(self.0.path())
                .with_path_mtu(Mtu::Mtu256)
                .with_dest_qp_num(self.0.dest_qp_num())
                .with_rq_psn(self.0.rq_psn())
                .with_max_dest_rd_atomic(self.0.max_dest_rd_atomic())
                .with_min_rnr_timer(self.0.min_rnr_timer()),
        )?;
        Ok(qp)
    }

    fn join(&self, party: &Party, qp_num: u32) -> Result<TargetQp> {
        Ok(TargetQp::open(&party.domain, qp_num)?)
    }

    fn qp_num(held: &TargetQp) -> u32 {
        held.qp_num()
    }

    fn leave(held: TargetQp) -> Result<()> {
        Ok(held.destroy()?)
    }
}

fn to_init(attr: &QpAttr) -> QpAttr {
    QpAttr::new()
        .with_state(QpState::Init)
        .with_pkey_index(attr.pkey_index())
        .with_port(attr.port())
        .with_access(Access::REMOTE_WRITE)
}

fn create_all<S: Side>(side: &S, party: &Party, n: usize) -> Result<Vec<S::Held>> {
    (0..n).map(|_| side.create(party)).collect()
}

fn join_all<S: Side>(side: &S, party: &Party, created: &[S::Held]) -> Result<Vec<S::Held>> {
    let numbers = created.iter().map(S::qp_num);
    numbers.map(|number| side.join(party, number)).collect()
}

fn leave_all<S: Side>(held: Vec<S::Held>) -> Result<()> {
    held.into_iter().try_for_each(S::leave)
}

/// Does one after the other, if there is another, and in the next round the other first.
fn in_turns<T>(
    rounds: usize,
    mut ours: impl FnMut() -> Result<T>,
    mut mainline: Option<impl FnMut() -> Result<T>>,
) -> Result<Vec<(T, Option<T>)>> {
    let mut theirs = || mainline.as_mut().map(|mainline| mainline()).transpose();
    let mut round = |i| {
        if i % 2 == 0 {
            let ours = ours()?;
            Ok((ours, theirs()?))
        } else {
            let theirs = theirs()?;
            Ok((ours()?, theirs))
        }
    };
    (0..rounds).map(&mut round).collect()
}

/// Splits rounds of two figures each.
fn both(rounds: &[([f64; 2], Option<[f64; 2]>)], which: usize) -> Vec<(f64, Option<f64>)> {
    let split = |(ours, theirs): &([f64; 2], Option<[f64; 2]>)| {
        (ours[which], theirs.map(|theirs| theirs[which]))
    };
    rounds.iter().map(split).collect()
}

fn us(duration: Duration, calls: usize) -> f64 {
    duration.as_secs_f64() * 1e6 / calls as f64
}

/// The objects that all measurements need.
struct Runner<'a> {
    attr: QpAttr,
    device: &'a str,
    /// The file of the domain.
    file: &'a File,
    divisor: usize,
    /// Mainline's QPs are measured as well.
    with_mainline: bool,
}

impl Runner<'_> {
    fn open(&self) -> Result<Device> {
        Device::open(self.device).with_context(|| self.device.to_string())
    }

    /// Mainline's QPs, if they are measured.
    fn mainline(&self) -> Option<Mainline> {
        self.with_mainline.then_some(Mainline(self.attr))
    }

    /// Tries in a process of its own whether a QP that `ibv_open_qp()` returned can be destroyed:
    /// libmlx5 of rdma-core 56 frees memory that such a QP does not have, and the process ends by
    /// SIGSEGV. Returns the sentence that says so.
    fn mainline_crashes(&self) -> Result<Option<String>> {
        let mainline = Mainline(self.attr);
        let joins_and_leaves = || {
            let party = Party::new(&self.open()?, self.file)?;
            let created = mainline.create(&party)?;
            Mainline::leave(mainline.join(&party, Mainline::qp_num(&created))?)?;
            Mainline::leave(created)
        };
        // SAFETY: This process has one thread, so the child may call any function.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The measurement reports a call that is refused.
            let _ = joins_and_leaves();
            // SAFETY: The function has no requirements.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        if child < 0 || unsafe { libc::waitpid(child, &mut status, 0) } != child {
            return Err(io::Error::last_os_error()).context("fork");
        }
        Ok(libc::WIFSIGNALED(status).then(|| {
            format!(
                "mainline's half is skipped on {}, because ibv_destroy_qp() of a QP from ibv_open_qp() \
                 ends the process by signal {}, a defect of rdma-core's library for this device",
                self.device,
                libc::WTERMSIG(status)
            )
        }))
    }

    fn measure(&self) -> Result<Vec<Measurement>> {
        let mut results = Vec::new();
        let calls = CALLS / self.divisor;
        let readers = (READERS / self.divisor).max(4);
        let sides = match self.with_mainline {
            true => "receive QPs and with mainline's QPs",
            false => "receive QPs",
        };
        let progress = |number: usize, what: String| {
            eprintln!("xrc-rcv: {number} of 7, with {sides}: {what}");
        };
        progress(1, format!("creating {}, {ROUNDS} times", qps(calls)));
        results.extend(self.creating()?);
        progress(
            2,
            format!("joining and leaving {}, {ROUNDS} times", qps(calls)),
        );
        results.extend(self.joining()?);
        progress(3, format!("memory of {}", qps(self.objects())));
        results.extend(self.memory()?);
        for (number, (n, rounds)) in (4..).zip(TEARDOWNS) {
            let n = n / self.divisor;
            progress(number, format!("destroying {}, {rounds} times", qps(n)));
            results.extend(self.teardown(n, rounds)?);
        }
        progress(
            6,
            format!("an error that 1, 4, 16 … {readers} processes wait for"),
        );
        results.extend(events::measure(self, readers)?);
        progress(7, format!("joining and leaving {} on each CPU", qps(calls)));
        results.extend(self.scaling()?);
        Ok(results)
    }

    fn creating(&self) -> Result<Vec<Measurement>> {
        fn time<S: Side>(side: &S, party: &Party, n: usize) -> Result<f64> {
            let begin = Instant::now();
            let created = create_all(side, party, n)?;
            let took = us(begin.elapsed(), n);
            leave_all::<S>(created)?;
            Ok(took)
        }

        let device = self.open()?;
        let party = &Party::new(&device, self.file)?;
        let n = CALLS / self.divisor;
        let rounds = in_turns(
            ROUNDS,
            || time(&Ours(self.attr), party, n),
            (self.mainline()).map(|side| move || time(&side, party, n)),
        )?;
        let name = "create, to RTR (ALLOC; create and two modifies)";
        Ok(vec![Measurement::new(name, 1, "us", &rounds)])
    }

    fn joining(&self) -> Result<Vec<Measurement>> {
        /// To join, and to leave.
        fn time<S: Side>(side: &S, created: &[S::Held], joiner: &Party) -> Result<[f64; 2]> {
            let begin = Instant::now();
            let joined = join_all(side, joiner, created)?;
            let join = us(begin.elapsed(), created.len());
            let begin = Instant::now();
            leave_all::<S>(joined)?;
            Ok([join, us(begin.elapsed(), created.len())])
        }

        let devices = [self.open()?, self.open()?];
        let (creator, joiner) = (
            Party::new(&devices[0], self.file)?,
            Party::new(&devices[1], self.file)?,
        );
        let n = CALLS / self.divisor;
        let ours = Ours(self.attr);
        let created = create_all(&ours, &creator, n)?;
        let mainline = self.mainline();
        let theirs = mainline.map(|side| create_all(&side, &creator, n));
        let theirs = theirs.transpose()?;
        let rounds = in_turns(
            ROUNDS,
            || time(&ours, &created, &joiner),
            (mainline.zip(theirs.as_deref())).map(|(side, created)| {
                let joiner = &joiner;
                move || time(&side, created, joiner)
            }),
        )?;
        let floor = (0..ROUNDS).map(|_| {
            let begin = Instant::now();
            (0..n).try_for_each(|_| devices[1].query_caps().map(drop))?;
            Ok(us(begin.elapsed(), n))
        });
        let floor = floor.collect::<Result<Vec<f64>>>()?;
        Ok(vec![
            Measurement::new("join (REG; ibv_open_qp)", 1, "us", &both(&rounds, 0)),
            Measurement::alone("a call without work (QUERY_CAPS)", 1, "us", &floor),
            Measurement::new("leave (UNREG; ibv_destroy_qp)", 1, "us", &both(&rounds, 1)),
        ])
    }

    /// REG and UNREG in one domain for each CPU, by a thread each: threads that share a lock take
    /// longer together than alone.
    fn scaling(&self) -> Result<Vec<Measurement>> {
        const SCALING_ROUNDS: usize = 5;

        /// Of a thread, which waits for all others before it begins.
        fn pairs<S: Side>(bench: &Runner<'_>, side: &S, n: usize, start: &Barrier) -> Result<f64> {
            let prepared = || {
                let file =
                    rustix::fs::memfd_create("xrc-rcv-bench", rustix::fs::MemfdFlags::CLOEXEC)?;
                let file = File::from(file);
                let devices = [bench.open()?, bench.open()?];
                Ok::<_, anyhow::Error>([
                    Party::new(&devices[0], &file)?,
                    Party::new(&devices[1], &file)?,
                ])
            };
            let parties = prepared();
            let created = match &parties {
                Ok(parties) => create_all(side, &parties[0], n),
                Err(_) => Ok(Vec::new()),
            };
            start.wait();
            let (parties, created) = (parties.as_ref().map_err(|e| anyhow!("{e:#}"))?, created?);
            let begin = Instant::now();
            for _ in 0..SCALING_ROUNDS {
                leave_all::<S>(join_all(side, &parties[1], &created)?)?;
            }
            let took = us(begin.elapsed(), n * SCALING_ROUNDS);
            leave_all::<S>(created)?;
            Ok(took)
        }

        /// The mean of so many threads.
        fn time<S: Side + Sync>(
            bench: &Runner<'_>,
            side: &S,
            n: usize,
            threads: usize,
        ) -> Result<f64> {
            let start = Barrier::new(threads);
            let took = thread::scope(|scope| {
                let threads: Vec<_> = (0..threads)
                    .map(|_| scope.spawn(|| pairs(bench, side, n, &start)))
                    .collect();
                let took = threads.into_iter().map(|thread| match thread.join() {
                    Ok(took) => took,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                took.collect::<Result<Vec<f64>>>()
            })?;
            Ok(took.iter().sum::<f64>() / threads as f64)
        }

        let cpus = thread::available_parallelism()?.get();
        let n = CALLS / self.divisor;
        let mut results = Vec::new();
        for threads in [1, cpus] {
            let rounds = in_turns(
                SCALING_ROUNDS,
                || time(self, &Ours(self.attr), n, threads),
                (self.mainline()).map(|side| move || time(self, &side, n, threads)),
            )?;
            let name = "join and leave in a domain of its own, on N CPUs at once";
            results.push(Measurement::new(name, threads, "us", &rounds));
            if cpus == 1 {
                break;
            }
        }
        Ok(results)
    }

    /// The number of QPs whose memory is measured: fewer have room in slabs that the allocator has
    /// kept from the round before.
    fn objects(&self) -> usize {
        (OBJECTS / self.divisor).max(1000)
    }

    fn memory(&self) -> Result<Vec<Measurement>> {
        const MEMORY_ROUNDS: usize = 3;

        /// Of a QP with its creator, and of one more who joined.
        fn weigh<S: Side>(side: &S, creator: &Party, joiner: &Party, n: usize) -> Result<[f64; 2]> {
            let before = kernel_memory()?;
            let created = create_all(side, creator, n)?;
            let between = kernel_memory()?;
            let joined = join_all(side, joiner, &created)?;
            let after = kernel_memory()?;
            leave_all::<S>(joined)?;
            leave_all::<S>(created)?;
            Ok([(between - before) / n as f64, (after - between) / n as f64])
        }

        if !rustix::process::geteuid().is_root() {
            eprintln!("xrc-rcv: kernel memory is measured for root only");
            return Ok(Vec::new());
        }
        let devices = [self.open()?, self.open()?];
        let (creator, joiner) = (
            Party::new(&devices[0], self.file)?,
            Party::new(&devices[1], self.file)?,
        );
        let n = self.objects();
        let rounds = in_turns(
            MEMORY_ROUNDS,
            || weigh(&Ours(self.attr), &creator, &joiner, n),
            self.mainline().map(|side| {
                let (creator, joiner) = (&creator, &joiner);
                move || weigh(&side, creator, joiner, n)
            }),
        )?;
        Ok(vec![
            Measurement::new(
                "kernel memory of a QP and its creator",
                1,
                "bytes",
                &both(&rounds, 0),
            ),
            Measurement::new(
                "kernel memory of one more who joined",
                1,
                "bytes",
                &both(&rounds, 1),
            ),
        ])
    }

    /// The destruction of many QPs: ours outlived the registered processes and are destroyed with
    /// their domain, mainline's are destroyed by their creator.
    fn teardown(&self, n: usize, rounds: usize) -> Result<Vec<Measurement>> {
        let device = self.open()?;
        let ours = || {
            let party = Party::new(&device, self.file)?;
            let options = AllocOptions::new()
                .attr(self.attr)
                .lifetime(Lifetime::Domain);
            for _ in 0..n {
                party.domain.alloc(&options)?.unregister()?;
            }
            let begin = Instant::now();
            party.domain.close()?;
            Ok(begin.elapsed().as_secs_f64() * 1e3)
        };
        let mainline = self.mainline().map(|side| {
            let device = &device;
            move || {
                let party = Party::new(device, self.file)?;
                let created = create_all(&side, &party, n)?;
                let begin = Instant::now();
                leave_all::<Mainline>(created)?;
                party.domain.close()?;
                Ok(begin.elapsed().as_secs_f64() * 1e3)
            }
        });
        let rounds = in_turns(rounds, ours, mainline)?;
        let name = "teardown of many (close of the domain; ibv_destroy_qp each)";
        Ok(vec![Measurement::new(name, n, "ms", &rounds)])
    }
}

/// Bytes in use by the kernel's slab and per-CPU allocators.
fn kernel_memory() -> Result<f64> {
    /// Memory that is freed after a grace period is free then.
    const GRACE: Duration = Duration::from_millis(300);

    thread::sleep(GRACE);
    let slabs = fs::read_to_string("/proc/slabinfo").context("/proc/slabinfo")?;
    let memory = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    Ok(slab_bytes(&slabs) + per_cpu_bytes(&memory))
}

/// The objects of each slab by their size.
fn slab_bytes(slabs: &str) -> f64 {
    slabs
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let active: f64 = words.nth(1)?.parse().ok()?;
            let size: f64 = words.nth(1)?.parse().ok()?;
            Some(active * size)
        })
        .sum()
}

fn per_cpu_bytes(memory: &str) -> f64 {
    let line = memory.lines().find_map(|line| line.strip_prefix("Percpu:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0.0) * 1024.0
}

fn qps(number: usize) -> String {
    format!("{number} {}", if number == 1 { "QP" } else { "QPs" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_ratios_are_medians_of_rounds() {
        let rounds = [(1.0, Some(2.0)), (30.0, Some(10.0)), (4.0, Some(5.0))];
        let done = Measurement::new("x", 1, "us", &rounds);
        assert_eq!((done.ib_xrc_rcv, done.mainline), (4.0, Some(5.0)));
        assert_eq!(done.ratio, Some(0.8));
        assert_eq!(median([1.0, 4.0].into_iter()), 2.5);
        assert_eq!(done.ratios, [0.5, 3.0, 0.8]);
    }

    #[test]
    fn what_could_not_be_measured_has_no_ratio() {
        for rounds in [
            [(0.0, Some(3.0)), (0.0, Some(4.0)), (9.0, Some(1.0))],
            [(3.0, Some(0.0)), (4.0, Some(-1.0)), (1.0, Some(9.0))],
        ] {
            let none = Measurement::new("x", 1, "bytes", &rounds);
            assert_eq!((none.ratio, none.ratios.len()), (None, 0));
        }
    }

    #[test]
    fn without_mainline_our_figures_are_there() {
        let rounds = in_turns(3, || Ok([2.0, 3.0]), None::<fn() -> Result<[f64; 2]>>).unwrap();
        let alone = Measurement::new("x", 1, "us", &both(&rounds, 1));
        assert_eq!((alone.ib_xrc_rcv, alone.rounds), (3.0, 3));
        assert_eq!((alone.mainline, alone.ratio), (None, None));
        assert!(alone.ratios.is_empty());
    }

    #[test]
    fn turns_alternate() {
        let order = std::cell::RefCell::new(String::new());
        let ours = || {
            order.borrow_mut().push('o');
            Ok(1)
        };
        let mainline = || {
            order.borrow_mut().push('m');
            Ok(2)
        };
        assert_eq!(
            in_turns(3, ours, Some(mainline)).unwrap(),
            [(1, Some(2)); 3]
        );
        assert_eq!(*order.borrow(), "ommoom");
    }

    #[test]
    fn memory_is_read_from_slabinfo_and_meminfo() {
        let slabs = "slabinfo - version: 2.1\n\
                     # name <active_objs> <num_objs> <objsize> …\n\
                     rxe_qp    10   16   2048   16    8 : tunables 0 0 0\n\
                     kmalloc-64    3   64   64   64    1 : tunables 0 0 0\n";
        assert_eq!(slab_bytes(slabs), 10.0 * 2048.0 + 3.0 * 64.0);
        assert_eq!(per_cpu_bytes("MemFree: 7 kB\nPercpu:  12 kB\n"), 12288.0);
    }
}
