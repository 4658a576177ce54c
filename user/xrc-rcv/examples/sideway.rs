// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Receives a message by a receive QP on a device and in a protection domain of the crate sideway:
//! the domain, the SRQ and the receive QP are this crate's. The sender is in the same process.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use xrc_rcv::verbs::{Initiator, Memory, Region, Srq};
use xrc_rcv::{Access, AllocOptions, Device, Mtu, Pd, QpAttr};

#[derive(Parser)]
struct Args {
    device: String,
    /// Index of the GID
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let list = DeviceList::new()?;
    let found = list.iter().find(|device| device.name() == args.device);
    let context = found.ok_or("there is no such device")?.open()?;
    let pd = Pd::from(context.alloc_pd()?);
    let device = Device::from(context);

    let domain = device.open_domain(None)?;
    let mut srq = Srq::in_pd(&pd, &domain, 4, 64)?;
    let mut initiator = Initiator::new(&pd, 1)?;
    let address = device.query_address(1, args.gid_index)?;
    let attr = QpAttr::new()
        .with_pkey_index(0)
        .with_port(1)
        .with_access(Access::empty())
        .with_path(address.path_from(1, args.gid_index))
        .with_path_mtu(Mtu::Mtu1024)
        .with_dest_qp_num(initiator.qp_num())
        .with_rq_psn(0)
        .with_max_dest_rd_atomic(1)
        .with_min_rnr_timer(12);
    let qp = domain.alloc(&AllocOptions::new().attr(attr))?;
    initiator.connect(&attr.with_dest_qp_num(qp.qp_num()))?;

    let region = Region::new(&pd, &Memory::new("message", 8)?, Access::empty())?;
    initiator.send(srq.srq_num(), &region, 0..8)?;
    let patience = Some(Duration::from_secs(60));
    let message = srq.receive(patience)?.ok_or("no message comes")?;
    println!(
        "{} bytes by {:#x} of {}",
        message.len(),
        qp.qp_num(),
        device.name()
    );
    Ok(())
}
