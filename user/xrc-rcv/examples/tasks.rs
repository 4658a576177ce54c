// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A server of several tasks: while one waits for events and another for messages, a third creates
//! a receive QP. The sender is in the same process, and breaks the connection at the end.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use xrc_rcv::verbs::{Completion, Initiator, Memory, MessageStream, Region, Srq};
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

/// Returns the sum of the first words of `count` messages.
async fn sum(mut messages: MessageStream, count: u64) -> Result<u64, String> {
    let mut sum = 0;
    for _ in 0..count {
        let message = messages.next().await.ok_or("no more messages")?;
        let message = message.map_err(|error| error.to_string())?;
        let (word, _) = message.split_first_chunk().ok_or("a short message")?;
        sum += u64::from_ne_bytes(*word);
    }
    Ok(sum)
}

async fn completion(initiator: &mut AsyncFd<Initiator>) -> Result<Completion, Box<dyn Error>> {
    loop {
        if let Some(completion) = initiator.get_mut().wait(Some(Duration::ZERO))? {
            return Ok(completion);
        }
        initiator.readable().await?.clear_ready();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let device = Device::open(&args.device)?;
    let domain = device.open_domain(None)?;
    let events = EventStream::new(domain.create_event_channel()?)?;
    let messages = MessageStream::new(Srq::new(&domain, 16, 64)?)?;
    let (channel, srq_num) = (events.channel().clone(), messages.srq().srq_num());
    let (broken, sum) = (
        tokio::spawn(broken(events)),
        tokio::spawn(sum(messages, args.messages)),
    );
    tokio::task::yield_now().await; // now both wait

    let pd = Pd::new(&device)?;
    let initiator = Initiator::new(&pd, 1)?;
    let address = device.query_address(1, args.gid_index)?;
    let attr = QpAttr::new()
        .with_pkey_index(0)
        .with_port(1)
        .with_access(Access::empty())
        .with_path(address.path_from(1, args.gid_index))
        .with_path_mtu(Mtu::Mtu1024)
        .with_dest_qp_num(initiator.qp_num())
        .with_rq_psn(0);
    let qp: Registration = domain.alloc(&AllocOptions::new().channel(&channel).attr(attr))?;
    // SAFETY: An initiator owns its descriptor, which is open and the same until it is dropped.
    let mut initiator = unsafe { AsyncFd::register_with_interest(initiator, Interest::READABLE) }?;
    let to_qp = attr
        .with_dest_qp_num(qp.qp_num())
        .with_max_dest_rd_atomic(1)
        .with_min_rnr_timer(12);
    initiator.get_mut().connect(&to_qp)?;

    let region = Region::new(&pd, &Memory::new("message", 8)?, Access::empty())?;
    for word in 1..=args.messages {
        region.memory()[0].store(word, std::sync::atomic::Ordering::Relaxed);
        initiator.get_mut().send(srq_num, &region, 0..8)?;
        let completion = completion(&mut initiator).await?;
        if !completion.is_success() {
            return Err(format!("message {word}: {completion}").into());
        }
    }
    println!("sum {}", sum.await??);
    // The SRQ went with its stream.
    initiator.get_mut().send(srq_num, &region, 0..8)?;
    println!("one more: {}", completion(&mut initiator).await?);
    broken.await??.ok_or("no more events")?;
    qp.unregister()?;
    Ok(())
}
