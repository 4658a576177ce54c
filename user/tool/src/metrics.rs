// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A snapshot as OpenMetrics: `xrc-rcv show --metrics`.
//!
//! Written here and not by a client library: these count what their own process does, and a
//! snapshot of others has nothing to register.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::service::Usage;
use crate::snapshot::{Caps, Device, Domain, Qp, Status};

/// The kernel counts the start of a process in hundredths of a second.
const TICKS: f64 = 100.0;

type Labels = Vec<(&'static str, String)>;

/// A text, metric by metric.
#[derive(Default)]
struct Text(String);

impl Text {
    /// A metric of the type gauge, with its samples.
    fn gauge(&mut self, name: &str, unit: &str, help: &str, samples: Vec<(Labels, f64)>) {
        let name = match unit {
            "" => format!("xrc_rcv_{name}"),
            unit => format!("xrc_rcv_{name}_{unit}"),
        };
        let text = &mut self.0;
        let _ = writeln!(text, "# TYPE {name} gauge");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for (labels, value) in samples {
            let labels: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
                .collect();
            let value = match value.is_infinite() {
                true => "+Inf".into(),
                false => value.to_string(),
            };
            let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
        }
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn number(number: Option<impl ToString>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}

/// All domains that the user may see, with their device.
fn domains(devices: &[Device]) -> impl Iterator<Item = (&Device, &Domain)> {
    devices.iter().flat_map(|device| {
        device
            .domains
            .iter()
            .flatten()
            .map(move |domain| (device, domain))
    })
}

fn of_domain(device: &Device, domain: &Domain) -> Labels {
    vec![
        ("device", device.ifname.clone()),
        ("domain", number(domain.domain)),
    ]
}

/// Samples that are summed up: labels in the order of the metric.
fn summed(all: impl Iterator<Item = (Labels, f64)>) -> Vec<(Labels, f64)> {
    let mut sums = BTreeMap::new();
    for (labels, value) in all {
        *sums.entry(labels).or_insert(0.0) += value;
    }
    sums.into_iter().collect()
}

pub(crate) fn metrics(devices: &[Device], usages: &[Usage]) -> String {
    let mut text = Text::default();
    of_devices(&mut text, devices);
    of_limits(&mut text, devices);
    of_members(&mut text, devices, Path::new("/proc"));
    of_services(&mut text, usages);
    text.0 + "# EOF\n"
}

fn of_devices(text: &mut Text, devices: &[Device]) {
    let attached = |device: &Device| f64::from(u8::from(device.status == Status::Attached));
    let samples = devices
        .iter()
        .map(|device| (vec![("device", device.ifname.clone())], attached(device)))
        .collect();
    text.gauge(
        "attached",
        "",
        "Whether the device has receive QPs.",
        samples,
    );

    let qps = domains(devices).flat_map(|(device, domain)| {
        domain.qps.iter().map(move |qp| {
            let mut labels = of_domain(device, domain);
            labels.extend([
                ("creator", number(qp.creator)),
                ("lifetime", qp.lifetime.clone()),
                ("state", qp.state.clone()),
                ("user", number(qp.user)),
            ]);
            (labels, 1.0)
        })
    });
    let help =
        "Receive QPs, by creator, user whose limit they count for, and state; ERR is broken.";
    text.gauge("qps", "", help, summed(qps));
}

/// How close the fullest domain, user and QP are to their limits.
fn of_limits(text: &mut Text, devices: &[Device]) {
    let (mut limits, mut used) = (Vec::new(), Vec::new());
    let labels = |device: &Device, limit: &str| {
        vec![
            ("device", device.ifname.clone()),
            ("limit", limit.to_string()),
        ]
    };
    let all = || domains(devices).flat_map(|(_, domain)| &domain.qps);
    let mut by_user = BTreeMap::<_, u64>::new();
    all().for_each(|qp| *by_user.entry(qp.user).or_default() += 1);
    let greatest = |numbers: &mut dyn Iterator<Item = u64>| numbers.max().unwrap_or_default();
    for device in devices {
        let Some(Caps {
            max_qps_per_domain,
            max_qps_per_user,
            max_registrations_per_qp,
            ..
        }) = device.caps
        else {
            continue;
        };
        let own = || device.domains.iter().flatten();
        let registrations = |qp: &Qp| qp.registrations;
        for (name, limit, most) in [
            (
                "qps_per_domain",
                max_qps_per_domain,
                greatest(&mut own().map(|domain| domain.qps.len() as u64)),
            ),
            // On all devices together.
            (
                "qps_per_user",
                max_qps_per_user,
                greatest(&mut by_user.values().copied()),
            ),
            (
                "registrations_per_qp",
                max_registrations_per_qp,
                greatest(&mut own().flat_map(|domain| &domain.qps).map(registrations)),
            ),
        ] {
            limits.push((labels(device, name), limit.map_or(f64::INFINITY, f64::from)));
            used.push((labels(device, name), most as f64));
        }
    }
    text.gauge("limit", "", "A limit of the kernel.", limits);
    text.gauge("limit_used", "", "What the fullest of all has of it.", used);
}

fn of_members(text: &mut Text, devices: &[Device], proc: &Path) {
    let all = || {
        domains(devices).flat_map(|(device, domain)| {
            let registered = domain
                .qps
                .iter()
                .flat_map(|qp| qp.registered.iter().flatten());
            registered.map(move |one| {
                let mut labels = of_domain(device, domain);
                labels.extend([("pid", number(one.pid)), ("program", one.program.clone())]);
                (labels, one)
            })
        })
    };
    let members = summed(all().map(|(labels, _)| (labels, 1.0)));
    let unread = summed(all().map(|(labels, one)| (labels, one.pending as f64)));
    let ages = members.iter().filter_map(|(labels, _)| {
        let pid = labels.iter().find(|(key, _)| *key == "pid")?;
        Some((labels.clone(), age(proc, &pid.1)?))
    });
    let ages = ages.collect();
    text.gauge("registrations", "", "Registrations of a process.", members);
    text.gauge(
        "unread",
        "",
        "Records of events that the process has not read.",
        unread,
    );
    text.gauge("member_age", "seconds", "How long the process runs.", ages);
}

/// The seconds since a process was started.
fn age(proc: &Path, pid: &str) -> Option<f64> {
    let stat = fs::read_to_string(proc.join(pid).join("stat")).ok()?;
    // Its name has any characters, and ends with the last parenthesis.
    let start: f64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let uptime = fs::read_to_string(proc.join("uptime")).ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Some((uptime - start / TICKS).max(0.0))
}

fn of_services(text: &mut Text, usages: &[Usage]) {
    let file = |usage: &Usage| vec![("file", usage.file.clone())];
    for (name, key, help) in [
        (
            "kept",
            "kept",
            "Descriptors that the holder of the domain keeps.",
        ),
        ("kept_limit", "max_kept", "How many it keeps at most."),
        ("kept_own", "own", "Those of this user."),
        (
            "kept_own_limit",
            "max_own",
            "How many it keeps for this user at most.",
        ),
        (
            "clients",
            "clients",
            "Connections to the holder of the domain.",
        ),
        ("clients_limit", "max_clients", "How many it has at most."),
    ] {
        let samples = usages.iter().filter_map(|usage| {
            let count = usage.counts.get(key)?;
            Some((file(usage), *count as f64))
        });
        text.gauge(name, "", help, samples.collect());
    }
    let ages = usages.iter().flat_map(|usage| {
        usage.kept.iter().map(|(name, seconds)| {
            let mut labels = file(usage);
            labels.push(("name", name.clone()));
            (labels, *seconds as f64)
        })
    });
    text.gauge(
        "kept_age",
        "seconds",
        "How long a descriptor of this user is kept.",
        ages.collect(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Registration;

    fn device() -> Device {
        let registration = |pid: u32, pending| Registration {
            pid: Some(pid),
            program: "a\"b\\\n".into(),
            pending,
            ..Registration::default()
        };
        let qp = |state: &str, registered| Qp {
            state: state.into(),
            lifetime: "domain".into(),
            creator: Some(1000),
            user: Some(1000),
            registrations: 2,
            registered: Some(registered),
            ..Qp::default()
        };
        let broken = qp("ERR", vec![registration(u32::MAX, 2)]);
        let qps = vec![
            qp(
                "RTR",
                vec![
                    registration(u32::MAX, 1),
                    registration(std::process::id(), 0),
                ],
            ),
            qp("RTR", vec![]),
            broken,
        ];
        Device {
            ifindex: Some(3),
            ifname: "mlx5_0".into(),
            status: Status::Attached,
            caps: Some(Caps {
                version: 2,
                max_qps_per_domain: Some(16),
                max_qps_per_user: None,
                max_registrations_per_qp: Some(8),
            }),
            domains: Some(vec![Domain {
                domain: Some(4),
                qps,
                ..Domain::default()
            }]),
        }
    }

    #[test]
    fn a_snapshot_has_creators_members_and_limits() {
        let usage = Usage {
            file: "/run/kv".into(),
            counts: [("kept".into(), 3), ("max_kept".into(), 64)].into(),
            kept: vec![("table".into(), 7)],
        };
        let text = metrics(&[device()], &[usage]);
        let program = r#"program="a\"b\\\n""#;
        for line in [
            r#"xrc_rcv_attached{device="mlx5_0"} 1"#,
            r#"xrc_rcv_qps{device="mlx5_0",domain="4",creator="1000",lifetime="domain",state="ERR",user="1000"} 1"#,
            r#"xrc_rcv_qps{device="mlx5_0",domain="4",creator="1000",lifetime="domain",state="RTR",user="1000"} 2"#,
            r#"xrc_rcv_limit{device="mlx5_0",limit="qps_per_domain"} 16"#,
            r#"xrc_rcv_limit_used{device="mlx5_0",limit="qps_per_domain"} 3"#,
            r#"xrc_rcv_limit{device="mlx5_0",limit="qps_per_user"} +Inf"#,
            r#"xrc_rcv_limit_used{device="mlx5_0",limit="qps_per_user"} 3"#,
            r#"xrc_rcv_limit_used{device="mlx5_0",limit="registrations_per_qp"} 2"#,
            &format!(
                r#"xrc_rcv_registrations{{device="mlx5_0",domain="4",pid="4294967295",{program}}} 2"#
            ),
            &format!(
                r#"xrc_rcv_unread{{device="mlx5_0",domain="4",pid="4294967295",{program}}} 3"#
            ),
            "# UNIT xrc_rcv_kept_age_seconds seconds",
            r#"xrc_rcv_kept{file="/run/kv"} 3"#,
            r#"xrc_rcv_kept_limit{file="/run/kv"} 64"#,
            r#"xrc_rcv_kept_age_seconds{file="/run/kv",name="table"} 7"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // Of the process that runs, and not of the other.
        let ages = text
            .lines()
            .filter(|line| line.starts_with("xrc_rcv_member_age_seconds{"));
        let own = format!("pid=\"{}\"", std::process::id());
        assert!(
            ages.clone().count() == 1 && ages.clone().all(|line| line.contains(&own)),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }
}
