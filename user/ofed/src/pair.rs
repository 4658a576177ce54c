// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A pair of QPs that is one QP of type `IBV_QPT_XRC` to its program, and the number that stands
//! for both.
//!
//! Kept by the layer's state under the address of its initiator, from when the program creates the
//! QP until it destroys it.

use xrc_rcv::verbs_sys::ibv_qp;

use crate::ffi::ibv_xrc_domain;

/// A QP number as programs see it.
///
/// QP numbers have 24 bits and `qp_num` has 32. In the number of a pair, the upper eight encode the
/// target relative to the initiator, and are not zero: a distance of seven bits, and a bit that is
/// set if the two differ in the number's top bit, which mlx4 sets for targets. In every other
/// number they are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u32);

impl Number {
    const BITS: u32 = 24;
    const MASK: u32 = (1 << Self::BITS) - 1;
    const TOP: u32 = 1 << (Self::BITS - 1);
    const DISTANCE_BITS: u32 = 7;
    const OTHER_HALF: u32 = 1 << Self::DISTANCE_BITS;

    /// A number that a program has stored or got from a peer.
    pub(crate) fn from_public(number: u32) -> Number {
        Number(number)
    }

    /// The number as the program gets it.
    pub(crate) fn public(self) -> u32 {
        self.0
    }

    /// The number of a pair, if the two are near enough to each other.
    pub(crate) fn of_pair(initiator: u32, target: u32) -> Option<Number> {
        let way = [(target, 0), (target ^ Self::TOP, Self::OTHER_HALF)]
            .into_iter()
            .map(|(target, half)| (target.wrapping_sub(initiator) as i32, half))
            .find(|(distance, half)| (-64..64).contains(distance) && (*distance, *half) != (0, 0))
            .map(|(distance, half)| half | (distance as u32 & (Self::OTHER_HALF - 1)))?;
        Some(Number((way << Self::BITS) | initiator))
    }

    /// The number of the QP that sends.
    pub(crate) fn initiator(self) -> u32 {
        self.0 & Self::MASK
    }

    /// The number of the QP that receives: the pair's target, or the receive QP itself.
    pub(crate) fn target(self) -> u32 {
        let way = self.0 >> Self::BITS;
        // Its sign is the highest of its bits.
        let unused = u32::BITS - Self::DISTANCE_BITS;
        let distance = ((way << unused) as i32) >> unused;
        let target = self.initiator().wrapping_add_signed(distance) & Self::MASK;
        if way & Self::OTHER_HALF != 0 {
            target ^ Self::TOP
        } else {
            target
        }
    }

    pub(crate) fn is_pair(self) -> bool {
        self.0 > Self::MASK
    }
}

/// The layer's part of an initiator's `ibv_qp`.
pub(crate) struct Pair {
    pub(crate) number: Number,
    /// The target until it turns out to be of no use, then null.
    pub(crate) target: *mut ibv_qp,
    pub(crate) domain: *mut ibv_xrc_domain,
    /// Events of the target that the program got as the initiator's and has not acknowledged.
    pub(crate) unacknowledged: u32,
}

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl Send for Pair {}
// SAFETY: libibverbs' objects may be used from several threads at once.
unsafe impl Sync for Pair {}

impl Pair {
    /// Makes the number of `qp` that of its initiator.
    ///
    /// # Safety
    ///
    /// `qp` is this pair's.
    pub(crate) unsafe fn make_plain(&mut self, qp: *mut ibv_qp) {
        self.number = Number(self.number.initiator());
        // SAFETY: By the caller's word.
        unsafe { (*qp).qp_num = self.number.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_carries_both_of_a_pair() {
        for (initiator, target) in [
            (0x11, 0x12),
            (0x12, 0x11),
            (0xffff40, 0xffff00),
            (0x200, 0x23f),
            (0x208, 0x800209),
            (0x208, 0x800208),
            (0x240, 0x800200),
        ] {
            let number = Number::of_pair(initiator, target).unwrap();
            let seen = Number::from_public(number.0);
            assert!(seen.is_pair());
            assert_eq!((seen.initiator(), seen.target()), (initiator, target));
        }
    }

    #[test]
    fn a_plain_number_is_its_own_target() {
        let number = Number::from_public(0xabcdef);
        assert!(!number.is_pair());
        assert_eq!((number.initiator(), number.target()), (0xabcdef, 0xabcdef));
    }

    #[test]
    fn numbers_too_far_apart_are_no_pair() {
        assert_eq!(Number::of_pair(1, 65), None);
        assert_eq!(Number::of_pair(0xffffff, 0), None);
        assert_eq!(Number::of_pair(7, 7), None);
    }
}
