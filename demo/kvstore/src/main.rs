// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A key-value store whose server may be killed at any moment, and whose clients notice a pause.
//!
//! `kvstore server` keeps its table in a memfd. Clients get values by RDMA READ of the table, and
//! put them by SEND, with credits. The connections are receive QPs with the lifetime of the domain
//! of a file. The table, and the open device with the SRQ and the memory region that requests name,
//! are in the descriptor store of the service manager. So while no server runs, GETs are answered,
//! and PUTs wait in the SRQ.
//!
//! The next server adopts the connections, and writes the number of its SRQ and its key into the
//! table, where each client reads them by the key that it knows. When each client has sent a
//! message to the new SRQ, the old device is removed from the store. A client repeats the PUTs that
//! were not answered.
//!
//! Where the device's provider can import, as mlx5's, the key of the table and the SRQ that GETs
//! name are those of the first server for ever: they are in an open device of their own.
//!
//! With `--table-only` the open device is not kept. The clients are asked before a restart to have
//! no request under way, and ask the next server by TCP which SRQ and key it has. Only the domain
//! keeps the connections then, which `xrc-rcv hold` keeps open.
//!
//! `kvstore load` is many clients, which verify what they read. `kvstore supervise` restarts a
//! server, and kills it to show this: of a service manager it has the descriptor store only.

#![forbid(unsafe_code)]

mod hello;
mod keys;
mod load;
mod server;
mod store;
mod supervisor;
mod table;

use std::process::ExitCode;

use clap::Parser;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
enum Command {
    /// Serve the table of the domain of a file
    Server(server::Args),
    /// Put and get values, by many connections, until the standard input ends
    Load(load::Args),
    /// Run a server, keep its descriptors, and restart it whenever it ends
    Supervise(supervisor::Args),
}

/// Nanoseconds of the clock that all processes of the machine have.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Server(args) => server::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Supervise(args) => supervisor::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvstore: {error}");
            ExitCode::FAILURE
        }
    }
}
