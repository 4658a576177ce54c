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
use libafl_bolts::rands::StdRand;
use libafl_bolts::tuples::{RefIndexable, tuple_list};
use libafl_bolts::{HasLen, Named};

use crate::choose;
use crate::counts::{Counts, print_calls, reached, summary};
use crate::coverage;
use crate::dice::Dice;
use crate::director::Director;
use crate::few::Few;
use crate::limits::Limits;
use crate::program::Program;
use crate::shared::Shared;

/// The largest number of steps of a program. The plugin counts for a program as a whole: of a
/// longer one, fewer steps would have to do with the new block that makes it a parent.
const MOST: usize = 240;
/// The number of new programs before the first is changed.
const STRANGERS: usize = 32;
/// The number of changes of a program, at most, before the next is run.
const CHANGES: usize = 12;
/// The number of changed programs of a parent, at most, before the next parent.
const CHILDREN: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// The name of the map of blocks, by which LibAFL keeps what programs have reached.
const MAP: &str = "module";
/// The time between two lines of the summary.
const REPORT: Duration = Duration::from_secs(30);

impl Input for Program {}

impl HasLen for Program {
    fn len(&self) -> usize {
        self.steps.len()
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
                self.finding = Some(program.found(&what));
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

/// The programs of a file, then a number of new ones: without these, a small corpus would have
/// children that all look like it.
struct Strangers<P> {
    known: P,
    new: usize,
}

impl<P: Iterator<Item = Program>> Strangers<P> {
    /// Returns the next, or `None` if the fuzzer is to change a program that was kept.
    fn next(&mut self, rand: &mut impl Dice, kept: usize) -> Option<Program> {
        if let Some(program) = self.known.next() {
            return Some(program);
        }
        if self.new == 0 && kept != 0 {
            return None;
        }
        self.new = self.new.saturating_sub(1);
        let mut program = choose::program(rand, MOST);
        choose::finish(rand, &mut program, MOST);
        Some(program)
    }
}

/// The time of a run.
struct Progress {
    begin: Instant,
    reported: Instant,
}

impl Progress {
    fn new() -> Progress {
        let now = Instant::now();
        Progress {
            begin: now,
            reported: now,
        }
    }

    /// Whether a limit was reached.
    fn is_over(&self, limits: &Limits, counts: &Counts) -> bool {
        self.begin.elapsed() >= limits.time || counts.calls.load(SeqCst) >= limits.calls
    }

    /// Prints a line now and then, and at the end.
    fn report(&mut self, is_last: bool, counts: &Counts, blocks: usize, kept: usize) {
        if is_last || self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            let (seconds, summary) = (self.begin.elapsed().as_secs(), summary(&[counts]));
            println!("# {seconds} s: {summary}; {blocks} blocks, {kept} programs kept");
        }
    }
}

fn blocks(state: &impl HasNamedMetadata) -> usize {
    state
        .named_metadata::<MapFeedbackMetadata<u8>>(MAP)
        .map_or(0, |reached| reached.num_covered_map_indexes)
}

/// Runs the programs of a file, and then programs that it makes and changes, until a limit is
/// reached or one fails. With `keep` it prints the programs that were kept, as a new such file.
pub fn run(path: &str, size: u64, limits: &Limits, keep: bool) -> Result<(), String> {
    let parents = Program::read_all(path)?;
    let map = coverage::open(size)?.as_mut_ptr();
    // SAFETY: The map has this size, and stays mapped until the process exits.
    let observer = unsafe { StdMapObserver::from_mut_ptr(MAP, map, coverage::MAP) };
    let observer = HitcountsMapObserver::new(observer).track_indices();
    let mut feedback = MaxMapFeedback::new(&observer);
    let mut objective = CrashFeedback::new();
    let mut state = StdState::new(
        StdRand::with_seed(limits.seed),
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
    let mut stages = tuple_list!(StdMutationalStage::with_max_iterations(Change, CHILDREN));
    let mut strangers = Strangers {
        known: parents.into_iter().map(|(program, _)| program),
        new: STRANGERS,
    };
    let mut progress = Progress::new();
    loop {
        let kept = state.corpus().count();
        match strangers.next(state.rand_mut(), kept) {
            Some(program) => fuzzer
                .evaluate_input(&mut state, &mut executor, &mut manager, &program)
                .map(drop),
            None => fuzzer
                .fuzz_one(&mut stages, &mut executor, &mut state, &mut manager)
                .map(drop),
        }
        .map_err(|error| error.to_string())?;
        let counts = &executor.director.shared.counts;
        let over = executor.finding.is_some() || progress.is_over(limits, counts);
        progress.report(over, counts, blocks(&state), state.corpus().count());
        if over {
            break;
        }
    }
    finish(executor.director, executor.finding).and_then(|director| {
        if keep {
            print_kept(&state, Few::new(director, map))
        } else {
            Ok(())
        }
    })
}

/// Prints the counts. Fails with the finding, if there is one, or if a call never succeeded.
fn finish(director: Director, finding: Option<String>) -> Result<Director, String> {
    let counts = &[&director.shared.counts];
    print_calls(counts);
    match finding {
        Some(finding) => Err(finding),
        None => reached(counts).map(|()| director),
    }
}

/// Prints few and short programs that reach what those reach that were kept.
fn print_kept(state: &impl HasCorpus<Program>, few: Few) -> Result<(), String> {
    let corpus = state.corpus();
    let kept = corpus
        .ids()
        .filter_map(|id| corpus.get(id).ok()?.borrow().input().clone())
        .collect();
    for line in few.of(kept)?.lines() {
        println!("corpus: {line}");
    }
    Ok(())
}
