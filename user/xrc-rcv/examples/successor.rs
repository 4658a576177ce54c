// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The successor of a process that has ended: takes over the receive QPs that it left in a domain,
//! prints what they are and the number of an SRQ, and then every event and message. It destroys a
//! QP whose connection breaks, and ends with the last one.
//!
//! Another process has kept the domain open, such as `xrc-rcv hold FILE`.
//!
//! usage: successor DEVICE FILE

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::process::ExitCode;

use xrc_rcv::verbs::{MessageStream, Srq};
use xrc_rcv::{Device, EventStream, EventType, RegisterOptions};

async fn take_over(device: &str, file: &str) -> Result<(), Box<dyn Error>> {
    let device = Device::open(device)?;
    let domain = device.open_domain_at(file)?;
    let events = EventStream::new(domain.create_event_channel()?)?;
    let mut registrations = HashMap::new();
    for qp in domain.adopt(&RegisterOptions::new().channel(events.channel()))? {
        let state = qp.info.state().map_or("?", |state| state.name());
        let (label, peer) = (qp.info.label(), qp.info.dest_qp_num());
        let registration = qp.registration?;
        println!(
            "QP {} of {label:#x} to {peer}: {state}",
            registration.qp_num()
        );
        registrations.insert(registration.qp_num(), registration);
    }

    let mut messages = MessageStream::new(Srq::new(&domain, 16, 4096)?)?;
    println!("SRQ {}", messages.srq().srq_num()); // for the peers, from now on
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            println!(
                "message {}",
                String::from_utf8_lossy(&message).trim_end_matches('\0')
            );
        }
    });

    while !registrations.is_empty() {
        let event = events.next().await.ok_or("no more events")??;
        println!("{event}");
        if event.event_type() == EventType::COMM_EST {
            continue;
        }
        if let Some(registration) = registrations.remove(&event.qp_num()) {
            registration.unregister()?;
            domain.destroy(event.qp_num())?;
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [device, file] = args.as_slice() else {
        eprintln!("usage: successor DEVICE FILE");
        return ExitCode::from(2);
    };
    match take_over(device, file).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("successor: {error}");
            ExitCode::FAILURE
        }
    }
}
