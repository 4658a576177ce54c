// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The whole job of one receiving process: join the domain, create the receive QP or register with
//! it, and hear of its events.
//!
//! `receiver DEVICE FILE` creates, `receiver DEVICE FILE QPN` registers.

use std::{env, error, fs::File, os::fd::AsFd};

use xrc_rcv::{AllocOptions, RegisterOptions, verbs::Device};

fn main() -> Result<(), Box<dyn error::Error>> {
    let args: Vec<String> = env::args().collect();
    let device = Device::open(&args[1])?;
    let open = device.open_domain(Some(File::open(&args[2])?.as_fd()))?;
    let domain = open.domain()?;
    let channel = domain.context().create_event_channel()?;
    let qp = match args.get(3) {
        None => domain.alloc(&AllocOptions::new().channel(&channel))?,
        Some(qpn) => domain.register(qpn.parse()?, &RegisterOptions::new().channel(&channel))?,
    };
    println!("{}", qp.qp_num());
    loop {
        channel.wait()?.for_each(|event| println!("{event}"));
    }
}
