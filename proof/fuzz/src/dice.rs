// SPDX-License-Identifier: GPL-2.0

//! Random choices, by the generators of LibAFL.

use std::num::NonZeroUsize;

use libafl_bolts::rands::Rand;

/// A source of random choices.
pub trait Dice {
    /// Returns a number less than `sides`.
    fn roll(&mut self, sides: usize) -> usize;

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    fn any(&mut self) -> u64 {
        (0..4).fold(0, |value, _| (value << 16) | self.roll(1 << 16) as u64)
    }
}

impl<R: Rand> Dice for R {
    fn roll(&mut self, sides: usize) -> usize {
        NonZeroUsize::new(sides).map_or(0, |sides| self.below(sides))
    }
}
