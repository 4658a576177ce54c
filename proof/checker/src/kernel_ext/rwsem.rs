// SPDX-License-Identifier: GPL-2.0

//! `src/kernel_ext/rwsem.rs`, of the checker's mutex and condition variable.

use core::{
    cell::{Cell, UnsafeCell},
    ops::{Deref, DerefMut},
};
use kernel::{
    prelude::*,
    runtime,
    sync::{order, CondVar, Mutex},
};

runtime::thread_local! {
    /// The number of semaphores that the thread reads.
    static READ: Cell<usize> = const { Cell::new(0) };
}

/// Whether a writer of a semaphore has to wait for the thread.
pub(crate) fn is_reader() -> bool {
    READ.with(Cell::get) != 0
}

/// A writer that waits keeps new readers out, as in the kernel.
pub(crate) struct RwSemaphore<T> {
    name: &'static str,
    holders: Mutex<Holders>,
    changed: CondVar,
    data: UnsafeCell<T>,
}

#[derive(Default)]
struct Holders {
    readers: usize,
    has_writer: bool,
    waiting_writers: usize,
}

// SAFETY: There are many readers, which share the data, or one writer.
unsafe impl<T: Send + Sync> Sync for RwSemaphore<T> {}

macro_rules! new_rwsem {
    ($data:expr, $name:literal) => {
        $crate::kernel_ext::rwsem::RwSemaphore::new($data, $name)
    };
}
pub(crate) use new_rwsem;

impl<T> RwSemaphore<T> {
    pub(crate) fn new(data: T, name: &'static str) -> Self {
        Self {
            name,
            holders: Mutex::new(Holders::default(), "RwSemaphore::holders"),
            changed: CondVar::new(),
            data: UnsafeCell::new(data),
        }
    }

    pub(crate) fn read_killable(&self) -> Result<ReadGuard<'_, T>> {
        runtime::might_sleep(self.name);
        order::waits_for(self.name);

        let mut holders = self.holders.lock();

        while holders.has_writer || holders.waiting_writers > 0 {
            if runtime::is_killed() {
                return Err(EINTR);
            }
            self.changed.wait(&mut holders);
        }
        holders.readers += 1;
        READ.with(|read| read.set(read.get() + 1));
        order::holds(self.name);
        Ok(ReadGuard(self))
    }

    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        runtime::might_sleep(self.name);
        order::waits_for(self.name);

        let mut holders = self.holders.lock();

        holders.waiting_writers += 1;
        while holders.has_writer || holders.readers > 0 {
            self.changed.wait(&mut holders);
        }
        holders.waiting_writers -= 1;
        holders.has_writer = true;
        order::holds(self.name);
        WriteGuard(self)
    }
}

pub(crate) struct ReadGuard<'a, T>(&'a RwSemaphore<T>);

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: There is no writer.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        READ.with(|read| read.set(read.get() - 1));
        order::releases(self.0.name);
        self.0.holders.lock().readers -= 1;
        self.0.changed.notify_all();
    }
}

pub(crate) struct WriteGuard<'a, T>(&'a RwSemaphore<T>);

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The writer is the only holder.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The guard has the semaphore for writing, so nothing else has the data.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        order::releases(self.0.name);
        self.0.holders.lock().has_writer = false;
        self.0.changed.notify_all();
    }
}
