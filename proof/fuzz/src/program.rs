// SPDX-License-Identifier: GPL-2.0

//! Programs: sequences of calls by several processes, in memory and as text.
//!
//! A step is a line: the process, the call, its arguments, how it is spoiled, and the result:
//!
//! ```text
//! 0 alloc qp=0 domain=0 flags=1 attr=1 channel=3 -> 0
//! 1 reg qp=0 channel=3 info=144 ! len 2 5 -> EINVAL
//! 1 unreg qp=0 channel=3 ! len 1 6 ! pointer 2 0 -> EINVAL
//! ```
//!
//! An argument that is left out is an attribute that is left out.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

use crate::errno::{result_name, result_of};

/// The number of processes of a program.
pub const PROCESSES: usize = 3;
/// The largest number of steps of a program.
pub const STEPS: usize = 960;
/// The number of channels of a process, and of QPs of all processes, that steps name by a small
/// number. Other values are passed to the kernel as they are.
pub const SLOTS: usize = 8;
/// The number of domains: those of two files, and one without a file, [`PRIVATE`].
pub const DOMAINS: usize = 3;
/// The domain without a file, which each process has for itself.
pub const PRIVATE: u64 = 2;
/// Kinds of events; see <rdma/ib_xrc_rcv.h>.
pub const EVENTS: u64 = (1 << 63) | (1 << 61) | 0x100fe;
/// The number of addresses that cannot be written to, or read from, see `Room::hostile()`.
pub const POINTERS: u64 = 7;

/// Returns the domain of a process's channel, which follows from the number of the channel.
pub fn domain_of(channel: usize) -> usize {
    channel % DOMAINS
}

/// The kind of an argument, by which values are chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number of a QP, the same for all processes.
    Qp,
    /// The number of a domain.
    Domain,
    /// The number of a channel of the process.
    Channel,
    Flags,
    /// The number of a [`Transition`].
    Transition,
    /// An event mask.
    Events,
    Number,
    /// The length of a place for output, or of a record.
    Size,
    /// The number of a process.
    Process,
}

/// The value of an argument. `None`: it is left out.
pub type Arg = Option<u64>;

/// An argument of a call in a list of all.
pub struct Argument<T> {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it may be left out.
    pub optional: bool,
    pub value: T,
}

macro_rules! optional {
    () => {
        false
    };
    (optional) => {
        true
    };
}

macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $call:ident $text:literal $attributes:literal $weight:literal {
            $($arg:ident: $kind:ident $($optional:ident)?),* $(,)?
        }
    )*) => {
        /// A call with its arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Call { $($(#[$doc])* $call { $($arg: Arg),* }),* }

        /// The name of a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name { $($call),* }

        impl Name {
            /// All names.
            pub const ALL: &[Name] = &[$(Name::$call),*];

            /// Returns the name in text.
            pub fn text(self) -> &'static str {
                match self { $(Name::$call => $text),* }
            }

            /// Returns the largest number of attributes of the ioctl of uverbs; 0 if the call is
            /// none.
            pub fn attributes(self) -> u64 {
                match self { $(Name::$call => $attributes),* }
            }

            /// Whether it is an ioctl of a channel.
            pub fn is_of_channel(self) -> bool {
                matches!(self, Name::IoctlReg | Name::IoctlUnreg)
            }

            /// Returns how often the call is chosen, in relation to the others.
            pub fn weight(self) -> usize {
                match self { $(Name::$call => $weight),* }
            }

            /// Returns the call without arguments.
            pub fn without_arguments(self) -> Call {
                match self { $(Name::$call => Call::$call { $($arg: None),* }),* }
            }
        }

        impl Call {
            /// Returns the name.
            pub fn name(&self) -> Name {
                match self { $(Call::$call { .. } => Name::$call),* }
            }

            /// Returns the arguments.
            pub fn arguments(&self) -> Vec<Argument<Arg>> {
                match *self {
                    $(Call::$call { $($arg),* } => vec![$(Argument {
                        name: stringify!($arg),
                        kind: Kind::$kind,
                        optional: optional!($($optional)?),
                        value: $arg,
                    }),*]),*
                }
            }

            /// Returns the arguments, to be changed.
            pub fn arguments_mut(&mut self) -> Vec<Argument<&mut Arg>> {
                match self {
                    $(Call::$call { $($arg),* } => vec![$(Argument {
                        name: stringify!($arg),
                        kind: Kind::$kind,
                        optional: optional!($($optional)?),
                        value: $arg,
                    }),*]),*
                }
            }
        }
    };
}

// A new channel is seldom: its end, as that of a file, takes as long as many calls.
calls! {
    Alloc "alloc" 7 60 {
        qp: Qp,
        domain: Domain,
        flags: Flags optional,
        attr: Transition optional,
        channel: Channel optional,
        label: Number optional,
    }
    /// `again`: how often the QP number is repeated; `info`: the length of the place for elements
    /// of `size` bytes.
    Reg "reg" 5 80 {
        qp: Qp,
        channel: Channel,
        again: Number optional,
        info: Size optional,
        size: Size optional,
    }
    Unreg "unreg" 3 80 { qp: Qp, channel: Channel, again: Number optional }
    Modify "modify" 3 100 { qp: Qp, domain: Domain, attr: Transition }
    Query "query" 4 40 { qp: Qp, domain: Domain, attr: Size optional, info: Size optional }
    Destroy "destroy" 3 30 { qp: Qp, domain: Domain, flags: Flags optional }
    List "list" 6 40 {
        domain: Domain,
        after: Qp optional,
        room: Size optional,
        size: Size optional,
    }
    Caps "caps" 1 10 { room: Size }
    /// The process replaces its channel by a new one.
    Channel "channel" 5 16 {
        channel: Channel,
        size: Size optional,
        events: Events optional,
        flags: Flags optional,
    }
    /// REG and UNREG as ioctls of the channel. `size`: that of the struct, in the request; `info`:
    /// that of the elements there is a place for; `pointer`: which address is bad, and how.
    IoctlReg "ioctl-reg" 0 40 {
        qp: Qp,
        channel: Channel,
        again: Number optional,
        info: Size optional,
        size: Size optional,
        flags: Flags optional,
        pointer: Number optional,
    }
    IoctlUnreg "ioctl-unreg" 0 40 {
        qp: Qp,
        channel: Channel,
        again: Number optional,
        info: Size optional,
        size: Size optional,
        flags: Flags optional,
        pointer: Number optional,
    }
    /// `pointer`: where a bad address is read to.
    Read "read" 0 60 { channel: Channel, room: Size, pointer: Number optional }
    Poll "poll" 0 20 { channel: Channel }
    CloseChannel "close-channel" 0 4 { channel: Channel }
    /// The process uses the channel of another process, too, in place of its own.
    TakeChannel "take-channel" 0 4 { channel: Channel, worker: Process }
    /// The process uses the file of another process, too, in place of its own.
    TakeFile "take-file" 0 2 { worker: Process }
    CloseDomain "close-domain" 0 8 { domain: Domain }
    CloseFile "close-file" 0 2 {}
    Kill "kill" 0 1 { worker: Process }
    Remove "remove-device" 0 0 {}
    /// The last step of a process, which closes all its files.
    End "end" 0 0 {}
}

impl Call {
    fn argument(&self, kind: Kind) -> Arg {
        let arguments = self.arguments();
        arguments
            .iter()
            .find(|argument| argument.kind == kind)
            .and_then(|argument| argument.value)
    }

    /// Returns the QP that it names, if it does.
    pub fn qp(&self) -> Arg {
        self.argument(Kind::Qp)
    }

    /// Returns the domain that it names, if it does.
    pub fn domain(&self) -> Arg {
        self.argument(Kind::Domain)
    }

    /// Returns the channel that it names, if it does.
    pub fn channel(&self) -> Arg {
        self.argument(Kind::Channel)
    }

    /// Whether it is an ioctl of uverbs.
    pub fn is_method(&self) -> bool {
        self.name().attributes() != 0
    }

    /// Whether it is an ioctl of a channel.
    pub fn is_of_channel(&self) -> bool {
        self.name().is_of_channel()
    }

    /// Whether the result is the same each time: those of read(2) and poll(2) depend on when events
    /// are delivered.
    pub fn has_fixed_result(&self) -> bool {
        !matches!(self, Call::Read { .. } | Call::Poll { .. })
    }

    /// Whether it ends objects with all that belongs to them.
    pub fn closes(&self) -> bool {
        matches!(
            self,
            Call::CloseChannel { .. }
                | Call::TakeChannel { .. }
                | Call::CloseDomain { .. }
                | Call::CloseFile {}
                | Call::TakeFile { .. }
                | Call::Kill { .. }
                | Call::End {}
        )
    }
}

/// Returns the process that an argument names.
pub fn process_of(arg: Arg) -> usize {
    arg.unwrap_or(0) as usize % PROCESSES
}

/// Returns the number of an object that the program names, unless it is passed as it is.
pub fn slot_of(arg: Arg) -> Option<usize> {
    arg.filter(|value| *value < SLOTS as u64)
        .map(|value| value as usize)
}

/// The largest number of QP numbers in an array.
pub const NUMBERS: usize = 64;

/// Returns how often an array has a QP number: once, or `again` more times, modulo a few.
pub fn array_len(again: Arg) -> usize {
    1 + again.unwrap_or(0) as usize % NUMBERS
}

/// The attributes of a QP that ALLOC and MODIFY have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    ToReset,
    ToInit,
    ToRtr,
    ToError,
    /// From RESET by way of INIT.
    ToInitAndRtr,
    ToRts,
    ToSqd,
    /// All attributes there are, at once.
    All,
}

impl Transition {
    /// All, by their numbers in programs.
    pub const ALL: [Transition; 8] = [
        Transition::ToReset,
        Transition::ToInit,
        Transition::ToRtr,
        Transition::ToError,
        Transition::ToInitAndRtr,
        Transition::ToRts,
        Transition::ToSqd,
        Transition::All,
    ];

    /// Returns that of an argument.
    pub fn of(value: u64) -> Transition {
        let known = usize::try_from(value).ok();
        *known
            .and_then(|number| Transition::ALL.get(number))
            .unwrap_or(&Transition::All)
    }

    /// Returns the argument for it.
    pub fn arg(self) -> Arg {
        Some(self as u64)
    }
}

/// A fault in an ioctl, which is otherwise correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spoil {
    pub how: How,
    /// The attribute, in the order of the ioctl.
    pub at: u64,
    pub value: u64,
}

impl Spoil {
    /// Whether the call may be that of another method or have other answers.
    fn makes_another(self) -> bool {
        matches!(self.how, How::Method | How::Object | How::Driver)
    }
}

/// The largest number of faults of an ioctl: what one of them does not show, a second one may.
pub const FAULTS: usize = 2;

/// The faults of an ioctl, in the order in which they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spoils([Option<Spoil>; FAULTS]);

impl Spoils {
    /// Returns these faults, of which those beyond the largest number are left out.
    pub fn new(faults: impl IntoIterator<Item = Spoil>) -> Spoils {
        let mut spoils = Spoils::default();
        for (place, fault) in spoils.0.iter_mut().zip(faults) {
            *place = Some(fault);
        }
        spoils
    }

    /// Returns the faults.
    pub fn iter(&self) -> impl Iterator<Item = Spoil> {
        self.0.iter().flatten().copied()
    }

    /// Whether the ioctl is correct.
    pub fn is_empty(&self) -> bool {
        self.0 == [None; FAULTS]
    }

    /// Whether the call may be that of another method or have other answers.
    pub fn make_another(&self) -> bool {
        self.iter().any(Spoil::makes_another)
    }
}

macro_rules! hows {
    ($($how:ident $name:literal;)*) => {
        /// The member of an attribute, or of the header, that is set to a value, or what else is
        /// done to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// The process that makes the call.
    pub process: u8,
    pub call: Call,
    pub spoils: Spoils,
}

impl Step {
    /// Returns the last step of a process.
    pub fn end(process: usize) -> Step {
        Step {
            process: process as u8,
            call: Call::End {},
            spoils: Spoils::default(),
        }
    }

    /// Returns the number of the process.
    pub fn process(&self) -> usize {
        self.process.into()
    }
}

/// A program: all its steps are run by the same processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Each process does its own steps at its own speed; else one step is done after the other.
    pub race: bool,
    pub steps: Vec<Step>,
}

/// Programs with the results of their steps that were recorded.
pub type Programs = Vec<(Program, Vec<Option<i32>>)>;

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
        write!(f, "{} {}", self.process, self.call.name().text())?;
        for Argument { name, value, .. } in self.call.arguments() {
            if let Some(value) = value {
                write!(f, " {name}={}", number(value))?;
            }
        }
        for Spoil { how, at, value } in self.spoils.iter() {
            write!(f, " ! {} {} {}", how.name(), number(at), number(value))?;
        }
        Ok(())
    }
}

impl Step {
    fn parse(text: &str) -> Option<Step> {
        let mut parts = text.split(" ! ");
        let mut words = parts.next()?.split_whitespace();
        let process = words.next()?.parse().ok();
        let name = words.next()?;
        let name = Name::ALL.iter().find(|known| known.text() == name)?;
        let mut call = name.without_arguments();
        for word in words {
            let (name, value) = word.split_once('=')?;
            let mut arguments = call.arguments_mut();
            let argument = arguments.iter_mut().find(|known| known.name == name)?;
            *argument.value = Some(parse_number(value)?);
        }
        let spoils = parts.map(Spoil::parse).collect::<Option<Vec<_>>>()?;
        if spoils.len() > FAULTS {
            return None;
        }
        Some(Step {
            process: process.filter(|process| usize::from(*process) < PROCESSES)?,
            call,
            spoils: Spoils::new(spoils),
        })
    }
}

impl Spoil {
    fn parse(text: &str) -> Option<Spoil> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [name, at, value] = words[..] else {
            return None;
        };
        Some(Spoil {
            how: *How::ALL.iter().find(|how| how.name() == name)?,
            at: parse_number(at)?,
            value: parse_number(value)?,
        })
    }
}

impl Program {
    /// Returns the programs of a file.
    pub fn read_all(path: &str) -> Result<Programs, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Program::parse_all(&text).map_err(|error| format!("{path}: {error}"))
    }

    /// Returns the text of a finding.
    pub fn found(&self, what: &str) -> String {
        format!("{what}\n\nby this program:\n\n{}", self.to_text(None))
    }

    /// Returns the text, with the results of the steps where they are given.
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

    /// Returns the programs of a text, an empty line between two, with their results.
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
