// SPDX-License-Identifier: GPL-2.0

//! Which fault is there, in a build that has all of them.
//!
//! `CHECKER_FAULT` is its number, and without it there is none. An expression or a statement that
//! has a fault asks here each time that it runs. With `CHECKER_FAULTS_REACHED`, a file, the numbers
//! of those that ask are written to it, and how often one has asked, by powers of two: a
//! fault that no test reaches needs no run, and one whose tests ask more often than
//! `CHECKER_FAULT_STEPS` does not end.
//!
//! A module for a guest has a file in place of this, with a module parameter as the number.

use core::{
    ops::{Add, BitAnd, BitOr, Div, Mul, Not, Rem, Shl, Shr, Sub},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use std::{fs::File, io::Write, sync::OnceLock};

struct Chosen {
    fault: usize,
    steps: u64,
    reached: Option<File>,
}

static CHOSEN: OnceLock<Chosen> = OnceLock::new();
static STEPS: AtomicU64 = AtomicU64::new(0);
static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

/// The status of a process whose test does not end.
const ENDLESS: i32 = 97;

fn choose() -> Chosen {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let reached = std::env::var_os("CHECKER_FAULTS_REACHED").map(File::create);

    Chosen {
        fault: number("CHECKER_FAULT").unwrap_or(0) as usize,
        steps: number("CHECKER_FAULT_STEPS").unwrap_or(u64::MAX),
        reached: reached.and_then(Result::ok),
    }
}

/// Whether this fault is there.
pub(crate) fn is(number: usize) -> bool {
    let chosen = CHOSEN.get_or_init(choose);
    let steps = STEPS.fetch_add(1, Relaxed) + 1;

    if steps > chosen.steps {
        eprintln!("more than {} steps", chosen.steps);
        std::process::exit(ENDLESS);
    }
    if let Some(mut file) = chosen.reached.as_ref() {
        if steps.is_power_of_two() {
            let _ = writeln!(file, "steps {steps}");
        }
        if !REACHED[number].swap(true, Relaxed) {
            let _ = writeln!(file, "{number}");
        }
    }
    number == chosen.fault
}

pub(crate) fn not<T: Not<Output = T>>(number: usize, value: T) -> T {
    if is(number) {
        !value
    } else {
        value
    }
}

pub(crate) fn always(number: usize, value: bool) -> bool {
    is(number) || value
}

pub(crate) fn never(number: usize, value: bool) -> bool {
    !is(number) && value
}

macro_rules! instead {
    ($($name:ident: $bound:ident $op:tt, $other_bound:ident $other:tt;)*) => {$(
        pub(crate) fn $name<T>(number: usize, a: T, b: T) -> T
        where
            T: $bound<Output = T> + $other_bound<Output = T>,
        {
            if is(number) {
                a $other b
            } else {
                a $op b
            }
        }
    )*};
}

instead! {
    add: Add +, Sub -;
    sub: Sub -, Add +;
    mul: Mul *, Add +;
    div: Div /, Mul *;
    rem: Rem %, Div /;
    bit_and: BitAnd &, BitOr |;
    bit_or: BitOr |, BitAnd &;
}

pub(crate) fn shl<A, B>(number: usize, a: A, b: B) -> A
where
    A: Shl<B, Output = A> + Shr<B, Output = A>,
{
    if is(number) {
        a >> b
    } else {
        a << b
    }
}

pub(crate) fn shr<A, B>(number: usize, a: A, b: B) -> A
where
    A: Shl<B, Output = A> + Shr<B, Output = A>,
{
    if is(number) {
        a << b
    } else {
        a >> b
    }
}

macro_rules! boundary {
    ($($name:ident: $op:tt, $other:tt;)*) => {$(
        pub(crate) fn $name<T: PartialOrd>(number: usize, a: &T, b: &T) -> bool {
            if is(number) {
                a $other b
            } else {
                a $op b
            }
        }
    )*};
}

boundary! {
    lt: <, <=;
    le: <=, <;
    gt: >, >=;
    ge: >=, >;
}

pub(crate) fn min<T: Ord>(number: usize, a: T, b: T) -> T {
    if is(number) {
        a.max(b)
    } else {
        a.min(b)
    }
}

pub(crate) fn max<T: Ord>(number: usize, a: T, b: T) -> T {
    if is(number) {
        a.min(b)
    } else {
        a.max(b)
    }
}

/// An integer with its neighbours.
pub(crate) trait Constant: Copy {
    fn next(self) -> Self;
    fn previous(self) -> Self;
}

macro_rules! constants {
    ($($type:ty),*) => {$(
        impl Constant for $type {
            fn next(self) -> Self {
                self.wrapping_add(1)
            }

            fn previous(self) -> Self {
                self.wrapping_sub(1)
            }
        }
    )*};
}

constants!(u8, u16, u32, u64, usize, i32, i64);

pub(crate) fn more<T: Constant>(number: usize, value: T) -> T {
    if is(number) {
        value.next()
    } else {
        value
    }
}

pub(crate) fn less<T: Constant>(number: usize, value: T) -> T {
    if is(number) {
        value.previous()
    } else {
        value
    }
}

/// An errno, or another, which no call of the module has.
pub(crate) fn errno(number: usize, error: kernel::error::Error) -> kernel::error::Error {
    const EXDEV: i32 = 18;

    if is(number) {
        kernel::error::Error::from_errno(-EXDEV)
    } else {
        error
    }
}
