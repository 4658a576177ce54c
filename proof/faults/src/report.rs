// SPDX-License-Identifier: GPL-2.0

//! The table of what has caught the faults of each kind, and the list of those that survive.

use crate::{
    campaign::Verdict,
    fault::{Fault, Operator},
    known::Known,
    mutated::Mutated,
    suite::Stage,
};
use std::collections::{BTreeMap, BTreeSet};

/// The results of faults, which are a sample or all.
pub struct Report<'a> {
    mutated: &'a Mutated,
    /// Those that were tried, in order of their places.
    tried: Vec<(&'a Fault, Verdict)>,
    is_sample: bool,
}

impl<'a> Report<'a> {
    pub fn new(
        mutated: &'a Mutated,
        verdicts: &BTreeMap<usize, Verdict>,
        numbers: &[usize],
    ) -> Self {
        let all: Vec<_> = mutated.faults().collect();
        let tried = all.iter().filter(|(number, _)| numbers.contains(number));

        Self {
            mutated,
            tried: tried
                .filter_map(|(number, fault)| Some((*fault, verdicts.get(number)?.clone())))
                .collect(),
            is_sample: numbers.len() != all.len(),
        }
    }

    /// Prints the table, as diagnoses.
    pub fn print_table(&self) {
        let left_out = self.mutated.left_out();
        let stages: Vec<_> = Stage::ALL
            .iter()
            .map(|stage| format!("{:>7}", stage.name()))
            .collect();

        println!(
            "# {:<20}{:>7}{} {:>9} {:>9} {:>9}",
            "fault",
            "tried",
            stages.concat(),
            "survived",
            "unreached",
            "left out"
        );
        for operator in Operator::ALL {
            let left_out = left_out.get(operator).copied().unwrap_or(0);

            self.print_line(operator.name(), left_out, |fault| {
                fault.operator == *operator
            });
        }
        self.print_line("all", left_out.values().sum(), |_| true);
    }

    fn print_line(&self, name: &str, left_out: usize, is_of: impl Fn(&Fault) -> bool) {
        let of: Vec<_> = self
            .tried
            .iter()
            .filter(|(fault, _)| is_of(fault))
            .map(|(_, verdict)| verdict)
            .collect();
        let count = |is: &dyn Fn(&Verdict) -> bool| of.iter().filter(|verdict| is(verdict)).count();
        let caught: Vec<_> = Stage::ALL
            .iter()
            .map(|by| {
                count(&|verdict| matches!(verdict, Verdict::Caught { stage, .. } if stage == by))
            })
            .map(|number| format!("{number:>7}"))
            .collect();
        let survived = count(&|verdict| matches!(verdict, Verdict::Survived | Verdict::Pending));
        let unreached = count(&|verdict| matches!(verdict, Verdict::Unreached));

        println!(
            "# {name:<20}{:>7}{} {survived:>9} {unreached:>9} {left_out:>9}",
            of.len(),
            caught.concat()
        );
    }

    /// Returns the faults that nothing has caught, with what they are.
    fn survivors(&self) -> impl Iterator<Item = (&Fault, &'static str)> {
        self.tried
            .iter()
            .filter_map(|(fault, verdict)| match verdict {
                Verdict::Caught { .. } => None,
                Verdict::Survived => Some((*fault, "survived")),
                Verdict::Unreached => Some((*fault, "unreached")),
                Verdict::Pending => Some((*fault, "not tried by pairs")),
            })
    }

    /// Prints all survivors.
    pub fn print_survivors(&self) {
        for (fault, what) in self.survivors() {
            print_survivor(fault, what);
        }
    }

    /// Prints KTAP: a result for each file, whose faults are caught, or known. Returns whether all
    /// are so.
    pub fn print_ktap(&self, known: &Known) -> bool {
        let survivors: Vec<_> = self
            .survivors()
            .map(|(fault, what)| (fault, what, fault.name()))
            .collect();
        let files: BTreeSet<_> = self
            .tried
            .iter()
            .map(|(fault, _)| fault.file.as_str())
            .collect();
        let mut are_ok = true;
        let mut result = |number: usize, is_ok: bool, name: &str| {
            println!("{}ok {number} {name}", if is_ok { "" } else { "not " });
            are_ok &= is_ok;
        };

        println!("KTAP version 1\n1..{}", files.len() + 1);
        for (number, file) in (1..).zip(&files) {
            let unknown: Vec<_> = survivors
                .iter()
                .filter(|(fault, _, name)| fault.file == **file && known.reason(name).is_none())
                .collect();

            for (fault, what, _) in &unknown {
                print_survivor(fault, what);
            }
            result(
                number,
                unknown.is_empty(),
                &format!("faults of {file} are caught, or known"),
            );
        }

        let names: Vec<_> = survivors.into_iter().map(|(_, _, name)| name).collect();
        let stale: Vec<_> = known.without(&names).filter(|_| !self.is_sample).collect();

        for name in &stale {
            println!("# caught, or no fault any more: {name}");
        }
        result(
            files.len() + 1,
            stale.is_empty(),
            "faults that are known survive",
        );
        are_ok
    }
}

fn print_survivor(fault: &Fault, what: &str) {
    println!("# {}:{}: {what}\t{}", fault.file, fault.line, fault.name());
}
