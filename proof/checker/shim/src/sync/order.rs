// SPDX-License-Identifier: GPL-2.0

//! The order in which locks are taken, by their classes, as lockdep has it: no two classes are
//! taken in either order, by any threads of any execution of the process, also if these never meet.

use crate::runtime;
use core::cell::RefCell;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

/// The classes that were taken while another was held, by that.
static ORDERS: Mutex<BTreeMap<Class, BTreeSet<Class>>> = Mutex::new(BTreeMap::new());

/// The name of a lock.
type Class = &'static str;

runtime::thread_local! {
    /// The classes of the locks that the thread holds.
    static HELD: RefCell<Vec<Class>> = const { RefCell::new(Vec::new()) };
}

/// The thread is about to take a lock, for which it may wait. Panics if that can be a deadlock.
pub fn waits_for(class: Class) {
    if std::thread::panicking() {
        return;
    }

    let held = HELD.with(|held| held.borrow().clone());

    if held.is_empty() {
        return;
    }

    let mut orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);

    for before in held {
        let is_new = orders.entry(before).or_default().insert(class);

        assert!(
            !is_new || !leads(&orders, class, before),
            "{class} is taken after {before}, and before it"
        );
    }
}

/// The thread holds a lock.
pub fn holds(class: Class) {
    HELD.with(|held| held.borrow_mut().push(class));
}

/// The thread holds it no more.
pub fn releases(class: Class) {
    HELD.with(|held| {
        let mut held = held.borrow_mut();

        if let Some(index) = held.iter().rposition(|of| *of == class) {
            held.remove(index);
        }
    });
}

/// Whether a class is another, or was taken before it, with others between.
fn leads(orders: &BTreeMap<Class, BTreeSet<Class>>, from: Class, to: Class) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut next = vec![from];

    while let Some(class) = next.pop() {
        if class == to {
            return true;
        }
        for after in orders.get(class).into_iter().flatten() {
            if seen.insert(*after) {
                next.push(*after);
            }
        }
    }
    false
}

/// Returns the classes that were taken while another was held, in pairs.
pub fn orders() -> Vec<(Class, Class)> {
    let orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let pairs = orders
        .iter()
        .flat_map(|(before, after)| after.iter().map(move |after| (*before, *after)));

    pairs.collect()
}

#[cfg(test)]
mod tests {
    use crate::{runtime, sync::Mutex};

    /// Takes locks, each while those before are held.
    fn take(locks: &[&Mutex<()>]) {
        if let [first, others @ ..] = locks {
            let _held = first.lock();

            take(others);
        }
    }

    fn check(execution: fn([&Mutex<()>; 3])) {
        runtime::check(1, 0, move || {
            let locks = ["order::a", "order::b", "order::c"].map(|name| Mutex::new((), name));

            execution([&locks[0], &locks[1], &locks[2]]);
        });
    }

    #[test]
    fn one_order() {
        check(|[a, b, c]| {
            take(&[a, b, c]);
            take(&[a, c]);
            take(&[b]);
            take(&[c]);
        });
    }

    /// No thread waits for another: they come one after the other.
    #[test]
    #[should_panic(expected = "order::d is taken after order::f, and before it")]
    fn a_circle_of_three() {
        runtime::check(1, 0, || {
            let [d, e, f] = ["order::d", "order::e", "order::f"].map(|name| Mutex::new((), name));

            take(&[&d, &e]);
            take(&[&e, &f]);
            take(&[&f, &d]);
        });
    }

    #[test]
    #[should_panic(expected = "order::g is taken after order::g, and before it")]
    fn two_of_a_class() {
        runtime::check(1, 0, || {
            let [one, other] = ["order::g"; 2].map(|name| Mutex::new((), name));

            take(&[&one, &other]);
        });
    }
}
