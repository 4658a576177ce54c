// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The command line, from which completions and manual pages are made, too.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Show XRC receive queue pairs that the kernel owns, and who holds them
///
/// A receive QP is the receiving end of an XRC connection. It belongs to no process: processes
/// register with it, and it goes away when nobody needs it. See xrc_rcv(7).
#[derive(Parser)]
#[command(name = "xrc-rcv", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show devices, domains, receive QPs, and who is registered with them
    ///
    /// Everything is seen by root, through the module's directory in debugfs. Any user sees which
    /// devices have receive QPs, and with --domain the QPs of a domain whose file they may open.
    Show(Show),
    /// Show what happens to receive QPs, as it happens
    ///
    /// Follows the tracepoints of the module in a trace instance of its own, so that it is no
    /// registration and neither keeps a QP alive nor takes an event from anybody. Needs root, or
    /// access to tracefs.
    Watch(Watch),
    /// Measure what receive QPs cost beside mainline's target QPs, on a device of this machine
    ///
    /// Does the same things with both, in turns: creates QPs, joins and leaves them, tells up to
    /// 1024 readers of an error, tears 10,000 down. Nothing is sent. A ratio below 1 means that
    /// receive QPs take less. Memory is measured for root only.
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of this command to a directory
    #[command(hide = true)]
    Man {
        /// Where to write them
        directory: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Show {
    /// Show only this device
    #[arg(short, long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Show the domain of this file, as its members see it
    ///
    /// The domain is held open meanwhile, which destroys nothing, but may make this the last close.
    #[arg(short = 'f', long, value_name = "FILE", requires = "device")]
    pub(crate) domain: Option<PathBuf>,
    /// Show a tree
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) tree: bool,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Watch {
    /// Show only this device
    #[arg(short, long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Print one JSON object a line
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Stop after so many lines
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}

#[derive(Args)]
pub(crate) struct Bench {
    /// Measure this device, instead of the first one with an active port
    #[arg(short, long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Write the results to a file, too, as JSON with the ratio of every round
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Do everything so many times less
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) divisor: usize,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
