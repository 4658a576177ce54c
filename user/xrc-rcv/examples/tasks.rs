// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A server of several tasks: while one waits for events and another for messages, a third creates
//! a receive QP. The senders are in the same process: tasks that share a connection, number their
//! messages by a word of the server's memory, and break the connection at the end.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clap::Parser;
use tokio::task::JoinSet;
use xrc_rcv::verbs::{Initiator, Memory, MessageStream, Region, Remote, Requests, Srq};
use xrc_rcv::{
    Access, AllocOptions, Device, EventStream, EventType, Mtu, Pd, QpAttr, Registration,
};

#[derive(Parser)]
struct Args {
    device: String,
    /// Index of the GID
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
    /// Number of messages
    #[arg(long, default_value_t = 100)]
    messages: u64,
}

/// The tasks that send, and how many requests can be under way.
const SENDERS: usize = 4;
const DEPTH: u32 = 2;

/// Returns the event that ends the connection.
async fn broken(events: EventStream) -> xrc_rcv::Result<Option<EventType>> {
    while let Some(event) = events.next().await {
        let event = event?;
        println!("{event}");
        if event.event_type() != EventType::COMM_EST {
            return Ok(Some(event.event_type()));
        }
    }
    Ok(None)
}

/// Returns the stream, and the sum of the first words of `count` messages.
async fn sum(mut messages: MessageStream, count: u64) -> Result<(MessageStream, u64), String> {
    let mut sum = 0;
    for _ in 0..count {
        let message = messages.next().await.ok_or("no more messages")?;
        let message = message.map_err(|error| error.to_string())?;
        let (word, _) = message.split_first_chunk().ok_or("a short message")?;
        sum += u64::from_ne_bytes(*word);
    }
    Ok((messages, sum))
}

/// Sends the numbers that it takes from the word `next` of the server, until there are no more.
async fn send(
    requests: Arc<Requests>,
    srq_num: u32,
    next: Remote,
    region: Region,
    count: u64,
) -> xrc_rcv::Result<()> {
    loop {
        let number = requests.fetch_add(srq_num, next, 1).await?;
        if number > count {
            return Ok(());
        }
        region.memory()[0].store(number, Relaxed);
        requests.send(srq_num, &region, 0..8).await?;
    }
}

/// Has tasks send the numbers up to `count`.
async fn send_all(
    requests: &Arc<Requests>,
    srq_num: u32,
    pd: &Pd,
    count: u64,
) -> Result<(), Box<dyn Error>> {
    let next = Region::new(pd, &Memory::new("next", 1)?, Access::REMOTE_ATOMIC)?;
    next.memory()[0].store(1, Relaxed);
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let region = Region::new(pd, &Memory::new("message", 8)?, Access::empty())?;
        let requests = requests.clone();
        senders.spawn(send(requests, srq_num, next.remote(), region, count));
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let device = Device::open(&args.device)?;
    let domain = device.open_domain(None)?;
    let events = EventStream::new(domain.create_event_channel()?)?;
    let pd = Pd::new(&device)?;
    let messages = MessageStream::new(Srq::in_pd(&pd, &domain, 16, 64)?)?;
    let (channel, srq_num) = (events.channel().clone(), messages.srq().srq_num());
    let (broken, sum) = (
        tokio::spawn(broken(events)),
        tokio::spawn(sum(messages, args.messages)),
    );
    tokio::task::yield_now().await; // now both wait

    let mut initiator = Initiator::new(&pd, DEPTH)?;
    let address = device.query_address(1, args.gid_index)?;
    let attr = QpAttr::new()
        .with_pkey_index(0)
        .with_port(1)
        .with_access(Access::REMOTE_ATOMIC)
        .with_path(address.path_from(1, args.gid_index))
        .with_path_mtu(Mtu::Mtu1024)
        .with_dest_qp_num(initiator.qp_num())
        .with_rq_psn(0)
        .with_max_dest_rd_atomic(1)
        .with_min_rnr_timer(12);
    let qp: Registration = domain.alloc(&AllocOptions::new().channel(&channel).attr(attr))?;
    initiator.connect(&attr.with_dest_qp_num(qp.qp_num()))?;
    let requests = Arc::new(Requests::new(initiator)?);

    send_all(&requests, srq_num, &pd, args.messages).await?;
    let (messages, sum) = sum.await??;
    println!("sum {sum}");
    drop(messages); // and its SRQ
    let region = Region::new(&pd, &Memory::new("message", 8)?, Access::empty())?;
    if let Err(error) = requests.send(srq_num, &region, 0..8).await {
        println!("one more: {error}");
    }
    broken.await??.ok_or("no more events")?;
    qp.unregister()?;
    Ok(())
}
