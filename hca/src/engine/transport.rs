// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The transport as the specification has it: services, states, paths and timers.

use std::time::Duration;

use serde::Serialize;

use crate::engine::headers::Grh;

/// 4096 ns, four-fold: the spec lets an ACK timeout last up to four times its nominal value.
const ACK_TIMEOUT_UNIT: u64 = 4 * 4096;

/// The waits of a requester that finds its receiver not ready, by their codes, in units of 10 us.
const TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The code of such a wait.
pub fn rnr_timer_code(wait: Duration) -> u8 {
    let units = wait.as_micros() / 10;
    let mut codes = (0..).zip(TIMERS);
    let found = codes.find(|(_, timer)| u128::from(*timer) == units);
    found.map_or(0, |(code, _)| code)
}

/// The wait that has this code.
pub fn rnr_timer(code: u32) -> Duration {
    let units = TIMERS.get(code as usize).copied().unwrap_or(65536);
    Duration::from_micros(u64::from(units).saturating_mul(10))
}

/// Returns the time that a requester with this ACK timeout waits for an answer; none is forever.
pub fn ack_timeout(log: u8) -> Option<Duration> {
    match log {
        0 => None,
        log => Some(Duration::from_nanos(
            ACK_TIMEOUT_UNIT << u32::from(log & 0x1f),
        )),
    }
}

/// The way to the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Our port.
    pub port: u8,
    /// The other end's LID.
    pub remote_lid: u16,
    /// The low bits of our LID, as far as our port has LIDs that differ in them.
    pub path_bits: u8,
    /// Service level.
    pub service_level: u8,
    /// The index of the packets' P_Key in our port's table.
    pub pkey_index: u8,
    /// With a GRH: where in our port's table our GID is, and the header without that.
    pub grh: Option<(u8, Grh)>,
}

/// State of a QP (enum mlx4_qp_state, enum mlx5_qp_state).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    Rst = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqer = 4,
    Sqd = 5,
    Err = 6,
    SqDraining = 7,
}

/// Transport service.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Service {
    Rc,
    Uc,
    Ud,
    Xrc,
    /// Management: QP0 and QP1.
    Mlx,
}

impl Service {
    /// One QP at each end, which know each other.
    pub fn connected(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::Xrc)
    }

    /// Requests are acknowledged.
    pub fn reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }
}

/// Path migration state.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Migration {
    Armed = 0x0,
    Rearm = 0x1,
    Migrated = 0x3,
}
