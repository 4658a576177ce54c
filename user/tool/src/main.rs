// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv`: shows XRC receive queue pairs that the kernel owns, their registrations, and their
//! cost, and keeps their domains open.

mod bench;
mod cgroup;
mod check;
mod cli;
mod debugfs;
mod hold;
mod metrics;
mod schema;
mod service;
mod show;
mod snapshot;
mod stdout;
mod sysfs;
mod trace;
mod watch;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};

/// The exit status if no device has receive QPs.
const NO_RECEIVE_QPS: u8 = 3;

fn run() -> anyhow::Result<ExitCode> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Wrong usage, or help and version.
        Err(message) => {
            let printed = message.print();
            if !message.use_stderr() {
                drop(stdout::open()?);
                printed?;
            }
            return Ok(ExitCode::from(u8::try_from(message.exit_code())?));
        }
    };
    match cli.command {
        Command::Show(args) => {
            if !show::run(&args, &mut stdout::open()?, stdout::width())? {
                return Ok(ExitCode::from(NO_RECEIVE_QPS));
            }
        }
        Command::Hold(args) => {
            if !hold::run(&args, &mut io::stdout().lock())? {
                return Ok(ExitCode::from(NO_RECEIVE_QPS));
            }
        }
        Command::Watch(args) => watch::run(&args, &mut stdout::open()?)?,
        Command::Bench(args) => bench::run(&args, &mut stdout::open()?, stdout::width())?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "xrc-rcv", &mut script);
            // clap_complete 4.6 sets the state of a program with a hyphen by one name, and looks
            // for another in the script for bash, which then completes nothing but the first word
            // (clap's issue 6421).
            let script = String::from_utf8(script)?.replace("xrc__subcmd__rcv", "xrc__rcv");
            stdout::open()?.write_all(script.as_bytes())?;
        }
        Command::Schema => stdout::open()?.write_all(schema::schema()?.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        // The reader of the output has seen enough.
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xrc-rcv: {error:#}");
            ExitCode::FAILURE
        }
    }
}
