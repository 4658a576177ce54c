// SPDX-License-Identifier: GPL-2.0

//! Chooses steps and changes of programs.

use crate::program::*;
use crate::world::World;

/// Random numbers.
pub trait Dice {
    /// Less than `sides`.
    fn roll(&mut self, sides: usize) -> usize;

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    fn any(&mut self) -> u64 {
        (0..4).fold(0, |value, _| (value << 16) | self.roll(1 << 16) as u64)
    }
}

/// Kinds of events; see <rdma/ib_xrc_rcv.h>.
const EVENTS: u64 = (1 << 63) | 0x100fe;

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
        Kind::Flags => [0, 0, 1, 1, 1, 2][dice.roll(6)],
        // See `qp_attr()`.
        Kind::Attr => dice.roll(8) as u64,
        Kind::Events => match dice.roll(3) {
            0 => EVENTS,
            1 => EVENTS & dice.any(),
            _ => [0x80, 1 << 63, 0, (1 << 63) | 0x80][dice.roll(4)],
        },
        Kind::Number => number(dice),
        Kind::Size => match dice.roll(4) {
            0 => dice.roll(300) as u64,
            1 => (dice.roll(40) * 8) as u64,
            _ => [16, 32, 40, 64, 144, 256, 4096][dice.roll(7)],
        },
        Kind::Worker => dice.roll(WORKERS) as u64,
    }
}

/// Whether an argument may be left out.
fn is_optional(call: Call, arg: usize) -> bool {
    match call {
        Call::Alloc | Call::Reg | Call::Unreg => arg >= 2,
        Call::Query | Call::Destroy => arg >= 2,
        Call::List => arg >= 1,
        Call::Channel => arg == 1,
        Call::Read => arg == 2,
        _ => false,
    }
}

fn arg(dice: &mut impl Dice, call: Call, index: usize) -> Option<u64> {
    let kind = call.args()[index].1;
    let absent = match (call, kind) {
        (Call::Read, _) => 15,
        (_, Kind::Channel) => 1,
        (Call::Destroy, _) => 3,
        (_, Kind::Number | Kind::Attr) => 3,
        _ => 1,
    };
    if is_optional(call, index) && dice.roll(16) < absent * 4 {
        None
    } else {
        Some(value(dice, kind))
    }
}

fn spoil(dice: &mut impl Dice, call: Call) -> Option<Spoil> {
    if call.attributes() == 0 {
        return None;
    }
    let how = How::ALL[dice.roll(How::ALL.len())];
    let at = match how {
        How::Attr => dice.roll(80) as u64,
        _ => dice.roll(call.attributes() as usize) as u64,
    };
    let value = match how {
        How::Pointer => dice.roll(POINTERS as usize) as u64,
        How::Length => [0, 1, 3, 4, 5, 8, 16, 255, 0xffff][dice.roll(9)],
        _ => number(dice),
    };
    Some(Spoil { how, at, value })
}

fn call(dice: &mut impl Dice) -> Call {
    let total = Call::ALL.iter().map(|call| call.weight()).sum();
    let mut left = dice.roll(total);
    *Call::ALL
        .iter()
        .find(|call| match left.checked_sub(call.weight()) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
        .expect("the dice is below the sum")
}

/// A step of any kind.
pub fn step(dice: &mut impl Dice) -> Step {
    let call = call(dice);
    let mut step = Step {
        worker: dice.roll(WORKERS) as u8,
        call,
        args: [None; ARGS],
        spoil: None,
    };
    for index in 0..call.args().len() {
        step.args[index] = arg(dice, call, index);
    }
    if dice.one_in(12) {
        step.spoil = spoil(dice, call);
    }
    step
}

/// A program of its own, of so many steps at most.
pub fn program(dice: &mut impl Dice, most: usize) -> Program {
    let count = 40 + dice.roll(most - 40);
    Program {
        race: dice.one_in(2),
        steps: (0..count).map(|_| step(dice)).collect(),
    }
}

/// Changes one thing in it; `other` is one that steps may come from.
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
            let step = &mut steps[at];
            if !step.call.args().is_empty() {
                let index = dice.roll(step.call.args().len());
                step.args[index] = arg(dice, step.call, index);
            }
        }
        6 => steps[at].worker = dice.roll(WORKERS) as u8,
        7 => {
            steps[at].spoil = if dice.one_in(3) {
                None
            } else {
                spoil(dice, steps[at].call)
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

/// Makes it long enough to be worth its start and its end. A process is killed once, and the device removed seldom:
/// both take as long as many calls. Three of four steps name a file, QP or handle that exists.
pub fn finish(dice: &mut impl Dice, program: &mut Program, most: usize) {
    program.steps.truncate(most);
    let mut kills = 0;
    program.steps.retain(|step| {
        kills += usize::from(step.call == Call::Kill);
        step.call != Call::Remove && (step.call != Call::Kill || kills == 1)
    });
    while program.steps.len() < most * 3 / 4 {
        let at = dice.roll(program.steps.len() + 1);
        program.steps.insert(at, step(dice));
    }
    if dice.one_in(128) {
        let at = dice.roll(program.steps.len());
        program.steps[at].call = Call::Remove;
        program.steps[at].args = [None; ARGS];
        program.steps[at].spoil = None;
    }
    let mut world = World::default();
    for step in &mut program.steps {
        world.pass(dice, step);
    }
}
