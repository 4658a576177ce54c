// SPDX-License-Identifier: GPL-2.0

//! `SpinLockIrq`, as the kernel crate has it from Linux 7.3 on.

use super::bindings;
use kernel::{
    bindings::{
        lock_class_key,
        spinlock_t, //
    },
    prelude::*,
    sync::lock::{
        spinlock::SpinLockBackend,
        Backend,
        Lock, //
    }, //
};

/// A spinlock that disables interrupts of the CPU while it is held.
pub(crate) type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

macro_rules! new_spinlock_irq {
    ($inner:expr, $name:literal) => {
        $crate::rdma::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_irq;

/// `spin_lock_irqsave()` and its counterpart.
pub(crate) struct SpinLockIrqBackend;

// SAFETY: The kernel's `spinlock_t` gives mutual exclusion. `relock` is the default, which calls
// `lock`.
unsafe impl Backend for SpinLockIrqBackend {
    type State = spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut spinlock_t, name: *const c_char, key: *mut lock_class_key) {
        // SAFETY: It is the same lock, and the requirements are the same.
        unsafe { SpinLockBackend::init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut spinlock_t) -> c_ulong {
        // SAFETY: `ptr` was initialised by `init`.
        unsafe { bindings::xrc_rcv_spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut spinlock_t) -> Option<c_ulong> {
        let mut flags = 0;

        // SAFETY: `ptr` was initialised by `init`; `flags` is valid for writes.
        unsafe { bindings::xrc_rcv_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    unsafe fn unlock(ptr: *mut spinlock_t, flags: &c_ulong) {
        // SAFETY: The caller owns the lock and `flags` are what taking it returned.
        unsafe { bindings::xrc_rcv_spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut spinlock_t) {
        // SAFETY: It is the same lock, and was initialised by `init`.
        unsafe { SpinLockBackend::assert_is_held(ptr) }
    }
}
