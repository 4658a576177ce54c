// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! One receiving process: it opens the domain, creates the receive QP or registers with it, prints
//! the messages to its SRQ, and unregisters when the connection breaks.
//!
//! `receiver DEVICE FILE INDEX GID QPN` creates the QP for the sender's QP at GID, by entry INDEX of
//! the GIDs of port 1; `receiver DEVICE FILE QPN` registers. The numbers of the QP and of the SRQ are
//! printed first.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv6Addr;
use std::process::ExitCode;
use std::{env, thread};

use xrc_rcv::verbs::Srq;
use xrc_rcv::{
    Access, AllocOptions, Device, EventChannel, EventType, Mtu, Path, QpAttr, RegisterOptions,
};

/// The number of the QP to register with, or the attributes of the one to create.
enum Qp {
    Existing(u32),
    New(QpAttr),
}

fn number(what: &str, word: &str) -> Result<u32, Box<dyn Error>> {
    let number = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    number.map_err(|error| format!("{what} {word}: {error}").into())
}

fn qp(words: &[String]) -> Result<Qp, Box<dyn Error>> {
    let [index, gid, peer] = words else {
        return Ok(Qp::Existing(number("QPN", &words[0])?));
    };
    let index = u8::try_from(number("INDEX", index)?)?;
    let address: Ipv6Addr = gid.parse().map_err(|error| format!("GID {gid}: {error}"))?;
    let attr = QpAttr::new()
        .with_pkey_index(0)
        .with_port(1)
        .with_access(Access::REMOTE_WRITE)
        .with_path(Path::gid(1, address.octets(), index))
        .with_path_mtu(Mtu::Mtu1024)
        .with_dest_qp_num(number("QPN", peer)?)
        .with_rq_psn(0);
    Ok(Qp::New(attr))
}

fn receive(device: &str, file: &str, qp: Qp) -> xrc_rcv::Result<()> {
    // The sample in the README.
    let device = Device::open(device)?;
    let domain = device.open_domain_at(file)?; // shared by a file
    let mut srq = Srq::new(&domain, 16, 4096)?;
    let channel = domain.create_event_channel()?;
    let qp = match qp {
        Qp::Existing(qp_num) => domain.register(qp_num, &RegisterOptions::new().channel(&channel)),
        Qp::New(attr) => domain.alloc(&AllocOptions::new().channel(&channel).attr(attr)),
    }?;
    println!("{}\n{}", qp.qp_num(), srq.srq_num()); // for the sender and the other receivers
    thread::spawn(move || print_messages(&mut srq));
    wait_until_broken(&channel)?;
    qp.unregister() // the last registration destroys the QP
}

/// Returns after the first event that is not about the connection's establishment.
fn wait_until_broken(channel: &EventChannel) -> xrc_rcv::Result<()> {
    loop {
        for event in channel.wait(None)? {
            if event.event_type() != EventType::COMM_EST {
                return Ok(());
            }
        }
    }
}

fn print_messages(srq: &mut Srq) {
    loop {
        match srq.receive(None) {
            Ok(message) => println!("{}", String::from_utf8_lossy(&message.unwrap_or_default())),
            Err(error) => return eprintln!("receiver: {error}"),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (Some(device), Some(file), 3 | 5) = (args.first(), args.get(1), args.len()) else {
        eprintln!("usage: receiver DEVICE FILE {{QPN|INDEX GID QPN}}");
        return ExitCode::from(2);
    };
    match qp(&args[2..]).and_then(|qp| Ok(receive(device, file, qp)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("receiver: {error}");
            ExitCode::FAILURE
        }
    }
}
