// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Layouts of commands and contexts, which `build.rs` has read from the kernel's `mlx5_ifc.h`: a
//! module for each structure, with its fields by their names there.

#![allow(missing_docs)]

/// A field of a structure, or a structure in another one: its first bit, and its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    at: usize,
    bits: usize,
}

impl Field {
    const fn new(at: usize, bits: usize) -> Self {
        Self { at, bits }
    }

    /// The field `inner` of this structure.
    pub const fn part(self, inner: Self) -> Self {
        Self {
            at: self.at.wrapping_add(inner.at),
            bits: inner.bits,
        }
    }

    /// Where it begins, in bytes.
    pub const fn byte(self) -> usize {
        self.at / 8
    }

    /// The bytes that it shares, and the bits after it in them.
    fn place(self) -> (std::ops::Range<usize>, u32) {
        let end = self.at.saturating_add(self.bits);
        let after = end.next_multiple_of(8).saturating_sub(end);
        (self.at / 8..end.div_ceil(8), after as u32)
    }

    fn mask(self) -> u128 {
        (1u128 << self.bits.min(64)).wrapping_sub(1)
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Reads and writes fields of a block; beyond its end they are 0.
pub trait Bits {
    /// The value of a field of up to 64 bits.
    fn bits(&self, field: Field) -> u64;
    /// Sets it.
    fn set_bits(&mut self, field: Field, value: u64);

    /// The value of a field of up to 32 bits.
    fn bits32(&self, field: Field) -> u32 {
        self.bits(field) as u32
    }

    /// A field of one bit is set.
    fn flag(&self, field: Field) -> bool {
        self.bits(field) != 0
    }

    /// Takes the field over from another block of its structure.
    fn copy_bits(&mut self, from: &[u8], field: Field) {
        self.set_bits(field, from.bits(field));
    }
}

impl Bits for [u8] {
    fn bits(&self, field: Field) -> u64 {
        let (bytes, after) = field.place();
        let word = self.get(bytes).map_or(0, number);
        (word >> after & field.mask()) as u64
    }

    fn set_bits(&mut self, field: Field, value: u64) {
        let (bytes, after) = field.place();
        let Some(bytes) = self.get_mut(bytes) else {
            return;
        };
        let value = u128::from(value) & field.mask();
        let word = number(bytes) & !(field.mask() << after) | value << after;
        for (byte, new) in bytes.iter_mut().rev().zip(word.to_le_bytes()) {
            *byte = new;
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/ifc.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_header_says() {
        assert_eq!(qpc::SIZE, 232);
        assert_eq!(mkc::SIZE, 64);
        assert_eq!(query_hca_cap_out::SIZE, 16 + 4096);
        assert_eq!(qpc::PD, Field::new(40, 24));
        assert_eq!(create_qp_in::QPC.byte(), 24);
        assert_eq!(op::_2ERR_QP, 0x507);
    }

    #[test]
    fn a_field_keeps_its_neighbours() {
        let mut block = [0xffu8; 232];
        block.set_bits(qpc::PM_STATE, 1);
        assert_eq!(block.bits(qpc::PM_STATE), 1);
        assert_eq!(block.bits(qpc::ST), 0xff);
        block.set_bits(qpc::DBR_ADDR, 0x1122_3344_5566_7788);
        assert_eq!(block.bits(qpc::DBR_ADDR), 0x1122_3344_5566_7788);
        assert_eq!(block[..4].bits(qpc::DBR_ADDR), 0);
    }
}
