// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! One receiving process: it holds the domain, creates the receive QP or registers with it, and
//! leaves when the connection is broken.
//!
//! `receiver DEVICE FILE INDEX GID QPN` creates it for the sender's QP at GID, by entry INDEX of the
//! GIDs of port 1; `receiver DEVICE FILE QPN` registers.

use std::error::Error;
use std::{env, fs::File, net::Ipv6Addr, os::fd::AsFd};

use xrc_rcv::verbs::Device;
use xrc_rcv::{Access, AllocOptions, Event, EventType, Mtu, Path, QpAttr, RegisterOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    let (qp_num, path, peer) = match &args[3..] {
        [qp_num] => (Some(qp_num.parse()?), Path::default(), 0),
        [index, gid, peer] => {
            let gid: Ipv6Addr = gid.parse()?;
            let path = Path::gid(1, gid.octets(), index.parse()?);
            (None, path, peer.parse()?)
        }
        _ => return Err("usage: receiver DEVICE FILE {QPN|INDEX GID QPN}".into()),
    };
    let device = Device::open(&args[1])?;
    let file = File::open(&args[2])?;
    let attr = QpAttr::new()
        .pkey_index(0)
        .port(1)
        .access(Access::REMOTE_WRITE)
        .path(path)
        .path_mtu(Mtu::Mtu1024)
        .dest_qp_num(peer)
        .rq_psn(0);

    // This is what the README shows.
    let open = device.open_domain(Some(file.as_fd()))?; // shared by a file
    let domain = open.domain()?;
    let channel = domain.context().create_event_channel()?;
    let qp = match qp_num {
        Some(qp_num) => domain.register(qp_num, &RegisterOptions::new().channel(&channel))?,
        None => domain.alloc(&AllocOptions::new().channel(&channel).attr(attr))?, // ready to receive
    };
    println!("{}", qp.qp_num()); // for the sender and the others
    let fine = |event: Event| event.event_type() == EventType::COMM_EST;
    while channel.wait()?.all(fine) {} // until the connection is broken
    qp.unregister()?; // the last one to leave destroys the QP
    Ok(())
}
