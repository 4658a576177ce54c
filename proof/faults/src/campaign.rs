// SPDX-License-Identifier: GPL-2.0

//! Runs the tests with one fault after the other, and keeps the results.
//!
//! They are in a file, a line each: after an interruption, a run continues with the rest. The
//! order of the faults mixes the files: the first ones are a sample.

use crate::{
    mutated::Mutated,
    suite::{Outcome, Program, Stage, Test},
};
use anyhow::{Context, Result, anyhow};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::scope,
};

/// The result of a fault.
#[derive(Clone)]
pub enum Verdict {
    Caught {
        stage: Stage,
        test: String,
        how: String,
    },
    Survived,
    /// No test comes where it is.
    Unreached,
    /// The tests that take most time have not run; the others pass.
    Pending,
}

impl Verdict {
    fn line(&self) -> String {
        match self {
            Self::Caught { stage, test, how } => format!("{}\t{test}\t{how}", stage.name()),
            Self::Survived => "survived".into(),
            Self::Unreached => "unreached".into(),
            Self::Pending => "pending".into(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let word = fields.next()?;
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == word);

        match (stage, word) {
            (Some(stage), _) => Some(Self::Caught {
                stage,
                test: fields.next()?.into(),
                how: fields.next()?.into(),
            }),
            (None, "survived") => Some(Self::Survived),
            (None, "unreached") => Some(Self::Unreached),
            (None, "pending") => Some(Self::Pending),
            _ => None,
        }
    }
}

/// The results, by the numbers of faults.
pub struct Results {
    verdicts: Mutex<BTreeMap<usize, Verdict>>,
    file: Mutex<File>,
}

impl Results {
    /// Reads the results of earlier runs.
    pub fn open(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let verdict = |line: &str| {
            let (number, rest) = line.split_once('\t')?;

            Some((number.parse().ok()?, Verdict::parse(rest)?))
        };
        let file = OpenOptions::new().create(true).append(true).open(path);

        Ok(Self {
            verdicts: Mutex::new(text.lines().filter_map(verdict).collect()),
            file: Mutex::new(file.with_context(|| path.display().to_string())?),
        })
    }

    /// Whether a fault waits for the tests that take most time, or for all; `None` if for none.
    fn is_pending(&self, number: usize) -> Option<bool> {
        match lock(&self.verdicts).get(&number) {
            None => Some(false),
            Some(Verdict::Pending) => Some(true),
            Some(_) => None,
        }
    }

    fn add(&self, number: usize, verdict: Verdict) -> Result<()> {
        writeln!(lock(&self.file), "{number}\t{}", verdict.line())?;
        lock(&self.verdicts).insert(number, verdict);
        Ok(())
    }

    /// Returns all of them.
    pub fn verdicts(&self) -> BTreeMap<usize, Verdict> {
        lock(&self.verdicts).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Which faults are tried, and how.
pub struct Campaign<'a> {
    pub mutated: &'a Mutated,
    pub program: &'a Program,
    pub tests: &'a [Test],
    /// The number of faults that are tried at the same time.
    pub jobs: usize,
    /// The number of faults that are tried.
    pub sample: usize,
    /// The files whose faults are tried, or all.
    pub only: &'a [String],
}

impl Campaign<'_> {
    /// Returns the numbers of the faults that are tried.
    pub fn numbers(&self) -> Vec<usize> {
        let is_wanted = |file: &str| {
            self.only.is_empty() || self.only.iter().any(|only| file.ends_with(only.as_str()))
        };
        let faults = self
            .mutated
            .faults()
            .filter(|(_, fault)| is_wanted(&fault.file));
        let mut numbers: Vec<_> = faults.map(|(number, _)| number).collect();

        // Multiplication by an odd number is a permutation.
        numbers.sort_by_key(|number| (*number as u32).wrapping_mul(0x9e37_79b1));
        numbers.truncate(self.sample);
        numbers
    }

    /// Tries each that has no result: first all without the tests that take most time.
    pub fn run(&self, results: &Results) -> Result<()> {
        self.pass(results, false)?;
        self.pass(results, true)
    }

    fn pass(&self, results: &Results, is_last: bool) -> Result<()> {
        let numbers = self.numbers();
        let next = AtomicUsize::new(0);
        let work = |worker| -> Result<()> {
            while let Some(number) = numbers.get(next.fetch_add(1, Relaxed)) {
                if results.is_pending(*number) == Some(is_last) {
                    results.add(*number, self.attempt(*number, is_last, worker)?)?;
                }
            }
            Ok(())
        };

        scope(|scope| {
            let workers: Vec<_> = (0..self.jobs)
                .map(|worker| scope.spawn(move || work(worker)))
                .collect();

            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a worker has panicked")))
            })
        })
    }

    fn attempt(&self, number: usize, is_last: bool, worker: usize) -> Result<Verdict> {
        let tests: Vec<_> = self
            .tests
            .iter()
            .filter(|test| test.reaches(number))
            .collect();

        if tests.is_empty() {
            return Ok(Verdict::Unreached);
        }
        for test in tests.iter().filter(|test| test.stage.is_last() == is_last) {
            let how = match self.program.run(test, number, worker)? {
                Outcome::Passed => continue,
                Outcome::Failed(how) | Outcome::Aborted(how) => how,
                Outcome::Endless(what) => format!("no end: {what}"),
            };

            return Ok(Verdict::Caught {
                stage: test.stage,
                test: test.name.clone(),
                how,
            });
        }
        Ok(if is_last {
            Verdict::Survived
        } else {
            Verdict::Pending
        })
    }
}
