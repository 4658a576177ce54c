// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ConnectX-3: its registers, commands, contexts, queues and keys, as `mlx4_core`, `mlx4_ib`
//! and `libmlx4` use them. A group of lines may import groups below it.

pub mod interface;

pub mod commands;
pub mod registers;

pub mod card;

pub mod command;
pub mod cq;
pub mod eq;
pub mod firmware;
pub mod hcr;
pub mod mcg;
pub mod mpt;
pub mod qp;
pub mod srq;
pub mod uar;

pub mod qpc;
pub mod wqe;

pub mod icm;
pub mod identity;

#[cfg(test)]
mod hostile;
#[cfg(test)]
pub(crate) mod testing;
