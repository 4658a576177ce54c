// SPDX-License-Identifier: GPL-2.0

//! The numbers of the command line.

use std::time::Duration;

/// When a run ends, and the seed of its choices.
pub struct Limits {
    pub time: Duration,
    pub calls: u64,
    pub seed: u64,
}

impl Limits {
    /// Returns the limits of the command line.
    pub fn parse(seconds: &str, calls: &str, seed: &str) -> Result<Limits, String> {
        Ok(Limits {
            time: Duration::from_secs(number(seconds)?),
            calls: number(calls)?,
            seed: number(seed)?,
        })
    }
}

/// Returns the number that a text stands for.
pub fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("no number: {text}"))
}
