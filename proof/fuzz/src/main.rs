// SPDX-License-Identifier: GPL-2.0

//! ```text
//! fuzzer replay FILE                             the programs of a file, whose results are those that it has
//! fuzzer repeat FILE TIMES                       the programs of a file, as often
//! fuzzer fuzz FILE SIZE SECONDS CALLS SEED       from the programs of a file on; SIZE is that of the module's code
//! fuzzer keep FILE SIZE SECONDS CALLS SEED       the same, and prints a new such file
//! fuzzer many FILE SECONDS CALLS SEED            the same without regard to coverage, a device for each CPU
//! ```
//!
//! Each runs in the guest, with `rxe_fuzz0` on the network device `fuzz0`, and such a pair for each CPU (see `guest`).

mod device;
mod director;
mod methods;
mod model;
mod program;
mod worker;

#[cfg(feature = "guided")]
mod choose;
#[cfg(feature = "guided")]
mod coverage;
#[cfg(feature = "guided")]
mod guided;
#[cfg(feature = "guided")]
mod many;
#[cfg(feature = "guided")]
mod world;

/// The kernel's interface, as bindgen reads it for the library.
#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    non_camel_case_types,
    unsafe_op_in_unsafe_fn
)]
#[rustfmt::skip]
#[path = "../../../user/xrc-rcv/src/uapi/generated.rs"]
mod generated;

mod uapi {
    pub use crate::generated::*;

    pub const RDMA_VERBS_IOCTL: libc::c_ulong = VERBS_IOCTL as libc::c_ulong;
    pub const UVERBS_ATTR_F_MANDATORY: u16 = ATTR_F_MANDATORY as u16;
}

use std::process::ExitCode;

use director::Director;
use program::{Program, Programs, result_name};
use worker::Shared;

fn read(path: &str) -> Result<Programs, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Program::parse_all(&text).map_err(|error| format!("{path}: {error}"))
}

fn found(program: &Program, what: &str) -> String {
    format!("{what}\n\nby this program:\n\n{}", program.to_text(None))
}

fn replay(path: &str) -> Result<(), String> {
    let programs = read(path)?;
    let mut director = Director::new(Shared::new());
    let mut steps = 0;
    for (program, expected) in &programs {
        let results = director
            .run(program)
            .map_err(|what| found(program, &what))?;
        for (i, (result, expected)) in results.iter().zip(expected).enumerate() {
            if let Some(expected) = expected.filter(|expected| expected != result) {
                let (result, expected) = (result_name(*result), result_name(expected));
                let what = format!("step {}: {result}, not {expected}", i + 1);
                return Err(found(program, &what));
            }
            steps += usize::from(expected.is_some());
        }
    }
    println!("# {} programs, {steps} results as recorded", programs.len());
    Ok(())
}

fn repeat(path: &str, times: &str) -> Result<(), String> {
    let programs = read(path)?;
    let times: u64 = times.parse().map_err(|_| format!("no number: {times}"))?;
    let mut director = Director::new(Shared::new());
    for _ in 0..times {
        for (program, _) in &programs {
            director
                .run(program)
                .map_err(|what| found(program, &what))?;
        }
    }
    Ok(())
}

#[cfg(feature = "guided")]
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("no number: {text}"))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["replay", path] => replay(path),
        ["repeat", path, times] => repeat(path, times),
        #[cfg(feature = "guided")]
        [command @ ("fuzz" | "keep"), path, size, seconds, calls, seed] => {
            guided::run(path, [size, seconds, calls, seed], command == "keep")
        }
        #[cfg(feature = "guided")]
        ["many", path, seconds, calls, seed] => many::run(path, [seconds, calls, seed]),
        _ => Err("usage: fuzzer replay FILE | repeat FILE TIMES | fuzz|keep FILE SIZE SECONDS CALLS SEED | \
                  many FILE SECONDS CALLS SEED"
            .into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            for line in what.lines() {
                println!("# {line}");
            }
            ExitCode::FAILURE
        }
    }
}
