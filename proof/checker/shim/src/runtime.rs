// SPDX-License-Identifier: GPL-2.0

//! Threads, and what a checker counts in one execution.

use core::cell::Cell;

#[cfg(feature = "shuttle")]
pub use shuttle::{
    lazy_static,
    sync::{Condvar, Mutex, MutexGuard, RwLock},
    thread::{spawn, yield_now, JoinHandle},
    thread_local,
};
#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock},
    thread::{spawn, JoinHandle},
    thread_local,
};

/// Lets other threads run, which may be many on few CPUs.
#[cfg(not(feature = "shuttle"))]
pub fn yield_now() {
    std::thread::sleep(core::time::Duration::from_millis(1));
}

thread_local! {
    /// The number of spinlocks that the thread holds, and of event handlers that it is in.
    static ATOMIC: Cell<u32> = const { Cell::new(0) };
    /// The number of calls that the thread is in which end what others use.
    static ENDS: Cell<u32> = const { Cell::new(0) };
    /// The number of times that the thread asks before it is killed.
    static KILLED: Cell<Option<usize>> = const { Cell::new(None) };
    /// The number of allocations of the thread that succeed before the next one fails.
    static FAILS: Cell<Option<usize>> = const { Cell::new(None) };
    /// The time when the thread got the last mutex.
    static MUTEX: Cell<u64> = const { Cell::new(0) };
    /// The user that the thread runs as, if a test has said so.
    static USER: Cell<Option<Credentials>> = const { Cell::new(None) };
}

/// The user and the control group of a thread.
#[derive(Clone, Copy)]
pub struct Credentials {
    pub uid: u32,
    /// The user for whom its objects count: another in a user namespace.
    pub accounting_uid: u32,
    pub cgroup: usize,
    /// It has CAP_SYS_RESOURCE.
    pub may_exceed_limits: bool,
}

/// The things that there are limits on.
#[derive(Clone, Copy)]
pub enum Limit {
    QpsPerDomain,
    QpsPerUser,
    RegistrationsPerQp,
}

impl Limit {
    const NUMBER: usize = 3;
}

/// Counters of one execution: shuttle runs one in one thread of std.
#[cfg(feature = "shuttle")]
mod counters {
    use super::Limit;
    use core::cell::Cell;

    std::thread_local! {
        static OBJECTS: Cell<isize> = const { Cell::new(0) };
        static LISTED: [Cell<isize>; 3] = const { [const { Cell::new(0) }; 3] };
        static TIME: Cell<u64> = const { Cell::new(0) };
        static LIMITS: [Cell<u32>; Limit::NUMBER] = const { [const { Cell::new(0) }; Limit::NUMBER] };
    }

    pub fn set_limit(on: Limit, limit: u32) {
        LIMITS.with(|limits| limits[on as usize].set(limit));
    }

    pub fn limit(on: Limit) -> u32 {
        LIMITS.with(|limits| limits[on as usize].get())
    }

    pub fn add_objects(number: isize) -> isize {
        OBJECTS.set(OBJECTS.get() + number);
        OBJECTS.get()
    }

    pub fn add_listed(id: u64, number: isize) -> isize {
        LISTED.with(|listed| {
            let listed = &listed[id as usize];

            listed.set(listed.get() + number);
            listed.get()
        })
    }

    pub fn tick() -> u64 {
        TIME.set(TIME.get() + 1);
        TIME.get()
    }
}

#[cfg(not(feature = "shuttle"))]
mod counters {
    use super::Limit;
    use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, Ordering::SeqCst};

    static OBJECTS: AtomicIsize = AtomicIsize::new(0);
    static LISTED: [AtomicIsize; 3] = [const { AtomicIsize::new(0) }; 3];
    static TIME: AtomicU64 = AtomicU64::new(0);
    static LIMITS: [AtomicU32; Limit::NUMBER] = [const { AtomicU32::new(0) }; Limit::NUMBER];

    pub fn set_limit(on: Limit, limit: u32) {
        LIMITS[on as usize].store(limit, SeqCst);
    }

    pub fn limit(on: Limit) -> u32 {
        LIMITS[on as usize].load(SeqCst)
    }

    pub fn add_objects(number: isize) -> isize {
        OBJECTS.fetch_add(number, SeqCst) + number
    }

    pub fn add_listed(id: u64, number: isize) -> isize {
        LISTED[id as usize].fetch_add(number, SeqCst) + number
    }

    pub fn tick() -> u64 {
        TIME.fetch_add(1, SeqCst) + 1
    }
}

pub(crate) fn count_object(number: isize) {
    counters::add_objects(number);
}

/// Returns the number of objects that were allocated and not freed: of this execution under
/// shuttle, else of the process.
pub fn objects() -> isize {
    counters::add_objects(0)
}

pub(crate) fn count_listed(id: u64, number: isize) {
    counters::add_listed(id, number);
}

/// Returns the number of objects that are in lists of an id, less than 3: of this execution under
/// shuttle, else of the process.
pub fn listed(id: u64) -> isize {
    counters::add_listed(id, 0)
}

/// Sets the limit on the QPs of a domain, until it is set again; 0 is none.
pub fn set_limit(limit: u32) {
    set_limit_on(Limit::QpsPerDomain, limit);
}

/// Sets a limit, until it is set again; 0 is none.
pub fn set_limit_on(on: Limit, limit: u32) {
    counters::set_limit(on, limit);
}

/// Returns a limit.
pub fn limit_on(on: Limit) -> u32 {
    counters::limit(on)
}

/// The calling thread runs as a user from now on.
pub fn run_as(user: Credentials) {
    USER.with(|of_thread| of_thread.set(Some(user)));
}

/// Returns the user that the calling thread runs as, if it does.
pub fn user() -> Option<Credentials> {
    USER.with(Cell::get)
}

/// Returns a time that is later than that of each earlier call.
pub fn monotonic_ns() -> u64 {
    counters::tick()
}

pub(crate) fn has_mutex() {
    MUTEX.with(|time| time.set(monotonic_ns()));
}

/// Returns the time when the calling thread got the last mutex.
pub fn mutex_time() -> u64 {
    MUTEX.with(Cell::get)
}

/// Identifies the calling thread until it ends.
pub fn current_thread() -> usize {
    KILLED.with(|killed| core::ptr::from_ref(killed).addr())
}

/// Lets other threads run, as an access to shared memory does.
pub fn interleave() {
    #[cfg(feature = "shuttle")]
    shuttle::sync::atomic::AtomicBool::new(false).load(core::sync::atomic::Ordering::SeqCst);
}

/// Panics if the thread must not sleep now.
pub fn might_sleep(what: &str) {
    assert_eq!(ATOMIC.with(Cell::get), 0, "{what}, in atomic context");
}

/// Whether the thread must not sleep now.
pub fn is_atomic() -> bool {
    ATOMIC.with(Cell::get) != 0
}

/// Calls a function in atomic context, in which it must not sleep.
pub fn atomic<R>(call: impl FnOnce() -> R) -> R {
    enter_atomic();

    let result = call();

    leave_atomic();
    result
}

/// Calls a function that ends or reports what others wait for, and must not wake these itself.
pub fn for_others<R>(call: impl FnOnce() -> R) -> R {
    ENDS.with(|calls| calls.set(calls.get() + 1));

    let result = call();

    ENDS.with(|calls| calls.set(calls.get() - 1));
    result
}

/// Panics in such a call.
pub fn wakes_others() {
    let calls = ENDS.with(Cell::get);

    assert_eq!(calls, 0, "a thread wakes others, however many they are");
}

pub(crate) fn enter_atomic() {
    ATOMIC.with(|depth| depth.set(depth.get() + 1));
}

pub(crate) fn leave_atomic() {
    ATOMIC.with(|depth| depth.set(depth.get() - 1));
}

/// Kills the calling thread, which finds out where it waits for something.
pub fn kill() {
    kill_after(0);
}

/// Kills the calling thread after it has asked [`is_killed`] so many times.
pub fn kill_after(questions: usize) {
    KILLED.with(|killed| killed.set(Some(questions)));
}

pub fn is_killed() -> bool {
    KILLED.with(|killed| match killed.get() {
        Some(0) => true,
        left => {
            killed.set(left.map(|left| left - 1));
            false
        }
    })
}

/// Lets an allocation of the calling thread fail, after so many that succeed.
pub fn fail_allocation(after: usize) {
    FAILS.with(|fails| fails.set(Some(after)));
}

/// Lets none fail after the call that the thread has made.
pub fn call_has_ended() {
    FAILS.with(|fails| fails.set(fails.get().and(Some(usize::MAX))));
}

/// Lets all succeed again. Returns whether one has failed.
pub fn allocations_succeed() -> bool {
    FAILS.with(Cell::take).is_none()
}

/// Whether this allocation fails.
pub fn allocation_fails() -> bool {
    FAILS.with(|fails| match fails.get() {
        Some(left) => {
            fails.set(left.checked_sub(1));
            left == 0
        }
        None => false,
    })
}

/// Returns a number less than `numbers`, which the scheduler chooses.
#[cfg(feature = "shuttle")]
pub fn choose(numbers: usize) -> usize {
    use shuttle::rand::{thread_rng, Rng};

    thread_rng().gen_range(0..numbers)
}

/// Returns a number less than `numbers`, another one each time.
#[cfg(not(feature = "shuttle"))]
pub fn choose(numbers: usize) -> usize {
    counters::tick() as usize % numbers
}

/// Runs a test that does not depend on the interleaving.
pub fn test<R: Send + 'static>(test: impl Fn() -> R + Send + Sync + 'static) -> R {
    let result = std::sync::Arc::new(std::sync::Mutex::new(None));
    let of_execution = result.clone();

    check(1, 0, move || *of_execution.lock().unwrap() = Some(test()));

    let result = result.lock().unwrap().take();

    result.expect("the test has run")
}

/// Executes a function often: half the times in random order, in which each thread is as likely to
/// be the next one, and half by PCT, in which a thread runs until one of few points. A failed
/// execution can be replayed by what shuttle prints of it.
#[cfg(feature = "shuttle")]
pub fn check(executions: usize, seed: u64, execution: impl Fn() + Send + Sync + 'static) {
    use shuttle::{
        scheduler::{PctScheduler, RandomScheduler},
        Config, Runner,
    };

    /// The number of those points.
    const DEPTH: usize = 3;

    let mut config = Config::new();
    let execution = std::sync::Arc::new(execution);
    let again = execution.clone();
    let random = RandomScheduler::new_from_seed(seed, executions.div_ceil(2));

    // Code that is not optimised needs more than the default.
    config.stack_size = 0x2_0000;
    // shuttle warns of a static that is dropped with a value, as those of the module are.
    config.silence_warnings = true;
    Runner::new(random, config.clone()).run(move || execution());
    if executions > 1 {
        let pct = PctScheduler::new_from_seed(seed, DEPTH, executions / 2);

        Runner::new(pct, config).run(move || again());
    }
}

/// Executes a function often, with threads of std.
#[cfg(not(feature = "shuttle"))]
pub fn check(executions: usize, _seed: u64, execution: impl Fn() + Send + Sync + 'static) {
    for _ in 0..executions {
        execution();
    }
}
