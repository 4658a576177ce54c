// SPDX-License-Identifier: GPL-2.0

//! Configurations whose states are all visited, and faults that a property has to find.

use crate::{ChannelTerms, Fault, FileTerms, Mask, Node, Shown, System};
use stateright::{Checker, HasDiscoveries, Model};
use xrc_rcv_spec::{Id, Membership, Mutant, Right};

/// The types of two events.
const FATAL: u32 = 1;
const LAST_WQE: u32 = 16;

const fn file(right: Right, domains: &'static [Id]) -> FileTerms {
    FileTerms { right, domains }
}

/// A channel for all events, which is read.
const fn channel(file: Id, domain: Id, of: Membership) -> ChannelTerms {
    ChannelTerms {
        file,
        domain,
        mask: !0,
        of,
        is_read: true,
    }
}

/// Another, which is never read.
const fn unread(file: Id, domain: Id, of: Membership) -> ChannelTerms {
    ChannelTerms {
        is_read: false,
        ..channel(file, domain, of)
    }
}

const NODE: Node = Node {
    files: &[file(Right::Write, &[1]), file(Right::Use, &[1])],
    channels: &[],
    qps: 2,
    events: 1,
    kinds: &[FATAL],
    kept: None,
    is_removed: false,
    shows: &[],
    mutant: None,
};

/// Two types of events, one of which a channel excludes, with QP_GONE.
const MASKS: Node = Node {
    channels: &[
        channel(0, 1, Membership::Named),
        ChannelTerms {
            mask: 1 << FATAL,
            ..unread(1, 1, Membership::Named)
        },
    ],
    qps: 1,
    events: 2,
    kinds: &[FATAL, LAST_WQE],
    shows: &[Shown::LateRegistration],
    ..NODE
};

/// QPs of one number, one after the other, and a channel that is never read.
const NUMBERS: Node = Node {
    channels: &[
        channel(0, 1, Membership::Named),
        unread(1, 1, Membership::Named),
    ],
    shows: &[Shown::SameNumber, Shown::LateRegistration],
    ..NODE
};

/// Members of all beside one of a QP.
const ALL: Node = Node {
    channels: &[
        channel(0, 1, Membership::Named),
        channel(0, 1, Membership::All),
        unread(1, 1, Membership::Observer),
    ],
    qps: 1,
    ..NODE
};

/// The log keeps the records of one QP that was destroyed.
const LOSS: Node = Node {
    channels: &[
        channel(0, 1, Membership::Named),
        unread(1, 1, Membership::Named),
    ],
    events: 0,
    kept: Some(1),
    shows: &[Shown::Loss, Shown::SameNumber],
    ..NODE
};

/// Two domains, one of which both files have.
const DOMAINS: Node = Node {
    files: &[file(Right::Own, &[1, 2]), file(Right::Write, &[1])],
    channels: &[
        channel(0, 2, Membership::Named),
        channel(1, 1, Membership::Named),
    ],
    events: 0,
    shows: &[Shown::Outlived],
    ..NODE
};

/// The device is removed.
const REMOVAL: Node = Node {
    channels: &[
        channel(0, 1, Membership::Named),
        channel(1, 1, Membership::All),
    ],
    qps: 1,
    is_removed: true,
    ..NODE
};

const NODES: [(&str, Node); 5] = [
    ("removal", REMOVAL),
    ("masks", MASKS),
    ("losses", LOSS),
    ("members of all", ALL),
    ("domains", DOMAINS),
];

/// Visits all states, and prints their number.
fn check<const F: usize, const Q: usize>(events: u8, masks: &'static [Mask]) {
    let system = System::<F, Q> {
        events,
        masks,
        fault: None,
        mutant: None,
    };
    let checker = system.checker().threads(2).spawn_bfs().join();

    println!(
        "{F} files, {Q} QPs, {events} events, {} masks: {} states, {} steps",
        masks.len(),
        checker.unique_state_count(),
        checker.state_count()
    );
    checker.assert_properties();
}

/// More with MODEL_LONG, as `scripts/unit-tests --executions` sets it.
#[test]
fn all_states() {
    let masks = &[Mask::ALL, Mask::NO_GONE, Mask::GONE];

    check::<2, 1>(2, masks);
    check::<2, 2>(1, masks);
    check::<3, 1>(1, masks);
    if std::env::var_os("MODEL_LONG").is_some() {
        check::<4, 1>(2, &[Mask::ALL]);
        check::<2, 2>(2, masks);
        check::<3, 2>(1, &[Mask::ALL]);
    }
}

/// Visits all states of a node, and prints their number.
fn check_node(name: &str, node: &Node) {
    let (files, channels, qps) = (node.files.len(), node.channels.len(), node.qps);
    let checker = node.clone().checker().threads(2).spawn_dfs().join();

    println!(
        "{files} files, {channels} channels, {qps} QPs, {name}: {} states, {} steps",
        checker.unique_state_count(),
        checker.state_count()
    );
    checker.assert_properties();
}

/// More with MODEL_LONG.
#[test]
fn all_states_of_the_contract() {
    for (name, node) in NODES {
        check_node(name, &node);
    }
    if std::env::var_os("MODEL_LONG").is_some() {
        for (name, node) in NODES {
            let qps = node.qps + 1;

            check_node(name, &Node { qps, ..node });
        }
        check_node("numbers", &NUMBERS);

        let channels = ALL.channels;
        let node = Node {
            channels,
            shows: &[],
            ..LOSS
        };

        check_node("losses of members of all", &node);
    }
}

#[test]
fn each_mutant_of_the_contract_is_found() {
    for (mutant, property) in Node::MUTANTS {
        let finds = |(name, node): (&'static str, Node)| {
            let node = Node {
                mutant: Some(mutant),
                ..node
            };
            let finish = HasDiscoveries::AnyOf([property].into());
            let checker = node.checker().finish_when(finish).spawn_bfs().join();

            checker.discovery(property).map(|_| name)
        };
        let found = NODES.into_iter().find_map(finds);

        assert!(found.is_some(), "{mutant:?} does not break: {property}");
        println!(
            "{mutant:?} breaks: {property} ({})",
            found.unwrap_or_default()
        );
    }
    for mutant in Mutant::ALL {
        let is_listed = Node::MUTANTS.iter().any(|(listed, _)| listed == mutant);

        // The tables of documents are no part of the model.
        assert!(
            is_listed || *mutant == Mutant::BusyUndocumented,
            "{mutant:?}"
        );
    }
}

/// A life of a QP that the specification has wrong.
#[test]
fn a_mutant_of_the_specification_is_found() {
    let system = System::<2, 1> {
        events: 1,
        masks: &[Mask::ALL],
        fault: None,
        mutant: Some(Mutant::UnregNotCounted),
    };
    let finish = HasDiscoveries::AnyFailures;
    let checker = system.checker().finish_when(finish).spawn_bfs().join();

    assert!(checker.discoveries().len() > 1);
}

#[test]
fn each_fault_is_found() {
    for (fault, property) in Fault::ALL {
        let system = System::<3, 1> {
            events: 1,
            masks: &[Mask::ALL, Mask::GONE],
            fault: Some(fault),
            mutant: None,
        };
        let finish = HasDiscoveries::AnyOf([property].into());
        let checker = system.checker().finish_when(finish).spawn_bfs().join();
        let found = checker.discovery(property);

        assert!(found.is_some(), "{fault:?} does not break: {property}");
        println!("{fault:?} breaks: {property}");
    }
}
