// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Requests as futures on a device, up to its removal: a program of qemu/tests/user/requests.
//!
//! usage: requests DEVICE GID_INDEX COMMAND
//!
//! COMMAND removes the device. A SEND to an SRQ without a free receive is repeated until there is
//! one: by this, requests are under way for as long as a test wants.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{env, fs};

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking, yield_now};
use xrc_rcv::verbs::{Initiator, Memory, MessageStream, Region, Remote, Requests, Srq};
use xrc_rcv::{
    Access, AllocOptions, Cause, Device, EventStream, EventType, Mtu, Pd, QpAttr, Registration,
};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Places in the send queue.
const DEPTH: usize = 2;
/// The bytes of a message.
const SIZE: usize = 64;
const NO_SRQ: u32 = 0xff_ffff;
const IBV_WC_WR_FLUSH_ERR: u32 = 5;

/// A connection of the device with itself, and memory that the peer accesses by an SRQ.
struct Node {
    _registration: Registration,
    pd: Pd,
    memory: Memory,
    remote: Remote,
    _region: Region,
    srq: Srq,
    requests: Arc<Requests>,
}

impl Node {
    fn new(device: &Device, gid_index: u8) -> Result<(Node, EventStream)> {
        let domain = device.open_domain(None)?;
        let pd = Pd::new(device)?;
        let memory = Memory::new("peer", 64)?;
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let region = Region::new(&pd, &memory, access)?;
        let srq = Srq::in_pd(&pd, &domain, 1, SIZE as u32)?;
        let events = EventStream::new(domain.create_event_channel()?)?;
        let mut initiator = Initiator::new(&pd, DEPTH as u32)?;
        let address = device.query_address(1, gid_index)?;
        let attr = QpAttr::new()
            .with_pkey_index(0)
            .with_port(1)
            .with_access(access)
            .with_path(address.path_from(1, gid_index))
            .with_path_mtu(Mtu::Mtu1024)
            .with_dest_qp_num(initiator.qp_num())
            .with_rq_psn(0)
            .with_max_dest_rd_atomic(1)
            .with_min_rnr_timer(12);
        let new = AllocOptions::new().channel(events.channel()).attr(attr);
        let registration = domain.alloc(&new)?;
        initiator.connect(&attr.with_dest_qp_num(registration.qp_num()))?;
        let node = Node {
            _registration: registration,
            pd,
            remote: region.remote(),
            memory,
            _region: region,
            srq,
            requests: Arc::new(Requests::new(initiator)?),
        };
        Ok((node, events))
    }

    /// Memory whose words are `word` and those after it.
    fn region(&self, name: &str, word: u64) -> Result<Region> {
        let region = Region::new(&self.pd, &Memory::new(name, SIZE / 8)?, Access::empty())?;
        for (word, at) in (word..).zip(region.memory().iter()) {
            at.store(word, Relaxed);
        }
        Ok(region)
    }

    /// A task that sends such words, and keeps nothing of them.
    fn send(&self, name: &str, word: u64) -> Result<JoinHandle<xrc_rcv::Result<()>>> {
        let (requests, srq_num) = (self.requests.clone(), self.srq.srq_num());
        let region = self.region(name, word)?;
        Ok(tokio::spawn(async move {
            requests.send(srq_num, &region, 0..SIZE / 8).await
        }))
    }

    /// The words that the next message has, by their first.
    fn receive(&mut self) -> Result<u64> {
        let message = self.srq.receive(None)?.ok_or("no message")?;
        let words: Vec<u64> = message
            .chunks_exact(8)
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("8 bytes")))
            .collect();
        let expected: Vec<u64> = (words[0]..).take(SIZE / 8).collect();
        check(words == expected, "the words of a message")?;
        Ok(words[0])
    }

    async fn until_in_flight(&self, count: usize) {
        while self.requests.in_flight() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn check(is_true: bool, what: &str) -> Result {
    is_true.then_some(()).ok_or_else(|| what.into())
}

/// Whether memory of that name is mapped.
fn is_mapped(name: &str) -> Result<bool> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    Ok(maps.contains(&format!("/memfd:{name} ")))
}

/// The status of the request that has broken the connection.
fn status(error: &xrc_rcv::Error) -> Option<u32> {
    match error.cause() {
        Cause::Completion(completion) => Some(completion.status()),
        _ => None,
    }
}

async fn written(node: &mut Node) -> Result {
    let (requests, srq_num) = (&node.requests, node.srq.srq_num());
    let from = node.region("from", 100)?;
    let to = node.region("to", 0)?;
    requests
        .write(srq_num, node.remote.word(8), &from, 1..4)
        .await?;
    let words: Vec<u64> = node.memory[7..13]
        .iter()
        .map(|word| word.load(Relaxed))
        .collect();
    check(
        words == [0, 101, 102, 103, 0, 0],
        "the words in the peer's memory",
    )?;
    requests
        .read(srq_num, node.remote.word(9), &to, 0..2)
        .await?;
    let words: Vec<u64> = to.memory().iter().map(|word| word.load(Relaxed)).collect();
    check(
        words == [102, 103, 2, 3, 4, 5, 6, 7],
        "the words that were read",
    )
}

async fn atomics(node: &mut Node) -> Result {
    let (requests, srq_num, word) = (&node.requests, node.srq.srq_num(), node.remote.word(20));
    node.memory[20].store(5, Relaxed);
    let swapped = requests.cmp_swap(srq_num, word, 5, 1 << 40).await?;
    let unequal = requests.cmp_swap(srq_num, word, 5, 1).await?;
    let added = requests.fetch_add(srq_num, word, 3).await?;
    check(
        [swapped, unequal, added] == [5, 1 << 40, 1 << 40],
        "the old values",
    )?;
    check(node.memory[20].load(Relaxed) == (1 << 40) + 3, "the word")?;
    let odd = Remote {
        address: word.address + 4,
        ..word
    };
    let error = requests.fetch_add(srq_num, odd, 1).await.unwrap_err();
    check(error.errno() == libc::EINVAL, "a word that is not aligned")
}

/// More tasks than there is room for.
async fn concurrent(node: &mut Node) -> Result {
    const TASKS: u64 = 8;
    const ADDS: u64 = 50;
    let (srq_num, word) = (node.srq.srq_num(), node.remote.word(21));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let requests = node.requests.clone();
        tasks.spawn(async move {
            let mut old_values = Vec::new();
            for _ in 0..ADDS {
                old_values.push(requests.fetch_add(srq_num, word, 1).await?);
            }
            xrc_rcv::Result::Ok(old_values)
        });
    }
    let mut old_values = BTreeSet::new();
    while let Some(values) = tasks.join_next().await {
        old_values.extend(values??);
    }
    check(
        node.memory[21].load(Relaxed) == TASKS * ADDS,
        "the sum of all",
    )?;
    check(
        old_values.into_iter().eq(0..TASKS * ADDS),
        "an old value for each",
    )
}

async fn full(node: &mut Node) -> Result {
    node.send("first", 0)?.await??; // takes the only receive
    let mut sent = Vec::new();
    for count in 1..=4 {
        sent.push(node.send("full", 1000 * count)?);
        node.until_in_flight(DEPTH.min(count as usize)).await;
    }
    for _ in 0..100 {
        yield_now().await;
    }
    check(node.requests.in_flight() == DEPTH, "requests without room")?;
    for word in [0, 1000, 2000] {
        check(node.receive()? == word, "messages in their order")?;
    }
    let last = BTreeSet::from([node.receive()?, node.receive()?]); // of tasks in any order
    check(
        last == BTreeSet::from([3000, 4000]),
        "the messages that waited",
    )?;
    for sent in sent {
        sent.await??;
    }
    Ok(())
}

async fn cancelled(node: &mut Node) -> Result {
    node.send("first", 0)?.await??;
    let under_way = node.send("cancelled", 1000)?;
    node.until_in_flight(1).await;
    let second = node.send("second", 2000)?;
    node.until_in_flight(2).await;
    let not_posted = node.send("unposted", 3000)?;
    while !is_mapped("unposted")? {
        yield_now().await;
    }
    for future in [under_way, not_posted] {
        future.abort();
        check(
            future.await.is_err_and(|end| end.is_cancelled()),
            "the end of a future",
        )?;
    }
    // The region was the future's own, and is now the request's.
    check(is_mapped("cancelled")?, "the memory of a request")?;
    check(!is_mapped("unposted")?, "the memory of no request")?;
    check(node.requests.in_flight() == 2, "the place of a request")?;
    for word in [0, 1000, 2000] {
        check(
            node.receive()? == word,
            "the message of a future that was dropped",
        )?;
    }
    second.await??;
    node.until_in_flight(0).await;
    check(
        !is_mapped("cancelled")?,
        "the memory of a request that completed",
    )?;
    node.send("next", 4000)?.await??;
    check(
        node.receive()? == 4000,
        "no message of the one that was not posted",
    )
}

async fn failed(node: &mut Node, events: &EventStream) -> Result {
    node.send("first", 0)?.await??;
    let good = node.send("good", 1000)?;
    node.until_in_flight(1).await;
    let (requests, srq_num, word) = (&node.requests, node.srq.srq_num(), node.remote.word(30));
    let region = node.region("words", 1)?;
    let requests = requests.clone();
    check(node.receive()? == 0, "the message before")?;
    good.await??;
    check(node.receive()? == 1000, "the message that was under way")?;
    // Both are posted, and another one waits for room.
    let (bad, behind, waiting) = tokio::join!(
        requests.send(NO_SRQ, &region, 0..1),
        requests.write(srq_num, word, &region, 0..1),
        requests.write(srq_num, word, &region, 0..1),
    );
    let errors = [
        bad.unwrap_err(),
        behind.unwrap_err(),
        waiting.unwrap_err(),
        requests.fetch_add(srq_num, word, 1).await.unwrap_err(),
    ];
    println!("# {}", errors[0]);
    let cause = status(&errors[0]);
    check(
        cause.is_some() && cause != Some(IBV_WC_WR_FLUSH_ERR),
        "the cause",
    )?;
    check(
        errors.iter().all(|error| error == &errors[0]),
        "the same cause for all",
    )?;
    check(node.memory[30].load(Relaxed) == 0, "nothing is written")?;
    while let Some(event) = events.next().await {
        if event?.event_type() != EventType::COMM_EST {
            return Ok(());
        }
    }
    Err("the stream of events has ended".into())
}

/// Ends the runtime whose task takes the completions, while a request is under way.
async fn ended(device: &Device, gid_index: u8) -> Result {
    let runtime = Runtime::new()?;
    let entered = runtime.enter();
    let (node, _) = Node::new(device, gid_index)?;
    drop(entered);
    node.send("first", 0)?.await??;
    let sent = node.send("ended", 1000)?;
    node.until_in_flight(1).await;
    runtime.shutdown_background();
    let error = sent.await?.unwrap_err();
    check(error.errno() == libc::ECANCELED, "the error of a request")?;
    check(is_mapped("ended")?, "the memory of a request")
}

/// Returns how a stream of messages without a message ends.
async fn end_of_messages(mut messages: MessageStream) -> Result {
    let (error, end) = (messages.next().await, messages.next().await);
    check(
        matches!(error, Some(Err(error)) if error.errno() == libc::EIO) && end.is_none(),
        "the end of the messages",
    )
}

/// The same of events, of which the last one is QP_GONE.
async fn end_of_events(events: EventStream) -> Result {
    let (mut last, mut error) = (None, None);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => last = Some(event.event_type()),
            Err(cause) => error = Some(cause.errno()),
        }
    }
    check(last == Some(EventType::QP_GONE), "the last event")?;
    check(error == Some(libc::EIO), "the end of the events")
}

/// Requests under way, one that waits for room, none, and streams.
async fn removed(node: Node, events: EventStream, idle: Node, command: String) -> Result {
    node.send("first", 0)?.await??;
    let mut sent = Vec::new();
    for count in 1..=3 {
        sent.push(node.send("removed", 1000 * count)?);
        node.until_in_flight(DEPTH.min(count as usize)).await;
    }
    let messages = tokio::spawn(end_of_messages(MessageStream::new(idle.srq)?));
    let events = tokio::spawn(end_of_events(events));
    yield_now().await;

    let status = spawn_blocking(move || Command::new("sh").args(["-c", &command]).status());
    check(
        status.await??.success(),
        "the command that removes the device",
    )?;
    for sent in sent {
        let error = sent.await?.unwrap_err();
        println!("# {error}");
        check(error.errno() == libc::EIO, "the error of a request")?;
    }
    let added = idle.requests.fetch_add(node.srq.srq_num(), idle.remote, 1);
    check(
        added.await.unwrap_err().errno() == libc::EIO,
        "the error of a new request",
    )?;
    messages.await??;
    events.await?
}

async fn run(device: &str, gid_index: u8, command: String) -> Result<bool> {
    let device = Device::open(device)?;
    let (mut node, events) = Node::new(&device, gid_index)?;
    println!("KTAP version 1\n1..8");
    let (mut count, mut failures) = (0, 0);
    let mut report = |result: Result, what: &str| {
        count += 1;
        match result {
            Ok(()) => println!("ok {count} - {what}"),
            Err(error) => {
                failures += 1;
                println!("# {error}\nnot ok {count} - {what}");
            }
        }
    };
    report(written(&mut node).await, "WRITE and READ");
    report(
        atomics(&mut node).await,
        "FETCH_ADD and CMP_SWAP return the old value",
    );
    report(concurrent(&mut node).await, "8 tasks add at the same time");
    report(
        full(&mut node).await,
        "requests wait for room in the send queue",
    );
    report(
        cancelled(&mut node).await,
        "a request keeps its memory when its future is dropped",
    );
    report(
        failed(&mut node, &events).await,
        "all requests end with the cause of the first that fails",
    );
    report(
        ended(&device, gid_index).await,
        "requests end with the runtime, and keep their memory",
    );
    let (node, events) = Node::new(&device, gid_index)?;
    let (idle, _) = Node::new(&device, gid_index)?;
    report(
        removed(node, events, idle, command).await,
        "requests and streams end when the device is removed",
    );
    Ok(failures == 0)
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result {
    let args: Vec<String> = env::args().skip(1).collect();
    let [device, gid_index, command] = args.as_slice() else {
        return Err("usage: requests DEVICE GID_INDEX COMMAND".into());
    };
    let passed = run(device, gid_index.parse()?, command.clone()).await?;
    check(passed, "a test has failed")
}
