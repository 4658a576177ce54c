// SPDX-License-Identifier: GPL-2.0

//! Builds the checker with all faults, without those with which it does not compile.
//!
//! The compiler names the place of an error. That is in the text that was inserted for a fault, or
//! in a part that a fault surrounds: it is left out, and the rest is compiled again.

use crate::mutated::{CHECKER, Mutated, Placed, in_tree};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The number of times that the compiler may find others.
const ROUNDS: usize = 100;

/// A place in a file of the tree.
struct Span {
    file: String,
    place: Range<usize>,
    is_primary: bool,
}

/// The messages of cargo.
struct Messages {
    succeeded: bool,
    errors: Vec<Value>,
    executable: Option<PathBuf>,
}

/// Builds the tests of the checker. Returns the program.
pub fn build(mutated: &mut Mutated) -> Result<PathBuf> {
    for _ in 0..ROUNDS {
        let placed = mutated.write()?;
        let messages = cargo(mutated.root(), &["check", "--tests"])?;

        if messages.succeeded {
            let built = cargo(mutated.root(), &["test", "--no-run"])?;

            return built.executable.context("cargo has built no test");
        }

        let guilty: BTreeSet<_> = messages
            .errors
            .iter()
            .flat_map(|error| blamed(error, &placed))
            .collect();

        if guilty.is_empty() {
            let texts: Vec<_> = messages
                .errors
                .iter()
                .filter_map(|error| error["rendered"].as_str())
                .collect();

            bail!("no fault is to blame for\n{}", texts.join("\n"));
        }
        eprintln!("# {} faults do not compile", guilty.len());
        mutated.leave_out(guilty);
    }
    bail!("the compiler finds others again and again")
}

fn cargo(root: &Path, command: &[&str]) -> Result<Messages> {
    let output = Command::new("cargo")
        .current_dir(root.join(CHECKER))
        .args(command)
        .args([
            "--release",
            "--locked",
            "--package",
            "checker",
            "--lib",
            "--all-features",
            "--message-format",
            "json",
        ])
        // As a kernel checks them, and as the tests are built.
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("RUSTFLAGS", "-Awarnings")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    let mut messages = Messages {
        succeeded: output.status.success(),
        errors: Vec::new(),
        executable: None,
    };

    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };

        match message["reason"].as_str() {
            Some("compiler-message") if message["message"]["level"] == "error" => {
                messages.errors.push(message["message"].clone());
            }
            Some("compiler-artifact") if message["target"]["name"] == "checker" => {
                messages.executable = message["executable"]
                    .as_str()
                    .map(PathBuf::from)
                    .or(messages.executable);
            }
            _ => (),
        }
    }
    Ok(messages)
}

/// Returns the faults that an error is of, of which there is mostly one.
fn blamed(error: &Value, placed: &HashMap<String, Placed>) -> Vec<usize> {
    let mut spans = Vec::new();

    collect(error, &mut spans);
    spans.sort_by_key(|span| !span.is_primary);

    let inserted = spans
        .iter()
        .find_map(|span| inserted_at(placed.get(&span.file)?, &span.place));
    let around = || {
        spans
            .iter()
            .find_map(|span| around(placed.get(&span.file)?, &span.place))
    };

    let before = || {
        spans
            .iter()
            .find_map(|span| before(placed.get(&span.file)?, &span.place))
    };

    inserted
        .or_else(around)
        .or_else(before)
        .into_iter()
        .collect()
}

/// Returns the fault for which the text at a place was inserted.
fn inserted_at(placed: &Placed, at: &Range<usize>) -> Option<usize> {
    let mut inserted = placed.inserted.iter();

    inserted
        .find(|(_, place)| place.start <= at.start && at.end <= place.end)
        .map(|(number, _)| *number)
}

/// Returns the innermost fault that surrounds a place.
fn around(placed: &Placed, at: &Range<usize>) -> Option<usize> {
    let hulls = placed.hulls.iter();

    hulls
        .filter(|(_, hull)| hull.start <= at.start && at.end <= hull.end)
        .min_by_key(|(number, hull)| (hull.len(), **number))
        .map(|(number, _)| *number)
}

/// Returns the last fault before a place, such as a borrow that it does not end.
fn before(placed: &Placed, at: &Range<usize>) -> Option<usize> {
    let before = placed
        .inserted
        .iter()
        .filter(|(_, place)| place.end <= at.start);

    before
        .max_by_key(|(_, place)| place.end)
        .map(|(number, _)| *number)
}

/// Collects the places that an error names, also where macros are expanded.
fn collect(error: &Value, spans: &mut Vec<Span>) {
    for span in error["spans"].as_array().into_iter().flatten() {
        let mut span = span;

        while let Some(file) = span["file_name"].as_str() {
            let number = |name: &str| span[name].as_u64().unwrap_or(0) as usize;

            let place = number("byte_start")..number("byte_end");
            let (file, place) = in_tree(Path::new(file), place);

            spans.push(Span {
                file: file.display().to_string(),
                place,
                is_primary: span["is_primary"] == true,
            });
            span = &span["expansion"]["span"];
        }
    }
    for child in error["children"].as_array().into_iter().flatten() {
        collect(child, spans);
    }
}
