// SPDX-License-Identifier: GPL-2.0

//! `SpinLockIrq`, which the kernel crate has since Linux 7.3.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

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

/// A spinlock that disables interrupts on the local CPU while it is held.
pub(crate) type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// Creates a [`SpinLockIrq`] initialiser with a new lock class.
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

/// A backend of `spin_lock_irqsave()` and `spin_unlock_irqrestore()`.
pub(crate) struct SpinLockIrqBackend;

// SAFETY:
// * `spin_lock_irqsave()` returns when no other thread of execution owns the lock, until
//   `spin_unlock_irqrestore()`. Interrupts are off meanwhile, so that no handler waits for a lock
//   that the thread it interrupted owns; with PREEMPT_RT, handlers are threads.
// * `try_lock` returns a state only if the lock was taken.
// * `relock` is the default, which calls `lock`.
unsafe impl Backend for SpinLockIrqBackend {
    type State = spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut spinlock_t, name: *const c_char, key: *mut lock_class_key) {
        // SAFETY: The state of both is a `spinlock_t`, and both functions have the same
        // requirements.
        unsafe { SpinLockBackend::init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut spinlock_t) -> c_ulong {
        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this
        // function.
        unsafe { bindings::ib_xrc_rcv_spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut spinlock_t) -> Option<c_ulong> {
        let mut flags = 0;

        // SAFETY: `ptr` is valid and was initialised by `init`, by the requirements of this
        // function; `flags` is a local variable.
        unsafe { bindings::ib_xrc_rcv_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    unsafe fn unlock(ptr: *mut spinlock_t, flags: &c_ulong) {
        // SAFETY: By the requirements of this function, the caller owns the lock, and `lock` or
        // `try_lock` returned `flags` when it was taken, on this CPU: the owner of a spinlock does
        // not migrate.
        unsafe { bindings::ib_xrc_rcv_spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut spinlock_t) {
        // SAFETY: The state of both is a `spinlock_t`, and `init`, which calls that of
        // `SpinLockBackend`, initialised `ptr`.
        unsafe { SpinLockBackend::assert_is_held(ptr) }
    }
}
