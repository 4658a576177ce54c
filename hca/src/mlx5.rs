// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ConnectX-6, a function with one InfiniBand port: its registers, commands, contexts, queues
//! and keys, as `mlx5_core`, `mlx5_ib` and `libmlx5` use them. A group of lines may import groups
//! below it.
//!
//! Written from the driver and its headers, not from the programmer's manual: what the driver does
//! not say about silicon is a guess.

pub mod interface;

pub mod commands;
pub mod registers;

pub mod card;

pub mod cq;

pub mod eq;
pub mod mkey;
pub mod queues;
pub mod srq;

pub mod command;
pub mod memory;
pub mod qpc;
pub mod wqe;

pub mod identity;
pub mod ifc;

#[cfg(test)]
pub(crate) mod testing;
