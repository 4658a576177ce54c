// SPDX-License-Identifier: GPL-2.0

//! More calls, by programs that are changed without regard to what they reach. Each CPU has a
//! process with a device of its own, which does all steps of most programs itself.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use libafl_bolts::rands::StdRand;

use crate::choose;
use crate::counts::{Counts, print_calls, reached, summary};
use crate::device;
use crate::dice::Dice;
use crate::director::{Director, LIMIT};
use crate::limits::Limits;
use crate::program::{Call, Program};
use crate::shared::Shared;

/// The most steps of a program: the files that it opens and closes take as long as a hundred calls.
const MOST: usize = 960;
/// The number of changes of a program, at most, before it is run.
const CHANGES: usize = 48;
/// Of so many programs one is done by other processes as a race, and one in turns.
const OTHERS: usize = 12;
const REPORT: Duration = Duration::from_secs(30);

/// A program: a new one, or one of the parents with changes.
fn choose_program(rand: &mut StdRand, parents: &[Program]) -> Program {
    let mut program = if parents.is_empty() || rand.one_in(4) {
        choose::program(rand, MOST)
    } else {
        let mut program = parents[rand.roll(parents.len())].clone();
        for _ in 0..=rand.roll(CHANGES) {
            let other = &parents[rand.roll(parents.len())];
            choose::change(rand, &mut program, Some(other));
        }
        program
    };
    let manner = rand.roll(OTHERS);
    program.race = manner == 0;
    choose::finish(rand, &mut program, MOST);
    if manner > 1 {
        program
            .steps
            .retain(|step| !matches!(step.call, Call::Kill { .. }));
    }
    program
}

/// Runs programs until there is a finding.
fn run_programs(
    shared: &'static Shared,
    parents: &[Program],
    seed: u64,
    enough: &dyn Fn() -> bool,
) -> Result<(), String> {
    let mut rand = StdRand::with_seed(seed);
    let mut director = Director::new(shared);
    director.do_alone();
    while !enough() {
        let program = choose_program(&mut rand, parents);
        director
            .run(&program)
            .map_err(|what| program.found(&what))?;
    }
    Ok(())
}

/// The process of a CPU.
struct Player {
    pid: i32,
    shared: &'static Shared,
    /// How far it was, and when it got there.
    progress: (u64, Instant),
}

impl Player {
    fn new(number: u8, parents: &[Program], seed: u64, enough: &dyn Fn(&Counts) -> bool) -> Player {
        let shared = Shared::new();
        // SAFETY: This process has one thread.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            // SAFETY: No pointers are passed.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            device::set_number(number);
            let result = run_programs(shared, parents, seed, &|| enough(&shared.counts));
            if let Err(what) = &result {
                let lines = what.lines().map(|line| format!("# {line}\n"));
                print!("{}", lines.collect::<String>());
            }
            std::process::exit(result.is_err().into());
        }
        Player {
            pid,
            shared,
            progress: (0, Instant::now()),
        }
    }

    /// Its status, if it has ended.
    fn ended(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: The place for the status is valid.
        let ended = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) };
        (ended == self.pid).then_some(status)
    }

    /// Whether it has done nothing for so long that it never will.
    fn is_stuck(&mut self) -> bool {
        let steps = self.shared.counts.steps.load(SeqCst);
        if self.progress.0 != steps {
            self.progress = (steps, Instant::now());
        }
        self.progress.1.elapsed() > LIMIT * 2
    }
}

/// Ends at a limit, or with a finding.
pub fn run(path: &str, limits: &Limits) -> Result<(), String> {
    let parents: Vec<Program> = Program::read_all(path)?
        .into_iter()
        .map(|(program, _)| program)
        .collect();
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let begin = Instant::now();
    let share = limits.calls.div_ceil(cpus as u64);
    let enough =
        |counts: &Counts| begin.elapsed() >= limits.time || counts.calls.load(SeqCst) >= share;
    let mut players: Vec<Player> = (0..cpus)
        .map(|number| {
            let seed = limits
                .seed
                .wrapping_mul(cpus as u64)
                .wrapping_add(number as u64);
            Player::new(number as u8, &parents, seed, &enough)
        })
        .collect();
    let counts: Vec<&Counts> = players.iter().map(|player| &player.shared.counts).collect();
    let mut running = vec![true; cpus];
    let mut reported = begin;
    let mut result = Ok(());
    while running.contains(&true) && result.is_ok() {
        std::thread::sleep(Duration::from_millis(200));
        for (player, running) in players.iter_mut().zip(&mut running) {
            if !*running {
                continue;
            }
            match player.ended() {
                Some(0) => *running = false,
                Some(status) => result = Err(format!("ended with status {status:#x}")),
                None if player.is_stuck() => {
                    let stack = fs::read_to_string(format!("/proc/{}/stack", player.pid));
                    let program = player.shared.program();
                    let what = format!("it is stuck in this call:\n{}", stack.unwrap_or_default());
                    result = Err(program.found(&what));
                }
                None => (),
            }
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            println!("# {} s: {}", begin.elapsed().as_secs(), summary(&counts));
        }
    }
    println!("# {} s: {}", begin.elapsed().as_secs(), summary(&counts));
    print_calls(&counts);
    result.and_then(|()| reached(&counts))
}
