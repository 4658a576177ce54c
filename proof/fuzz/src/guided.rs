// SPDX-License-Identifier: GPL-2.0

//! Programs that LibAFL chooses: those that reach something new become the parents of others.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use libafl::corpus::{Corpus, InMemoryCorpus};
use libafl::events::SimpleEventManager;
use libafl::executors::{Executor, ExitKind, HasObservers};
use libafl::feedbacks::{CrashFeedback, MapFeedbackMetadata, MaxMapFeedback};
use libafl::inputs::Input;
use libafl::monitors::NopMonitor;
use libafl::mutators::{MutationResult, Mutator};
use libafl::observers::{CanTrack, HitcountsMapObserver, StdMapObserver};
use libafl::schedulers::{IndexesLenTimeMinimizerScheduler, QueueScheduler};
use libafl::stages::StdMutationalStage;
use libafl::state::{HasCorpus, HasExecutions, HasRand, StdState};
use libafl::{Error, Evaluator, Fuzzer, HasNamedMetadata, StdFuzzer};
use libafl_bolts::rands::{Rand, StdRand};
use libafl_bolts::tuples::{RefIndexable, tuple_list};
use libafl_bolts::{HasLen, Named};

use crate::choose::{self, Dice};
use crate::director::Director;
use crate::program::{Call, Program};
use crate::worker::{Counts, NONE, Shared};
use crate::{coverage, found, number, read};

/// The most steps of a program: what each of them reaches is to be known.
const MOST: usize = 240;
/// Of programs that nothing is known of, before the first is changed.
const STRANGERS: usize = 32;
/// How often a change of a program is followed by another one.
const CHANGES: usize = 12;
const REPORT: Duration = Duration::from_secs(30);

impl Input for Program {}

impl HasLen for Program {
    fn len(&self) -> usize {
        self.steps.len()
    }
}

impl<R: Rand> Dice for R {
    fn roll(&mut self, sides: usize) -> usize {
        NonZeroUsize::new(sides).map_or(0, |sides| self.below(sides))
    }
}

/// Changes a program, with steps of others.
struct Change;

impl Named for Change {
    fn name(&self) -> &Cow<'static, str> {
        &Cow::Borrowed("change")
    }
}

impl<S> Mutator<Program, S> for Change
where
    S: HasCorpus<Program> + HasRand,
{
    fn mutate(&mut self, state: &mut S, program: &mut Program) -> Result<MutationResult, Error> {
        let count = state.corpus().count();
        let other = match state.rand_mut().roll(count + 1) {
            0 => None,
            nth => {
                let id = state.corpus().nth(nth - 1);
                state.corpus().get(id)?.borrow().input().clone()
            }
        };
        for _ in 0..=state.rand_mut().roll(CHANGES) {
            choose::change(state.rand_mut(), program, other.as_ref());
        }
        choose::finish(state.rand_mut(), program, MOST);
        Ok(MutationResult::Mutated)
    }
}

/// Runs programs in the workers, while the plugin counts.
struct InWorkers<OT> {
    director: Director,
    observers: OT,
    finding: Option<String>,
}

impl<EM, OT, S: HasExecutions, Z> Executor<EM, Program, S, Z> for InWorkers<OT> {
    fn run_target(
        &mut self,
        _: &mut Z,
        state: &mut S,
        _: &mut EM,
        program: &Program,
    ) -> Result<ExitKind, Error> {
        *state.executions_mut() += 1;
        match self.director.run(program) {
            Ok(_) => Ok(ExitKind::Ok),
            Err(what) => {
                self.finding = Some(found(program, &what));
                Ok(ExitKind::Crash)
            }
        }
    }
}

impl<OT> HasObservers for InWorkers<OT> {
    type Observers = OT;

    fn observers(&self) -> RefIndexable<&OT, OT> {
        RefIndexable::from(&self.observers)
    }

    fn observers_mut(&mut self) -> RefIndexable<&mut OT, OT> {
        RefIndexable::from(&mut self.observers)
    }
}

/// Begins with the programs of a file; ends at a limit, or with a finding. With `keep` it prints a new such file.
pub fn run(path: &str, numbers: [&str; 4], keep: bool) -> Result<(), String> {
    let [size, seconds, calls, seed] = numbers;
    let (seconds, calls) = (Duration::from_secs(number(seconds)?), number(calls)?);
    let parents = read(path)?;
    let map = coverage::open(number(size)?)?;
    let map_begin = map.as_mut_ptr();
    // SAFETY: The map stays.
    let observer = unsafe { StdMapObserver::from_mut_ptr("module", map_begin, coverage::MAP) };
    let observer = HitcountsMapObserver::new(observer).track_indices();
    let mut feedback = MaxMapFeedback::new(&observer);
    let mut objective = CrashFeedback::new();
    let mut state = StdState::new(
        StdRand::with_seed(number(seed)?),
        InMemoryCorpus::new(),
        InMemoryCorpus::new(),
        &mut feedback,
        &mut objective,
    )
    .map_err(|error| error.to_string())?;
    let scheduler = IndexesLenTimeMinimizerScheduler::new(&observer, QueueScheduler::new());
    let mut fuzzer = StdFuzzer::new(scheduler, feedback, objective);
    let mut manager = SimpleEventManager::new(NopMonitor::new());
    let mut executor = InWorkers {
        director: Director::new(Shared::new()),
        observers: tuple_list!(observer),
        finding: None,
    };
    let mut stages = tuple_list!(StdMutationalStage::with_max_iterations(
        Change,
        NonZeroUsize::new(16).expect("not 0"),
    ));

    let begin = Instant::now();
    let mut reported = begin;
    let mut known = parents.into_iter().map(|(program, _)| program);
    let mut strangers = 0;
    loop {
        let stranger = match known.next() {
            Some(program) => Some(program),
            None if strangers < STRANGERS || state.corpus().count() == 0 => {
                strangers += 1;
                let mut program = choose::program(state.rand_mut(), MOST);
                choose::finish(state.rand_mut(), &mut program, MOST);
                Some(program)
            }
            None => None,
        };
        match stranger {
            Some(program) => fuzzer
                .evaluate_input(&mut state, &mut executor, &mut manager, &program)
                .map(|_| ()),
            None => fuzzer
                .fuzz_one(&mut stages, &mut executor, &mut state, &mut manager)
                .map(|_| ()),
        }
        .map_err(|error| error.to_string())?;
        let counts = &executor.director.shared.counts;
        let done = counts.calls.load(SeqCst);
        let over = begin.elapsed() >= seconds || done >= calls || executor.finding.is_some();
        if over || reported.elapsed() >= REPORT {
            reported = Instant::now();
            let reached = state
                .named_metadata::<MapFeedbackMetadata<u8>>("module")
                .map_or(0, |reached| reached.num_covered_map_indexes);
            println!(
                "# {} s: {}; {reached} blocks, {} programs kept",
                begin.elapsed().as_secs(),
                summary(&[counts]),
                state.corpus().count(),
            );
        }
        if over {
            break;
        }
    }
    print_calls(&[&executor.director.shared.counts]);
    if let Some(finding) = executor.finding {
        return Err(finding);
    }
    reached(&[&executor.director.shared.counts])?;
    if keep {
        let kept: Vec<Program> = state
            .corpus()
            .ids()
            .filter_map(|id| state.corpus().get(id).ok()?.borrow().input().clone())
            .collect();
        let text = Few {
            director: executor.director,
            map: map_begin,
        }
        .of(kept)?;
        for line in text.lines() {
            println!("corpus: {line}");
        }
    }
    Ok(())
}

/// What was done so far, in a line.
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

/// A run that reached nothing has found nothing.
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
    for call in Call::ALL.iter().filter(|call| call.attributes() > 0) {
        if sum(&|counts| counts.by_call[*call as usize][1].load(SeqCst)) == 0 {
            return Err(format!("{} never succeeded", call.name()));
        }
    }
    Ok(())
}

/// How often each method was called.
pub fn print_calls(counts: &[&Counts]) {
    for call in Call::ALL {
        let [calls, succeeded] = [0, 1].map(|which| {
            let of = |counts: &&Counts| counts.by_call[*call as usize][which].load(SeqCst);
            counts.iter().map(of).sum::<u64>()
        });
        if calls > 0 {
            println!("# {}: {calls} calls, {succeeded} succeeded", call.name());
        }
    }
}

/// Makes few and short programs that reach the same, without races, with their results.
struct Few {
    director: Director,
    map: *mut u8,
}

/// What a program reached, and its results.
type Run = (Vec<bool>, Vec<i32>);

impl Few {
    /// What it reaches, and its results.
    fn run(&mut self, program: &Program) -> Result<Run, String> {
        // SAFETY: The map has this size.
        unsafe { self.map.write_bytes(0, coverage::MAP) };
        let mut results = self
            .director
            .run(program)
            .map_err(|what| found(program, &what))?;
        for (step, result) in program.steps.iter().zip(&mut results) {
            if !step.call.has_fixed_result() {
                *result = 0;
            }
        }
        let reached = (0..coverage::MAP)
            // SAFETY: The index is below the map's size.
            .map(|index| unsafe { self.map.add(index).read_volatile() } != 0)
            .collect();
        Ok((reached, results))
    }

    /// What it reaches both times, if its results are the same.
    fn run_twice(&mut self, program: &Program) -> Result<Option<Run>, String> {
        let (mut reached, results) = self.run(program)?;
        let (again, same_results) = self.run(program)?;
        for (reached, again) in reached.iter_mut().zip(again) {
            *reached &= again;
        }
        Ok((results == same_results && !results.contains(&NONE)).then_some((reached, results)))
    }

    fn of(mut self, programs: Vec<Program>) -> Result<String, String> {
        let mut candidates = vec![];
        for mut program in programs {
            program.race = false;
            // A removal takes as long as thousands of calls.
            program.steps.retain(|step| step.call != Call::Remove);
            if let Some((reached, _)) = self.run_twice(&program)? {
                candidates.push((program, reached));
            }
        }
        let mut all = vec![false; coverage::MAP];
        let mut text = String::new();
        let mut count = 0;
        loop {
            let news = |reached: &[bool], all: &[bool]| {
                reached
                    .iter()
                    .zip(all)
                    .filter(|(reached, all)| **reached && !**all)
                    .count()
            };
            candidates.sort_by_key(|(_, reached)| news(reached, &all));
            let Some((program, reached)) = candidates.pop() else {
                break;
            };
            if news(&reached, &all) == 0 {
                break;
            }
            let wanted: Vec<usize> = (0..coverage::MAP)
                .filter(|index| reached[*index] && !all[*index])
                .collect();
            let program = self.shorten(program, &wanted)?;
            if let Some((reached, results)) = self.run_twice(&program)? {
                for (all, reached) in all.iter_mut().zip(reached) {
                    *all |= reached;
                }
                text += &program.to_text(Some(&results));
                text.push('\n');
                count += 1;
            }
        }
        let blocks = all.iter().filter(|reached| **reached).count();
        println!("# {count} programs that reach {blocks} blocks");
        Ok(text)
    }

    /// Without the steps that what is wanted does not need.
    fn shorten(&mut self, mut program: Program, wanted: &[usize]) -> Result<Program, String> {
        let mut length = program.steps.len() / 2;
        while length > 0 {
            let mut at = 0;
            while at < program.steps.len() {
                let mut shorter = program.clone();
                shorter
                    .steps
                    .drain(at..(at + length).min(program.steps.len()));
                let (reached, _) = self.run(&shorter)?;
                if wanted.iter().all(|index| reached[*index]) {
                    program = shorter;
                } else {
                    at += length;
                }
            }
            length /= 2;
        }
        Ok(program)
    }
}
