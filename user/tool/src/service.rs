// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The client of `xrc-rcv hold`, for users who may not read debugfs and tracefs.
//! `xrc-rcv-hold(5)` describes the protocol.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

/// The sockets of the units are here.
const DIRECTORY: &str = "/run/xrc-rcv";
/// The greatest length of a packet.
const PACKET: usize = 8192;

/// A connection to a service.
pub(crate) struct Service {
    socket: OwnedFd,
    pub(crate) path: PathBuf,
}

/// The lines of debugfs for a device that the user may see.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) qps: String,
    pub(crate) registrations: String,
}

/// Descriptors and connections of a service, each with how many there may be.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) file: String,
    pub(crate) counts: BTreeMap<String, u64>,
    /// The user's own descriptors, and for how many seconds each is kept.
    pub(crate) kept: Vec<(String, u64)>,
}

impl Service {
    pub(crate) fn connect(path: &Path) -> io::Result<Service> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Service {
            socket,
            path: path.into(),
        })
    }

    /// Those at the path, which has to be one of a service, or at the places of the units.
    pub(crate) fn all(path: Option<&Path>) -> Result<Vec<Service>> {
        if let Some(path) = path {
            let service = Service::connect(path).with_context(|| path.display().to_string())?;
            return Ok(vec![service]);
        }
        let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "socket")
        });
        paths.sort();
        Ok(paths
            .iter()
            .filter_map(|path| Service::connect(path).ok())
            .collect())
    }

    fn request(&self, text: &str) -> Result<()> {
        send(&self.socket, text.as_bytes(), SendFlags::NOSIGNAL).with_context(|| self.name())?;
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The next packet; `None` at the end of the connection.
    pub(crate) fn packet(&self, flags: RecvFlags) -> io::Result<Option<Vec<u8>>> {
        let mut packet = vec![0; PACKET];
        loop {
            match recv(&self.socket, &mut packet, flags) {
                Ok((0, _)) => return Ok(None),
                Ok((length, _)) => {
                    packet.truncate(length);
                    return Ok(Some(packet));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next packet of an answer, as text, unless it is an error.
    fn answer(&self) -> Result<String> {
        let packet = self
            .packet(RecvFlags::empty())
            .with_context(|| self.name())?;
        let packet = packet
            .with_context(|| format!("{}: the service has ended the connection", self.name()))?;
        let text = String::from_utf8_lossy(&packet).into_owned();
        if let Some(error) = text.strip_prefix("error ") {
            let (_, words) = error.split_once(' ').unwrap_or(("", error));
            bail!("{}: {words}", self.name());
        }
        Ok(text)
    }

    /// The user's receive QPs, by the index of the device.
    pub(crate) fn show(&self) -> Result<BTreeMap<u32, Lines>> {
        self.request("show")?;
        let mut devices = BTreeMap::<u32, Lines>::new();
        loop {
            let text = self.answer()?;
            if text == "ok" {
                return Ok(devices);
            }
            let title = text.split_once('\n').and_then(|(title, lines)| {
                let (name, device) = title.split_once(' ')?;
                Some((name, device.parse().ok()?, lines))
            });
            let (name, device, lines) =
                title.with_context(|| format!("{}: '{text}'", self.name()))?;
            let device = devices.entry(device).or_default();
            match name {
                "qps" => device.qps += lines,
                "registrations" => device.registrations += lines,
                // A later version sends it.
                _ => {}
            }
        }
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        self.request("list")?;
        Ok(usage(&self.answer()?))
    }

    /// Has the lines of the trace sent from now on.
    pub(crate) fn watch(&self) -> Result<()> {
        self.request("watch")?;
        self.answer().map(drop)
    }
}

impl AsFd for Service {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn usage(text: &str) -> Usage {
    let mut usage = Usage::default();
    let mut lines = text.lines();
    let (words, file) = lines
        .next()
        .unwrap_or_default()
        .split_once(" file=")
        .unwrap_or_default();
    usage.file = file.into();
    for (key, value) in words.split(' ').filter_map(|word| word.split_once('=')) {
        if let Ok(value) = value.parse() {
            usage.counts.insert(key.into(), value);
        }
    }
    for (name, seconds) in lines.filter_map(|line| line.split_once(' ')) {
        if let Ok(seconds) = seconds.parse() {
            usage.kept.push((name.into(), seconds));
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_understood() {
        let found =
            usage("ok kept=2 max_kept=64 later=x file=/run/xrc-rcv/a b\ntable 5\ndevice-1 0");
        assert_eq!(found.file, "/run/xrc-rcv/a b");
        assert_eq!(
            found.counts.into_iter().collect::<Vec<_>>(),
            [("kept".into(), 2), ("max_kept".into(), 64)]
        );
        assert_eq!(found.kept, [("table".into(), 5), ("device-1".into(), 0)]);
        assert_eq!(usage("ok").file, "");
    }
}
