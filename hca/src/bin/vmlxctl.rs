// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Asks a running vmlx: on the host through its control socket, in the guest through the
//! virtio-serial port that leads there.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use vmlx::engine::control::{Operation, Request, Response, PORT_NAME};
use vmlx::engine::event::EventType;
use vmlx::engine::fault::Wire;

/// The time that another client of the serial port has to finish, on a busy host as well.
const BUSY: Duration = Duration::from_secs(240);

/// Inspects a modelled adapter and makes it fail.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Control socket, or serial port [default: the virtio-serial port of this guest]
    #[arg(long, env = "VMLX_CONTROL")]
    socket: Option<PathBuf>,

    /// The number of the adapter
    #[arg(long, env = "VMLX_HCA", default_value_t = 0)]
    hca: usize,

    /// Print only this part of the answer, as a JSON pointer; a missing number is 0
    #[arg(long)]
    get: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Counters, objects by kind, QPs by state
    Status,
    /// Every QP
    Qps,
    /// Let counters start from zero
    ResetCounters,
    /// Let commands fail
    Fail {
        /// The driver's name, such as RST2INIT_QP, or a number; "any" for all
        opcode: String,
        /// CMD_STAT_* in snake case, such as bad_param
        status: String,
        /// Number of commands that pass before
        #[arg(long, default_value_t = 0)]
        skip: u64,
        /// Number of commands that fail [default: all]
        #[arg(long)]
        count: Option<u64>,
    },
    /// Let commands take time
    Latency {
        /// Microseconds
        micros: u64,
        /// Only commands of this opcode
        #[arg(long)]
        opcode: Option<String>,
        /// The number that the firmware works on at once [default: all it accepts]
        #[arg(long)]
        parallel: Option<usize>,
    },
    /// Raise an event that nothing caused
    Event {
        /// MLX4_EVENT_TYPE_* in snake case, such as comm_est
        kind: EventType,
        /// The QP, SRQ or CQ it is about, or the port
        #[arg(value_parser = parse_number)]
        number: u32,
        /// The number of times
        #[arg(long, default_value_t = 1)]
        repeat: u32,
    },
    /// Let the device fail until the driver resets it
    Catastrophe {
        /// First dword of the error buffer
        #[arg(value_parser = parse_number, default_value = "0xbad00001")]
        code: u32,
    },
    /// Let the ConnectX-6's health counter stop, or count again
    Health {
        /// The new state
        #[arg(value_parser = ["stops", "counts"])]
        state: String,
    },
    /// Pull or plug a cable
    Port {
        /// From 1
        port: u8,
        /// The new state
        #[arg(value_parser = ["up", "down"])]
        state: String,
    },
    /// Give a port whose cable is out other LIDs, as a subnet manager does before it is active
    Lids {
        /// From 1
        port: u8,
        /// The first LID
        lid: u16,
        /// The number of low bits in which they differ
        #[arg(default_value_t = 0)]
        lmc: u8,
    },
    /// Lose, repeat or delay messages that leave the adapter: each the Nth; 0 is none
    Wire {
        /// Lose every Nth request
        #[arg(long, default_value_t = 0)]
        lose: u64,
        /// Lose every Nth answer
        #[arg(long, default_value_t = 0)]
        lose_answers: u64,
        /// Deliver every Nth request twice
        #[arg(long, default_value_t = 0)]
        repeat: u64,
        /// Deliver every Nth request after the next one
        #[arg(long, default_value_t = 0)]
        delay: u64,
        /// Choose one in N at random, the same ones for the same seed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Pull the device from its slot: all ones on every read
    Remove,
    /// Put it back
    Restore,
    /// Capture the packets that the wire does not lose
    Capture {
        /// File in the model's directory of captures, without .pcap [default: end the capture]
        name: Option<String>,
    },
    /// End failures, latencies and faults of the wire
    Clear,
}

fn parse_number(text: &str) -> Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|error| error.to_string())
}

impl Command {
    fn operation(self) -> Operation {
        match self {
            Self::Status => Operation::Status,
            Self::Qps => Operation::Qps,
            Self::ResetCounters => Operation::ResetCounters,
            Self::Fail {
                opcode,
                status,
                skip,
                count,
            } => Operation::FailCommand {
                opcode: Some(opcode).filter(|opcode| opcode != "any"),
                status,
                skip,
                count,
            },
            Self::Latency {
                micros,
                opcode,
                parallel,
            } => Operation::Latency {
                opcode,
                micros,
                parallel,
            },
            Self::Event {
                kind,
                number,
                repeat,
            } => Operation::Event {
                kind,
                number,
                repeat,
            },
            Self::Catastrophe { code } => Operation::Catastrophe { code },
            Self::Health { state } => Operation::Health {
                counts: state == "counts",
            },
            Self::Port { port, state } => Operation::Port {
                port,
                up: state == "up",
            },
            Self::Lids { port, lid, lmc } => Operation::Lids { port, lid, lmc },
            Self::Wire {
                lose,
                lose_answers,
                repeat,
                delay,
                seed,
            } => Operation::Wire(Wire {
                lose,
                lose_answers,
                repeat,
                delay,
                seed,
            }),
            Self::Remove => Operation::Remove,
            Self::Restore => Operation::Restore,
            Self::Capture { name } => Operation::Capture { name },
            Self::Clear => Operation::Clear,
        }
    }
}

type Error = Box<dyn std::error::Error>;

/// Finds the port that QEMU named for us.
fn find_port() -> Result<PathBuf, Error> {
    let named = Path::new("/dev/virtio-ports").join(PORT_NAME);
    if named.exists() {
        return Ok(named);
    }
    // Without udev there are no names in /dev, but the kernel knows them.
    for entry in std::fs::read_dir("/sys/class/virtio-ports")
        .into_iter()
        .flatten()
    {
        let entry = entry?;
        let name = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT_NAME {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(format!("no virtio-serial port {PORT_NAME} here; name the control socket").into())
}

/// The port takes one client at a time.
fn open_port(path: &Path) -> Result<File, Error> {
    let start = Instant::now();
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && start.elapsed() < BUSY => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result.map_err(|error| format!("{}: {error}", path.display()).into()),
        }
    }
}

fn ask(path: &Path, request: &Request) -> Result<Response, Error> {
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    if std::fs::metadata(path)?.file_type().is_socket() {
        let mut stream = UnixStream::connect(path)?;
        stream.write_all(line.as_bytes())?;
        read_answer(stream, request)
    } else {
        let mut port = open_port(path)?;
        port.write_all(line.as_bytes())?;
        read_answer(port, request)
    }
}

fn read_answer(stream: impl std::io::Read, request: &Request) -> Result<Response, Error> {
    for line in BufReader::new(stream).lines() {
        // A client that exited may have left its answer in the port.
        let response: Response = serde_json::from_str(&line?)?;
        if response.id == request.id || response.error.is_some() && response.id.is_none() {
            return Ok(response);
        }
    }
    Err("no answer".into())
}

fn run(arguments: Arguments) -> Result<String, Error> {
    let path = match arguments.socket {
        Some(path) => path,
        None => find_port()?,
    };
    let request = Request {
        id: Some(u64::from(std::process::id())),
        hca: arguments.hca,
        operation: arguments.command.operation(),
    };
    let response = ask(&path, &request)?;
    if let Some(error) = response.error {
        return Err(error.into());
    }
    let result = response.result.unwrap_or_default();
    Ok(match &arguments.get {
        None => serde_json::to_string_pretty(&result)?,
        Some(pointer) => match result.pointer(pointer) {
            None => "0".into(),
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        },
    })
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("vmlxctl: {error}");
            ExitCode::FAILURE
        }
    }
}
