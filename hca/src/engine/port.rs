// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Ports of an adapter.

use serde::Serialize;

/// The most low bits in which the LIDs of a port differ.
const MAX_LMC: u8 = 7;
/// The number of P_Keys that a port's table has room for.
pub const PKEYS: usize = 3;
/// The P_Keys of ports, until they are set. Besides the default one the ports have theirs in
/// opposite order, so that an index means another P_Key at the other end.
pub const DEFAULT_PKEYS: [[u16; PKEYS]; 2] = [[0xffff, 0x8001, 0x8002], [0xffff, 0x8002, 0x8001]];
/// The capabilities a port shows, until the driver says others.
pub const DEFAULT_CAPABILITY_MASK: u32 = 0x0251_4868;

/// A port, numbered from 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Port {
    /// Its LID, or the first of those that differ in the low bits.
    pub lid: u16,
    /// The number of these bits (LID Mask Control).
    pub lmc: u8,
    /// Its cable is in.
    pub cable: bool,
    /// The driver has initialised it.
    pub initialised: bool,
    /// Its capabilities, as set by the driver.
    pub capability_mask: u32,
    /// The first P_Keys of its table; the others are 0.
    pub pkeys: [u16; PKEYS],
}

impl Port {
    /// A port with this LID, its cable in.
    pub fn new(lid: u16, pkeys: [u16; PKEYS]) -> Self {
        Self {
            lid,
            lmc: 0,
            cable: true,
            initialised: false,
            capability_mask: DEFAULT_CAPABILITY_MASK,
            pkeys,
        }
    }

    /// The bits in which its LIDs differ.
    fn path_mask(&self) -> u16 {
        !(u16::MAX << self.lmc.min(MAX_LMC))
    }

    /// Whether `lid` is one of its LIDs.
    pub fn has_lid(&self, lid: u16) -> bool {
        lid & !self.path_mask() == self.lid
    }

    /// The one of its LIDs that has these low bits. Of `bits`, those beyond them mean nothing.
    pub fn lid_with(&self, bits: u8) -> u16 {
        self.lid | u16::from(bits) & self.path_mask()
    }

    /// Gives it the LIDs from `lid` on, which differ in `lmc` low bits.
    pub fn set_lids(&mut self, lid: u16, lmc: u8) -> Result<(), &'static str> {
        if self.cable {
            return Err("a port gets LIDs before it is active: pull its cable");
        }
        let given = Self { lid, lmc, ..*self };
        if lmc > MAX_LMC || !given.has_lid(lid) || lid == 0 {
            return Err("no port can have these LIDs");
        }
        *self = given;
        Ok(())
    }

    /// It carries packets.
    pub fn is_up(&self) -> bool {
        self.cable && self.initialised
    }

    /// Resets it, which gives it these P_Keys.
    pub fn reset(&mut self, pkeys: [u16; PKEYS]) {
        self.initialised = false;
        self.capability_mask = DEFAULT_CAPABILITY_MASK;
        self.pkeys = pkeys;
    }

    /// Returns the index in its table of the P_Key that admits a packet with `pkey`.
    pub fn pkey_index(&self, pkey: u16) -> Option<u8> {
        let mut indices = (0..).zip(&self.pkeys);
        let (index, _) = indices.find(|(_, ours)| pkeys_match(**ours, pkey))?;
        Some(index)
    }
}

/// Whether both P_Keys are of a partition, and at least one is a full member's.
pub fn pkeys_match(one: u16, other: u16) -> bool {
    const FULL: u16 = 1 << 15;
    one & !FULL != 0 && one & !FULL == other & !FULL && (one | other) & FULL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_bits_of_a_path_choose_among_the_lids_of_a_port() {
        let mut port = Port::new(2, DEFAULT_PKEYS[0]);
        assert_eq!((port.lid_with(0), port.lid_with(5)), (2, 2));
        assert!(port.has_lid(2) && !port.has_lid(3));
        assert!(port.set_lids(0x10, 2).is_err());
        port.cable = false;
        for (lid, lmc) in [(0x11, 1), (0, 0), (0x100, 8)] {
            assert!(port.set_lids(lid, lmc).is_err(), "{lid:#x}, {lmc}");
        }
        assert_eq!((port.lid, port.lmc), (2, 0));
        port.set_lids(0x10, 2).unwrap();
        assert_eq!((port.lid_with(0), port.lid_with(7)), (0x10, 0x13));
        assert!(port.has_lid(0x13) && !port.has_lid(0x14) && !port.has_lid(2));
    }
}
