// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The card's face on the bus.

use crate::engine::pci::Identity;

/// Ports of a card.
pub const PORTS: u8 = 2;

/// Its face on the bus: registers in BAR 0, UAR pages in BAR 2.
pub const IDENTITY: Identity = Identity {
    device: 0x1003,
    subsystem: 0x0050,
    bars: [1 << 20, 2 << 20],
    prefetch: false,
    msix_table: 0x7c000,
    msix_pba: 0x7d000,
};
