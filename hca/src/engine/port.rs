// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Ports of an adapter.

use serde::Serialize;

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
    /// Its only LID.
    pub lid: u16,
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
            cable: true,
            initialised: false,
            capability_mask: DEFAULT_CAPABILITY_MASK,
            pkeys,
        }
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
