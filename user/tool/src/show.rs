// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv show`: looks at everything once, and prints it as a table, a tree or JSON.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};
use termtree::Tree;
use xrc_rcv::Cause;

use crate::cli::Show;
use crate::snapshot::{Caps, Device, Domain, Qp, Registration, Status};
use crate::sysfs::RdmaDevice;
use crate::{debugfs, sysfs};

pub(crate) fn run(args: &Show, out: &mut impl Write) -> Result<()> {
    let mut found = sysfs::devices(Path::new(sysfs::ROOT))?;
    if let Some(name) = &args.device {
        found.retain(|device| device.name == *name);
        if found.is_empty() {
            bail!("no RDMA device {name} in this network namespace");
        }
    }
    let mut devices = found.iter().map(look).collect::<Result<Vec<_>>>()?;
    if let (Some(file), Some(name)) = (&args.domain, &args.device) {
        devices[0].domains = Some(vec![look_within(name, file)?]);
    }

    if args.json {
        serde_json::to_writer_pretty(&mut *out, &json!({ "devices": devices }))
            .map_err(io::Error::from)?;
        writeln!(out)?;
    } else if args.tree {
        for device in &devices {
            write!(out, "{}", tree(device))?;
        }
    } else {
        writeln!(out, "{}", device_table(&devices))?;
        if let Some(table) = qp_table(&devices) {
            writeln!(out, "\n{table}")?;
        }
    }
    if devices
        .iter()
        .any(|device| device.status == Status::Attached && device.domains.is_none())
    {
        eprintln!(
            "xrc-rcv: receive QPs are shown to root where debugfs is mounted, or with --domain"
        );
    }
    Ok(())
}

/// What this user may see of a device.
fn look(device: &RdmaDevice) -> Result<Device> {
    let (status, caps) = query_caps(device)?;
    let domains = match status {
        Status::Unavailable => None,
        _ => debugfs::domains(Path::new(debugfs::ROOT), &device.name)?,
    };
    Ok(Device {
        name: device.name.clone(),
        status,
        caps,
        domains,
    })
}

fn query_caps(device: &RdmaDevice) -> Result<(Status, Option<Caps>)> {
    if !device.exposed {
        return Ok((Status::Unavailable, None));
    }
    let Ok(open) = xrc_rcv::Device::open(&device.name) else {
        return Ok((Status::Inaccessible, None));
    };
    match open.query_caps() {
        Ok(caps) => Ok((
            Status::Attached,
            Some(Caps {
                version: caps.version(),
                max_qps_per_domain: caps.max_qps_per_domain(),
                max_qps_per_user: caps.max_qps_per_user(),
            }),
        )),
        Err(error) if error.cause() == Cause::Unavailable => Ok((Status::Unavailable, None)),
        Err(error) => Err(error).with_context(|| device.name.clone()),
    }
}

/// The domain of a file, as its members see it.
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
        // It may have gone since it was listed.
        let Ok((attr, _)) = domain.query(info.qp_num()) else {
            continue;
        };
        let dest_qpn = attr.dest_qp_num();
        qps.push(Qp {
            qpn: info.qp_num(),
            state: info.state().map_or("?", |state| state.name()).into(),
            lifetime: info
                .lifetime()
                .map_or("?", |lifetime| lifetime.name())
                .into(),
            dest_qpn: (dest_qpn != 0).then_some(dest_qpn),
            events: None,
            registrations: info.registrations().into(),
            registered: None,
        });
    }
    Ok(Domain { domain: None, qps })
}

fn limit(limit: Option<u32>) -> String {
    limit.map_or("unlimited".into(), |limit| limit.to_string())
}

fn hex(number: Option<u32>) -> String {
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
        "DEVICE",
        "STATUS",
        "DOMAINS",
        "QPS",
        "QPS/DOMAIN",
        "QPS/USER",
    ]);
    for device in devices {
        let domains = device.domains.as_ref();
        table.push_record([
            device.name.clone(),
            device.status.describe().into(),
            count(domains.map(|domains| domains.len() as u64)),
            count(domains.map(|domains| domains.iter().map(|d| d.qps.len() as u64).sum())),
            device
                .caps
                .map_or("-".into(), |caps| limit(caps.max_qps_per_domain)),
            device
                .caps
                .map_or("-".into(), |caps| limit(caps.max_qps_per_user)),
        ]);
    }
    render(table)
}

/// One row per registration, or per QP if nobody is or is seen to be registered with it.
fn qp_table(devices: &[Device]) -> Option<String> {
    let mut table = Builder::new();
    table.push_record([
        "DEVICE",
        "DOMAIN",
        "QPN",
        "STATE",
        "LIFETIME",
        "PEER",
        "EVENTS",
        "REGISTERED",
        "PID",
        "PROGRAM",
        "CHANNEL",
        "UNREAD",
    ]);
    for device in devices {
        for domain in device.domains.iter().flatten() {
            for qp in &domain.qps {
                let own = [
                    device.name.clone(),
                    domain_name(domain),
                    format!("{:#x}", qp.qpn),
                    qp.state.clone(),
                    qp.lifetime.clone(),
                    hex(qp.dest_qpn),
                    count(qp.events),
                    qp.registrations.to_string(),
                ];
                let rows = match qp.registered.as_deref() {
                    None | Some([]) => vec![["-", "-", "-", "-"].map(String::from)],
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

fn registration_row(registration: &Registration) -> [String; 4] {
    [
        registration.pid.map_or("-".into(), |pid| pid.to_string()),
        match registration.pid {
            Some(_) => registration.program.clone(),
            None => registration.kind.clone(),
        },
        if registration.channel { "yes" } else { "no" }.into(),
        registration.pending.to_string(),
    ]
}

fn tree(device: &Device) -> Tree<String> {
    let mut root = Tree::new(format!("{} ({})", device.name, device.status.describe()));
    for domain in device.domains.iter().flatten() {
        let name = match domain.domain {
            Some(number) => format!("domain {number}"),
            None => "domain".into(),
        };
        root.push(Tree::new(name).with_leaves(domain.qps.iter().map(|qp| {
            Tree::new(describe_qp(qp)).with_leaves(
                qp.registered
                    .iter()
                    .flatten()
                    .map(|r| Tree::new(describe_registration(r))),
            )
        })));
    }
    root
}

fn describe_qp(qp: &Qp) -> String {
    let mut text = format!("QP {:#x} {}", qp.qpn, qp.state);
    if let Some(dest_qpn) = qp.dest_qpn {
        text += &format!(" from {dest_qpn:#x}");
    }
    text += &format!(", lifetime {}", qp.lifetime);
    if let Some(events) = qp.events {
        text += &format!(", {events} events");
    }
    if qp.registered.is_none() {
        text += &format!(", {} registrations", qp.registrations);
    }
    text
}

fn describe_registration(registration: &Registration) -> String {
    let mut text = match registration.pid {
        Some(pid) => format!("{pid} {}", registration.program),
        None => registration.kind.clone(),
    };
    if registration.channel {
        text += &format!(
            ", {} events, {} unread",
            registration.events, registration.pending
        );
    } else {
        text += ", no channel";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<Device> {
        let registered = |pid, program: &str| Registration {
            kind: "file".into(),
            pid: Some(pid),
            program: program.into(),
            channel: true,
            events: 2,
            pending: 1,
        };
        vec![
            Device {
                name: "mlx4_0".into(),
                status: Status::Unavailable,
                caps: None,
                domains: None,
            },
            Device {
                name: "rxe_left".into(),
                status: Status::Attached,
                caps: Some(Caps {
                    version: 1,
                    max_qps_per_domain: Some(65536),
                    max_qps_per_user: None,
                }),
                domains: Some(vec![Domain {
                    domain: Some(3),
                    qps: vec![Qp {
                        qpn: 0x11,
                        state: "RTR".into(),
                        lifetime: "registrations".into(),
                        dest_qpn: Some(0x12),
                        events: Some(2),
                        registrations: 2,
                        registered: Some(vec![registered(100, "first"), registered(101, "second")]),
                    }],
                }]),
            },
        ]
    }

    #[test]
    fn tables_have_a_row_per_registration() {
        assert_eq!(
            device_table(&devices()),
            "DEVICE    STATUS          DOMAINS  QPS  QPS/DOMAIN  QPS/USER\n\
             mlx4_0    no receive QPs  -        -    -           -\n\
             rxe_left  attached        1        1    65536       unlimited"
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
                "2",
                "2",
                "101",
                "second",
                "yes",
                "1"
            ]
        );
        assert_eq!(qp_table(&devices()[..1]), None);
    }

    #[test]
    fn trees_show_who_holds_what() {
        let trees: String = devices()
            .iter()
            .map(|device| tree(device).to_string())
            .collect();
        assert_eq!(
            trees,
            "mlx4_0 (no receive QPs)\n\
             rxe_left (attached)\n\
             └── domain 3\n    \
                 └── QP 0x11 RTR from 0x12, lifetime registrations, 2 events\n        \
                     ├── 100 first, 2 events, 1 unread\n        \
                     └── 101 second, 2 events, 1 unread\n"
        );
    }

    #[test]
    fn json_has_everything() {
        let json = serde_json::to_value(devices()).unwrap();
        assert_eq!(json[0]["status"], "unavailable");
        assert_eq!(
            json[1]["domains"][0]["qps"][0]["registered"][1]["program"],
            "second"
        );
        assert_eq!(json[1]["caps"]["max_qps_per_user"], serde_json::Value::Null);
    }
}
