// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Asynchronous events, before a card writes them into a queue.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Event types (enum mlx4_event; those of mlx5 have the same numbers).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
#[repr(u8)]
pub enum EventType {
    Comp = 0x00,
    PathMig = 0x01,
    CommEst = 0x02,
    SqDrained = 0x03,
    CqError = 0x04,
    WqCatasError = 0x05,
    PathMigFailed = 0x07,
    PortChange = 0x09,
    Cmd = 0x0a,
    WqInvalReqError = 0x10,
    WqAccessError = 0x11,
    SrqCatasError = 0x12,
    SrqQpLastWqe = 0x13,
    SrqLimit = 0x14,
}
