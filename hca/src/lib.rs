// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Modelled adapters, for unmodified drivers: a ConnectX-3 for `mlx4_core`, `mlx4_ib` and
//! `libmlx4`, a ConnectX-6 for `mlx5_core`, `mlx5_ib` and `libmlx5`.
//!
//! QEMU's `vfio-user-pci` is the only client. [`engine`] is what any adapter has, `mlx4` and `mlx5`
//! are cards. `mlx5` is there if the kernel's `mlx5_ifc.h` was, when the crate was built
//! (`build.rs`).
//!
//! One mutex, around [`engine::fabric::Fabric`], guards everything. Nothing a guest writes may
//! panic the process: offsets into device structures are constants, everything else is checked.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod mlx4;
#[cfg(mlx5)]
pub mod mlx5;

pub mod engine;
