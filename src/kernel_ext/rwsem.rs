// SPDX-License-Identifier: GPL-2.0

//! A reader-writer semaphore, for which the kernel crate has no type.
//!
//! C header: [`include/linux/rwsem.h`](srctree/include/linux/rwsem.h)

use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    },
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::LockClassKey,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// Creates a [`RwSemaphore`] initialiser with a new lock class.
macro_rules! new_rwsem {
    ($inner:expr, $name:literal) => {
        $crate::kernel_ext::rwsem::RwSemaphore::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_rwsem;

/// A `struct rw_semaphore` and the data that it guards: many readers, or one writer.
#[pin_data]
pub(crate) struct RwSemaphore<T> {
    #[pin]
    state: Opaque<bindings::rw_semaphore>,
    data: UnsafeCell<T>,
}

// SAFETY: The semaphore belongs to no thread while it is not held, and its data may be sent.
unsafe impl<T: Send> Send for RwSemaphore<T> {}

// SAFETY: Readers in several threads share the data, which is `Sync`; the writer, in any thread,
// has exclusive access to it, which needs `Send`.
unsafe impl<T: Send + Sync> Sync for RwSemaphore<T> {}

impl<T> RwSemaphore<T> {
    /// Creates a semaphore that is not held.
    pub(crate) fn new(
        data: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes, by the requirements of `ffi_init`; `name` and
            // `key` are static. The semaphore is pinned from now on, which its list head needs.
            state <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_rwsem(slot, name.as_char_ptr(), key.as_ptr())
            }),
            data: UnsafeCell::new(data),
        })
    }

    /// Acquires the semaphore for reading. `EINTR` if the caller is killed while it waits.
    pub(crate) fn read_killable(&self) -> Result<ReadGuard<'_, T>> {
        // SAFETY: `new` initialised the semaphore, which is valid as long as it is borrowed. The
        // caller may sleep, as for every call that waits.
        to_result(unsafe { bindings::down_read_killable(self.state.get()) })?;
        // INVARIANT: It returned 0, so the caller is a reader.
        Ok(ReadGuard {
            semaphore: self,
            _of_this_task: NotThreadSafe,
        })
    }

    /// Acquires the semaphore for writing.
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        // SAFETY: The semaphore is initialised, and valid as long as it is borrowed.
        unsafe { bindings::down_write(self.state.get()) };
        // INVARIANT: `down_write()` returns when the caller is the writer.
        WriteGuard {
            semaphore: self,
            _of_this_task: NotThreadSafe,
        }
    }
}

/// Access of a reader, until dropped.
///
/// # Invariants
///
/// The task that created it is a reader of the semaphore.
pub(crate) struct ReadGuard<'a, T> {
    semaphore: &'a RwSemaphore<T>,
    _of_this_task: NotThreadSafe,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariant, there is no writer as long as the guard is borrowed.
        unsafe { &*self.semaphore.data.get() }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the task that created the guard is a reader. It is this
        // one, as the guard is not `Send`.
        unsafe { bindings::up_read(self.semaphore.state.get()) }
    }
}

/// Access of the writer, until dropped.
///
/// # Invariants
///
/// The task that created it is the writer of the semaphore.
pub(crate) struct WriteGuard<'a, T> {
    semaphore: &'a RwSemaphore<T>,
    _of_this_task: NotThreadSafe,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariant, nothing else accesses the data.
        unsafe { &*self.semaphore.data.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariant, nothing else accesses the data.
        unsafe { &mut *self.semaphore.data.get() }
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the task that created the guard is the writer. It is this
        // one, as the guard is not `Send`.
        unsafe { bindings::up_write(self.semaphore.state.get()) }
    }
}

#[kunit_tests(ib_xrc_rcv_rwsem)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn readers_share_what_a_writer_wrote() -> Result {
        let semaphore = Arc::pin_init(new_rwsem!(1, "tests::rwsem"), GFP_KERNEL)?;

        *semaphore.write() += 1;

        let first = semaphore.read_killable()?;

        // SAFETY: The semaphore is initialised, and valid as long as it is borrowed.
        assert!(unsafe { bindings::down_write_trylock(semaphore.state.get()) } == 0);
        // SAFETY: The semaphore is the same, and the function does not wait.
        assert!(unsafe { bindings::down_read_trylock(semaphore.state.get()) } == 1);
        assert_eq!(*first, 2);
        // SAFETY: `down_read_trylock()` made the task a reader once more.
        unsafe { bindings::up_read(semaphore.state.get()) };
        drop(first);

        let writer = semaphore.write();

        // SAFETY: The semaphore is initialised, and valid as long as it is borrowed.
        assert!(unsafe { bindings::down_read_trylock(semaphore.state.get()) } == 0);
        drop(writer);
        Ok(())
    }
}
