// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The layer's state: open devices, their event channels and registrations, and pairs of QPs.
//!
//! One lock is over all of it. It is held for a look-up or a change and over no system call.
//! `fork()` takes it, so that the child finds it free and the state consistent. It takes the lock
//! of the crate's tables first: with this lock held, no channel is created, or dropped for the last
//! time.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use xrc_rcv::EventChannel;

use crate::device::{Device, Registered};
use crate::pair::Pair;
use crate::real;

/// The layer's state.
pub(crate) struct State {
    /// By the address of their `ibv_context`.
    pub(crate) devices: BTreeMap<usize, Device>,
    /// By the same address and that of the `ibv_xrc_domain`; non-blocking.
    pub(crate) channels: BTreeMap<(usize, usize), Arc<EventChannel>>,
    /// By the same address and the number of the QP.
    pub(crate) registrations: BTreeMap<(usize, u32), Registered>,
    /// By the address of their initiator.
    pub(crate) pairs: BTreeMap<usize, Pair>,
}

static STATE: Mutex<State> = Mutex::new(State {
    devices: BTreeMap::new(),
    channels: BTreeMap::new(),
    registrations: BTreeMap::new(),
    pairs: BTreeMap::new(),
});

/// The state, locked.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap()
}

/// The lock while the process forks.
struct Forking(UnsafeCell<Option<MutexGuard<'static, State>>>);

// SAFETY: Only the thread that forks, and its copy in the child, use it: the lock is theirs
// meanwhile.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let state = lock();
    // SAFETY: This thread has the lock, and so `FORKING` to itself.
    unsafe { *FORKING.0.get() = Some(state) };
}

extern "C" fn after_fork_in_parent() {
    // SAFETY: This thread has the lock, and so `FORKING` to itself.
    drop(unsafe { (*FORKING.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    // SAFETY: The child's only thread is the copy of the thread that holds the lock.
    if let Some(mut state) = unsafe { (*FORKING.0.get()).take() } {
        // A thread that was taking an event, or was registering, is not in the child.
        for device in state.devices.values_mut() {
            device.reading = Default::default();
            device.registering = Default::default();
        }
    }
}

/// Runs when the library is loaded, to prepare the calls that may come in a forked child or be
/// cancelled.
extern "C" fn load() {
    real::look_up_all();
    let handlers = (before_fork, after_fork_in_parent, after_fork_in_child);
    // SAFETY: The handlers are functions of this library. Without memory for them, all is as if
    // they did not exist.
    unsafe { libc::pthread_atfork(Some(handlers.0), Some(handlers.1), Some(handlers.2)) };
}

// SAFETY: The C library calls the functions in this section when it loads the library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;
