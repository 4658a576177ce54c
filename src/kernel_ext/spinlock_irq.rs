// SPDX-License-Identifier: GPL-2.0

//! `SpinLockIrq`, as the kernel crate has it from Linux 7.3 on.

use crate::bindings;
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
        $crate::kernel_ext::spinlock_irq::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_irq;

/// `spin_lock_irqsave()` and its counterpart.
pub(crate) struct SpinLockIrqBackend;

// SAFETY:
// * `spin_lock_irqsave()` returns when no other thread of execution owns the lock, until
//   `spin_unlock_irqrestore()`: interrupts of the CPU, which could find it owned by what they
//   interrupted, are off meanwhile, or threads with PREEMPT_RT.
// * `try_lock` returns a state only if the lock was taken.
// * `relock` is the default, which calls `lock`.
unsafe impl Backend for SpinLockIrqBackend {
    type State = spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut spinlock_t, name: *const c_char, key: *mut lock_class_key) {
        // SAFETY: The state of both is a `spinlock_t`; what is required of `ptr`, `name` and `key` here
        // is what is required there.
        unsafe { SpinLockBackend::init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut spinlock_t) -> c_ulong {
        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this function.
        unsafe { bindings::ib_xrc_rcv_spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut spinlock_t) -> Option<c_ulong> {
        let mut flags = 0;

        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this function;
        // `flags` is a local variable.
        unsafe { bindings::ib_xrc_rcv_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    unsafe fn unlock(ptr: *mut spinlock_t, flags: &c_ulong) {
        // SAFETY: By the requirements of this function, the caller owns the lock, and `flags` are what
        // `lock` or `try_lock` returned when it was taken, on this CPU: with the lock owned, nothing
        // moves to another.
        unsafe { bindings::ib_xrc_rcv_spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut spinlock_t) {
        // SAFETY: The state of both is a `spinlock_t`, and `ptr` was initialised by `init`, which is
        // that of `SpinLockBackend`.
        unsafe { SpinLockBackend::assert_is_held(ptr) }
    }
}
