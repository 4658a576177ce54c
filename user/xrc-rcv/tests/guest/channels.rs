// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Registrations of an event channel by its own ioctls: a program of qemu/tests/user/channels.
//!
//! usage: channels DEVICE FILE
//!
//! FILE is that of an XRC domain.

use std::error::Error;
use std::os::fd::AsFd;

use xrc_rcv::borrowed::Context;
use xrc_rcv::{
    AllocOptions, Cause, Device, Domain, EventChannel, EventType, Lifetime, RegisterOptions,
};

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// More QP numbers, and places for what REG says of them, than an attribute of a method has.
const MANY: usize = 600;

/// A process's view of the domain: a device that it has opened, and what it has created on it.
struct Holder {
    device: Device,
    domain: Domain,
    channel: EventChannel,
}

impl Holder {
    fn new(device: &str, file: &str) -> Result<Holder> {
        let device = Device::open(device)?;
        let domain = device.open_domain_at(file)?;
        let channel = domain.create_event_channel()?;
        Ok(Holder {
            device,
            domain,
            channel,
        })
    }

    /// Creates a QP with the lifetime of the domain, which nothing is registered with.
    fn create(&self) -> Result<u32> {
        let registration = self
            .domain
            .alloc(&AllocOptions::new().lifetime(Lifetime::Domain))?;
        let qp_num = registration.qp_num();
        registration.unregister()?;
        Ok(qp_num)
    }

    fn registrations(&self, qp_num: u32) -> Result<u32> {
        Ok(self.domain.query(qp_num)?.1.registrations())
    }
}

/// Reads the event of a QP that was destroyed.
fn expect_gone(channel: &EventChannel, qp_num: u32) -> Result {
    let events: Vec<_> = channel
        .wait(None)?
        .map(|event| (event.event_type(), event.qp_num(), event.cookie()))
        .collect();
    check(
        events == [(EventType::QP_GONE, qp_num, 42)],
        format!("events {events:x?}"),
    )
}

fn check(holds: bool, what: impl Into<String>) -> Result {
    holds.then_some(()).ok_or_else(|| what.into().into())
}

/// One call takes any number of QP numbers, and stops at the first that it cannot do.
fn many(holder: &Holder) -> Result {
    let mut qp_nums = (0..MANY)
        .map(|_| holder.create())
        .collect::<Result<Vec<_>>>()?;
    let channel = holder.channel.borrowed();
    // SAFETY: The device is open as long as `holder` is borrowed.
    let file = unsafe { Context::from_ibv(holder.device.as_ibv()) }?;
    let options = RegisterOptions::new().cookie(42);
    check(
        file.register(channel, &qp_nums, &options) == (MANY, Ok(())),
        "REG of many",
    )?;
    for qp_num in &qp_nums {
        check(
            holder.registrations(*qp_num)? == 1,
            format!("QP {qp_num:#x}"),
        )?;
    }
    check(
        channel.unregister(&qp_nums) == (MANY, Ok(())),
        "UNREG of many",
    )?;
    for qp_num in &qp_nums {
        check(
            holder.registrations(*qp_num)? == 0,
            format!("QP {qp_num:#x}"),
        )?;
    }
    let last = qp_nums[MANY - 1];
    holder.domain.destroy(last)?;
    let stopped = (MANY - 1, Err(Cause::Os(libc::EINVAL)));
    check(
        file.register(channel, &qp_nums, &options) == stopped,
        "REG of one that was destroyed",
    )?;
    qp_nums.pop();
    check(
        channel.unregister(&qp_nums) == (MANY - 1, Ok(())),
        "UNREG of the others",
    )?;
    for qp_num in qp_nums {
        holder.domain.destroy(qp_num)?;
    }
    Ok(())
}

/// A channel that was created through another open file of the device.
fn of_another_file(holder: &Holder, other: &Holder) -> Result {
    let qp_num = holder.create()?;
    let options = RegisterOptions::new().channel(&other.channel).cookie(42);
    let registration = holder.domain.register(qp_num, &options)?;
    check(holder.registrations(qp_num)? == 1, "no registration")?;
    holder.domain.destroy_forced(qp_num)?;
    expect_gone(&other.channel, qp_num)?;
    registration.unregister()?;
    Ok(())
}

/// A channel whose device is another process's, or was that of a process before.
fn passed(holder: &Holder, other: &Holder) -> Result {
    let qp_num = holder.create()?;
    let fd = other.channel.as_fd().try_clone_to_owned()?;
    let channel = EventChannel::from_fd(fd, other.channel.event_size());
    let options = RegisterOptions::new().channel(&channel).cookie(42);
    let registration = holder.domain.register(qp_num, &options)?;
    check(holder.registrations(qp_num)? == 1, "no registration")?;
    holder.domain.destroy_forced(qp_num)?;
    expect_gone(&channel, qp_num)?;
    registration.unregister()?;
    Ok(())
}

/// The registrations of a channel whose device was closed have ended.
fn closed(holder: &Holder, other: Holder) -> Result {
    let qp_num = holder.create()?;
    let fd = other.channel.as_fd().try_clone_to_owned()?;
    let channel = EventChannel::from_fd(fd, other.channel.event_size());
    let options = RegisterOptions::new().channel(&channel);
    let registration = holder.domain.register(qp_num, &options)?;
    drop(other);
    check(holder.registrations(qp_num)? == 0, "a registration is left")?;
    registration.unregister()?;
    let refused = holder.domain.register(qp_num, &options).err();
    check(
        refused.map(|error| error.cause()) == Some(Cause::Os(libc::EIO)),
        "the error of REG",
    )?;
    holder.domain.destroy(qp_num)?;
    Ok(())
}

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, file] = args.as_slice() else {
        return Err("usage: channels DEVICE FILE".into());
    };
    let (holder, other) = (Holder::new(device, file)?, Holder::new(device, file)?);
    println!("KTAP version 1\n1..4");
    let (mut count, mut passes) = (0, true);
    let mut report = |result: Result, what: &str| {
        count += 1;
        match result {
            Ok(()) => println!("ok {count} - {what}"),
            Err(error) => {
                passes = false;
                println!("# {error}\nnot ok {count} - {what}");
            }
        }
    };
    report(many(&holder), "a call takes more QP numbers than a method");
    report(
        of_another_file(&holder, &other),
        "a channel of another open file registers, and has the events",
    );
    report(
        passed(&holder, &other),
        "a channel that was passed on registers, and has the events",
    );
    report(
        closed(&holder, other),
        "a channel of a device that was closed has no registration",
    );
    check(passes, "a test has failed")
}
