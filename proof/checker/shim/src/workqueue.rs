// SPDX-License-Identifier: GPL-2.0

//! `kernel::workqueue`, with a thread for each item that is queued.

use crate::{runtime, sync::Arc};
use std::sync::Arc as StdArc;

/// The place of an object in a queue.
pub struct Work<T>(StdArc<runtime::Mutex<State<T>>>);

struct State<T> {
    /// The object, from when it is queued until it runs.
    pending: Option<Arc<T>>,
    is_running: bool,
}

impl<T> Work<T> {
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(StdArc::new(runtime::Mutex::new(State {
            pending: None,
            is_running: false,
        })))
    }
}

/// An object with a [`Work`].
pub trait HasWork: Sized {
    fn work(&self) -> &Work<Self>;
}

/// The function of an object that is queued.
pub trait WorkItem {
    type Pointer;

    fn run(this: Self::Pointer);
}

/// A queue of objects.
#[derive(Clone, Default)]
pub struct Queue(StdArc<Workers>);

#[derive(Default)]
struct Workers {
    number: runtime::Mutex<usize>,
    none: runtime::Condvar,
}

impl Queue {
    /// Has a worker run an item, or returns it if it is queued already. An item runs once at a
    /// time.
    pub fn enqueue<T>(&self, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: HasWork + WorkItem<Pointer = Arc<T>> + Send + Sync + 'static,
    {
        let work = item.work().0.clone();

        {
            let mut state = work.lock().unwrap();

            if state.pending.is_some() {
                return Err(item);
            }
            state.pending = Some(item);
            if state.is_running {
                return Ok(());
            }
            state.is_running = true;
        }

        let workers = self.0.clone();

        *workers.number.lock().unwrap() += 1;
        runtime::spawn(move || {
            loop {
                let mut state = work.lock().unwrap();
                let Some(item) = state.pending.take() else {
                    state.is_running = false;
                    break;
                };

                drop(state);
                T::run(item);
            }

            let mut number = workers.number.lock().unwrap();

            *number -= 1;
            if *number == 0 {
                workers.none.notify_all();
            }
        });
        Ok(())
    }

    /// Waits until no item is queued or running.
    pub fn drain(&self) {
        runtime::might_sleep("draining a workqueue");

        let mut number = self.0.number.lock().unwrap();

        while *number != 0 {
            number = self.0.none.wait(number).unwrap();
        }
    }
}

#[macro_export]
#[doc(hidden)]
macro_rules! __impl_has_work {
    (impl $({$($generics:tt)*})? HasWork<Self> for $type:ty { self.$field:ident }) => {
        impl $(<$($generics)*>)? $crate::workqueue::HasWork for $type {
            fn work(&self) -> &$crate::workqueue::Work<Self> {
                &self.$field
            }
        }
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __new_work {
    ($name:literal) => {
        $crate::workqueue::Work::new()
    };
}

pub use crate::{__impl_has_work as impl_has_work, __new_work as new_work};
