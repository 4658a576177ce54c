// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A trace instance: the tracepoints of the module in a ring buffer of our own, so that other
//! tracers are not disturbed. Removed when dropped.

use std::fs::{self, File, OpenOptions};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{io, process};

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::snapshot::{JSON_VERSION, LABEL, type_names};

/// The mount points of tracefs, newest first.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The prefix of our instances' names; the process ID follows.
const PREFIX: &str = "xrc-rcv-";

/// The trace system of the module.
const SYSTEM: &str = "ib_xrc_rcv";

/// The tracepoints that are printed, whose names are the values of `action`.
const CHANGES: [&str; 5] = ["alloc", "reg", "unreg", "destroy", "event"];

/// The size of the ring buffers of all CPUs where no record may be lost, and the least and the
/// greatest of one: the events of a device may all come to the same CPU.
const BUFFERS_KB: u64 = 65536;
const BUFFER_KB: RangeInclusive<u64> = 1024..=16384;

/// The tracepoints to enable.
pub(crate) enum Tracepoints {
    /// Those that are printed.
    Changes,
    /// All of the module.
    All,
}

pub(crate) struct Instance {
    directory: PathBuf,
}

impl Instance {
    /// Starts tracing. Earlier events are not seen.
    pub(crate) fn start(tracepoints: Tracepoints) -> Result<Instance> {
        let Some(root) = root() else {
            bail!(
                "no tracefs at {}: run this as root, and mount it there if it is missing ('mount -t \
                 tracefs tracefs {}'; 'ip netns exec' mounts a /sys without it)",
                ROOTS.join(" or "),
                ROOTS[0]
            );
        };
        if !root.join("events").join(SYSTEM).exists() {
            bail!("the module ib_xrc_rcv is not loaded: run 'xrc-rcv-module load'");
        }
        let instances = root.join("instances");
        remove_stale(&instances, Path::new("/proc"));
        let directory = instances.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        let instance = Instance { directory };
        // No additional column.
        instance.write("options/irq-info", "0")?;
        // Tracepoints are enabled one after the other. A trace begins with all of them.
        instance.write("tracing_on", "0")?;
        match tracepoints {
            Tracepoints::Changes => {
                // That of the events that programs read.
                instance.write("trace_clock", "mono")?;
                for tracepoint in CHANGES {
                    let enable = format!("events/{SYSTEM}/{SYSTEM}_{tracepoint}/enable");
                    instance.write(&enable, "1")?;
                }
            }
            Tracepoints::All => {
                // The only one that no two CPUs read the same from.
                instance.write("trace_clock", "counter")?;
                instance.write("buffer_size_kb", &buffer_kb(online_cpus()).to_string())?;
                instance.write(&format!("events/{SYSTEM}/enable"), "1")?;
            }
        }
        instance.write("tracing_on", "1")?;
        Ok(instance)
    }

    /// An instance for tests, which traces nothing.
    #[cfg(test)]
    pub(crate) fn of(directory: PathBuf) -> Instance {
        fs::create_dir(&directory).unwrap();
        Instance { directory }
    }

    /// Ends the trace. Earlier records can still be read.
    pub(crate) fn stop(&self) -> Result<()> {
        self.write("tracing_on", "0")
    }

    /// Whether this user sees a tracefs.
    pub(crate) fn may_start() -> bool {
        root().is_some()
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value).with_context(|| path.display().to_string())
    }

    /// Opens the trace, from which lines are read without blocking.
    pub(crate) fn pipe(&self) -> io::Result<File> {
        // O_NONBLOCK
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(self.directory.join("trace_pipe"))
    }
}

/// The mount point of tracefs, if this user may look into it.
fn root() -> Option<&'static Path> {
    let mut roots = ROOTS.iter().map(Path::new);
    roots.find(|root| root.join("instances").exists())
}

/// The size of the ring buffer of a CPU.
fn buffer_kb(cpus: u64) -> u64 {
    (BUFFERS_KB / cpus).clamp(*BUFFER_KB.start(), *BUFFER_KB.end())
}

fn online_cpus() -> u64 {
    // SAFETY: The function has no requirements.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(cpus).unwrap_or(1).max(1)
}

/// Removes the instances of processes that were killed. The kernel refuses to remove an instance
/// that is read, as that of a process in another PID namespace.
fn remove_stale(instances: &Path, proc: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if pid.is_some_and(|pid| !proc.join(pid).exists()) {
            // In use, or another has removed it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.directory) {
            eprintln!("xrc-rcv: {}: {error}", self.directory.display());
        }
    }
}

/// A line of xrc-rcv watch --json: one occurrence of a tracepoint.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "watch")]
pub(crate) struct Record {
    /// The version of this vocabulary: keys may be added to it, none is changed or removed.
    #[schemars(extend("enum" = [JSON_VERSION]))]
    version: u32,
    /// Nanoseconds of CLOCK_MONOTONIC, in steps of 1000; with --check a number without a unit.
    pub(crate) time_ns: u64,
    /// The tracepoint's name without the module's prefix.
    #[schemars(extend("enum" = CHANGES))]
    pub(crate) action: String,
    /// The task it happened in, which is an arbitrary one for events of hardware; null if the
    /// kernel has not recorded its name.
    pub(crate) task_comm: Option<String>,
    /// Its number; 0 for the idle task. The holder of a registration is in pid.
    pub(crate) task_pid: u32,
    #[serde(flatten)]
    #[schemars(with = "Fields")]
    pub(crate) fields: Map<String, Value>,
}

/// The fields of the tracepoints that are printed, by their names in JSON, for the schema: those of
/// one tracepoint are left out of the records of others.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "records have them as the kernel prints them")]
struct Fields {
    /// The device's number, which no other has in any network namespace.
    ifindex: u32,
    /// The device.
    ifname: String,
    /// The domain.
    domain: u64,
    /// The receive QP.
    lqpn: u32,
    /// The number of its registrations now; event: the number it was for.
    #[serde(skip_serializing_if = "absent")]
    registrations: u32,
    /// alloc, reg, unreg, destroy: the number of these that keep it.
    #[serde(skip_serializing_if = "absent")]
    keeping: u32,
    /// alloc, reg, unreg, destroy: the number of members of all QPs that keep it, beside these.
    #[serde(skip_serializing_if = "absent")]
    keeping_all: u32,
    /// destroy: whether by DESTROY with FORCE, whatever kept it.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("enum" = [0, 1]))]
    forced: u32,
    /// alloc, destroy: the object with which it ends.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("enum" = ["registrations", "domain"]))]
    lifetime: String,
    /// The serial number of the receive QP in its domain: lqpn may be used again.
    #[serde(skip_serializing_if = "absent")]
    serial: u64,
    /// reg, unreg: a hash of the event channel, or of the kernel user, whose registration it is.
    #[serde(skip_serializing_if = "absent")]
    file: String,
    /// reg, unreg: the process whose registration it is; null for the kernel.
    #[serde(skip_serializing_if = "absent")]
    pid: Option<u32>,
    /// reg, unreg: the event mask of the channel, or of the kernel user, as type names the types of
    /// events; empty if it gets no event.
    #[serde(skip_serializing_if = "absent")]
    mask: Vec<String>,
    /// alloc, destroy: the label that its creator gave it; null if none.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("pattern" = LABEL))]
    label: Option<String>,
    /// event: its type.
    #[serde(skip_serializing_if = "absent")]
    r#type: String,
    /// event: the number of registrations it was delivered to.
    #[serde(skip_serializing_if = "absent")]
    delivered: u32,
    /// The number of registrations that were added to the receive QP or ended so far.
    #[serde(skip_serializing_if = "absent")]
    changes: u64,
}

/// The width of a task's name at the beginning of a record. The kernel pads it on its left, and it
/// is shorter: the first byte is a blank.
const TASK_WIDTH: usize = 16;

/// Where the first line of a text ends, behind its newline. A newline in the name of a task, of
/// which its owner chooses each byte, ends no line.
fn line_end(text: &[u8]) -> Option<usize> {
    let name = match text.first()? {
        b' ' => TASK_WIDTH,
        // The line belongs to no record.
        _ => 0,
    };
    let newline = text.get(name..)?.iter().position(|&byte| byte == b'\n')?;
    Some(name + newline + 1)
}

/// Divides a text into its whole lines, without their newlines, and the rest.
pub(crate) fn split_lines(text: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some(end) = line_end(rest) {
        lines.push(&rest[..end - 1]);
        rest = &rest[end..];
    }
    (lines, rest)
}

/// A line for people: the name of a task may have control characters.
pub(crate) fn printable(line: &[u8]) -> String {
    String::from_utf8_lossy(line)
        .trim()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

impl Record {
    /// A line of `trace_pipe`: `TASK-PID [CPU] TIME: EVENT: KEY=VALUE…`, the task's name padded on
    /// its left. `None` for other lines, such as notes on lost records.
    pub(crate) fn parse(line: &[u8]) -> Option<Record> {
        let (task, rest) = line.split_at_checked(TASK_WIDTH)?;
        let task = String::from_utf8_lossy(task.strip_prefix(b" ")?);
        let task = task.trim_start_matches(' ');
        let rest = std::str::from_utf8(rest).ok()?.strip_prefix('-')?;
        let (pid, rest) = rest.split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        cpu.parse::<u32>().ok()?;
        let (time, rest) = rest.split_once(": ")?;
        // A column of flags may come before it.
        let time = time.split_ascii_whitespace().last()?;
        let (event, fields) = rest.split_once(':')?;
        Some(Record {
            version: JSON_VERSION,
            time_ns: parse_time(time)?,
            action: event.strip_prefix("ib_xrc_rcv_").unwrap_or(event).into(),
            task_comm: (task != "<...>").then(|| task.into()),
            task_pid: pid.trim_end().parse().ok()?,
            fields: parse_fields(fields),
        })
    }
}

/// Seconds with fractions, in nanoseconds; or a number without a unit.
fn parse_time(time: &str) -> Option<u64> {
    let Some((seconds, fraction)) = time.split_once('.') else {
        return time.parse().ok();
    };
    let seconds = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    seconds.checked_add(format!("{fraction:0<9}").parse().ok()?)
}

/// The name in JSON of a tracepoint's field.
fn json_key(field: &str) -> &str {
    match field {
        "device" => "ifname",
        "index" => "ifindex",
        "qpn" => "lqpn",
        field => field,
    }
}

/// `KEY=VALUE` words; one without a key belongs to the value before it, as a program's name may
/// have spaces. Decimal and hexadecimal values become numbers, all others stay as they are.
fn parse_fields(text: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut last: Option<String> = None;
    for word in text.split_ascii_whitespace() {
        match (word.split_once('='), &last) {
            (Some((key, value)), _) => {
                let number = match value.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => value.parse(),
                };
                let value = match number {
                    // A user in the kernel has no process; and a QP without a label has 0.
                    Ok(0) if matches!(key, "pid" | "label") => Value::Null,
                    // A string, as that of `show`.
                    Ok(_) if key == "label" => Value::from(value),
                    // As that of `show`.
                    Ok(mask) if key == "mask" => Value::from(type_names(mask)),
                    // A hash in hexadecimal digits.
                    Ok(_) if key == "file" => Value::from(value),
                    Ok(number) => Value::from(number),
                    Err(_) => Value::from(value),
                };
                fields.insert(json_key(key).into(), value);
                last = Some(json_key(key).into());
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

    /// The record of a task, as the kernel prints it.
    fn record(task: &str, rest: &str) -> Record {
        Record::parse(format!("{task:>16}-{rest}").as_bytes()).unwrap()
    }

    #[test]
    fn lines_are_parsed() {
        let event = record(
            "<idle>",
            "0       [001]  1234.567890: event: device=rxe_left qpn=0x11 type=QP_ACCESS_ERR \
             registrations=3 comm=my prog",
        );
        assert_eq!(event.time_ns, 1_234_567_890_000);
        assert_eq!(
            (&*event.action, event.task_comm.as_deref(), event.task_pid),
            ("event", Some("<idle>"), 0)
        );
        assert_eq!(event.fields["ifname"], "rxe_left");
        assert_eq!(event.fields["lqpn"], 17);
        assert_eq!(event.fields["registrations"], 3);
        assert_eq!(event.fields["comm"], "my prog");
        let label = |label| {
            let alloc = format!("1 [000] 1.000001: alloc: qpn=0x11 label={label} registrations=1");
            record("a", &alloc).fields["label"].clone()
        };
        assert_eq!(label("0xfedcba9876543210"), "0xfedcba9876543210");
        assert_eq!(label("0x0"), Value::Null);
        let reg = "1 [000] 1.000001: reg: qpn=0x11 file=00000000abc00000 mask=0x8000000000000010";
        let reg = record("a", reg);
        assert_eq!(
            reg.fields["mask"],
            serde_json::json!(["COMM_EST", "QP_GONE"])
        );
        assert_eq!(reg.fields["file"], "00000000abc00000");
        let flags = record("app", "7 [001] ..... 2.000003: ib_xrc_rcv_reg: device=a");
        assert_eq!((flags.time_ns, &*flags.action), (2_000_003_000, "reg"));
        let counted = record("app", "7 [001] 4711: ib_xrc_rcv_reg: device=a");
        assert_eq!(counted.time_ns, 4711);
        let unknown = record("<...>", "12 [000] 1.000001: unreg: device=a pid=0");
        assert_eq!((unknown.task_comm, unknown.task_pid), (None, 12));
        assert_eq!(unknown.fields["pid"], Value::Null);
    }

    #[test]
    fn a_name_forges_no_record() {
        for name in [
            "my-app-2",
            "a-1 [0] 1: reg:",
            "y [z",
            "\n",
            "a\n b-1 [0] 1: r",
            "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n",
            "fifteen bytes \n",
        ] {
            let line = format!("{name:>16}-4711    [000]     1.000001: ib_xrc_rcv_reg: device=a");
            let text = format!("{line}\nCPU:1 [LOST 12 EVENTS]\n{line}\n{line}");
            let (lines, rest) = split_lines(text.as_bytes());
            assert_eq!(
                lines,
                [line.as_bytes(), b"CPU:1 [LOST 12 EVENTS]", line.as_bytes()]
            );
            assert_eq!(rest, line.as_bytes());
            for incomplete in 0..line.len() {
                let text = &line.as_bytes()[..incomplete];
                assert_eq!(split_lines(text), (vec![], text));
            }
            let record = Record::parse(line.as_bytes()).unwrap();
            assert_eq!(record.task_comm.as_deref(), Some(name));
            assert_eq!((record.task_pid, &*record.action), (4711, "reg"));
            assert_eq!(record.time_ns, 1_000_001_000);
            assert!(!printable(line.as_bytes()).contains('\n'));
        }
    }

    #[test]
    fn a_name_that_is_no_utf_8_is_replaced() {
        let mut line =
            b"              \xe4\xf6-1 [000] 1.000001: ib_xrc_rcv_reg: device=a".to_vec();
        let record = Record::parse(&line).unwrap();
        assert_eq!(record.task_comm.as_deref(), Some("\u{fffd}\u{fffd}"));
        line[0] = b'x';
        assert_eq!(Record::parse(&line), None);
    }

    #[test]
    fn many_cpus_have_smaller_buffers() {
        assert_eq!(
            [1, 4, 16, 64, 512].map(buffer_kb),
            [16384, 16384, 4096, 1024, 1024]
        );
    }

    #[test]
    fn instances_of_the_dead_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let (instances, proc) = (root.path().join("instances"), root.path().join("proc"));
        for directory in ["xrc-rcv-12", "xrc-rcv-13", "other-14"] {
            fs::create_dir_all(instances.join(directory)).unwrap();
        }
        fs::create_dir_all(proc.join("13")).unwrap();
        remove_stale(&instances, &proc);
        let mut left: Vec<_> = fs::read_dir(&instances)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["other-14", "xrc-rcv-13"]);
    }

    #[test]
    fn other_lines_are_none() {
        assert_eq!(Record::parse(b"CPU:1 [LOST 12 EVENTS]"), None);
        assert_eq!(Record::parse(b""), None);
    }
}
