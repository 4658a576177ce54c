// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Everything an adapter has that is no card's own. It knows no card; a group of lines may import
//! groups below it.
//!
//! The cards are of one maker, and have more in common than this: numbers of opcodes, layouts of
//! segments, the maps of their queues by number. These stay with each card, to be read beside the
//! header of its driver, which has a list of its own of each, too. Where two lists differ in a bit,
//! as the owner bits of EQEs do, one function for both would hide it.

pub mod control;
pub mod server;

pub mod fabric;

pub mod adapter;

pub mod management;
pub mod requester;
pub mod responder;

pub mod data;
pub mod progress;

pub mod hca;

pub mod administration;
pub mod capture;

pub mod completion;
pub mod key;
pub mod packet;
pub mod port;
pub mod qp;
pub mod shared_queue;

pub mod event;
pub mod fault;
pub mod headers;
pub mod memory;
pub mod pci;
pub mod schedule;
pub mod transport;
pub mod work;

pub mod bytes;
pub mod violation;
