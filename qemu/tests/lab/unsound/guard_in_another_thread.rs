// SPDX-License-Identifier: GPL-2.0
// E0277
//! A spinlock that another thread releases: interrupts are disabled on a CPU.

use crate::kernel_ext::SpinLockIrq;

fn send<T: Send>(_to_another: T) {}

pub(crate) fn release_elsewhere(lock: &SpinLockIrq<u32>) {
    send(lock.lock());
}
