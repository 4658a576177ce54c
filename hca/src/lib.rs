// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A modelled ConnectX-3, for the unmodified `mlx4_core`, `mlx4_ib` and `libmlx4`.
//!
//! QEMU's `vfio-user-pci` is the only client. From the guest down to the wire:
//!
//! * [`server`] speaks vfio-user and owns the threads; [`pci`] is the configuration space;
//! * [`hca`] is one adapter: its registers ([`hcr`], [`uar`]), its memory ([`memory`], [`icm`]),
//!   its objects ([`eq`], [`cq`], [`srq`], [`qp`], [`mpt`], [`mcg`]) and its firmware
//!   ([`command`], [`firmware`], [`mad`]);
//! * [`wqe`] has the work requests that the guest posts, [`requester`] sends them, [`responder`]
//!   receives them and [`fabric`] carries them between ports; [`headers`] are those of packets;
//! * [`administration`] answers for the subnet manager;
//! * [`violation`] lists the rules that a driver must keep, [`fault`] the faults that a test can inject,
//!   [`control`] is the interface for tests, and [`capture`] records the packets that the wire does not lose.
//!
//! One mutex, around [`fabric::Fabric`], guards everything. Nothing a guest writes may panic the
//! process: offsets into device structures are constants, everything else is checked.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod administration;
pub mod bytes;
pub mod capture;
pub mod command;
pub mod control;
pub mod cq;
pub mod eq;
pub mod fabric;
pub mod fault;
pub mod firmware;
pub mod hca;
pub mod hcr;
pub mod headers;
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
