// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The card's face on the bus: one BAR, with registers first and UAR pages after them.

use crate::engine::pci::Identity;

/// A ConnectX-6, function of one port.
pub const IDENTITY: Identity = Identity {
    device: 0x101b,
    subsystem: 0x0008,
    bars: [32 << 20, 0],
    prefetch: true,
    msix_table: 0x2000,
    msix_pba: 0x3000,
};
