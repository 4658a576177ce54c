// SPDX-License-Identifier: GPL-2.0

//! Chooses steps and changes of programs.

use crate::dice::Dice;
use crate::program::*;
use crate::world::World;

/// The id of the first attribute of each method, `1 << UVERBS_ID_NS_SHIFT`.
const FIRST_ATTRIBUTE: u64 = 1 << 12;

fn number(dice: &mut impl Dice) -> u64 {
    match dice.roll(6) {
        0 => 0,
        1 => u64::MAX,
        2 => dice.any(),
        3 => 1 << dice.roll(64),
        _ => dice.roll(16) as u64,
    }
}

fn value(dice: &mut impl Dice, kind: Kind) -> u64 {
    if dice.one_in(64) {
        return number(dice);
    }
    match kind {
        // Few, so that steps meet.
        Kind::Qp => {
            let most = [SLOTS, 3, 3][dice.roll(3)];
            dice.roll(most) as u64
        }
        Kind::Domain => [0, 0, 0, 0, 1, 2][dice.roll(6)],
        Kind::Channel => [0, 0, 0, 3, 3, 1, 2, 4][dice.roll(8)],
        Kind::Flags => [0, 0, 1, 1, 1, 2, 3, 3][dice.roll(8)],
        Kind::Transition => dice.roll(Transition::ALL.len()) as u64,
        Kind::Events => match dice.roll(3) {
            0 => EVENTS,
            1 => EVENTS & dice.any(),
            _ => [0x80, 1 << 63, 0, (1 << 63) | 0x80][dice.roll(4)],
        },
        Kind::Number => number(dice),
        Kind::Size => match dice.roll(4) {
            0 => dice.roll(300) as u64,
            1 => (dice.roll(40) * 8) as u64,
            _ => [16, 32, 40, 64, 144, 256, 288, 4096][dice.roll(8)],
        },
        Kind::Process => dice.roll(PROCESSES) as u64,
    }
}

/// Returns the value for an argument, or `None` to leave it out.
fn choose_value<T>(dice: &mut impl Dice, name: Name, argument: &Argument<T>) -> Arg {
    let absent = match (name, argument.kind) {
        (Name::Read, _) => 15,
        (_, Kind::Channel) => 1,
        // Each is mostly an error.
        (Name::IoctlReg | Name::IoctlUnreg, Kind::Size | Kind::Flags | Kind::Number) => 14,
        (Name::Destroy, _) | (_, Kind::Number | Kind::Transition) => 3,
        _ => 1,
    };
    if argument.optional && dice.roll(16) < absent * 4 {
        None
    } else {
        Some(value(dice, argument.kind))
    }
}

/// The faults that get past uverbs, which the module has to find: these are half of all.
const PASSING: [How; 3] = [How::Length, How::Data, How::Pointer];

fn spoil(dice: &mut impl Dice, name: Name) -> Spoil {
    let how = match dice.roll(2) {
        0 => PASSING[dice.roll(PASSING.len())],
        _ => How::ALL[dice.roll(How::ALL.len())],
    };
    let at = match how {
        How::Attr => dice.roll(80) as u64,
        _ => dice.roll(name.attributes() as usize) as u64,
    };
    let value = match how {
        How::Pointer => dice.roll(POINTERS as usize) as u64,
        // Mostly that of another attribute, which takes what was meant for this one.
        How::Id if !dice.one_in(4) => FIRST_ATTRIBUTE + dice.roll(16) as u64,
        How::Length => [0, 1, 3, 4, 5, 8, 16, 255, 0xffff][dice.roll(9)],
        _ => number(dice),
    };
    Spoil { how, at, value }
}

/// Returns faults for a call, if it is an ioctl: mostly two, which are mostly of two attributes.
fn spoils(dice: &mut impl Dice, name: Name) -> Spoils {
    let count = match name.attributes() {
        0 => 0,
        _ if dice.one_in(4) => 1,
        _ => FAULTS,
    };
    Spoils::new((0..count).map(|_| spoil(dice, name)))
}

fn name(dice: &mut impl Dice) -> Name {
    let total = Name::ALL.iter().map(|name| name.weight()).sum();
    let mut left = dice.roll(total);
    *Name::ALL
        .iter()
        .find(|name| match left.checked_sub(name.weight()) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
        .expect("the dice is below the sum")
}

/// Returns a step of any kind.
pub fn step(dice: &mut impl Dice) -> Step {
    let name = name(dice);
    let mut call = name.without_arguments();
    for argument in call.arguments_mut() {
        *argument.value = choose_value(dice, name, &argument);
    }
    Step {
        process: dice.roll(PROCESSES) as u8,
        call,
        spoils: if dice.one_in(8) {
            spoils(dice, name)
        } else {
            Spoils::default()
        },
    }
}

/// Returns a program of its own, of so many steps at most.
pub fn program(dice: &mut impl Dice, most: usize) -> Program {
    let count = 40 + dice.roll(most - 40);
    Program {
        race: dice.one_in(2),
        steps: (0..count).map(|_| step(dice)).collect(),
    }
}

/// Changes a program in one place; steps may come from `other`.
pub fn change(dice: &mut impl Dice, program: &mut Program, other: Option<&Program>) {
    let steps = &mut program.steps;
    let at = dice.roll(steps.len().max(1));
    match dice.roll(if steps.is_empty() { 1 } else { 12 }) {
        // The first one suits an empty program.
        0..=2 => steps.insert(at, step(dice)),
        3 => {
            steps.remove(at);
        }
        4 | 5 => {
            let name = steps[at].call.name();
            let mut arguments = steps[at].call.arguments_mut();
            let index = dice.roll(arguments.len());
            if let Some(argument) = arguments.get_mut(index) {
                *argument.value = choose_value(dice, name, argument);
            }
        }
        6 => steps[at].process = dice.roll(PROCESSES) as u8,
        7 => {
            steps[at].spoils = if dice.one_in(3) {
                Spoils::default()
            } else {
                spoils(dice, steps[at].call.name())
            }
        }
        8 => {
            let to = dice.roll(steps.len());
            steps.swap(at, to);
        }
        9 => {
            let end = (at + 1 + dice.roll(16)).min(steps.len());
            let copy = steps[at..end].to_vec();
            steps.splice(at..at, copy);
        }
        10 => {
            if let Some(other) = other.filter(|other| !other.steps.is_empty()) {
                let from = dice.roll(other.steps.len());
                let end = (from + 1 + dice.roll(64)).min(other.steps.len());
                steps.splice(at..at, other.steps[from..end].iter().copied());
            }
        }
        _ => program.race = !program.race,
    }
    program.steps.truncate(STEPS);
}

/// Makes a program long enough to be worth its start and its end. A process is killed once, and the
/// device removed seldom: both take as long as many calls. Three of four steps name a QP or a
/// channel that exists.
pub fn finish(dice: &mut impl Dice, program: &mut Program, most: usize) {
    program.steps.truncate(most);
    let mut kills = 0;
    program.steps.retain(|step| {
        let is_kill = matches!(step.call, Call::Kill { .. });
        kills += usize::from(is_kill);
        step.call != (Call::Remove {}) && (!is_kill || kills == 1)
    });
    while program.steps.len() < most * 3 / 4 {
        let at = dice.roll(program.steps.len() + 1);
        program.steps.insert(at, step(dice));
    }
    if dice.one_in(128) {
        let at = dice.roll(program.steps.len());
        program.steps[at].call = Call::Remove {};
        program.steps[at].spoils = Spoils::default();
    }
    let mut world = World::default();
    for step in &mut program.steps {
        world.pass(dice, step);
    }
}
