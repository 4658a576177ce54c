// SPDX-License-Identifier: GPL-2.0

//! Processes that share XRC domains, their receive QPs, and the device, which reports events and
//! may be removed: all their states, which stateright visits one after the other.
//!
//! [`System`] has the steps between which the module holds no lock, each of which is one of
//! [`xrc_rcv_spec::Qp`]. [`Node`] has the calls, reads and events of [`xrc_rcv_spec::Contract`],
//! compared with what the processes were promised. `Documentation/proof.rst` describes both.

mod node;
mod promises;
mod system;

pub use node::{ChannelTerms, FileTerms, Node, Shown};
pub use system::{Fault, Mask, System};

#[cfg(test)]
mod tests;
