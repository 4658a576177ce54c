// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The part of debugfs and tracefs, which are root's, that a user may see: the receive QPs that the
//! user created or that count for the user, and the registrations with these.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::mem;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::debugfs::{self, Line};
use crate::trace::{Instance, Record, Tracepoints};
use crate::watch::{take_chunk, take_lines};

/// The greatest length of a packet.
pub(super) const PACKET: usize = 8192;
/// The time that a client has for reading an answer to `show`. An open file of debugfs keeps the
/// module.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of lines that are read before other clients have their turn.
const TURN: usize = 256;
/// The number of receive QPs that are watched for users.
const WATCHED: usize = 1 << 16;

/// The users whose a receive QP is: its creator, and the one for whom it counts.
type Owners = [u32; 2];

/// The owners of the receive QP of a line of debugfs.
fn owners(line: &Line<'_>) -> Option<Owners> {
    let user = |key| u32::try_from(line.number(key).ok()?).ok();
    Some([user("creator")?, user("user")?])
}

/// The domain of the QP of a line of debugfs, and its serial number: a QP number may be that of
/// another QP by now.
fn qp(line: &Line<'_>) -> Option<(u64, u64)> {
    line.number("domain").ok().zip(line.number("serial").ok())
}

fn directory() -> PathBuf {
    PathBuf::from(debugfs::ROOT).join("ib_xrc_rcv")
}

/// Fails where the module's directory cannot be read, in which no QP is no answer.
pub(super) fn check_debugfs() -> Result<()> {
    let directory = directory();
    fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    Ok(())
}

/// The devices that the module is attached to, by their index.
fn devices(directory: &PathBuf) -> Vec<u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut devices: Vec<u64> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    devices.sort_unstable();
    devices
}

/// One answer to `show`: packets with the lines of debugfs that a user may see. Only the
/// numbers of the user's QPs stay, which the module limits.
pub(super) struct Listing {
    uid: u32,
    directory: PathBuf,
    /// Files that were not begun, the last one first.
    files: Vec<(u64, &'static str)>,
    file: Option<BufReader<File>>,
    /// The line that packets of the file begin with.
    title: String,
    /// The user's QPs on the device of the file.
    own: HashSet<(u64, u64)>,
    pub(super) until: Instant,
}

impl Listing {
    pub(super) fn new(uid: u32) -> Listing {
        Listing::of(uid, directory())
    }

    fn of(uid: u32, directory: PathBuf) -> Listing {
        let devices = devices(&directory).into_iter().rev();
        Listing {
            uid,
            directory,
            files: devices
                .flat_map(|device| [(device, "registrations"), (device, "qps")])
                .collect(),
            file: None,
            title: String::new(),
            own: HashSet::new(),
            until: Instant::now() + PATIENCE,
        }
    }

    pub(super) fn is_late(&self) -> bool {
        Instant::now() > self.until
    }

    /// The next packet, which is empty if the time is up with no line for the user; `None` at the
    /// end.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        if self.file.is_none() {
            let (device, name) = self.files.pop()?;
            if name == "qps" {
                self.own.clear();
            }
            self.title = format!("{name} {device}\n");
            // A device may be removed at any time.
            let path = self.directory.join(device.to_string()).join(name);
            self.file = File::open(path).ok().map(BufReader::new);
        }
        let mut packet = self.title.clone().into_bytes();
        for _ in 0..TURN {
            if packet.len() > PACKET / 2 {
                break;
            }
            let mut line = String::new();
            let file = self.file.as_mut();
            match file.map_or(Ok(0), |file| file.read_line(&mut line)) {
                Ok(1..) if self.shows(&line) => packet.extend(line.bytes()),
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    self.file = None;
                    break;
                }
            }
        }
        if packet.len() == self.title.len() {
            packet.clear();
        }
        Some(packet)
    }

    fn shows(&mut self, line: &str) -> bool {
        // A line is shorter than the rest of a packet.
        if line.len() > PACKET / 4 {
            return false;
        }
        let line = Line::new(line);
        let Some(qp) = qp(&line) else {
            return false;
        };
        if self.title.starts_with("qps") {
            if owners(&line).is_some_and(|owners| owners.contains(&self.uid)) {
                self.own.insert(qp);
            } else {
                return false;
            }
        }
        self.own.contains(&qp)
    }
}

/// The users that a line of the trace is for.
#[derive(Debug, PartialEq)]
pub(super) enum Audience {
    /// A note of the kernel, on lost records.
    All,
    /// The owners of its QP.
    Owners(Owners),
}

impl Audience {
    pub(super) fn has(&self, uid: u32) -> bool {
        match self {
            Audience::All => true,
            Audience::Owners(owners) => owners.contains(&uid),
        }
    }
}

/// The trace of all changes, which users get their part of.
pub(super) struct Trace {
    pub(super) pipe: File,
    text: Vec<u8>,
    /// By device, domain and serial number.
    owners: HashMap<(u64, (u64, u64)), Owners>,
    directory: PathBuf,
    /// Removed after the pipe was closed.
    _instance: Instance,
}

impl Trace {
    pub(super) fn start() -> Result<Trace> {
        check_debugfs()?;
        let instance = Instance::start(Tracepoints::Changes)?;
        let mut watch = Trace {
            pipe: instance.pipe()?,
            text: Vec::new(),
            owners: HashMap::new(),
            directory: directory(),
            _instance: instance,
        };
        // After the start, so that no QP is in neither.
        for device in devices(&watch.directory) {
            watch.learn(device);
        }
        Ok(watch)
    }

    /// A trace for tests: the lines of a file, about QPs of device 3.
    #[cfg(test)]
    pub(super) fn of(directory: PathBuf) -> Trace {
        let mut trace = Trace {
            pipe: File::open(directory.join("trace")).unwrap(),
            text: Vec::new(),
            owners: HashMap::new(),
            _instance: Instance::of(directory.join("instance")),
            directory,
        };
        trace.learn(3);
        trace
    }

    /// Reads the owners of the QPs of a device.
    fn learn(&mut self, device: u64) {
        self.add(device);
        if self.owners.len() < WATCHED {
            return;
        }
        // Most have ended if the kernel has lost the records of their ends.
        self.owners.clear();
        for device in devices(&self.directory) {
            self.add(device);
        }
    }

    /// Adds the owners of the QPs of a device, as many as there is room for.
    fn add(&mut self, device: u64) {
        let path = self.directory.join(device.to_string()).join("qps");
        let lines = File::open(path).map(|file| BufReader::new(file).lines());
        for line in lines.into_iter().flatten().map_while(io::Result::ok) {
            let line = Line::new(&line);
            match qp(&line).zip(owners(&line)) {
                Some((qp, owners)) if self.owners.len() < WATCHED => {
                    self.owners.insert((device, qp), owners);
                }
                _ => {}
            }
        }
    }

    /// Reads what has happened, and returns the lines that a user may see.
    pub(super) fn read(&mut self) -> Result<Vec<(Audience, Vec<u8>)>> {
        let mut text = mem::take(&mut self.text);
        match take_chunk(&mut self.pipe, &mut text) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
            _ => {}
        }
        let mut seen = Vec::new();
        take_lines(&mut text, |lines| {
            let records: Vec<_> = lines.iter().map(|line| Record::parse(line)).collect();
            let created = records
                .iter()
                .flatten()
                .filter(|record| record.action == "alloc");
            let devices: HashSet<u64> = created
                .filter_map(|record| number(record, "ifindex"))
                .collect();
            devices.into_iter().for_each(|device| self.learn(device));
            for (line, record) in lines.iter().zip(records) {
                if let Some(audience) = self.audience(record) {
                    seen.push((audience, line.to_vec()));
                }
            }
            Ok(())
        })?;
        self.text = text;
        Ok(seen)
    }

    /// `None` if the owners of the QP are not known: it has ended before they could be read.
    fn audience(&mut self, record: Option<Record>) -> Option<Audience> {
        let Some(record) = record else {
            return Some(Audience::All);
        };
        let qp = number(&record, "domain").zip(number(&record, "serial"))?;
        let qp = (number(&record, "ifindex")?, qp);
        let owners = match record.action.as_str() {
            "destroy" => self.owners.remove(&qp),
            _ => self.owners.get(&qp).copied(),
        };
        owners.map(Audience::Owners)
    }
}

fn number(record: &Record, key: &str) -> Option<u64> {
    record.fields.get(key).and_then(|value| value.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QPS: &str = "domain=1 qpn=0x20 state=RTR lifetime=domain registrations=2 dest_qpn=0x1f label=0x1 events=3 creator=100000 user=1000 serial=1\n\
                       domain=1 qpn=0x21 state=ERR lifetime=domain registrations=0 dest_qpn=0x0 label=0x0 events=0 creator=7 user=7 serial=2\n";
    /// The last one is with a QP that has been given the number of the first one.
    const REGISTRATIONS: &str = "kind=file channel=1 mask=0x1 pending=1 domain=1 qpn=0x20 serial=1 pid=77 comm=my prog=x\n\
                                 kind=file channel=1 mask=0x1 pending=1 domain=1 qpn=0x21 serial=2 pid=78 comm=domain=1 serial=1\n\
                                 kind=file channel=1 mask=0x1 pending=1 domain=1 qpn=0x20 serial=3 pid=79 comm=next\n";

    fn shown(uid: u32) -> String {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("3");
        fs::create_dir(&device).unwrap();
        fs::write(device.join("qps"), QPS).unwrap();
        fs::write(device.join("registrations"), REGISTRATIONS).unwrap();
        fs::create_dir(root.path().join("5")).unwrap();
        let mut show = Listing::of(uid, root.path().into());
        let packets = std::iter::from_fn(|| show.next());
        packets
            .map(|packet| String::from_utf8(packet).unwrap())
            .collect()
    }

    #[test]
    fn a_user_sees_own_qps_and_who_is_registered_with_them() {
        let lines = |text: &'static str| text.split_inclusive('\n');
        for (uid, line) in [(1000, 0), (100_000, 0), (7, 1)] {
            let (qp, registration) = (lines(QPS).nth(line), lines(REGISTRATIONS).nth(line));
            let expected = format!(
                "qps 3\n{}registrations 3\n{}",
                qp.unwrap(),
                registration.unwrap()
            );
            assert_eq!(shown(uid), expected);
        }
        assert_eq!(shown(0), "");
    }

    #[test]
    fn a_line_is_for_the_owners_of_its_qp_and_not_of_the_next_one_with_its_number() {
        let root = tempfile::tempdir().unwrap();
        let (qps, text) = (root.path().join("3/qps"), root.path().join("trace"));
        fs::create_dir(root.path().join("3")).unwrap();
        let list = |serial: u64, uid: u32| {
            let line = format!("domain=1 qpn=0x20 creator={uid} user=0 serial={serial}\n");
            fs::write(&qps, line).unwrap();
        };
        list(1, 7);
        fs::write(&text, "").unwrap();
        let mut trace = Trace::of(root.path().into());
        // Before anything was read, two other QPs had the number; the first of them has ended.
        list(2, 8);
        let mut lines = String::new();
        for (action, serial) in [
            ("reg", 1),
            ("destroy", 1),
            ("alloc", 3),
            ("destroy", 3),
            ("alloc", 2),
            ("destroy", 2),
            ("unreg", 2),
        ] {
            lines += &format!(
                "            task-12      [000] 7.25: ib_xrc_rcv_{action}: index=3 device=a domain=1 \
                 qpn=0x20 serial={serial}\n"
            );
        }
        fs::write(&text, lines + "CPU:0 [LOST 3 EVENTS]\n").unwrap();
        let seen = trace.read().unwrap().into_iter().map(|(audience, line)| {
            let line = String::from_utf8(line).unwrap();
            let action = line.split_once("rcv_").map_or("", |(_, rest)| rest);
            let action = action.split(':').next().unwrap_or_default().to_owned();
            (action, audience)
        });
        let is = |action: &str, uid| (action.to_owned(), Audience::Owners([uid, 0]));
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [
                is("reg", 7),
                is("destroy", 7),
                is("alloc", 8),
                is("destroy", 8),
                (String::new(), Audience::All)
            ]
        );
    }

    #[test]
    fn a_line_is_for_the_creator_of_its_qp_and_for_the_user_of_its_limit() {
        let seen = |audience: Audience| [0, 7, 8].map(|uid| audience.has(uid));
        assert_eq!(seen(Audience::Owners([7, 8])), [false, true, true]);
        assert_eq!(seen(Audience::All), [true; 3]);
    }

    #[test]
    fn qps_whose_ends_were_lost_leave_room_for_others() {
        let root = tempfile::tempdir().unwrap();
        let (qps, text) = (root.path().join("3/qps"), root.path().join("trace"));
        fs::create_dir(root.path().join("3")).unwrap();
        let line = |serial| format!("domain=1 creator=7 user=7 serial={serial}\n");
        fs::write(&qps, (0..WATCHED).map(line).collect::<String>()).unwrap();
        fs::write(
            &text,
            format!(
                "            task-12      [000] 7.25: ib_xrc_rcv_alloc: index=3 device=a domain=1 qpn=0x20 \
                 serial={WATCHED}\n"
            ),
        )
        .unwrap();
        let mut trace = Trace::of(root.path().into());
        assert_eq!(trace.owners.len(), WATCHED);
        fs::write(&qps, line(WATCHED)).unwrap();
        let (audience, _) = trace.read().unwrap().remove(0);
        assert_eq!(audience, Audience::Owners([7, 7]));
        assert_eq!(trace.owners.len(), 1);
    }
}
