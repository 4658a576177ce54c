// SPDX-License-Identifier: GPL-2.0

//! The tests of the checker, and which faults each of them reaches.

use anyhow::{Context, Result, bail};
use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// The parts of the tests, in the order in which a fault meets them: pairs take most time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    Unit,
    One,
    Cases,
    Three,
    Two,
}

impl Stage {
    pub const ALL: [Self; 5] = [Self::Unit, Self::One, Self::Cases, Self::Three, Self::Two];

    pub fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::One => "one",
            Self::Cases => "cases",
            Self::Two => "two",
            Self::Three => "three",
        }
    }

    /// Whether it takes most time.
    pub fn is_last(self) -> bool {
        self == Self::Two
    }

    fn of(test: &str) -> Self {
        match test {
            "scenarios::one_thread" => Self::One,
            _ if test.starts_with("scenarios::pairs_of_threads") => Self::Two,
            _ if test.starts_with("scenarios::triples_of_threads") => Self::Three,
            _ if test.starts_with("cases::") => Self::Cases,
            _ => Self::Unit,
        }
    }
}

/// A run of the program: a test, or all unit tests.
pub struct Test {
    pub name: String,
    pub stage: Stage,
    /// The time that it takes without a fault.
    duration: Duration,
    /// The number of times that it asks for faults, by powers of two.
    steps: u64,
    reached: HashSet<usize>,
}

/// The result of a test.
pub enum Outcome {
    Passed,
    Failed(String),
    Aborted(String),
    /// It has made too many steps, or has taken too long.
    Endless(&'static str),
}

/// The number of steps that each test may make, however few it makes without a fault.
const STEPS: u64 = 1 << 22;

/// How much more than without a fault a test may take, in steps; and in time, for loops that do not
/// ask for a fault: shuttle ends an execution after a million of its own steps.
const FACTOR: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with the tests.
pub struct Program {
    pub path: PathBuf,
    /// The number of executions of each scenario.
    pub executions: u32,
    /// The directory for files of a run.
    pub directory: PathBuf,
}

/// A run that is not over.
struct Started<'a> {
    program: &'a Program,
    output: PathBuf,
    command: Command,
}

impl Program {
    /// Runs all tests without a fault. They have to pass.
    pub fn tests(&self) -> Result<Vec<Test>> {
        let mut names: Vec<_> = self
            .listed()?
            .into_iter()
            .filter(|name| Stage::of(name) != Stage::Unit)
            .collect();
        let mut tests = Vec::new();

        names.push("unit".into());
        for name in names {
            let reached = self.directory.join("reached");
            let mut started = self.start(&name, "0");
            let begin = Instant::now();

            started.command.env("CHECKER_FAULTS_REACHED", &reached);
            if let Outcome::Failed(how) | Outcome::Aborted(how) = started.run(Duration::MAX)? {
                bail!("{name} fails without a fault: {how}");
            }

            let (steps, reached) = read_reached(&reached)?;

            tests.push(Test {
                stage: Stage::of(&name),
                name,
                duration: begin.elapsed(),
                steps,
                reached,
            });
        }
        tests.sort_by_key(|test| (test.stage, test.duration));
        Ok(tests)
    }

    fn listed(&self) -> Result<Vec<String>> {
        let output = Command::new(&self.path)
            .args(["--list", "--format", "terse"])
            .output()?;
        let text = String::from_utf8(output.stdout)?;

        Ok(text
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(Into::into)
            .collect())
    }

    fn start(&self, test: &str, id: &str) -> Started<'_> {
        let mut command = Command::new(&self.path);

        if Stage::of(test) == Stage::Unit {
            command.args(["--skip", "scenarios::", "--skip", "cases::"]);
        } else {
            command.args(["--exact", test]);
        }
        command
            .args(["--test-threads", "1"])
            .env("RUST_BACKTRACE", "0")
            .env("CHECKER_EXECUTIONS", self.executions.to_string());
        Started {
            program: self,
            output: self.directory.join(format!("output-{id}")),
            command,
        }
    }

    /// Runs a test with a fault; runs at the same time have other `worker`s.
    pub fn run(&self, test: &Test, fault: usize, worker: usize) -> Result<Outcome> {
        let mut started = self.start(&test.name, &worker.to_string());
        let steps = STEPS.max(test.steps * u64::from(FACTOR));

        started.command.env("CHECKER_FAULT", fault.to_string());
        started
            .command
            .env("CHECKER_FAULT_STEPS", steps.to_string());
        started.run(PATIENCE + test.duration * FACTOR)
    }
}

impl Test {
    /// Whether a fault is where the test comes.
    pub fn reaches(&self, fault: usize) -> bool {
        self.reached.contains(&fault)
    }

    pub fn duration(&self) -> Duration {
        self.duration
    }
}

fn read_reached(path: &Path) -> Result<(u64, HashSet<usize>)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut steps = 0;
    let mut reached = HashSet::new();

    for line in text.lines() {
        match line.strip_prefix("steps ") {
            Some(number) => steps = number.parse()?,
            None => {
                reached.insert(line.parse()?);
            }
        }
    }
    let _ = fs::remove_file(path);
    Ok((steps, reached))
}

impl Started<'_> {
    /// Waits for the end of the run, as long as is given.
    fn run(mut self, patience: Duration) -> Result<Outcome> {
        let output = File::create(&self.output)?;
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| self.program.path.display().to_string())?;
        let begin = Instant::now();

        while begin.elapsed() < patience {
            if let Some(status) = child.try_wait()? {
                return self.outcome(status);
            }
            sleep(Duration::from_millis(3));
        }
        child.kill()?;
        child.wait()?;
        Ok(Outcome::Endless("time"))
    }

    fn outcome(&self, status: ExitStatus) -> Result<Outcome> {
        if status.success() {
            return Ok(Outcome::Passed);
        }

        let text = String::from_utf8_lossy(&fs::read(&self.output)?).into_owned();
        let mut lines = text
            .lines()
            .skip_while(|line| !line.contains("panicked at"))
            .skip(1);
        let how: String = lines.next().unwrap_or_default().chars().take(80).collect();

        Ok(match (status.code(), status.signal()) {
            (Some(97), _) => Outcome::Endless("steps"),
            (Some(101), _) => Outcome::Failed(how),
            (_, Some(signal)) => Outcome::Aborted(format!("signal {signal}: {how}")),
            (status, _) => bail!("a test ends with {status:?}: {text}"),
        })
    }
}
