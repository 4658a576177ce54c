// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv watch`: prints what happens to receive QPs, until interrupted.
//!
//! An event channel would need a registration, and that would change what is watched: a registered
//! QP stays alive, and one whose events reach a channel no longer logs them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::Watch;
use crate::trace::{Instance, Record};

pub(crate) fn run(args: &Watch, out: &mut impl Write) -> Result<()> {
    let (interrupted, wake) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    let instance = Instance::start()?;
    let mut pipe = instance.pipe()?;
    let mut text = Vec::new();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let mut fds = [
            PollFd::new(&pipe, PollFlags::IN),
            PollFd::new(&interrupted, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        if !fds[1].revents().is_empty() {
            break;
        }
        let mut chunk = [0; 4096];
        match pipe.read(&mut chunk) {
            Ok(read) => text.extend_from_slice(&chunk[..read]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            if left > 0 && print(args, String::from_utf8_lossy(&line).trim_end(), out)? {
                left -= 1;
            }
        }
        out.flush()?;
    }
    Ok(())
}

/// Prints a line of the trace if it is asked for, and says whether it was.
fn print(args: &Watch, line: &str, out: &mut impl Write) -> Result<bool> {
    let Some(record) = Record::parse(line) else {
        eprintln!("xrc-rcv: {line}");
        return Ok(false);
    };
    let device = record
        .fields
        .get("device")
        .and_then(|device| device.as_str());
    if args.device.is_some() && device != args.device.as_deref() {
        return Ok(false);
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&record)?)?;
    } else {
        write!(out, "{:.6} {}", record.time, record.event)?;
        for (key, value) in &record.fields {
            match value.as_str() {
                Some(value) => write!(out, " {key}={value}")?,
                None => write!(out, " {key}={value}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  receiver-12 [000] 7.250000: event: device=rxe_left qpn=0x11 count=2";

    fn printed(device: Option<&str>, json: bool) -> String {
        let mut out = Vec::new();
        let args = Watch {
            device: device.map(String::from),
            json,
            count: None,
        };
        let any = print(&args, LINE, &mut out).unwrap();
        assert_eq!(any, !out.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn records_are_printed_for_people_and_for_programs() {
        assert_eq!(
            printed(None, false),
            "7.250000 event device=rxe_left qpn=0x11 count=2\n"
        );
        assert_eq!(
            printed(Some("rxe_left"), true),
            "{\"time\":7.25,\"event\":\"event\",\"task\":\"receiver\",\"task_pid\":12,\
             \"device\":\"rxe_left\",\"qpn\":\"0x11\",\"count\":2}\n"
        );
    }

    #[test]
    fn other_devices_are_left_out() {
        assert_eq!(printed(Some("rxe_right"), false), "");
    }
}
