// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv watch`: prints the creation, registrations, events and destruction of receive QPs,
//! until interrupted.
//!
//! It uses tracepoints: an event channel of all QPs is of one domain, whose file it needs, and has
//! no events of registrations.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use serde_json::Value;
use signal_hook::consts::*;
use xrc_rcv::EventTypes;

use crate::check::Check;
use crate::cli::{Filter, Watch};
use crate::service::Service;
use crate::sysfs;
use crate::trace::{Instance, Record, Tracepoints, printable, split_lines};

/// The signals that would end the process and leave the trace instance behind.
const SIGNALS: [i32; 10] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGIO,
];

pub(crate) fn run(args: &Watch, out: &mut impl Write) -> Result<()> {
    if args.check {
        return check(args.from.as_deref());
    }
    let device = args.device.as_deref().map(index).transpose()?;
    let mut left = args.count.unwrap_or(u64::MAX);
    if left == 0 {
        return Ok(());
    }
    let mut take = |lines: &[&[u8]]| {
        for line in lines {
            if print(args, device, line, out)? {
                left -= 1;
            }
            if left == 0 {
                return Ok(ControlFlow::Break(()));
            }
        }
        out.flush()?;
        Ok(ControlFlow::Continue(()))
    };
    if args.socket.is_some() || !Instance::may_start() {
        if let Some(service) = Service::all(args.socket.as_deref())?.into_iter().next() {
            return follow_service(&service, &mut take);
        }
    }
    follow(Tracepoints::Changes, take)
}

/// Calls a function with the lines that a service reports, until it breaks, or a signal comes.
fn follow_service(
    service: &Service,
    take: &mut impl FnMut(&[&[u8]]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let interrupted = signalled()?;
    service.watch()?;
    eprintln!(
        "xrc-rcv: {} shows the QPs of this user",
        service.path.display()
    );
    loop {
        match service.packet(RecvFlags::DONTWAIT) {
            Ok(Some(line)) => {
                if take(&[&line])?.is_break() {
                    return Ok(());
                }
            }
            Ok(None) => bail!(
                "{}: the service has ended the connection",
                service.path.display()
            ),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [
                    PollFd::new(service, PollFlags::IN),
                    PollFd::new(&interrupted, PollFlags::IN),
                ];
                match poll(&mut fds, None) {
                    Err(Errno::INTR) => continue,
                    result => result?,
                };
                if !fds[1].revents().is_empty() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error).context(service.path.display().to_string()),
        }
    }
}

/// A stream that is readable after a signal that would end the process.
fn signalled() -> io::Result<UnixStream> {
    let (interrupted, wake) = UnixStream::pair()?;
    for signal in SIGNALS {
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    Ok(interrupted)
}

/// Checks the steps of a file, or those that happen from now on.
fn check(from: Option<&Path>) -> Result<()> {
    let mut check = Check::default();
    if let Some(path) = from {
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        let mut text = Vec::new();
        while take_chunk(&mut file, &mut text)? != 0 {
            take_lines(&mut text, |lines| {
                lines.iter().try_for_each(|line| check.take(line))
            })?;
        }
        check.take(&text)?;
        check.settle()?;
    } else {
        follow(Tracepoints::All, |lines| {
            if lines.is_empty() {
                check.settle()?;
            }
            for line in lines {
                check.take(line)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    eprintln!("xrc-rcv: {}", check.summary());
    Ok(())
}

/// Calls a function with the lines of the trace, and with none when all were read, until it breaks,
/// or a signal comes.
fn follow(
    tracepoints: Tracepoints,
    mut take: impl FnMut(&[&[u8]]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let interrupted = signalled()?;
    let instance = Instance::start(tracepoints)?;
    let mut pipe = instance.pipe()?;
    let mut text = Vec::new();
    let mut ends = false;
    loop {
        match take_chunk(&mut pipe, &mut text) {
            Ok(0) if ends => return Ok(()),
            Ok(_) => {
                // Records may come faster than they are read.
                let mut fds = [PollFd::new(&interrupted, PollFlags::IN)];
                if !ends && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..)) {
                    instance.stop()?;
                    ends = true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // All was read that had happened before the signal, if there was one.
                if take(&[])?.is_break() || ends {
                    return Ok(());
                }
                let mut fds = [
                    PollFd::new(&pipe, PollFlags::IN),
                    PollFd::new(&interrupted, PollFlags::IN),
                ];
                match poll(&mut fds, None) {
                    Err(Errno::INTR) => continue,
                    result => result?,
                };
                ends = !fds[1].revents().is_empty();
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        let flow = take_lines(&mut text, |lines| match lines {
            [] => Ok(ControlFlow::Continue(())),
            lines => take(lines),
        })?;
        if flow.is_break() {
            return Ok(());
        }
    }
}

/// Appends to a text. Returns how many bytes, 0 at the end of the file.
pub(crate) fn take_chunk(file: &mut File, text: &mut Vec<u8>) -> io::Result<usize> {
    let mut chunk = [0; 0x1_0000];
    let read = file.read(&mut chunk)?;
    text.extend_from_slice(&chunk[..read]);
    Ok(read)
}

/// Removes the whole lines from a text.
pub(crate) fn take_lines<T>(
    text: &mut Vec<u8>,
    take: impl FnOnce(&[&[u8]]) -> Result<T>,
) -> Result<T> {
    let (lines, rest) = split_lines(text);
    let result = take(&lines)?;
    let whole = text.len() - rest.len();
    text.drain(..whole);
    Ok(result)
}

/// The index of a device, which is given by it or by its name in this network namespace. The trace
/// has the devices of all namespaces, among which a name may be there more than once.
fn index(device: &str) -> Result<u64> {
    if let Some(index) = xrc_rcv::Device::index_of(device) {
        return Ok(index.into());
    }
    if let Ok(index) = device.parse() {
        return Ok(index);
    }
    sysfs::devices_named(Path::new(sysfs::ROOT), Some(device))?;
    bail!("ib_uverbs does not expose {device}: run 'modprobe ib_uverbs'")
}

/// Prints a line of the trace if it matches the options. Returns whether it did.
fn print(args: &Watch, device: Option<u64>, line: &[u8], out: &mut impl Write) -> Result<bool> {
    let Some(record) = Record::parse(line) else {
        eprintln!("xrc-rcv: {}", printable(line));
        return Ok(false);
    };
    if !wanted(device, &args.filter, &record) {
        return Ok(false);
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&record)?)?;
    } else {
        let (seconds, micros) = (
            record.time_ns / 1_000_000_000,
            record.time_ns / 1000 % 1_000_000,
        );
        write!(out, "{seconds}.{micros:06} {}", record.action)?;
        for (key, value) in &record.fields {
            match (value.as_str(), value.as_u64()) {
                (Some(value), _) => write!(out, " {key}={value}")?,
                (None, Some(number)) if key == "lqpn" => write!(out, " {key}={number:#x}")?,
                (None, None) if value.is_null() => write!(out, " {key}=-")?,
                (None, None) if key == "mask" => write!(out, " {key}={}", mask(value))?,
                _ => write!(out, " {key}={value}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(true)
}

/// An event mask for people: `all`, as in `show`, or the names of its types.
fn mask(names: &Value) -> String {
    let names = names.as_array().map_or(&[][..], Vec::as_slice);
    match names.len() {
        0 => "-".into(),
        // But for QP_ADDED, which registrations with named QPs do not get.
        all if all + 1 >= EventTypes::all().bits().count_ones() as usize => "all".into(),
        _ => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            names.join(",")
        }
    }
}

fn wanted(device: Option<u64>, filter: &Filter, record: &Record) -> bool {
    let number = |key| record.fields.get(key).and_then(|value| value.as_u64());
    let is = |wanted: Option<u64>, key| wanted.is_none() || wanted == number(key);
    is(device, "ifindex")
        && is(filter.domain, "domain")
        && is(filter.qpn.map(u64::from), "lqpn")
        && is(filter.pid.map(u64::from), "pid")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] =
        b"        receiver-12 [000] 7.250000: ib_xrc_rcv_event: index=3 device=rxe_left \
         qpn=0x11 delivered=2";

    fn printed(device: Option<u64>, json: bool) -> String {
        filtered(device, json, Filter::default())
    }

    fn filtered(device: Option<u64>, json: bool, filter: Filter) -> String {
        of_line(LINE, device, json, filter)
    }

    fn of_line(line: &[u8], device: Option<u64>, json: bool, filter: Filter) -> String {
        let mut out = Vec::new();
        let args = Watch {
            device: None,
            filter,
            json,
            count: None,
            socket: None,
            check: false,
            from: None,
        };
        let any = print(&args, device, line, &mut out).unwrap();
        assert_eq!(any, !out.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn records_are_printed_for_people_and_for_programs() {
        assert_eq!(
            printed(None, false),
            "7.250000 event ifindex=3 ifname=rxe_left lqpn=0x11 delivered=2\n"
        );
        assert_eq!(
            printed(Some(3), true),
            "{\"version\":1,\"time_ns\":7250000000,\"action\":\"event\",\
             \"task_comm\":\"receiver\",\"task_pid\":12,\
             \"ifindex\":3,\"ifname\":\"rxe_left\",\"lqpn\":17,\"delivered\":2}\n"
        );
    }

    #[test]
    fn masks_have_names() {
        for (mask, shown, json) in [
            ("0x80000000000100fe", "all", None),
            ("0x0", "-", Some("[]")),
            (
                "0x8000000000000010",
                "COMM_EST,QP_GONE",
                Some("[\"COMM_EST\",\"QP_GONE\"]"),
            ),
        ] {
            let line = format!("        receiver-12 [000] 7.250000: ib_xrc_rcv_reg: mask={mask}");
            let printed = |json| of_line(line.as_bytes(), None, json, Filter::default());
            assert_eq!(printed(false), format!("7.250000 reg mask={shown}\n"));
            if let Some(json) = json {
                let text = printed(true);
                assert!(text.contains(&format!("\"mask\":{json}")), "{text}");
            }
        }
    }

    #[test]
    fn other_devices_are_left_out() {
        assert_eq!(printed(Some(4), false), "");
        let qpn = |qpn| Filter {
            qpn: Some(qpn),
            ..Filter::default()
        };
        assert_ne!(filtered(None, false, qpn(17)), "");
        assert_eq!(filtered(None, false, qpn(18)), "");
    }
}
