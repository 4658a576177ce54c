// SPDX-License-Identifier: GPL-2.0
// E0308
//! A spinlock that is acquired as a mutex.

use crate::kernel_ext::mutex::lock_killable;
use kernel::{
    prelude::*,
    sync::SpinLock, //
};

pub(crate) fn acquire(spinlock: &SpinLock<u32>) -> Result<u32> {
    Ok(*lock_killable(spinlock)?)
}
