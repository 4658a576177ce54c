// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync`

pub mod aref;
pub mod atomic;
pub mod lock;
pub mod order;

mod arc;

pub use self::{
    arc::{Arc, ArcBorrow},
    lock::{CondVar, LockedBy, Mutex, SpinLock, SpinLockIrq},
};
pub use crate::{__global_lock as global_lock, __new_spinlock_irq as new_spinlock_irq};
