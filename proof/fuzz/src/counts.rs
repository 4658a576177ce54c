// SPDX-License-Identifier: GPL-2.0

//! Counts of calls and programs, by which a run is judged and reported.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::program::Name;

/// The counts of a run, in memory that its processes share.
#[repr(C)]
pub struct Counts {
    /// Calls of the module: all ioctls, also of its channels, and read(2) and poll(2) of these.
    pub calls: AtomicU64,
    /// Those that succeeded.
    pub succeeded: AtomicU64,
    /// The same by call.
    pub by_call: [CallCount; Name::ALL.len()],
    /// Calls of the programs that were done by one process, in turns and as a race.
    pub by_manner: [AtomicU64; 3],
    /// Steps that were begun by the one process.
    pub steps: AtomicU64,
    pub programs: AtomicU64,
    /// Steps whose results were compared with the specification.
    pub compared: AtomicU64,
    pub kills: AtomicU64,
    pub removals: AtomicU64,
}

/// The counts of a call.
#[repr(C)]
pub struct CallCount {
    pub calls: AtomicU64,
    pub succeeded: AtomicU64,
}

/// Returns the counts so far, as a line.
pub fn summary(counts: &[&Counts]) -> String {
    let sum = |of: &dyn Fn(&Counts) -> u64| counts.iter().map(|counts| of(counts)).sum::<u64>();
    let manner = |which: usize| sum(&|counts| counts.by_manner[which].load(SeqCst));
    format!(
        "{} programs, {} calls ({} succeeded; {} by one process, {} in turns, {} in races), {} steps compared, \
         {} kills, {} removals of the device",
        sum(&|counts| counts.programs.load(SeqCst)),
        sum(&|counts| counts.calls.load(SeqCst)),
        sum(&|counts| counts.succeeded.load(SeqCst)),
        manner(0),
        manner(1),
        manner(2),
        sum(&|counts| counts.compared.load(SeqCst)),
        sum(&|counts| counts.kills.load(SeqCst)),
        sum(&|counts| counts.removals.load(SeqCst)),
    )
}

/// After so many calls, each method that is chosen at all has succeeded.
const PLENTY: u64 = 20_000;

/// Fails if the run reached nothing: it has found nothing then.
pub fn reached(counts: &[&Counts]) -> Result<(), String> {
    let sum = |of: &dyn Fn(&Counts) -> u64| counts.iter().map(|counts| of(counts)).sum::<u64>();
    let calls = sum(&|counts| counts.calls.load(SeqCst));
    if calls == 0 {
        return Err("nothing was called".into());
    }
    if calls < PLENTY {
        return Ok(());
    }
    if sum(&|counts| counts.compared.load(SeqCst)) == 0 {
        return Err("no result was compared".into());
    }
    let is_ioctl = |name: &&Name| name.attributes() > 0 || name.is_of_channel();
    for name in Name::ALL.iter().filter(is_ioctl) {
        if sum(&|counts| counts.by_call[*name as usize].succeeded.load(SeqCst)) == 0 {
            return Err(format!("{} never succeeded", name.text()));
        }
    }
    Ok(())
}

/// Prints how often each call was made.
pub fn print_calls(counts: &[&Counts]) {
    for name in Name::ALL {
        let sum = |of: &dyn Fn(&CallCount) -> u64| {
            let of_calls = counts
                .iter()
                .map(|counts| of(&counts.by_call[*name as usize]));
            of_calls.sum::<u64>()
        };
        let calls = sum(&|count| count.calls.load(SeqCst));
        let succeeded = sum(&|count| count.succeeded.load(SeqCst));
        if calls > 0 {
            println!("# {}: {calls} calls, {succeeded} succeeded", name.text());
        }
    }
}
