// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A service that is killed, whose keys, SRQ number and receive QP stay: a program of
//! qemu/tests/user/keys.
//!
//! `peer` starts the service, kills it again and again, and meanwhile reads, writes and counts in
//! the memory of it. `serve` is the service: it, and each successor of it. `xrc-rcv hold` keeps the
//! memory and the open device. `imports` and `refuses` try what a device can import, or not.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use std::{env, io, process, thread};

use clap::Parser;
use xrc_rcv::verbs::{ImportedRegion, Initiator, Memory, Region, Remote, Srq};
use xrc_rcv::{
    Access, AllocOptions, Device, Domain, Keeper, Lifetime, Mtu, Pd, QpAttr, QpState,
    RegisterOptions,
};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[derive(Clone, clap::Args)]
struct Place {
    device: String,
    /// The file of the domain
    file: String,
    /// The socket of xrc-rcv hold
    socket: String,
}

#[derive(Parser)]
enum Role {
    Peer {
        #[command(flatten)]
        place: Place,
        /// The device of the peer
        from: String,
        kills: u64,
    },
    Serve {
        #[command(flatten)]
        place: Place,
        /// The QP and the LID of the peer
        qp_num: u32,
        lid: u16,
    },
    Imports {
        device: String,
    },
    Refuses {
        device: String,
    },
}

/// What peers know of the service, a word of its memory each.
const KNOWN: usize = 7;
const PD: usize = 0;
const REGION: usize = 1;
const SRQ: usize = 2;
const KEY: usize = 3;
const ADDRESS: usize = 4;
const QP: usize = 5;
const LID: usize = 6;
/// The number of the letter from the peer, and of the last that a service has read.
const LETTER: usize = 7;
const READ: usize = 8;
/// The atomics that the peer has done.
const COUNT: usize = 9;
/// Blocks of 8 KiB, of several packets and pages.
const BLOCK: usize = 1024;
const FREE_AT: usize = BLOCK;
const LETTER_AT: usize = 2 * BLOCK;
const WORDS: usize = 3 * BLOCK;

const ACCESS: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);
const IBV_WC_REM_ACCESS_ERR: u32 = 10;
/// Requests that are done without a service, at least.
const ALONE: u64 = 30;

fn check(is_true: bool, what: impl AsRef<str>) -> Result {
    is_true.then_some(()).ok_or_else(|| what.as_ref().into())
}

fn word(number: u64, index: usize) -> u64 {
    ((number << 32) | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn fill(memory: &Memory, at: usize, number: u64) {
    for (index, word_at) in memory[at..at + BLOCK].iter().enumerate() {
        word_at.store(word(number, index), Relaxed);
    }
}

fn is_filled(memory: &Memory, at: usize, number: u64) -> bool {
    let words = memory[at..at + BLOCK].iter().enumerate();
    words
        .into_iter()
        .all(|(index, found)| found.load(Relaxed) == word(number, index))
}

fn attr(qp_num: u32, lid: u16) -> QpAttr {
    QpAttr::new()
        .with_pkey_index(0)
        .with_port(1)
        .with_access(ACCESS)
        .with_path(xrc_rcv::Path::lid(1, lid))
        .with_path_mtu(Mtu::Mtu1024)
        .with_dest_qp_num(qp_num)
        .with_rq_psn(0)
        .with_max_dest_rd_atomic(1)
        .with_min_rnr_timer(12)
}

/// The first service: everything that its peer will know is made here.
fn begin(place: &Place, keeper: &Keeper, qp_num: u32, lid: u16) -> Result<(Memory, Region, Srq)> {
    let device = Device::open(&place.device)?;
    let domain = device.open_domain_at(&place.file)?;
    let pd = Pd::new(&device)?;
    let memory = Memory::new("service", WORDS)?;
    let region = Region::new(&pd, &memory, ACCESS)?;
    // It takes no messages: one-sided requests name it for its PD.
    let srq = Srq::in_pd(&pd, &domain, 1, 8)?;
    let new = AllocOptions::new().lifetime(Lifetime::Domain);
    let qp = domain.alloc(&new.attr(attr(qp_num, lid)))?;
    let Remote { address, key } = region.remote();
    let known = [
        pd.handle().into(),
        region.handle().into(),
        srq.srq_num().into(),
        key.into(),
        address,
        qp.qp_num().into(),
        device.query_address(1, 0)?.lid.into(),
    ];
    for (word, value) in memory.iter().zip(known) {
        word.store(value, Relaxed);
    }
    keeper.keep("memory", &memory)?;
    keeper.keep("device", &device)?;
    Ok((memory, region, srq))
}

/// The pages that count for this process's RLIMIT_MEMLOCK.
fn pinned() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no VmPin")?.parse()?)
}

/// Imports the region, and registers other memory in its PD, which the same SRQ gives access to.
fn succeed(device: &Device, memory: &Memory) -> Result<(ImportedRegion, Region)> {
    let known = |index: usize| memory[index].load(Relaxed) as u32;
    let pd = Pd::import(device, known(PD))?;
    let region = ImportedRegion::new(&pd, known(REGION))?;
    check(region.key() == known(KEY), format!("{region:?}: its key"))?;
    check(region.size() == size_of_val(&**memory), "its size")?;
    check(pinned()? == 0, "an imported region pins memory")?;
    let more = Memory::new("more", BLOCK)?;
    fill(&more, 0, process::id().into());
    Ok((region, Region::new(&pd, &more, Access::REMOTE_READ)?))
}

/// Answers letters by their number, when each word of them has arrived.
fn read_letters(memory: &Memory) -> ! {
    loop {
        let number = memory[LETTER].load(Acquire);
        if number != memory[READ].load(Relaxed) {
            if !is_filled(memory, LETTER_AT, number) {
                eprintln!("letter {number} has other words");
                process::exit(1);
            }
            memory[READ].store(number, Release);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn line() -> Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

fn serve(place: &Place, qp_num: u32, lid: u16) -> Result {
    let keeper = Keeper::connect(&place.socket)?;
    let Some(kept) = keeper.get("device")? else {
        let (memory, _region, _srq) = begin(place, &keeper, qp_num, lid)?;
        ready(&memory, Remote::default());
        read_letters(&memory);
    };
    let memory = Memory::from_fd(keeper.get("memory")?.ok_or("no memory")?)?;
    let domain = Device::open(&place.device)?.open_domain_at(&place.file)?;
    let qps = domain.adopt(&RegisterOptions::new())?;
    let [qp] = &qps[..] else {
        return Err(format!("{} receive QPs", qps.len()).into());
    };
    let number = u64::from(qp.info.qp_num());
    check(number == memory[QP].load(Relaxed), "another receive QP")?;
    check(qp.info.state() == Some(QpState::Rtr), "a broken QP")?;
    let device = Device::import(&kept)?;
    let (region, more) = succeed(&device, &memory)?;
    ready(&memory, more.remote());
    thread::spawn({
        let memory = memory.clone();
        move || read_letters(&memory)
    });
    if line()?.trim_end() == "end" {
        return region.deregister().map_err(Into::into);
    }
    drop((more, region, device));
    println!("dropped");
    line().map(drop)
}

fn ready(memory: &Memory, more: Remote) {
    let known: Vec<String> = memory[..KNOWN]
        .iter()
        .map(|word| word.load(Relaxed).to_string())
        .collect();
    println!("{} {} {}", known.join(" "), more.address, more.key);
}

/// A service, and the lines that it prints.
struct Service {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Service {
    fn start(place: &Place, qp_num: u32, lid: u16) -> Result<Service> {
        let Place {
            device,
            file,
            socket,
        } = place;
        let mut child = Command::new(env::current_exe()?)
            .args(["serve", device, file, socket])
            .args([qp_num.to_string(), lid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            output
                .lines()
                .map_while(io::Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Ok(Service {
            child,
            input,
            lines,
        })
    }

    fn is_there(&mut self) -> Result {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the service has ended: {status}").into()),
        }
    }

    fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// A service that is not killed ends with its peer.
impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

struct Peer {
    region: Region,
    initiator: Initiator,
    srq_num: u32,
    table: Remote,
    /// Rounds of [`Peer::use_memory`].
    done: u64,
    letters: u64,
}

impl Peer {
    fn complete(&mut self) -> Result<Option<u64>> {
        let completion = self.initiator.wait(None)?.ok_or("no request")?;
        check(completion.is_success(), completion.to_string())?;
        Ok(completion.old_value())
    }

    fn write(&mut self, to: usize, range: std::ops::Range<usize>) -> Result {
        let to = self.table.word(to);
        self.initiator
            .write(self.srq_num, to, &self.region, range)?;
        self.complete().map(drop)
    }

    fn read(&mut self, from: Remote, range: std::ops::Range<usize>) -> Result {
        self.initiator
            .read(self.srq_num, from, &self.region, range)?;
        self.complete().map(drop)
    }

    /// WRITE, READ and compare each byte, and one atomic.
    fn use_memory(&mut self) -> Result {
        self.done += 1;
        fill(self.region.memory(), 0, self.done);
        self.write(FREE_AT, 0..BLOCK)?;
        self.read(self.table.word(FREE_AT), BLOCK..2 * BLOCK)?;
        let same = is_filled(self.region.memory(), BLOCK, self.done);
        check(same, "other words were read than written")?;
        let count = self.table.word(COUNT);
        self.initiator.fetch_add(self.srq_num, count, 1)?;
        let old = self.complete()?;
        check(
            old == Some(self.done - 1),
            format!("{old:?} atomics were counted"),
        )
    }

    /// Writes a letter, and reads that the service has read it.
    fn post_letter(&mut self, service: &mut Service) -> Result {
        self.letters += 1;
        fill(self.region.memory(), 0, self.letters);
        self.write(LETTER_AT, 0..BLOCK)?;
        self.region.memory()[0].store(self.letters, Relaxed);
        self.write(LETTER, 0..1)?;
        loop {
            self.read(self.table.word(READ), 0..1)?;
            if self.region.memory()[0].load(Relaxed) == self.letters {
                return Ok(());
            }
            service.is_there()?;
        }
    }

    /// Posts requests until the service writes a line, and returns it.
    fn until_said(&mut self, service: &mut Service) -> Result<String> {
        loop {
            if let Ok(line) = service.lines.try_recv() {
                return Ok(line);
            }
            service.is_there()?;
            self.use_memory()?;
        }
    }
}

fn parse(line: &str) -> Result<Vec<u64>> {
    let words: std::result::Result<Vec<_>, _> = line.split(' ').map(str::parse).collect();
    let words = words.map_err(|_| format!("'{line}'"))?;
    check(words.len() == KNOWN + 2, "what the service says")?;
    Ok(words)
}

fn connect(place: &Place, from: &str) -> Result<(Peer, Service, Vec<u64>, u16)> {
    let device = Device::open(from)?;
    let lid = device.query_address(1, 0)?.lid;
    let pd = Pd::new(&device)?;
    let region = Region::new(&pd, &Memory::new("peer", 2 * BLOCK)?, Access::empty())?;
    let mut initiator = Initiator::new(&pd, 1)?;
    let service = Service::start(place, initiator.qp_num(), lid)?;
    let known = parse(&service.lines.recv()?)?;
    initiator.connect(&attr(known[QP] as u32, known[LID] as u16))?;
    let peer = Peer {
        region,
        initiator,
        srq_num: known[SRQ] as u32,
        table: Remote {
            address: known[ADDRESS],
            key: known[KEY] as u32,
        },
        done: 0,
        letters: 0,
    };
    Ok((peer, service, known[..KNOWN].to_vec(), lid))
}

/// Kills the service, and starts its successor: the figures of what was done meanwhile.
fn restart(
    peer: &mut Peer,
    service: &mut Service,
    start: impl Fn() -> Result<Service>,
) -> Result<u64> {
    let before = peer.done;
    service.kill()?;
    while peer.done < before + ALONE {
        peer.use_memory()?;
    }
    *service = start()?;
    Ok(before)
}

/// The receive QP, which has been there from the beginning.
fn qp_stays(domain: &Domain, known: &[u64]) -> Result {
    let qps: xrc_rcv::Result<Vec<_>> = domain.receive_qps().collect();
    let qps = qps?;
    check(qps.len() == 1, format!("{} receive QPs", qps.len()))?;
    let is_same = u64::from(qps[0].qp_num()) == known[QP];
    check(is_same && qps[0].state() == Some(QpState::Rtr), "its QP")
}

fn peer(place: &Place, from: &str, kills: u64) -> Result {
    let (mut peer, mut service, known, lid) = connect(place, from)?;
    let qp_num = peer.initiator.qp_num();
    let start = || Service::start(place, qp_num, lid);
    let domain = Device::open(&place.device)?.open_domain_at(&place.file)?;
    let (mut fewest, mut meanwhile) = (u64::MAX, 0);
    for kill in 1..=kills {
        peer.post_letter(&mut service)?;
        let before = restart(&mut peer, &mut service, start)?;
        // Each tenth is killed at any moment while it starts.
        if kill % 10 == 0 {
            thread::sleep(Duration::from_millis(kill % 97));
            restart(&mut peer, &mut service, start)?;
        }
        let said = parse(&peer.until_said(&mut service)?)?;
        check(said[..KNOWN] == known, format!("{said:?}, was {known:?}"))?;
        fewest = fewest.min(peer.done - before);
        meanwhile += peer.done - before;
        let more = Remote {
            address: said[KNOWN],
            key: said[KNOWN + 1] as u32,
        };
        peer.read(more, BLOCK..2 * BLOCK)?;
        check_other(&peer, &service)?;
        if kill < kills {
            writeln!(service.input, "drop")?;
            let said = peer.until_said(&mut service)?;
            check(said == "dropped", said)?;
        }
        qp_stays(&domain, &known)?;
    }
    peer.post_letter(&mut service)?;
    println!(
        "killed {kills} times: 0 errors, 0 keys, 0 SRQ numbers and 0 QPs changed; {} times READ, WRITE \
         and FETCH_ADD, {meanwhile} of these from a kill until the successor was ready, {fewest} at least",
        peer.done
    );
    end(peer, service)
}

/// The peer has read the memory that the successor registered by itself.
fn check_other(peer: &Peer, service: &Service) -> Result {
    let pid = service.child.id().into();
    check(
        is_filled(peer.region.memory(), BLOCK, pid),
        "the other memory",
    )
}

/// The successor deregisters the region that its peer has used, and ends.
fn end(mut peer: Peer, mut service: Service) -> Result {
    writeln!(service.input, "end")?;
    check(service.child.wait()?.success(), "the end of the service")?;
    let table = peer.table;
    peer.initiator
        .read(peer.srq_num, table, &peer.region, 0..1)?;
    let completion = peer.initiator.wait(None)?.ok_or("no completion")?;
    check(
        completion.status() == IBV_WC_REM_ACCESS_ERR,
        completion.to_string(),
    )
}

/// The descriptors of this process.
fn descriptors() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

fn fails(result: xrc_rcv::Result<impl Sized>, errno: i32) -> Result {
    let Err(error) = result else {
        return Err(format!("no error {errno}").into());
    };
    check(error.errno() == errno, error.to_string())
}

/// Descriptors that are no devices.
fn no_devices() -> Result {
    let before = descriptors()?;
    fails(Device::import(Memory::new("none", 8)?), libc::EINVAL)?;
    fails(Device::import(File::open("/dev/null")?), libc::ENODEV)?;
    check(descriptors()? == before, "a descriptor is left")
}

fn refuses(device: &str) -> Result {
    let device = Device::open(device)?;
    let pd = Pd::new(&device)?;
    let before = descriptors()?;
    fails(Device::import(&device), libc::EOPNOTSUPP)?;
    fails(Pd::import(&device, pd.handle()), libc::EOPNOTSUPP)?;
    let region = Region::new(&pd, &Memory::new("region", 8)?, Access::empty())?;
    fails(ImportedRegion::new(&pd, region.handle()), libc::EOPNOTSUPP)?;
    drop(region);
    check(descriptors()? == before, "a descriptor is left")?;
    no_devices()
}

/// Dropping what is imported destroys nothing, in any order.
fn imports(device: &str) -> Result {
    let device = Device::open(device)?;
    let pd = Pd::new(&device)?;
    let memory = Memory::new("region", 8)?;
    let region = Region::new(&pd, &memory, Access::REMOTE_READ)?;
    let before = descriptors()?;
    for _ in 0..3 {
        let imported = Device::import(&device)?;
        check(imported.name() == device.name(), "its name")?;
        let imported_pd = Pd::import(&imported, pd.handle())?;
        fails(Pd::import(&imported, u32::MAX), libc::ENOENT)?;
        fails(ImportedRegion::new(&imported_pd, u32::MAX), libc::ENOENT)?;
        let again = ImportedRegion::new(&imported_pd, region.handle())?;
        drop((imported, imported_pd));
        check(again.key() == region.remote().key, "its key")?;
        fails(
            {
                let _clone = again.clone();
                again.deregister()
            },
            libc::EBUSY,
        )?;
    }
    check(descriptors()? == before, "a descriptor is left")?;
    no_devices()
}

fn main() {
    let result = match Role::parse() {
        Role::Peer { place, from, kills } => peer(&place, &from, kills),
        Role::Serve { place, qp_num, lid } => serve(&place, qp_num, lid),
        Role::Imports { device } => imports(&device),
        Role::Refuses { device } => refuses(&device),
    };
    if let Err(error) = result {
        eprintln!("keys: {error}");
        process::exit(1);
    }
}
