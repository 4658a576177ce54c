// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv show`: looks at everything once, and prints it as a table, a tree or JSON.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};
use termtree::Tree;
use xrc_rcv::{Cause, EventTypes};

use crate::cli::Show;
use crate::metrics::metrics;
use crate::service::{Service, Usage};
use crate::snapshot::{
    Caps, Cgroup, Device, Domain, JSON_VERSION, MemberOfAll, Qp, Registration, Status, type_names,
};
use crate::sysfs::RdmaDevice;
use crate::{cgroup, debugfs, sysfs};

pub(crate) const NO_DEVICE: &str =
    "there is no RDMA device in this network namespace ('rdma dev' lists them)";

/// The output of xrc-rcv show --json.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "show")]
pub(crate) struct Devices<'a> {
    /// The version of this vocabulary: keys may be added to it, none is changed or removed.
    #[schemars(extend("enum" = [JSON_VERSION]))]
    version: u32,
    devices: &'a [Device],
}

/// Prints the selected devices, to a terminal of `width` columns if it is one, and returns whether
/// the module is attached to any of them.
pub(crate) fn run(args: &Show, out: &mut impl Write, width: Option<usize>) -> Result<bool> {
    let found = sysfs::devices_named(Path::new(sysfs::ROOT), args.device.as_deref())?;
    let mut devices = Vec::new();
    for device in &found {
        match look(device) {
            Ok(device) => devices.push(device),
            Err(error) if args.device.is_none() && is_gone(&error) => (),
            Err(error) => return Err(error),
        }
    }
    let services = services(args, &mut devices)?;
    // Counts all objects of a device, before filters.
    let mut tables = device_table(&devices);
    if let (Some(file), Some(name)) = (&args.file, &args.device) {
        devices[0].domains = Some(vec![look_within(name, file)?]);
    }
    select(args, &mut devices);
    let groups = cgroup::paths(
        devices
            .iter_mut()
            .flat_map(Device::cgroups)
            .map(|group| group.id)
            .collect(),
    );
    for group in devices.iter_mut().flat_map(Device::cgroups) {
        group.path = groups.get(&group.id).cloned();
    }

    if args.metrics {
        let usages: Vec<Usage> = services.iter().map(Service::usage).collect::<Result<_>>()?;
        write!(out, "{}", metrics(&devices, &usages))?;
    } else if args.json {
        let devices = Devices {
            version: JSON_VERSION,
            devices: &devices,
        };
        serde_json::to_writer_pretty(&mut *out, &devices).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if !devices.is_empty() {
        let more = [qp_table(&devices), member_table(&devices)];
        for table in more.iter().flatten() {
            tables += &format!("\n\n{table}");
        }
        if args.tree || !fits(&tables, width) {
            for device in &devices {
                write!(out, "{}", tree(device, width))?;
            }
        } else {
            writeln!(out, "{tables}")?;
        }
    }
    out.flush()?;
    let attached = |device: &&Device| device.status == Status::Attached;
    if devices.iter().filter(attached).any(|d| d.domains.is_none()) {
        eprintln!(
            "xrc-rcv: receive QPs are not shown, because {}; --file shows those of a domain, and \
             'rdma resource show qp' number and state of all",
            debugfs::obstacle(Path::new(debugfs::ROOT))
        );
    }
    for (name, advice) in advice(&devices) {
        eprintln!("xrc-rcv: {name}: {advice}");
    }
    if devices.is_empty() {
        eprintln!("xrc-rcv: {NO_DEVICE}");
    }
    Ok(devices.iter().any(|device| attached(&device)))
}

/// Asks a service for what debugfs does not show to this user, or only the service if its path is
/// given. Returns those that there are, if they are needed.
fn services(args: &Show, devices: &mut [Device]) -> Result<Vec<Service>> {
    let asked = args.socket.is_some();
    let mut unknown: Vec<_> = devices.iter_mut().collect();
    unknown.retain(|device| matches!(device.status, Status::Attached | Status::NoPermission));
    unknown.retain(|device| asked || device.domains.is_none());
    if args.file.is_some() || unknown.is_empty() && !args.metrics {
        return Ok(Vec::new());
    }
    let services = Service::all(args.socket.as_deref())?;
    // Each of them knows all QPs.
    if let (Some(service), false) = (services.first(), unknown.is_empty()) {
        let lines = match service.show() {
            Err(error) if !asked => {
                eprintln!("xrc-rcv: {error:#}");
                return Ok(services);
            }
            lines => lines?,
        };
        for device in unknown {
            let lines = device.ifindex.and_then(|index| lines.get(&index));
            let domains = lines.map(|lines| debugfs::reported(&lines.qps, &lines.registrations));
            device.domains = Some(domains.transpose()?.unwrap_or_default());
        }
        eprintln!(
            "xrc-rcv: {} shows the QPs of this user",
            service.path.display()
        );
    }
    Ok(services)
}

/// The remedy for devices without receive QPs, devices with the same cause together. Where some
/// device is attached, that others have no XRC is no problem.
fn advice(devices: &[Device]) -> Vec<(String, &'static str)> {
    let any = devices.iter().any(|d| d.status == Status::Attached);
    let mut result: Vec<(String, &str)> = Vec::new();
    for device in devices {
        let Some(advice) = device.status.advice() else {
            continue;
        };
        if any && device.status == Status::NoXrc {
            continue;
        }
        match result.iter_mut().find(|(_, known)| *known == advice) {
            Some((names, _)) => *names += &format!(", {}", device.ifname),
            None => result.push((device.ifname.clone(), advice)),
        }
    }
    result
}

/// Keeps the objects that the filters name.
fn select(args: &Show, devices: &mut [Device]) {
    let state = |qp: &Qp| {
        let state = args.state.as_ref();
        state.is_none_or(|state| state.eq_ignore_ascii_case(&qp.state))
    };
    let qpn = |qp: &Qp| args.filter.qpn.is_none_or(|qpn| qpn == qp.qpn);
    let all = args.filter.is_empty() && args.state.is_none();
    for domains in devices.iter_mut().filter_map(|d| d.domains.as_mut()) {
        domains.retain(|d| args.filter.domain.is_none() || args.filter.domain == d.domain);
        for domain in domains.iter_mut() {
            if let Some(pid) = args.filter.pid {
                for qp in &mut domain.qps {
                    let registered = qp.registered.iter_mut();
                    registered.for_each(|all| all.retain(|one| one.pid == Some(pid)));
                }
                domain.qps.retain(|qp| qp.registered != Some(Vec::new()));
            }
            domain.qps.retain(|qp| state(qp) && qpn(qp));
        }
        domains.retain(|domain| all || !domain.qps.is_empty());
    }
}

/// Whether a device was removed while it was looked at, or moved to another network namespace.
fn is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<xrc_rcv::Error>();
    let errno = error.map(|error| Errno::from_raw_os_error(error.errno()));
    matches!(errno, Some(Errno::NODEV | Errno::NOENT | Errno::IO))
}

/// The parts of a device that this user may see.
fn look(device: &RdmaDevice) -> Result<Device> {
    let (status, caps) = query_caps(device)?;
    let ifindex = xrc_rcv::Device::index_of(&device.name);
    // A device that root may not open can still be seen.
    let domains = match (status, ifindex) {
        (Status::Attached | Status::NoPermission, Some(index)) => {
            debugfs::domains(Path::new(debugfs::ROOT), index)?
        }
        _ => None,
    };
    Ok(Device {
        ifindex,
        ifname: device.name.clone(),
        status,
        caps,
        domains,
    })
}

pub(crate) fn query_caps(device: &RdmaDevice) -> Result<(Status, Option<Caps>)> {
    let Some(listed) = &device.uverbs else {
        return Ok((Status::NotExposed, None));
    };
    let uverbs = xrc_rcv::Device::uverbs_of(&device.name);
    let uverbs = uverbs.as_ref().unwrap_or(listed);
    let file = format!("/dev/infiniband/{uverbs}");
    let both = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    if rustix::fs::access(&file, both) == Err(rustix::io::Errno::ACCESS) {
        return Ok((Status::NoPermission, None));
    }
    let open = xrc_rcv::Device::open(&device.name)?;
    match open.query_caps() {
        Ok(caps) => Ok((
            Status::Attached,
            Some(Caps {
                version: caps.version(),
                max_qps_per_domain: caps.max_qps_per_domain(),
                max_qps_per_user: caps.max_qps_per_user(),
                max_registrations_per_qp: caps.max_registrations_per_qp(),
            }),
        )),
        Err(error) if error.cause() == Cause::Unavailable => Ok((cause(&open), None)),
        Err(error) => Err(error).with_context(|| device.name.clone()),
    }
}

/// Finds the reason why an open device has no receive QPs.
fn cause(device: &xrc_rcv::Device) -> Status {
    if !Path::new("/sys/module/ib_xrc_rcv").exists() {
        Status::NotLoaded
    } else if device.open_domain(None).is_ok() {
        Status::NotAttached
    } else {
        Status::NoXrc
    }
}

/// The domain of a file, as the processes that share it see it.
fn look_within(device: &str, file: &Path) -> Result<Domain> {
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    let device = xrc_rcv::Device::open(device)?;
    let domain = match device.open_existing_domain(opened.as_fd()) {
        Err(error) if error.cause() == Cause::Os(libc::EAGAIN) => {
            bail!("{} is the file of no open domain", file.display());
        }
        domain => domain?,
    };
    let mut qps = Vec::new();
    for info in domain.receive_qps() {
        let info = info?;
        let (dest_qpn, label) = (info.dest_qp_num(), info.label());
        qps.push(Qp {
            qpn: info.qp_num(),
            state: info.state().map_or("?", |state| state.name()).into(),
            lifetime: info
                .lifetime()
                .map_or("?", |lifetime| lifetime.name())
                .into(),
            dest_qpn: (dest_qpn != 0).then_some(dest_qpn),
            label: (label != 0).then_some(label),
            registrations: info.registrations().into(),
            ..Qp::default()
        });
    }
    Ok(Domain {
        qps,
        ..Domain::default()
    })
}

fn limit(limit: Option<u32>) -> String {
    limit.map_or("unlimited".into(), |limit| limit.to_string())
}

fn hex(number: Option<u64>) -> String {
    number.map_or("-".into(), |number| format!("{number:#x}"))
}

fn count(number: Option<u64>) -> String {
    number.map_or("-".into(), |number| number.to_string())
}

fn domain_name(domain: &Domain) -> String {
    count(domain.domain)
}

pub(crate) fn render(table: Builder) -> String {
    let mut table = table.build();
    table.with(Style::empty()).with(Padding::new(0, 2, 0, 0));
    // Without the padding that follows the last column.
    table
        .to_string()
        .lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
}

fn device_table(devices: &[Device]) -> String {
    let mut table = Builder::new();
    table.push_record([
        "INDEX",
        "DEVICE",
        "STATUS",
        "DOMAINS",
        "QPS",
        "QPS/DOMAIN",
        "QPS/USER",
        "REGS/QP",
    ]);
    for device in devices {
        let domains = device.domains.as_ref();
        let limited = |of: fn(Caps) -> Option<u32>| match device.caps {
            Some(caps) => limit(of(caps)),
            None => "-".into(),
        };
        table.push_record([
            count(device.ifindex.map(u64::from)),
            device.ifname.clone(),
            device.status.describe().into(),
            count(domains.map(|domains| domains.len() as u64)),
            count(domains.map(|domains| domains.iter().map(|d| d.qps.len() as u64).sum())),
            limited(|caps| caps.max_qps_per_domain),
            limited(|caps| caps.max_qps_per_user),
            limited(|caps| caps.max_registrations_per_qp),
        ]);
    }
    render(table)
}

/// One row per registration, or per QP if it has none, or none that this user may see.
fn qp_table(devices: &[Device]) -> Option<String> {
    let mut table = Builder::new();
    table.push_record([
        "DEVICE",
        "DOMAIN",
        "QPN",
        "STATE",
        "LIFETIME",
        "PEER",
        "LABEL",
        "EVENTS",
        "CREATOR",
        "USER",
        "REGISTERED",
        "PID",
        "CHANNEL",
        "UNREAD",
        "MASK",
        "PROGRAM",
    ]);
    for device in devices {
        for domain in device.domains.iter().flatten() {
            for qp in &domain.qps {
                let own = [
                    device.ifname.clone(),
                    domain_name(domain),
                    format!("{:#x}", qp.qpn),
                    qp.state.clone(),
                    qp.lifetime.clone(),
                    hex(qp.dest_qpn.map(u64::from)),
                    hex(qp.label),
                    count(qp.events),
                    count(qp.creator.map(u64::from)),
                    count(qp.user.map(u64::from)),
                    qp.registrations.to_string(),
                ];
                let rows = match qp.registered.as_deref() {
                    None | Some([]) => vec![["-", "-", "-", "-", "-"].map(String::from)],
                    Some(registered) => registered.iter().map(registration_row).collect(),
                };
                for row in rows {
                    table.push_record(own.iter().cloned().chain(row));
                }
            }
        }
    }
    (table.count_records() > 1).then(|| render(table))
}

/// One row per member of all QPs of a domain.
fn member_table(devices: &[Device]) -> Option<String> {
    let mut table = Builder::new();
    table.push_record(["DEVICE", "DOMAIN", "OF ALL", "PID", "MASK", "PROGRAM"]);
    for device in devices {
        for domain in device.domains.iter().flatten() {
            for member in domain.members_of_all.iter().flatten() {
                table.push_record([
                    device.ifname.clone(),
                    domain_name(domain),
                    if member.keeps { "keeps" } else { "observes" }.into(),
                    count(member.pid.map(u64::from)),
                    mask(member.mask),
                    match member.pid {
                        Some(_) => member.program.clone(),
                        None => member.kind.clone(),
                    },
                ]);
            }
        }
    }
    (table.count_records() > 1).then(|| render(table))
}

fn mask(mask: Option<u64>) -> String {
    match mask {
        Some(mask) if has_all_types(mask) => "all".into(),
        mask => hex(mask),
    }
}

/// The name of the process comes last: it may have blanks.
fn registration_row(registration: &Registration) -> [String; 5] {
    [
        count(registration.pid.map(u64::from)),
        if registration.channel { "yes" } else { "no" }.into(),
        registration.pending.to_string(),
        mask(registration.mask),
        match registration.pid {
            Some(_) => registration.program.clone(),
            None => registration.kind.clone(),
        },
    ]
}

/// Whether an event mask has all types that this program knows of a QP that a member names.
fn has_all_types(mask: u64) -> bool {
    EventTypes::from_bits_retain(mask).contains(EventTypes::all() - EventTypes::QP_ADDED)
}

/// Whether each line of a text has room on a terminal, if it goes to one.
pub(crate) fn fits(text: &str, width: Option<usize>) -> bool {
    width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width))
}

/// Breaks a text of words, below `depth` others in a tree, so that it has room on a terminal, if it
/// goes to one.
pub(crate) fn wrapped(text: String, depth: usize, width: Option<usize>) -> Tree<String> {
    // A branch has 4 columns.
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(4 * depth));
    let mut result = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used == 0 {
            used = length;
        } else if used + 1 + length <= room {
            result.push(' ');
            used += 1 + length;
        } else {
            result += "\n  ";
            used = 2 + length;
        }
        result += word;
    }
    Tree::new(result).with_multiline(true)
}

fn tree(device: &Device, width: Option<usize>) -> Tree<String> {
    let mut root = wrapped(describe_device(device), 0, width);
    for domain in device.domains.iter().flatten() {
        let name = match domain.domain {
            Some(number) => format!("domain {number}"),
            None => "domain".into(),
        };
        let members = domain.members_of_all.iter().flatten();
        let members = members.map(|one| wrapped(describe_member(one), 2, width));
        let qps = domain.qps.iter().map(|qp| {
            let registered = qp.registered.iter().flatten();
            wrapped(describe_qp(qp), 2, width)
                .with_leaves(registered.map(|one| wrapped(describe_registration(one), 3, width)))
        });
        root.push(wrapped(name, 1, width).with_leaves(members.chain(qps)));
    }
    root
}

fn describe_device(device: &Device) -> String {
    let mut text = match device.ifindex {
        Some(index) => format!("{index}: {}", device.ifname),
        None => device.ifname.clone(),
    };
    text += &format!(" ({})", device.status.describe());
    if let Some(caps) = device.caps {
        text += &format!(
            ", at most {} QPs per domain, {} per user, {} registrations per QP",
            limit(caps.max_qps_per_domain),
            limit(caps.max_qps_per_user),
            limit(caps.max_registrations_per_qp)
        );
    }
    text
}

fn describe_qp(qp: &Qp) -> String {
    let mut text = format!("QP {:#x} {}", qp.qpn, qp.state);
    if let Some(dest_qpn) = qp.dest_qpn {
        text += &format!(" from {dest_qpn:#x}");
    }
    if let Some(label) = qp.label {
        text += &format!(", label {label:#x}");
    }
    text += &format!(", lifetime {}", qp.lifetime);
    if let Some(events) = qp.events {
        text += &format!(", {events} events");
    }
    if let Some(creator) = qp.creator {
        text += &format!(", creator {creator}");
    }
    if let (Some(pid), Some(program)) = (qp.pid, &qp.program) {
        text += &format!(" ({pid} {program}{})", described(&qp.cgroup));
    }
    if let Some(user) = qp.user.filter(|user| Some(*user) != qp.creator) {
        text += &format!(", counts for {user}");
    }
    if qp.registered.is_none() {
        text += &format!(", {} registrations", qp.registrations);
    }
    text
}

/// A control group, if it is known, as one more part of a description.
fn described(cgroup: &Option<Cgroup>) -> String {
    match cgroup {
        None => String::new(),
        Some(Cgroup {
            path: Some(path), ..
        }) => format!(", cgroup {path}"),
        Some(Cgroup { id, .. }) => format!(", cgroup {id}"),
    }
}

fn describe_member(member: &MemberOfAll) -> String {
    let verb = if member.keeps { "keeps" } else { "observes" };
    match member.pid {
        Some(pid) => format!("{pid} {} {verb} all QPs", member.program),
        None => format!("{} {verb} all QPs", member.kind),
    }
}

fn describe_registration(registration: &Registration) -> String {
    let mut text = match registration.pid {
        Some(pid) => {
            let uid = registration.uid;
            let uid = uid.map_or(String::new(), |uid| format!(", uid {uid}"));
            let cgroup = described(&registration.cgroup);
            format!("{pid} {}{uid}{cgroup}", registration.program)
        }
        None => registration.kind.clone(),
    };
    if registration.channel {
        text += &format!(", {} unread", registration.pending);
    } else {
        text += ", no channel";
    }
    match registration.mask {
        Some(0) => text += ", mask empty",
        Some(mask) if !has_all_types(mask) => {
            text += &format!(", mask {}", type_names(mask).join(" "));
        }
        _ => (),
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn devices() -> Vec<Device> {
        let registered = |pid, program: &str| Registration {
            kind: "file".into(),
            pid: Some(pid),
            program: program.into(),
            uid: (pid == 100).then_some(1000),
            cgroup: Some(Cgroup {
                id: 7,
                path: (pid == 100).then(|| "/kv".into()),
            }),
            channel: true,
            mask: Some(if pid == 100 {
                EventTypes::all().bits()
            } else {
                1 << 4
            }),
            pending: 1,
        };
        vec![
            Device {
                ifindex: Some(0),
                ifname: "mlx4_0".into(),
                status: Status::NotAttached,
                caps: None,
                domains: None,
            },
            Device {
                ifindex: Some(1),
                ifname: "rxe_left".into(),
                status: Status::Attached,
                caps: Some(Caps {
                    version: 1,
                    max_qps_per_domain: Some(65536),
                    max_qps_per_user: None,
                    max_registrations_per_qp: Some(4096),
                }),
                domains: Some(vec![Domain {
                    domain: Some(3),
                    qps: vec![Qp {
                        qpn: 0x11,
                        state: "RTR".into(),
                        lifetime: "registrations".into(),
                        dest_qpn: Some(0x12),
                        label: Some(0xfedc_ba98_7654_3210),
                        events: Some(2),
                        creator: Some(100_000),
                        user: Some(1000),
                        serial: Some(1),
                        pid: Some(99),
                        program: Some("creator".into()),
                        cgroup: None,
                        registrations: 2,
                        registered: Some(vec![registered(100, "first"), registered(101, "second")]),
                    }],
                    members_of_all: Some(vec![MemberOfAll {
                        kind: "file".into(),
                        keeps: true,
                        pid: Some(300),
                        program: "monitor".into(),
                        uid: Some(0),
                        mask: Some(EventTypes::all().bits()),
                    }]),
                }]),
            },
        ]
    }

    #[test]
    fn tables_have_a_row_per_registration() {
        assert_eq!(
            device_table(&devices()),
            "INDEX  DEVICE    STATUS        DOMAINS  QPS  QPS/DOMAIN  QPS/USER   REGS/QP\n\
             0      mlx4_0    not attached  -        -    -           -          -\n\
             1      rxe_left  attached      1        1    65536       unlimited  4096"
        );
        let table = qp_table(&devices()).unwrap();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(
            rows[2],
            [
                "rxe_left",
                "3",
                "0x11",
                "RTR",
                "registrations",
                "0x12",
                "0xfedcba9876543210",
                "2",
                "100000",
                "1000",
                "2",
                "101",
                "yes",
                "1",
                "0x10",
                "second"
            ]
        );
        assert_eq!(rows[1][14..], ["all", "first"]);
        assert_eq!(qp_table(&devices()[..1]), None);
    }

    #[test]
    fn filters_keep_the_objects_they_name() {
        let left = |args: &[&str]| {
            use clap::Parser;
            let line = ["xrc-rcv", "show"].iter().chain(args);
            let crate::cli::Command::Show(show) = crate::cli::Cli::parse_from(line).command else {
                panic!("not show");
            };
            let mut devices = devices();
            select(&show, &mut devices);
            let domains = devices.remove(1).domains.unwrap();
            let holders = domains
                .iter()
                .flat_map(|d| &d.qps)
                .flat_map(|qp| &qp.registered);
            (domains.len(), holders.flatten().count())
        };
        assert_eq!(left(&[]), (1, 2));
        assert_eq!(left(&["--pid", "101"]), (1, 1));
        assert_eq!(left(&["--pid", "102"]), (0, 0));
        assert_eq!(left(&["--qpn", "0x11", "--state", "rtr"]), (1, 2));
        assert_eq!(left(&["--qpn", "18"]), (0, 0));
        assert_eq!(left(&["--state", "ERR"]), (0, 0));
        assert_eq!(left(&["--domain", "3"]), (1, 2));
        assert_eq!(left(&["--domain", "4"]), (0, 0));
    }

    #[test]
    fn each_cause_comes_with_advice_once() {
        let mut devices = devices();
        devices[1].status = Status::NotAttached;
        let [(names, advice)] = &advice(&devices)[..] else {
            panic!("one sentence for one cause");
        };
        assert_eq!(names, "mlx4_0, rxe_left");
        assert!(advice.contains("reload"));
        devices[0].status = Status::NoXrc;
        devices[1].status = Status::Attached;
        assert_eq!(super::advice(&devices), []);
    }

    #[test]
    fn trees_show_the_registrations_of_each_qp() {
        let trees = |width| -> String {
            let tree = |device| tree(device, width).to_string();
            devices().iter().map(tree).collect()
        };
        assert_eq!(
            trees(None),
            "0: mlx4_0 (not attached)\n\
             1: rxe_left (attached), at most 65536 QPs per domain, unlimited per user, \
             4096 registrations per QP\n\
             └── domain 3\n    \
                 ├── 300 monitor keeps all QPs\n    \
                 └── QP 0x11 RTR from 0x12, label 0xfedcba9876543210, lifetime registrations, \
             2 events, creator 100000 (99 creator), counts for 1000\n        \
                     ├── 100 first, uid 1000, cgroup /kv, 1 unread\n        \
                     └── 101 second, cgroup 7, 1 unread, mask COMM_EST\n"
        );
        for width in [36, 40, 80] {
            let narrow = trees(Some(width));
            assert!(fits(&narrow, Some(width)), "{narrow}");
            let words = |text: &str| -> Vec<String> {
                let words = text.split([' ', '\n', '│', '├', '└', '─']);
                words
                    .filter(|word| !word.is_empty())
                    .map(String::from)
                    .collect()
            };
            assert_eq!(words(&narrow), words(&trees(None)));
        }
        assert!(!fits(&trees(None), Some(80)));
    }

    #[test]
    fn json_has_everything() {
        let json = serde_json::to_value(devices()).unwrap();
        assert_eq!(json[0]["status"], "not-attached");
        assert_eq!(json[1]["domains"][0]["members_of_all"][0]["keeps"], true);
        assert_eq!(
            json[1]["domains"][0]["qps"][0]["holders"][1]["comm"],
            "second"
        );
        assert_eq!(
            json[1]["domains"][0]["qps"][0]["label"],
            "0xfedcba9876543210"
        );
        let qp = &json[1]["domains"][0]["qps"][0];
        assert_eq!(
            (&qp["creator"], &qp["user"]),
            (&json!(100_000), &json!(1000))
        );
        assert_eq!(
            (&qp["pid"], &qp["comm"], &qp["cgroup"]),
            (&json!(99), &json!("creator"), &json!(null))
        );
        assert_eq!(qp["holders"][0]["cgroup"], json!({"id": 7, "path": "/kv"}));
        assert_eq!(qp["holders"][1]["cgroup"], json!({"id": 7, "path": null}));
        assert_eq!(qp["holders"][0]["uid"], 1000);
        assert_eq!(qp["holders"][1]["mask"], json!(["COMM_EST"]));
        assert_eq!(json[1]["caps"]["max_qps_per_user"], serde_json::Value::Null);
        assert_eq!(json[1]["caps"]["max_registrations_per_qp"], 4096);
    }
}
