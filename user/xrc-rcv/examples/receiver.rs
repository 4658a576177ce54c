// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! One receiving process of a domain, see Documentation/tutorial.rst: prints the messages to its
//! SRQ, and the events of the receive QPs that it is registered with.
//!
//! usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT
//!
//! A sender, of any language, connects to TCP_PORT and writes "LID GID QPN RECEIVE_QPN": the
//! receive QP in the domain of FILE that its QP is connected to, or 0. It is answered "LID GID
//! RECEIVE_QPN SRQ".

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::{env, thread};

use xrc_rcv::verbs::{Address, Srq};
use xrc_rcv::{Access, AllocOptions, Device, Domain, EventChannel, EventType, Lifetime, Mtu};
use xrc_rcv::{QpAttr, RegisterOptions, Registration};

/// What senders need, and what they cause.
struct Receiver {
    domain: Domain,
    channel: EventChannel,
    port: u8,
    gid_index: u8,
    srq_num: u32,
    /// Registrations, each with the TCP connection of the sender: so that the sender sees the end
    /// of this process.
    qps: Mutex<HashMap<u32, (Registration, TcpStream)>>,
}

impl Receiver {
    /// Registers with the sender's receive QP, or creates one, and answers the sender.
    fn join(&self, mut sender: TcpStream) -> Result<(), Box<dyn Error>> {
        let mut line = String::new();
        BufReader::new(&sender).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [lid, gid, peer, qp_num] = words[..] else {
            return Err(format!("'{}' is not an address", line.trim_end()).into());
        };
        let (lid, gid, qp_num) = (lid.parse()?, gid.parse::<Ipv6Addr>()?, qp_num.parse()?);
        let peer_address = Address {
            lid,
            gid: gid.octets(),
        };
        let attr = QpAttr::new()
            .with_pkey_index(0)
            .with_port(self.port)
            .with_access(Access::empty())
            .with_path(peer_address.path_from(self.port, self.gid_index))
            .with_path_mtu(Mtu::Mtu1024)
            .with_dest_qp_num(peer.parse()?)
            .with_rq_psn(0);
        let label = gid.to_bits() as u64; // whose connection it is
        let (domain, channel) = (&self.domain, &self.channel);
        let new = AllocOptions::new().channel(channel).label(label).attr(attr);

        // The sample in the README.
        let qp = match qp_num {
            0 => domain.alloc(&new.lifetime(Lifetime::Domain))?, // ready to receive
            _ => domain.register(qp_num, &RegisterOptions::new().channel(channel))?,
        };
        let local = domain.device().query_address(self.port, self.gid_index)?;
        let (lid, gid) = (local.lid, Ipv6Addr::from(local.gid));
        let answer = format!("{lid} {gid} {} {}\n", qp.qp_num(), self.srq_num);
        sender.write_all(answer.as_bytes())?;

        let how = if qp_num == 0 { "created" } else { "joined" };
        println!("QP {}: {how}", qp.qp_num());
        self.qps.lock().unwrap().insert(qp.qp_num(), (qp, sender));
        Ok(())
    }

    /// Prints the events, and ends the registration with a QP whose connection is broken.
    fn print_events(&self) -> xrc_rcv::Result<()> {
        loop {
            for event in self.channel.wait(None)? {
                let (qp_num, event) = (event.qp_num(), event.event_type());
                let what = event.description().unwrap_or_default().to_string_lossy();
                if event == EventType::COMM_EST {
                    println!("QP {qp_num}: {what}");
                } else if let Some((registration, _)) = self.qps.lock().unwrap().remove(&qp_num) {
                    println!("QP {qp_num}: {what}"); // and no more of this QP's
                    registration.unregister()?;
                    let _ = self.domain.destroy(qp_num); // fails but for the last one
                }
            }
        }
    }
}

fn print_messages(srq: &mut Srq) -> xrc_rcv::Result<()> {
    loop {
        let message = srq.receive(None)?.unwrap_or_default();
        println!(
            "{}",
            String::from_utf8_lossy(&message).trim_end_matches('\0')
        );
    }
}

fn receive(device: &str, file: &str, tcp_port: &str) -> Result<(), Box<dyn Error>> {
    let mut words = device.split('/');
    let device = Device::open(words.next().unwrap_or_default())?;
    let domain = device.open_domain_at(file)?; // shared by the file
    let mut srq = Srq::new(&domain, 16, 64)?;
    let receiver = Arc::new(Receiver {
        channel: domain.create_event_channel()?,
        domain,
        port: words.next().unwrap_or("1").parse()?,
        gid_index: words.next().unwrap_or("0").parse()?,
        srq_num: srq.srq_num(),
        qps: Mutex::default(),
    });
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, tcp_port.parse()?))?;
    println!("ready");

    thread::spawn(move || print_messages(&mut srq).inspect_err(|error| eprintln!("{error}")));
    let same = receiver.clone();
    thread::spawn(move || {
        for sender in listener.incoming() {
            if let Err(error) = sender
                .map_err(Into::into)
                .and_then(|sender| same.join(sender))
            {
                eprintln!("a sender: {error}");
            }
        }
    });
    Ok(receiver.print_events()?)
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [device, file, tcp_port] = args.as_slice() else {
        eprintln!("usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT");
        return ExitCode::from(2);
    };
    match receive(device, file, tcp_port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("receiver: {error}");
            ExitCode::FAILURE
        }
    }
}
