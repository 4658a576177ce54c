// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The command line, from which completions and manual pages are made, too.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{ArgGroup, Args, Parser, Subcommand};

/// Show XRC receive queue pairs that the kernel owns, and who is registered with them
///
/// A receive QP is the receiving end of an XRC connection. It belongs to no process: processes
/// register with it, and it is destroyed with its last registration or its domain. See xrc_rcv(7).
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
    /// Root sees everything, through the module's directory in debugfs. Any user sees which devices
    /// have receive QPs, with --file the QPs of a domain whose file they may open, and own QPs
    /// where xrc-rcv hold has a socket.
    Show(Show),
    /// Keep a domain open, so that its receive QPs outlive the processes that use them
    ///
    /// Opens the domain of a file, prints a line, reports that it is ready to the service manager,
    /// and waits for a signal. By its socket it keeps descriptors of processes for their
    /// successors as well, and serves show and watch of users. The unit xrc-rcv-hold@.service runs
    /// it. See xrc_rcv(7) about restarts.
    Hold(Hold),
    /// Report changes of receive QPs as they happen
    ///
    /// Follows the tracepoints of the module in a trace instance of its own. It is no registration:
    /// it neither keeps a QP alive nor takes an event from a process. Needs root, or access to
    /// tracefs; a user sees own QPs where xrc-rcv hold has a socket.
    Watch(Watch),
    /// Measure receive QPs beside mainline's target QPs, on a device of this machine
    ///
    /// Does the same with both, in turns: creates QPs, joins and leaves them, waits for an error
    /// with up to 1024 readers, destroys 10,000 QPs. No message is sent, but the device is busy:
    /// name it. A ratio below 1 means that receive QPs take less. Memory is measured for root only.
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the JSON Schema of the output, for the installation
    #[command(hide = true)]
    Schema,
}

#[derive(Args)]
pub(crate) struct Show {
    /// Show only this device
    #[arg(short, long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Show the domain of this file, as the processes that share it see it
    ///
    /// The domain is open while it is shown. If its last member closes it meanwhile, its QPs are
    /// destroyed when this command ends.
    #[arg(short, long, value_name = "FILE", requires = "device", conflicts_with_all = ["domain", "pid"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Show only QPs in this state
    #[arg(short, long, value_name = "STATE", ignore_case = true,
          value_parser = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"])]
    pub(crate) state: Option<String>,
    /// Show a tree
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) tree: bool,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Print OpenMetrics, with the descriptors that xrc-rcv hold keeps
    #[arg(short, long, conflicts_with_all = ["json", "tree"])]
    pub(crate) metrics: bool,
    /// Ask the xrc-rcv hold that listens at this path; without, users who may not read debugfs ask
    /// those of the units
    #[arg(long, value_name = "PATH", conflicts_with = "file")]
    pub(crate) socket: Option<PathBuf>,
}

/// The options that select QPs.
#[derive(Args, Default)]
pub(crate) struct Filter {
    /// Show only the domain with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) domain: Option<u64>,
    /// Show only the QP with this number, decimal or 0x…
    #[arg(short, long, value_name = "QPN", value_parser = qpn)]
    pub(crate) qpn: Option<u32>,
    /// Show only the registrations of this process
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.domain.is_none() && self.qpn.is_none() && self.pid.is_none()
    }
}

/// The number of a QP, as people and tables write it.
fn qpn(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if number < 1 << 24 => Ok(number),
        _ => Err("QP numbers are decimal or 0x…, up to 0xffffff".into()),
    }
}

#[derive(Args)]
pub(crate) struct Hold {
    /// Hold the domain on this device, which may be given several times; without, on all devices
    /// with receive QPs
    #[arg(short, long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<String>,
    /// Create the file if it does not exist, with these permissions, in octal (600 if not given)
    #[arg(short, long, value_name = "MODE", num_args = 0..=1, require_equals = true,
          default_missing_value = "600", value_parser = mode)]
    pub(crate) create: Option<u32>,
    /// Listen at this path, unless the service manager has given a socket
    #[arg(short, long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Keep at most this number of descriptors: for the owner of the file all of them, for the
    /// other users together half, for each of them an eighth
    #[arg(long, value_name = "NUMBER", default_value_t = 64,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(crate) max_descriptors: usize,
    /// The file of the domain
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Permissions of a file in octal.
fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permissions are an octal number up to 777".into()),
    }
}

#[derive(Args)]
pub(crate) struct Watch {
    /// Show only this device: its name in this network namespace, or its number as rdma(8) shows it
    #[arg(short, long, value_name = "NAME|INDEX")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Print one JSON object a line
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Stop after this number of lines
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Ask the xrc-rcv hold that listens at this path; without, users who see no tracefs ask those
    /// of the units
    #[arg(long, value_name = "PATH", conflicts_with = "check")]
    pub(crate) socket: Option<PathBuf>,
    /// Print nothing, but check that each step is one that the specification allows
    ///
    /// Stops with an error at the first one that it does not allow.
    #[arg(long, conflicts_with_all = ["device", "domain", "qpn", "pid", "json", "count"])]
    pub(crate) check: bool,
    /// Check a trace that was copied to a file
    #[arg(long, value_name = "FILE", requires = "check")]
    pub(crate) from: Option<PathBuf>,
}

#[derive(Args)]
#[command(group(ArgGroup::new("which").args(["device", "yes"]).required(true).multiple(true)))]
pub(crate) struct Bench {
    /// Measure this device
    #[arg(short, long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Measure the first device with an active port
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Write the results to a file, too, as JSON with the ratio of every round
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Use N times fewer QPs, calls and readers, for a quick look
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) divisor: usize,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn the_manual_pages_name_every_option() {
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/man/xrc-rcv");
        for command in super::Cli::command().get_subcommands() {
            let name = command.get_name();
            if matches!(name, "completions" | "schema") {
                continue;
            }
            let page = std::fs::read_to_string(format!("{pages}-{name}.1.scd")).unwrap();
            for option in command.get_arguments().filter_map(|arg| arg.get_long()) {
                assert!(page.contains(&format!("--{option}")), "{name}: {option}");
            }
            for section in ["EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"] {
                assert!(page.contains(&format!("# {section}")), "{name}: {section}");
            }
        }
    }

    #[test]
    fn bench_wants_a_device_or_a_yes() {
        let parse = |args: &str| super::Cli::command().try_get_matches_from(args.split(' '));
        let error = parse("xrc-rcv bench").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error.to_string().contains("--device <NAME>|--yes"),
            "{error}"
        );
        assert_eq!(
            parse("xrc-rcv bench -y --divisor 101")
                .unwrap_err()
                .exit_code(),
            2
        );
        assert!(parse("xrc-rcv bench --yes --divisor 100").is_ok());
        assert!(parse("xrc-rcv bench -d mlx4_0").is_ok());
        assert!(parse("xrc-rcv bench -d mlx4_0 --yes").is_ok());
    }

    #[test]
    fn hold_creates_a_file_only_if_asked() {
        let parse = |args: &str| super::Cli::try_parse_from(args.split(' ')).map(|cli| cli.command);
        let create = |args: &str| match parse(args) {
            Ok(super::Command::Hold(hold)) => hold.create,
            _ => panic!("{args}"),
        };
        assert_eq!(create("xrc-rcv hold x"), None);
        assert_eq!(create("xrc-rcv hold --create x"), Some(0o600));
        assert_eq!(create("xrc-rcv hold -d a -d b --create=660 x"), Some(0o660));
        for wrong in [
            "hold",
            "hold --create=1777 x",
            "hold --create=x x",
            "hold x y",
        ] {
            assert!(parse(&format!("xrc-rcv {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_qp_number_has_24_bits() {
        let parse = |qpn: &str| {
            let line = ["xrc-rcv", "show", "-q", qpn];
            match super::Cli::try_parse_from(line).map(|cli| cli.command) {
                Ok(super::Command::Show(show)) => show.filter.qpn,
                _ => None,
            }
        };
        assert_eq!(parse("17"), Some(17));
        assert_eq!(parse("0xffffff"), Some(0xff_ffff));
        for wrong in ["0x1000000", "99999999", "4294967296", "x", "-1", ""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_domain_of_a_file_has_no_number_and_shows_no_processes() {
        let parse = |args: &str| super::Cli::command().try_get_matches_from(args.split(' '));
        assert!(parse("xrc-rcv show -d mlx4_0 -f x -q 1 -s RTR").is_ok());
        for other in ["--domain 1", "--pid 1"] {
            let error = parse(&format!("xrc-rcv show -d mlx4_0 -f x {other}")).unwrap_err();
            assert_eq!(error.exit_code(), 2);
        }
    }
}
