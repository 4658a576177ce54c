// SPDX-License-Identifier: GPL-2.0

//! ```text
//! fuzzer replay FILE                          the programs of a file, and compares their results
//! fuzzer repeat FILE TIMES                    the programs of a file, as often
//! fuzzer fuzz FILE SIZE SECONDS CALLS SEED    changes of programs; SIZE is that of the module
//! fuzzer keep FILE SIZE SECONDS CALLS SEED    the same, and prints a new such file
//! fuzzer many FILE SECONDS CALLS SEED         the same without coverage, a device for each CPU
//! ```
//!
//! Each runs in the guest, with `rxe_fuzz0` on the network device `fuzz0`, and such a pair for each
//! CPU (see `guest`).
mod choose;
mod few;
mod guided;
mod many;

mod director;
mod world;

mod oracle;
mod records;
mod worker;

mod channel_ioctl;
mod device;
mod methods;

mod room;
mod shared;

mod counts;
mod coverage;
mod futex;
mod limits;

mod dice;
mod errno;
mod program;

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
use errno::result_name;
use program::Program;
use shared::Shared;

fn replay(path: &str) -> Result<(), String> {
    let programs = Program::read_all(path)?;
    let mut director = Director::new(Shared::new());
    let mut steps = 0;
    for (program, expected) in &programs {
        let results = director.run(program).map_err(|what| program.found(&what))?;
        for (i, (result, expected)) in results.iter().zip(expected).enumerate() {
            if let Some(expected) = expected.filter(|expected| expected != result) {
                let (result, expected) = (result_name(*result), result_name(expected));
                let what = format!("step {}: {result}, not {expected}", i + 1);
                return Err(program.found(&what));
            }
            steps += usize::from(expected.is_some());
        }
    }
    println!("# {} programs, {steps} results as recorded", programs.len());
    Ok(())
}

fn repeat(path: &str, times: &str) -> Result<(), String> {
    let programs = Program::read_all(path)?;
    let times: u64 = times.parse().map_err(|_| format!("no number: {times}"))?;
    let mut director = Director::new(Shared::new());
    for _ in 0..times {
        for (program, _) in &programs {
            director.run(program).map_err(|what| program.found(&what))?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["replay", path] => replay(path),
        ["repeat", path, times] => repeat(path, times),
        [command @ ("fuzz" | "keep"), path, size, seconds, calls, seed] => {
            let limits = limits::Limits::parse(seconds, calls, seed);
            limits::number(size).and_then(|size| guided::run(path, size, &limits?, command == "keep"))
        }
        ["many", path, seconds, calls, seed] => {
            limits::Limits::parse(seconds, calls, seed).and_then(|limits| many::run(path, &limits))
        }
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
