// SPDX-License-Identifier: GPL-2.0

//! A spinlock that disables interrupts of the CPU while it is held.
//!
//! Providers report QP events from any context, hard interrupts included, so whatever an event
//! handler touches needs such a lock. [`kernel::sync::SpinLock`] leaves interrupts alone.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use super::bindings;
use kernel::{
    prelude::*,
    sync::lock::{
        Backend,
        Lock, //
    }, //
};

/// A [`Lock`] that can be taken in any context.
pub(crate) type IrqSpinLock<T> = Lock<T, IrqSpinLockBackend>;

/// Creates an initialiser of an [`IrqSpinLock`] with a lock class of its own.
macro_rules! new_irq_spinlock {
    ($inner:expr, $name:literal) => {
        $crate::rdma::irq_lock::IrqSpinLock::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_irq_spinlock;

/// `spin_lock_irqsave()` and its counterpart.
pub(crate) struct IrqSpinLockBackend;

// SAFETY: The kernel's `spinlock_t` gives mutual exclusion. `relock` is the default, which calls
// `lock`.
unsafe impl Backend for IrqSpinLockBackend {
    type State = kernel::bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for writes, `name` and `key` stay valid, by the requirements of
        // this function.
        unsafe { kernel::bindings::__spin_lock_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `ptr` was initialised by `init`.
        unsafe { bindings::xrc_rcv_spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;

        // SAFETY: `ptr` was initialised by `init`; `flags` is valid for writes.
        unsafe { bindings::xrc_rcv_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    unsafe fn unlock(ptr: *mut Self::State, flags: &Self::GuardState) {
        // SAFETY: The caller owns the lock and `flags` are what taking it returned.
        unsafe { bindings::xrc_rcv_spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` was initialised by `init`.
        unsafe { bindings::xrc_rcv_lockdep_assert_held(ptr) }
    }
}
