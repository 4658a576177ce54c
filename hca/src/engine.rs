// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Everything an adapter has that is no card's own: the subnet, the two halves of a transport, memory,
//! faults, violations, and the process around them. It names no card.

pub mod administration;
pub mod bytes;
pub mod capture;
pub mod control;
pub mod fabric;
pub mod fault;
pub mod hca;
pub mod headers;
pub mod memory;
pub mod pci;
pub mod requester;
pub mod responder;
pub mod schedule;
pub mod server;
pub mod violation;
