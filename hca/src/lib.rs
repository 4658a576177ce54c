// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A modelled ConnectX-3, for the unmodified `mlx4_core`, `mlx4_ib` and `libmlx4`.
//!
//! QEMU's `vfio-user-pci` is the only client. [`engine`] is what any adapter has, [`mlx4`] is the card.
//!
//! One mutex, around [`engine::fabric::Fabric`], guards everything. Nothing a guest writes may panic the
//! process: offsets into device structures are constants, everything else is checked.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod mlx4;

pub mod engine;
