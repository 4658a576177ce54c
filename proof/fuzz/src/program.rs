// SPDX-License-Identifier: GPL-2.0

//! Programs: sequences of calls by several processes, in memory and as text.
//!
//! A step is a line: the process, the call, its arguments, what is spoiled, and the result:
//!
//! ```text
//! 0 alloc qp=0 domain=0 flags=1 attr=1 channel=3 -> 0
//! 1 reg qp=0 channel=3 events=0x80 ! len 2 5 -> EINVAL
//! ```
//!
//! An argument that is left out is an attribute that is left out.

use std::fmt::{self, Write};

#[cfg(feature = "guided")]
use serde::{Deserialize, Serialize};

/// Processes of a program.
pub const WORKERS: usize = 3;
/// The most steps of a program.
pub const STEPS: usize = 960;
/// Arguments of a call.
pub const ARGS: usize = 8;
/// Channels of a process, and QPs of all, that steps name by a small number. Other values are
/// passed as they are.
pub const SLOTS: usize = 8;
/// Domains: of two files, and one without. A channel is of the one that follows from its number,
/// see [`domain_of`].
pub const DOMAINS: usize = 3;

/// The domain of a process's channel.
pub fn domain_of(channel: usize) -> usize {
    channel % DOMAINS
}

/// Addresses that nothing can be written to, or read from, see `worker.rs`.
pub const POINTERS: u64 = 7;

/// What an argument is, which decides what values it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Qp,
    Domain,
    Channel,
    Flags,
    Attr,
    Events,
    Number,
    Size,
    Worker,
}

macro_rules! calls {
    ($($call:ident $name:literal $attrs:literal $weight:literal ($($arg:literal $kind:ident),*);)*) => {
        /// What a step does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "guided", derive(Serialize, Deserialize))]
        pub enum Call { $($call),* }

        // Replaying needs some of it.
        #[cfg_attr(not(feature = "guided"), allow(dead_code))]
        impl Call {
            /// All of them.
            pub const ALL: &[Call] = &[$(Call::$call),*];

            /// Its name in text.
            pub fn name(self) -> &'static str {
                match self { $(Call::$call => $name),* }
            }

            /// Its arguments.
            pub fn args(self) -> &'static [(&'static str, Kind)] {
                match self { $(Call::$call => &[$(($arg, Kind::$kind)),*]),* }
            }

            /// How many attributes its ioctl has at most; 0 if it is none.
            pub fn attributes(self) -> u64 {
                match self { $(Call::$call => $attrs),* }
            }

            /// How often it is chosen.
            pub fn weight(self) -> usize {
                match self { $(Call::$call => $weight),* }
            }
        }
    };
}

// A new channel is seldom: its end, as that of a file, takes as long as many calls.
calls! {
    Alloc "alloc" 8 60 ("qp" Qp, "domain" Domain, "flags" Flags, "attr" Attr,
        "channel" Channel, "cookie" Number, "events" Events, "label" Number);
    Reg "reg" 5 80 ("qp" Qp, "channel" Channel, "cookie" Number, "events" Events, "again" Number);
    Unreg "unreg" 3 80 ("qp" Qp, "channel" Channel, "again" Number);
    Modify "modify" 3 100 ("qp" Qp, "domain" Domain, "attr" Attr);
    Query "query" 4 40 ("qp" Qp, "domain" Domain, "attr" Size, "info" Size);
    Destroy "destroy" 3 30 ("qp" Qp, "domain" Domain, "flags" Flags);
    List "list" 6 40 ("domain" Domain, "after" Qp, "room" Size, "size" Size);
    Caps "caps" 1 10 ("room" Size);
    Channel "channel" 3 16 ("channel" Channel, "size" Size);
    Read "read" 0 60 ("channel" Channel, "room" Size, "pointer" Number);
    Poll "poll" 0 20 ("channel" Channel);
    CloseChannel "close-channel" 0 4 ("channel" Channel);
    TakeChannel "take-channel" 0 4 ("channel" Channel, "worker" Worker);
    TakeFile "take-file" 0 2 ("worker" Worker);
    CloseDomain "close-domain" 0 8 ("domain" Domain);
    CloseFile "close-file" 0 2 ();
    Kill "kill" 0 1 ("worker" Worker);
    Remove "remove-device" 0 0 ();
    End "end" 0 0 ();
}

/// What is wrong with an ioctl, after it was put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "guided", derive(Serialize, Deserialize))]
pub struct Spoil {
    pub how: How,
    pub at: u64,
    pub value: u64,
}

macro_rules! hows {
    ($($how:ident $name:literal;)*) => {
        /// The member of attribute `at` that is set to a value, or what else is done to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "guided", derive(Serialize, Deserialize))]
        pub enum How { $($how),* }

        impl How {
            /// All of them.
            pub const ALL: &[How] = &[$(How::$how),*];

            fn name(self) -> &'static str {
                match self { $(How::$how => $name),* }
            }
        }
    };
}

hows! {
    Length "len";
    Data "data";
    Pointer "pointer";
    Id "id";
    Flags "flags";
    Reserved "reserved";
    Drop "drop";
    Twice "twice";
    Method "method";
    Object "object";
    Count "count";
    Size "size";
    Driver "driver";
    Attr "attr-byte";
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "guided", derive(Serialize, Deserialize))]
pub struct Step {
    pub worker: u8,
    pub call: Call,
    pub args: [Option<u64>; ARGS],
    pub spoil: Option<Spoil>,
}

impl Step {
    /// The last step of a process: it closes all its files.
    pub fn end(worker: usize) -> Step {
        Step {
            worker: worker as u8,
            call: Call::End,
            args: [None; ARGS],
            spoil: None,
        }
    }
}

/// What is run at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "guided", derive(Serialize, Deserialize))]
pub struct Program {
    /// Each process does its own steps at its own speed; else one is done after the other.
    pub race: bool,
    pub steps: Vec<Step>,
}

/// With the results of their steps that were recorded.
pub type Programs = Vec<(Program, Vec<Option<i32>>)>;

const ERRNOS: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::EIO, "EIO"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::ENODEV, "ENODEV"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
];

/// A result in text: of a call 0 or an errno, of poll(2) its events.
pub fn result_name(result: i32) -> String {
    let known = ERRNOS.iter().find(|(errno, _)| *errno == -result);
    known.map_or_else(|| result.to_string(), |(_, name)| name.to_string())
}

fn result_of(name: &str) -> Option<i32> {
    let known = ERRNOS.iter().find(|(_, text)| *text == name);
    known.map_or_else(|| name.parse().ok(), |(errno, _)| Some(-errno))
}

fn number(value: u64) -> String {
    if value < 1024 {
        value.to_string()
    } else {
        format!("{value:#x}")
    }
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.worker, self.call.name())?;
        for ((name, _), arg) in self.call.args().iter().zip(self.args) {
            if let Some(value) = arg {
                write!(f, " {name}={}", number(value))?;
            }
        }
        if let Some(spoil) = self.spoil {
            write!(
                f,
                " ! {} {} {}",
                spoil.how.name(),
                number(spoil.at),
                number(spoil.value)
            )?;
        }
        Ok(())
    }
}

impl Step {
    fn parse(text: &str) -> Option<Step> {
        let (call_text, spoil_text) = match text.split_once(" ! ") {
            Some((call, spoil)) => (call, Some(spoil)),
            None => (text, None),
        };
        let mut words = call_text.split_whitespace();
        let worker = words
            .next()?
            .parse()
            .ok()
            .filter(|worker| usize::from(*worker) < WORKERS)?;
        let name = words.next()?;
        let call = *Call::ALL.iter().find(|call| call.name() == name)?;
        let mut args = [None; ARGS];
        for word in words {
            let (name, value) = word.split_once('=')?;
            let index = call.args().iter().position(|(arg, _)| *arg == name)?;
            args[index] = Some(parse_number(value)?);
        }
        let spoil = match spoil_text {
            Some(text) => {
                let words: Vec<_> = text.split_whitespace().collect();
                let [name, at, value] = words[..] else {
                    return None;
                };
                let how = *How::ALL.iter().find(|how| how.name() == name)?;
                Some(Spoil {
                    how,
                    at: parse_number(at)?,
                    value: parse_number(value)?,
                })
            }
            None => None,
        };
        Some(Step {
            worker,
            call,
            args,
            spoil,
        })
    }
}

impl Program {
    /// As text, with the results of its steps where there are any.
    pub fn to_text(&self, results: Option<&[i32]>) -> String {
        let mut text = String::new();
        if self.race {
            text.push_str("race\n");
        }
        for (i, step) in self.steps.iter().enumerate() {
            write!(text, "{step}").expect("a String can be written to");
            if let Some(results) = results.filter(|_| step.call.has_fixed_result()) {
                write!(text, " -> {}", result_name(results[i]))
                    .expect("a String can be written to");
            }
            text.push('\n');
        }
        text
    }

    /// The programs of a text, an empty line between two, with their results.
    pub fn parse_all(text: &str) -> Result<Programs, String> {
        let mut programs = vec![];
        let mut program = Program::default();
        let mut results = vec![];
        for (i, line) in text.lines().chain([""]).enumerate() {
            let wrong = || format!("line {}: {line}", i + 1);
            let line = line.trim();
            if line.starts_with('#') {
                continue;
            }
            if line.is_empty() {
                if !program.steps.is_empty() {
                    programs.push((std::mem::take(&mut program), std::mem::take(&mut results)));
                }
                continue;
            }
            if line == "race" {
                program.race = true;
                continue;
            }
            let (step, result) = match line.split_once(" -> ") {
                Some((step, result)) => (step, Some(result_of(result).ok_or_else(wrong)?)),
                None => (line, None),
            };
            program.steps.push(Step::parse(step).ok_or_else(wrong)?);
            results.push(result);
        }
        if programs
            .iter()
            .any(|(program, _)| program.steps.len() > STEPS)
        {
            return Err(format!("a program has more than {STEPS} steps"));
        }
        Ok(programs)
    }
}

impl Call {
    /// Whether its result is the same each time: those of read(2) and poll(2) depend on when events
    /// are delivered.
    pub fn has_fixed_result(self) -> bool {
        !matches!(self, Call::Read | Call::Poll)
    }

    /// Whether QPs may end with it, of the calls at an index of which one of `often` counts: with
    /// files and domains all do.
    pub fn may_end_qps(self, index: usize, often: usize) -> bool {
        match self {
            Call::CloseChannel
            | Call::TakeChannel
            | Call::CloseDomain
            | Call::CloseFile
            | Call::TakeFile
            | Call::Kill
            | Call::End => true,
            Call::Unreg | Call::Destroy => index % often == 0,
            _ => false,
        }
    }
}

impl Spoil {
    /// Whether the call may be that of another method or have other answers.
    pub fn makes_another(self) -> bool {
        matches!(self.how, How::Method | How::Object | How::Driver)
    }
}
