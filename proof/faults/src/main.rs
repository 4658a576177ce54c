// SPDX-License-Identifier: GPL-2.0

//! Faults in the module's source, all in one build of the checker, which runs with one at a time.

mod report;

mod campaign;

mod compile;
mod known;
mod suite;

mod mutated;

mod find;

mod fault;

mod edit;

use crate::{
    campaign::{Campaign, Results},
    known::Known,
    mutated::Mutated,
    report::Report,
    suite::Program,
};
use anyhow::Result;
use clap::{Args, Parser};
use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Puts all faults into a copy of the tree, and prints or tries them.
#[derive(Parser)]
enum Command {
    /// Prints the faults with their numbers.
    List {
        /// The tree, or what the checker needs of it.
        tree: PathBuf,
        /// The place of the copy.
        copy: PathBuf,
    },
    /// Builds the checker with the faults, and runs its tests with each.
    Run(Run),
}

#[derive(Args)]
struct Run {
    /// The tree, or what the checker needs of it.
    tree: PathBuf,
    /// The place of the copy.
    copy: PathBuf,
    /// The directory of the results.
    results: PathBuf,
    /// The list of faults that survive, with the reasons.
    #[arg(long)]
    known: Option<PathBuf>,
    /// Faults at the same time.
    #[arg(long, short, default_value_t = 1)]
    jobs: usize,
    /// Executions of each scenario.
    #[arg(long, default_value_t = 4)]
    executions: u32,
    /// Not all faults, but so many.
    #[arg(long, default_value_t = usize::MAX)]
    sample: usize,
    /// The faults of these files only.
    #[arg(long)]
    only: Vec<String>,
    /// Prints KTAP, with the survivors that are not known; without it, all survivors.
    #[arg(long)]
    ktap: bool,
}

fn main() -> Result<ExitCode> {
    match Command::parse() {
        Command::List { tree, copy } => list(&tree, &copy),
        Command::Run(run) => try_all(&run),
    }
}

fn list(tree: &Path, copy: &Path) -> Result<ExitCode> {
    let mutated = Mutated::new(tree, copy)?;

    mutated.write()?;
    for (number, fault) in mutated.faults() {
        println!("{number}\t{}:{}\t{}", fault.file, fault.line, fault.name());
    }
    Ok(ExitCode::SUCCESS)
}

fn try_all(run: &Run) -> Result<ExitCode> {
    let mut mutated = Mutated::new(&run.tree, &run.copy)?;
    let path = build(&mut mutated, &run.results)?;
    let directory = run.results.join(key(&mutated, TESTED, run.executions)?);

    fs::create_dir_all(&directory)?;
    write_list(&mutated, &directory)?;

    let program = Program {
        path,
        executions: run.executions,
        directory: directory.clone(),
    };
    let tests = program.tests()?;

    for test in &tests {
        eprintln!("# {} takes {} ms", test.name, test.duration().as_millis());
    }

    let campaign = Campaign {
        mutated: &mutated,
        program: &program,
        tests: &tests,
        jobs: run.jobs,
        sample: run.sample,
        only: &run.only,
    };
    let results = Results::open(&directory.join("results"))?;

    campaign.run(&results)?;

    let report = Report::new(&mutated, &results.verdicts(), &campaign.numbers());
    let known = run.known.as_deref().map(Known::read).transpose()?;

    let is_ok = match (&known, run.ktap) {
        (Some(known), true) => report.print_ktap(known),
        _ => {
            report.print_survivors();
            true
        }
    };

    report.print_table();

    Ok(if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds the program, without the faults that did not compile the last time.
fn build(mutated: &mut Mutated, results: &Path) -> Result<PathBuf> {
    mutated.write()?;

    let left_out = results.join(format!("left-out-{}", key(mutated, &["src"], 0)?));
    let known = fs::read_to_string(&left_out).unwrap_or_default();

    mutated.leave_out(known.lines().filter_map(|line| line.parse().ok()));

    let path = compile::build(mutated)?;
    let numbers = mutated
        .left_out_numbers()
        .map(|number| format!("{number}\n"));

    fs::create_dir_all(results)?;
    fs::write(left_out, numbers.collect::<String>())?;
    Ok(path)
}

/// Writes the list of the faults, in place of one of before.
fn write_list(mutated: &Mutated, directory: &Path) -> Result<()> {
    let lines = mutated.faults().map(|(number, fault)| {
        format!(
            "{number}\t{}:{}\t{}\n",
            fault.file,
            fault.line,
            fault.name()
        )
    });

    fs::write(directory.join("faults.tsv"), lines.collect::<String>())?;
    Ok(())
}

/// The parts of the tree on which the results depend.
const TESTED: &[&str] = &["src", "spec", mutated::CHECKER, "Cargo.lock"];

/// Returns a name for parts of the copy, and the number of executions.
fn key(mutated: &Mutated, parts: &[&str], executions: u32) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    let mut paths: Vec<_> = parts.iter().map(|part| mutated.root().join(part)).collect();

    executions.hash(&mut hasher);
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let mut entries = Vec::new();

            for entry in fs::read_dir(&path)? {
                entries.push(entry?.path());
            }
            entries.sort();
            paths.extend(entries);
        } else {
            path.display().to_string().hash(&mut hasher);
            fs::read(&path)?.hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}
