// SPDX-License-Identifier: GPL-2.0

//! Processes that share an XRC domain, its receive QPs, and the device, which reports events and
//! may be removed: all their states, which stateright visits one after the other.
//!
//! Each step that the module reports is one of [`xrc_rcv_spec::Qp`], the specification that traces
//! are checked against, too. `Documentation/proof.rst` describes both.

mod system;

pub use system::{Fault, System};

#[cfg(test)]
mod tests;
