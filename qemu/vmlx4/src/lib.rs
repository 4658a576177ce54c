// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A modelled ConnectX-3: what the unmodified `mlx4_core`, `mlx4_ib` and `libmlx4` expect of one.
//!
//! QEMU's `vfio-user-pci` is the only client. From the guest down to the wire:
//!
//! * [`server`] speaks vfio-user and owns the threads; [`pci`] is the configuration space;
//! * [`hca`] is one adapter: its registers ([`hcr`], [`uar`]), its memory ([`memory`], [`icm`]),
//!   its objects ([`eq`], [`cq`], [`srq`], [`qp`], [`mpt`], [`mcg`]) and its firmware
//!   ([`command`], [`firmware`], [`mad`]);
//! * [`wqe`] is what the guest posts, [`requester`] sends it, [`responder`] receives it and
//!   [`fabric`] carries it between ports;
//! * [`violation`] is what a driver must not do, [`fault`] what a test may do to all of this, and
//!   [`control`] how it asks.
//!
//! One mutex, around [`fabric::Fabric`], guards everything. Nothing a guest writes may panic the
//! process: offsets into device structures are constants, everything else is checked.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod bytes;
pub mod command;
pub mod control;
pub mod cq;
pub mod eq;
pub mod fabric;
pub mod fault;
pub mod firmware;
pub mod hca;
pub mod hcr;
pub mod icm;
pub mod mad;
pub mod mcg;
pub mod memory;
pub mod mpt;
pub mod pci;
pub mod qp;
pub mod qpc;
pub mod requester;
pub mod responder;
pub mod schedule;
pub mod server;
pub mod srq;
pub mod uar;
pub mod violation;
pub mod wqe;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod testing;
