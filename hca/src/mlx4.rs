// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The ConnectX-3: its registers, commands, contexts, queues and keys, as `mlx4_core`, `mlx4_ib` and
//! `libmlx4` use them.

pub mod command;
pub mod cq;
pub mod eq;
pub mod firmware;
pub mod hcr;
pub mod icm;
pub mod mad;
pub mod mcg;
pub mod mpt;
pub mod qp;
pub mod qpc;
pub mod srq;
pub mod uar;
pub mod wqe;

#[cfg(test)]
mod hostile;
#[cfg(test)]
pub mod testing;
