// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Clients, a thread and a connection each, which put values of their own keys, get those of all,
//! and verify each.

use std::collections::VecDeque;
use std::io;
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use xrc_rcv::verbs::{Initiator, Memory, RcQp, Region};
use xrc_rcv::{Access, Device, Pd};

use crate::hello::Hello;
use crate::table::{
    CREDITS, KEYS, KEYS_OF_CLIENT, NOTHING, RECORD, Record, SLOT, Slot, Target, Torn, entry_of,
    newer, slot_of,
};
use crate::{Result, now};

#[derive(clap::Args)]
pub(crate) struct Args {
    device: String,
    /// The server's
    address: String,
    #[arg(long, default_value_t = 1)]
    clients: u64,
    /// Milliseconds from a client's PUT to its next
    #[arg(long, default_value_t = 2000)]
    period: u64,
    /// Index of the GID
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
    /// Connect RC QPs
    #[arg(long)]
    rc: bool,
}

/// Milliseconds that a sample of the throughput stands for, and samples for an hour.
const SAMPLE: u64 = 10;
const SAMPLES: usize = 360_000;

/// Milliseconds; a PUT that takes longer is reported on its own.
const SLOW: u64 = 20;

/// An order to all clients: a line of the standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Also by a line that is empty
    Load,
    /// Make no request, by the line `wait`. Each such line has a number of its own: a client that
    /// had no CPU during the load in between sees that it has to wait once more.
    Wait(u64),
    /// By the end of the input
    Stop,
}

/// An account of the requests of all clients.
struct Account {
    begin: u64,
    order: Mutex<Order>,
    reordered: Condvar,
    connected: AtomicU64,
    /// Clients that wait.
    waiting: AtomicU64,
    puts: Vec<AtomicU32>,
    gets: Vec<AtomicU32>,
    repeated: AtomicU64,
    /// Changes of a client to another key of the table, or another SRQ to read it by.
    rekeyed: AtomicU64,
    /// Reads of words that were being written.
    torn: AtomicU64,
    /// When connections have broken.
    broken: Mutex<Vec<u64>>,
    longest_put: AtomicU64,
    longest_get: AtomicU64,
    /// PUTs that took longer than [`SLOW`]: when they were sent, sent again (or 0), and known to be
    /// answered.
    slow_puts: Mutex<Vec<[u64; 3]>>,
    /// GETs that did: when they began and ended.
    slow_gets: Mutex<Vec<[u64; 2]>>,
}

impl Account {
    /// Returns when the order is another one than `order`, or the time is up.
    fn wait(&self, order: Order, time: Duration) -> Order {
        let now = self.order.lock().expect("no client panics");
        let (now, _) = self
            .reordered
            .wait_timeout_while(now, time, |now| *now == order)
            .expect("no client panics");
        *now
    }

    fn order(&self, order: Order) {
        *self.order.lock().expect("no client panics") = order;
        self.reordered.notify_all();
    }

    fn count(&self, samples: &[AtomicU32], longest: &AtomicU64, begun: u64) {
        let now = now();
        longest.fetch_max(now - begun, Relaxed);
        if let Some(sample) = samples.get(((now - self.begin) / (SAMPLE * 1_000_000)) as usize) {
            sample.fetch_add(1, Relaxed);
        }
    }
}

/// Words of a client's own memory.
const SLOT_AT: usize = 0;
const ENTRY_AT: usize = SLOT;
const MESSAGES_AT: usize = ENTRY_AT + 2 * RECORD;
const WORDS: usize = MESSAGES_AT + CREDITS as usize * RECORD;

/// The client's end of its connection.
enum Sender {
    Xrc(Initiator),
    Rc(RcQp),
}

impl Sender {
    /// Seven and a half seconds without an answer break the connection to a receive QP, which
    /// answers whether the server runs or not. With RC it takes two: this is how a client notices
    /// that its server has died.
    fn ack_timeout(&self) -> u8 {
        match self {
            Sender::Xrc(_) => 18,
            Sender::Rc(_) => 16,
        }
    }
}

#[derive(Clone, Copy)]
struct Unanswered {
    number: u64,
    key: u64,
    /// When it was sent, and sent again.
    begun: u64,
    again: u64,
}

struct Client<'load> {
    number: u64,
    account: &'load Account,
    region: Region,
    sender: Sender,
    is_broken: bool,
    target: Target,
    /// The number of the last message, and those that were not answered.
    sent: u64,
    unanswered: VecDeque<Unanswered>,
    answered: u64,
    /// The newest record of each key.
    seen: Vec<u64>,
}

impl<'load> Client<'load> {
    fn connect(number: u64, args: &Args, pd: &Pd, account: &'load Account) -> Result<Self> {
        let region = Region::new(pd, &Memory::new("client", WORDS)?, Access::empty())?;
        let mut sender = match args.rc {
            // Nothing is received.
            true => Sender::Rc(RcQp::new(pd, 1, 1, 8)?),
            false => Sender::Xrc(Initiator::new(pd, 1)?),
        };
        let hello = Hello {
            client: number,
            address: pd.device().query_address(1, args.gid_index)?,
            qp_num: match &sender {
                Sender::Xrc(qp) => qp.qp_num(),
                Sender::Rc(qp) => qp.qp_num(),
            },
            target: Target::default(),
        };
        let server = hello.ask(&args.address)?;
        // There are as many receives as credits: without one, the connection breaks. (To rxe, 7
        // retries are without an end.)
        let attr = server.attr(args.gid_index).with_rnr_retry(0);
        let attr = attr.with_timeout(sender.ack_timeout()).with_retry_cnt(6);
        match &mut sender {
            Sender::Xrc(qp) => qp.connect(&attr)?,
            Sender::Rc(qp) => qp.connect(&attr)?,
        }
        let mut client = Client {
            number,
            account,
            region,
            sender,
            is_broken: false,
            target: server.target,
            sent: 0,
            unanswered: VecDeque::new(),
            answered: 0,
            seen: vec![0; KEYS as usize],
        };
        // Its numbers go on after those of a client before it, whose last messages may not be
        // answered yet.
        client.answered = client.slot()?.answered;
        client.sent = client.answered + CREDITS;
        Ok(client)
    }

    /// Connects again after the connection has broken, as long as it takes.
    fn reconnect(&mut self, args: &Args) -> Result<()> {
        loop {
            match Client::connect(self.number, args, self.region.pd(), self.account) {
                Ok(connected) => {
                    self.sender = connected.sender;
                    self.region = connected.region;
                    self.is_broken = false;
                    // A new server gets every PUT that its predecessor did not answer.
                    self.target = Target {
                        generation: 0,
                        ..connected.target
                    };
                    return Ok(());
                }
                // There is no server, or it has ended meanwhile.
                Err(_) => thread::sleep(LONGEST_PAUSE),
            }
        }
    }

    /// Waits for the request that was posted.
    fn complete(&mut self, what: &str) -> Result<()> {
        let timeout = Some(Duration::from_secs(60));
        let completion = match &mut self.sender {
            Sender::Xrc(qp) => qp.wait(timeout)?,
            Sender::Rc(qp) => qp.wait(timeout)?,
        };
        match completion {
            Some(completion) if completion.is_success() => Ok(()),
            Some(completion) => {
                self.is_broken = true;
                Err(format!("{what}: {completion}").into())
            }
            None => Err(format!("{what}: it does not complete").into()),
        }
    }

    /// Reads words of the table.
    fn read(&mut self, words: std::ops::Range<usize>, to: usize, what: &str) -> Result<()> {
        let Target {
            table, table_srq, ..
        } = self.target;
        let from = table.word(words.start);
        let to = to..to + words.len();
        match &mut self.sender {
            Sender::Xrc(qp) => qp.read(table_srq, from, &self.region, to)?,
            Sender::Rc(qp) => qp.read(from, &self.region, to)?,
        }
        self.complete(what)
    }

    fn slot(&mut self) -> Result<Slot> {
        loop {
            self.read(slot_of(self.number), SLOT_AT, "RDMA READ of the slot")?;
            if let Some(slot) = Slot::read(&self.region.memory()[SLOT_AT..SLOT_AT + SLOT]) {
                return Ok(slot);
            }
            self.account.torn.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn send(&mut self, number: u64, key: u64) -> Result<()> {
        let at = MESSAGES_AT + (number % CREDITS) as usize * RECORD;
        Record::new(self.number, number, key).write(&self.region.memory()[at..at + RECORD]);
        let words = at..at + RECORD;
        match &mut self.sender {
            Sender::Xrc(qp) => qp.send(self.target.srq_num, &self.region, words)?,
            Sender::Rc(qp) => qp.send(&self.region, words)?,
        }
        self.complete("SEND")
    }

    fn put(&mut self, key: u64, begun: u64) -> Result<()> {
        self.sent += 1;
        self.unanswered.push_back(Unanswered {
            number: self.sent,
            key,
            begun,
            again: 0,
        });
        self.send(self.sent, key)
    }

    /// Takes the answers, and changes over to a new server: if so, returns true.
    fn update(&mut self) -> Result<bool> {
        let slot = self.slot()?;
        if slot.answered < self.answered || slot.answered > self.sent {
            return Err(format!("message {} was answered, of {}", slot.answered, self.sent).into());
        }
        self.answered = slot.answered;
        while let Some(&Unanswered {
            number,
            key,
            begun,
            again,
        }) = self
            .unanswered
            .front()
            .filter(|message| message.number <= slot.answered)
        {
            self.unanswered.pop_front();
            if key < KEYS {
                // From now on a GET of it has to return this value, or a newer one.
                let seen = &mut self.seen[key as usize];
                *seen = number.max(*seen);
                let Account {
                    puts, longest_put, ..
                } = self.account;
                self.account.count(puts, longest_put, begun);
                let answered = now();
                if answered - begun > SLOW * 1_000_000 {
                    let mut slow = self.account.slow_puts.lock().expect("no client panics");
                    slow.push([begun, again, answered]);
                }
            }
        }
        let is_new = slot.target.generation != self.target.generation;
        if is_new {
            let is_rekeyed = !slot.target.reads_like(&self.target);
            self.account.rekeyed.fetch_add(is_rekeyed.into(), Relaxed);
            self.target = slot.target;
            for i in 0..self.unanswered.len() {
                let Unanswered { number, key, .. } = self.unanswered[i];
                self.account.repeated.fetch_add(1, Relaxed);
                self.unanswered[i].again = now();
                self.send(number, key)?;
            }
            if self.unanswered.is_empty() {
                self.put(NOTHING, now())?;
            }
        }
        Ok(is_new)
    }

    /// Gets a value. It has to be a value that was put, not older than the last seen or answered.
    fn get(&mut self, key: u64, begun: u64) -> Result<()> {
        let record = loop {
            self.read(entry_of(key), ENTRY_AT, "RDMA READ of a value")?;
            match newer(&self.region.memory()[ENTRY_AT..ENTRY_AT + 2 * RECORD]) {
                Ok(Some(record)) => break Some(record),
                // It was never put.
                Ok(None) if self.seen[key as usize] == 0 => break None,
                Ok(None) => return Err(format!("key {key} has lost its value").into()),
                Err(Torn) => self.account.torn.fetch_add(1, Relaxed),
            };
        };
        if let Some(record) = record {
            self.verify(key, &record)?;
        }
        let Account {
            gets, longest_get, ..
        } = self.account;
        self.account.count(gets, longest_get, begun);
        let ended = now();
        if ended - begun > SLOW * 1_000_000 {
            let mut slow = self.account.slow_gets.lock().expect("no client panics");
            slow.push([begun, ended]);
        }
        Ok(())
    }

    fn verify(&mut self, key: u64, record: &Record) -> Result<()> {
        let seen = &mut self.seen[key as usize];
        if !record.is_true() || record.key() != key || record.client() != key / KEYS_OF_CLIENT {
            return Err(
                format!("key {key} has a value that no client has put: {record:x?}").into(),
            );
        }
        if record.number() < *seen {
            return Err(format!("key {key} went back from {seen} to {}", record.number()).into());
        }
        *seen = record.number();
        Ok(())
    }

    /// Has no request under way until there is another order, and then asks which server there is.
    fn wait(&mut self, args: &Args, order: Order) -> Result<()> {
        while !self.unanswered.is_empty() {
            self.update()?;
            thread::sleep(SHORTEST_PAUSE);
        }
        if self.account.waiting.fetch_add(1, Relaxed) + 1 == args.clients {
            println!(r#"{{"waiting": {}}}"#, args.clients);
        }
        self.account.wait(order, Duration::MAX);
        let hello = Hello {
            target: self.target,
            ..Hello::goodbye(self.number)
        };
        loop {
            match hello.ask(&args.address) {
                Ok(server) if server.qp_num != 0 => {
                    self.target = server.target;
                    return Ok(());
                }
                Ok(_) => {
                    self.is_broken = true;
                    return Err("the connection has ended".into());
                }
                // There is no server yet.
                Err(_) => thread::sleep(SHORTEST_PAUSE),
            }
        }
    }

    fn run(&mut self, args: &Args) -> Result<()> {
        // Clients take turns.
        let turn = Duration::from_millis(args.period) * self.number as u32 / args.clients as u32;
        let mut next = Instant::now() + turn;
        while let Err(error) = self
            .put_and_get(args, &mut next)
            .and_then(|()| self.finish())
        {
            if !self.is_broken {
                return Err(error);
            }
            self.account
                .broken
                .lock()
                .expect("no client panics")
                .push(now());
            self.reconnect(args)?;
        }
        while Hello::goodbye(self.number).ask(&args.address).is_err() {
            thread::sleep(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// One PUT and one GET in a period, the first when `next` is, until the end.
    fn put_and_get(&mut self, args: &Args, next: &mut Instant) -> Result<()> {
        let period = Duration::from_millis(args.period);
        // Requests that fell due before this have waited since.
        let mut resumed = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        // After a connection has broken, what was not answered comes before a new PUT.
        self.update()?;
        loop {
            match self.account.wait(Order::Load, Duration::ZERO) {
                Order::Load => {}
                order @ Order::Wait(_) => {
                    self.wait(args, order)?;
                    resumed = Instant::now();
                    continue;
                }
                Order::Stop => return Ok(()),
            }
            if *next <= Instant::now() {
                let late = match *next < resumed {
                    true => next.elapsed().as_nanos() as u64,
                    false => 0,
                };
                pause = SHORTEST_PAUSE;
                if self.unanswered.len() < CREDITS as usize {
                    let key = self.number * KEYS_OF_CLIENT + self.sent % KEYS_OF_CLIENT;
                    self.put(key, now() - late)?;
                }
                // Of any client, and each of another one.
                let key = (self.sent * 31 + self.number * 7) % (args.clients * KEYS_OF_CLIENT);
                self.get(key, now() - late)?;
                // Not before: where one fails, both are due. The client keeps its turn.
                while *next <= Instant::now() {
                    *next += period;
                }
            }
            if self.update()? {
                pause = SHORTEST_PAUSE;
            }
            let left = next.saturating_duration_since(Instant::now());
            if self.unanswered.is_empty() {
                self.account.wait(Order::Load, left);
            } else {
                thread::sleep(left.min(pause));
                pause = LONGEST_PAUSE.min(2 * pause);
            }
        }
    }

    /// Waits for all answers, and verifies all values of its own.
    fn finish(&mut self) -> Result<()> {
        while !self.unanswered.is_empty() {
            self.update()?;
            thread::sleep(SHORTEST_PAUSE);
        }
        for key in self.number * KEYS_OF_CLIENT..(self.number + 1) * KEYS_OF_CLIENT {
            self.get(key, now())?;
        }
        Ok(())
    }
}

/// The pauses from one look for an answer to the next. The longest is a part of the time that a
/// restart adds to a PUT.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

fn total(samples: &[AtomicU32]) -> u64 {
    samples
        .iter()
        .map(|sample| u64::from(sample.load(Relaxed)))
        .sum()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let device = Device::open(&args.device)?;
    let pd = Pd::new(&device)?;
    let samples = || (0..SAMPLES).map(|_| AtomicU32::new(0)).collect();
    let account = Account {
        begin: now(),
        order: Mutex::new(Order::Load),
        reordered: Condvar::new(),
        connected: AtomicU64::new(0),
        waiting: AtomicU64::new(0),
        puts: samples(),
        gets: samples(),
        repeated: AtomicU64::new(0),
        rekeyed: AtomicU64::new(0),
        torn: AtomicU64::new(0),
        broken: Mutex::default(),
        longest_put: AtomicU64::new(0),
        longest_get: AtomicU64::new(0),
        slow_puts: Mutex::default(),
        slow_gets: Mutex::default(),
    };
    let client = |number| {
        // A load without one of its clients would never be complete.
        let mut client = Client::connect(number, args, &pd, &account).unwrap_or_else(|error| {
            eprintln!("kvstore: client {number} cannot connect: {error}");
            process::exit(1)
        });
        if account.connected.fetch_add(1, Relaxed) + 1 == args.clients {
            println!(r#"{{"connected": {}}}"#, args.clients);
        }
        client.run(args)
    };
    let errors: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..args.clients)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        let mut waits = 0;
        for line in io::stdin().lines().map_while(io::Result::ok) {
            account.waiting.store(0, Relaxed);
            account.order(if line == "wait" {
                waits += 1;
                Order::Wait(waits)
            } else {
                Order::Load
            });
        }
        account.order(Order::Stop);
        let results = clients
            .into_iter()
            .enumerate()
            .filter_map(|(number, client)| {
                let result: Result<()> = client.join().expect("no client panics");
                result
                    .err()
                    .map(|error| format!("client {number}: {error}"))
            });
        results.collect()
    });
    for error in &errors {
        eprintln!("kvstore: {error}");
    }
    let broken = account.broken.lock().expect("no client panics");
    let end = ((now() - account.begin) / (SAMPLE * 1_000_000)) as usize;
    println!(
        r#"{{"begin": {}, "sample_ms": {SAMPLE}, "puts": {}, "gets": {}, "repeated": {}, "rekeyed": {}, "torn": {}, "broken": {}, "longest_put_ms": {}, "longest_get_ms": {}, "errors": {}, "slow_ms": {SLOW}, "slow_puts": {:?}, "slow_gets": {:?}, "broken_at": {broken:?}, "puts_by_time": {:?}, "gets_by_time": {:?}}}"#,
        account.begin,
        total(&account.puts),
        total(&account.gets),
        account.repeated.load(Relaxed),
        account.rekeyed.load(Relaxed),
        account.torn.load(Relaxed),
        broken.len(),
        account.longest_put.load(Relaxed) / 1_000_000,
        account.longest_get.load(Relaxed) / 1_000_000,
        errors.len(),
        account.slow_puts.lock().expect("no client panics"),
        account.slow_gets.lock().expect("no client panics"),
        &account.puts[..=end.min(SAMPLES - 1)],
        &account.gets[..=end.min(SAMPLES - 1)],
    );
    match errors.len() {
        0 => Ok(()),
        count => Err(format!("{count} clients have failed").into()),
    }
}
