// SPDX-License-Identifier: GPL-2.0

//! Configurations whose states are all visited, and faults that a property has to find.

use crate::{Fault, System};
use stateright::{Checker, Model};

/// Visits all states, and prints their number.
fn check<const F: usize, const Q: usize>(events: u8) {
    let system = System::<F, Q> {
        events,
        fault: None,
    };
    let checker = system.checker().threads(2).spawn_bfs().join();

    println!(
        "{F} files, {Q} QPs, {events} events: {} states, {} steps",
        checker.unique_state_count(),
        checker.state_count()
    );
    checker.assert_properties();
}

/// More with MODEL_LONG, as `scripts/unit-tests --executions` sets it.
#[test]
fn all_states() {
    check::<2, 1>(2);
    check::<3, 2>(1);
    if std::env::var_os("MODEL_LONG").is_some() {
        check::<4, 1>(2);
        check::<2, 2>(2);
    }
}

#[test]
fn each_fault_is_found() {
    for (fault, property) in Fault::ALL {
        let system = System::<3, 1> {
            events: 1,
            fault: Some(fault),
        };
        let checker = system.checker().spawn_bfs().join();
        let found = checker.discovery(property);

        assert!(found.is_some(), "{fault:?} does not break: {property}");
        println!("{fault:?} breaks: {property}");
    }
}
