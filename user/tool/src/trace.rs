// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A trace instance: the tracepoints of the module in a ring buffer of our own, so that other
//! tracers are not disturbed. Removed when dropped.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{io, process};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Map, Value};

/// Where tracefs may be mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The trace system of the module.
const SYSTEM: &str = "ib_xrc_rcv";

pub(crate) struct Instance {
    directory: PathBuf,
}

impl Instance {
    /// Starts tracing. What happened before is not seen.
    pub(crate) fn start() -> Result<Instance> {
        let Some(root) = ROOTS
            .iter()
            .map(Path::new)
            .find(|root| root.join("instances").exists())
        else {
            bail!("tracefs is not mounted, or not for this user");
        };
        if !root.join("events").join(SYSTEM).exists() {
            bail!("ib_xrc_rcv is not loaded");
        }
        let directory = root
            .join("instances")
            .join(format!("xrc-rcv-{}", process::id()));
        fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        let instance = Instance { directory };
        // The clock of the events that programs read, and no column that nobody asked for.
        instance.write("trace_clock", "mono")?;
        instance.write("options/irq-info", "0")?;
        instance.write(&format!("events/{SYSTEM}/enable"), "1")?;
        Ok(instance)
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value).with_context(|| path.display().to_string())
    }

    /// The lines, as they come; does not block.
    pub(crate) fn pipe(&self) -> io::Result<File> {
        // O_NONBLOCK
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(self.directory.join("trace_pipe"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.directory) {
            eprintln!("xrc-rcv: {}: {error}", self.directory.display());
        }
    }
}

/// One occurrence of a tracepoint.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Record {
    /// Seconds on the clock `CLOCK_MONOTONIC`.
    pub(crate) time: f64,
    /// The tracepoint's name.
    pub(crate) event: String,
    /// The task it happened in, which for what the hardware reports is any.
    pub(crate) task: String,
    /// Its number; the fields may have the `pid` of a registration.
    pub(crate) task_pid: u32,
    #[serde(flatten)]
    pub(crate) fields: Map<String, Value>,
}

impl Record {
    /// A line of `trace_pipe`: `TASK-PID [CPU] TIME: EVENT: KEY=VALUE…`, the task's name padded on
    /// its left. `None` for what is none, such as notes on lost records.
    pub(crate) fn parse(line: &str) -> Option<Record> {
        let (task, rest) = line.split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        cpu.parse::<u32>().ok()?;
        let (task, pid) = task.trim().rsplit_once('-')?;
        let (time, rest) = rest.split_once(": ")?;
        let (event, fields) = rest.split_once(':')?;
        Some(Record {
            time: time.trim().parse().ok()?,
            event: event.into(),
            task: task.into(),
            task_pid: pid.parse().ok()?,
            fields: parse_fields(fields),
        })
    }
}

/// `KEY=VALUE` words; one without a key belongs to the value before it, as a program's name may
/// have spaces. Decimal values become numbers, all others stay as they are.
fn parse_fields(text: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut last: Option<String> = None;
    for word in text.split_ascii_whitespace() {
        match (word.split_once('='), &last) {
            (Some((key, value)), _) => {
                let value = value
                    .parse::<u64>()
                    .map_or_else(|_| Value::from(value), Value::from);
                fields.insert(key.into(), value);
                last = Some(key.into());
            }
            (None, Some(key)) => {
                if let Some(Value::String(value)) = fields.get_mut(key) {
                    value.push(' ');
                    value.push_str(word);
                }
            }
            (None, None) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = "          <idle>-0       [001]  1234.567890: event: device=rxe_left qpn=0x11 \
                    type=QP_ACCESS_ERR registrations=3 comm=my prog";
        let record = Record::parse(line).unwrap();
        assert_eq!(record.time, 1234.567890);
        assert_eq!(
            (&*record.event, &*record.task, record.task_pid),
            ("event", "<idle>", 0)
        );
        assert_eq!(record.fields["device"], "rxe_left");
        assert_eq!(record.fields["qpn"], "0x11");
        assert_eq!(record.fields["registrations"], 3);
        assert_eq!(record.fields["comm"], "my prog");
        let odd = Record::parse("    my-app-2-4711    [000]     1.000001: reg: device=a").unwrap();
        assert_eq!((&*odd.task, odd.task_pid), ("my-app-2", 4711));
    }

    #[test]
    fn other_lines_are_none() {
        assert_eq!(Record::parse("CPU:1 [LOST 12 EVENTS]"), None);
        assert_eq!(Record::parse(""), None);
    }
}
