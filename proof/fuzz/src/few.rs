// SPDX-License-Identifier: GPL-2.0

//! Few and short programs that reach what many reached, without races, with their results.

use crate::coverage;
use crate::director::Director;
use crate::program::{Call, Program};
use crate::shared::NONE;

/// See the top of the file.
pub struct Few {
    director: Director,
    map: *mut u8,
}

/// The blocks that a program reached, and its results.
type Run = (Vec<bool>, Vec<i32>);

/// Returns the number of blocks that are reached, and not among all.
fn news(reached: &[bool], all: &[bool]) -> usize {
    let both = reached.iter().zip(all);
    both.filter(|(reached, all)| **reached && !**all).count()
}

impl Few {
    /// `map` is the start of the plugin's map.
    pub fn new(director: Director, map: *mut u8) -> Few {
        Few { director, map }
    }

    /// Returns what a program reaches, and its results.
    fn run(&mut self, program: &Program) -> Result<Run, String> {
        // SAFETY: The map has this size, and stays mapped; the plugin counts in it only while calls
        // run, of which there is none.
        unsafe { self.map.write_bytes(0, coverage::MAP) };
        let mut results = self
            .director
            .run(program)
            .map_err(|what| program.found(&what))?;
        for (step, result) in program.steps.iter().zip(&mut results) {
            if !step.call.has_fixed_result() {
                *result = 0;
            }
        }
        let reached = (0..coverage::MAP)
            // SAFETY: The index is below the map's size, and the map stays mapped.
            .map(|index| unsafe { self.map.add(index).read_volatile() } != 0)
            .collect();
        Ok((reached, results))
    }

    /// Returns what a program reaches both times, if its results are the same.
    fn run_twice(&mut self, program: &Program) -> Result<Option<Run>, String> {
        let (mut reached, results) = self.run(program)?;
        let (again, same_results) = self.run(program)?;
        for (reached, again) in reached.iter_mut().zip(again) {
            *reached &= again;
        }
        Ok((results == same_results && !results.contains(&NONE)).then_some((reached, results)))
    }

    /// Returns the text of programs that together reach what these reach.
    pub fn of(mut self, programs: Vec<Program>) -> Result<String, String> {
        let mut candidates = vec![];
        for mut program in programs {
            program.race = false;
            // A removal takes as long as thousands of calls.
            program.steps.retain(|step| step.call != (Call::Remove {}));
            if let Some((reached, _)) = self.run_twice(&program)? {
                candidates.push((program, reached));
            }
        }
        let mut all = vec![false; coverage::MAP];
        let mut text = String::new();
        let mut count = 0;
        loop {
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

    /// Returns a program without the steps that it does not need to reach what is wanted.
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
