// SPDX-License-Identifier: GPL-2.0

//! Attributes of which one is wrong: the error is that of the specification, and nothing is left.
//!
//! The checks are those of `src/rdma/uverbs/`, by what the tables of `src/commands.rs` declare.

use super::alloc;
use crate::{
    event::EventMask,
    methods::Methods,
    qp_status::Lifetime,
    rdma::{
        passed,
        qp_attr::{QpAttrMask, QpState},
        uverbs::call::{Contents, Passed},
    },
    scenarios::Rest,
    uverbs::Attached,
};
use kernel::{prelude::*, runtime};
use xrc_rcv_spec::Wrong;

/// The contents of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A handle or a descriptor.
    Object,
    /// A value of one size.
    Value,
    /// Flags of 4 to 8 bytes.
    Flags,
    /// The bits of events.
    Events,
    /// A structure, which may be longer than known.
    Struct,
    /// An array of numbers.
    Numbers,
    /// A place for a value of one size.
    Place,
    /// A place of any size.
    Room,
}

use Kind::*;

/// The attributes of a method as the scenarios pass them, and whether each is mandatory.
type Attributes = &'static [(Kind, bool)];

/// Calls a method, maybe with another attribute.
type Call<'a> = &'a dyn Fn(&Methods<'_>) -> Result;

/// Adds bytes to an input.
fn lengthen(contents: &mut Contents<'_>, bytes: &[u8]) {
    match contents {
        Contents::In(input) => input.extend(bytes),
        Contents::Out(room, _) => *room += bytes.len(),
        _ => unreachable!("of data"),
    }
}

/// Takes the last byte of an input or a place.
fn shorten(contents: &mut Contents<'_>) {
    match contents {
        Contents::In(input) => drop(input.pop()),
        Contents::Out(room, _) => *room -= 1,
        _ => unreachable!("of data"),
    }
}

/// Returns what can be wrong with an attribute of a kind, alone.
fn wrongs(kind: Kind, is_mandatory: bool) -> Vec<Wrong> {
    let mut wrongs = vec![Wrong::Twice, Wrong::Unknown];

    if is_mandatory {
        wrongs.push(Wrong::Missing);
    }
    wrongs.extend(match kind {
        Object | Room => [].as_slice(),
        Value | Place => &[Wrong::Short, Wrong::Long],
        Flags => &[Wrong::Short, Wrong::Long, Wrong::Bits],
        Events => &[Wrong::Short, Wrong::Long, Wrong::Bits],
        Struct => &[Wrong::Short, Wrong::NotZero],
        Numbers => &[Wrong::Short, Wrong::Elements],
    });
    if matches!(kind, Place | Room) {
        wrongs.push(Wrong::Pointer);
    }
    wrongs
}

/// Makes an attribute wrong.
fn spoil(passed: &mut Vec<Passed<'_>>, index: usize, kind: Kind, wrong: Wrong) {
    let Passed(id, contents) = &mut passed[index];

    match wrong {
        Wrong::Missing => drop(passed.remove(index)),
        Wrong::Twice => passed.push(passed[index].clone()),
        Wrong::Unknown => *id = 0x1fff,
        Wrong::Short => shorten(contents),
        Wrong::Elements => lengthen(contents, &[0]),
        // Flags may have as many.
        Wrong::Long if kind == Flags => lengthen(contents, &[0; 5]),
        Wrong::Long => lengthen(contents, &[0]),
        Wrong::NotZero => lengthen(contents, &[0, 0, 0, 1]),
        Wrong::Bits => {
            if let Contents::In(input) = contents {
                input.fill(0xff);
            }
        }
        Wrong::Pointer => {
            if let Contents::Out(_, write) = contents {
                *write = &|_| Err(EFAULT);
            }
        }
        _ => unreachable!("it is of no attribute"),
    }
}

/// The methods and their attributes as in `uapi.rst`, and in the order of [`Methods`].
const METHODS: [(&str, Attributes); 9] = [
    (
        "ALLOC",
        &[
            (Object, true),
            (Flags, false),
            (Struct, false),
            (Object, false),
            (Value, false),
            (Place, true),
            (Place, false),
        ],
    ),
    ("MODIFY", &[(Object, true), (Value, true), (Struct, true)]),
    ("QUERY", &[(Object, true), (Value, true), (Room, false)]),
    ("DESTROY", &[(Object, true), (Value, true), (Flags, false)]),
    ("QUERY_CAPS", &[(Room, true)]),
    (
        "EVENT_CHANNEL_ALLOC",
        &[
            (Object, true),
            (Object, true),
            (Value, false),
            (Events, false),
            (Flags, false),
        ],
    ),
    (
        "REG",
        &[
            (Object, true),
            (Numbers, true),
            (Place, false),
            (Room, false),
            (Value, false),
        ],
    ),
    ("UNREG", &[(Object, true), (Numbers, true), (Place, false)]),
    (
        "QUERY_DOMAIN",
        &[
            (Object, true),
            (Value, false),
            (Room, false),
            (Place, true),
            (Place, false),
            (Value, false),
        ],
    ),
];

#[test]
fn one_attribute_is_wrong() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let (creator, file) = (attached.open(), attached.open());
        let qpn = alloc(&attached, &creator);
        let qp = attached.find(qpn).unwrap();
        let member = file.channel().member();
        let modified = passed::to(QpAttrMask::STATE, QpState::Err);
        let calls: [Call<'_>; 9] = [
            &|methods| {
                methods
                    .alloc(member, Lifetime::Domain, |_, _| Ok(()))
                    .map(drop)
            },
            &|methods| methods.modify(qpn, &modified),
            &|methods| methods.query(qpn).map(drop),
            &|methods| methods.destroy(qpn, false),
            &|methods| methods.query_caps().map(drop),
            &|methods| methods.open_channel(EventMask::ALL, 0).map(drop),
            &|methods| methods.register(member, &[qpn]).1,
            &|methods| methods.unregister(member, &[qpn]).1,
            &|methods| methods.query_domain(0, 1).map(drop),
        ];
        let left = || {
            (
                attached.domain_or_new().list(None, 9).unwrap().1,
                runtime::objects(),
            )
        };
        let (registrations, state) = (qp.registrations().len(), qp.status().known().state());
        let before = left();

        for ((name, attributes), call) in METHODS.into_iter().zip(calls) {
            for (index, (kind, is_mandatory)) in attributes.iter().copied().enumerate() {
                for wrong in wrongs(kind, is_mandatory) {
                    // The registration stays, as the table of QPs says.
                    if (name, kind, wrong) == ("REG", Room, Wrong::Pointer) {
                        continue;
                    }

                    let spoil = |passed: &mut Vec<Passed<'_>>| spoil(passed, index, kind, wrong);
                    let methods = Methods {
                        spoil: Some(&spoil),
                        ..attached.methods()
                    };
                    let expected = Err(Error::from_errno(-wrong.errno().number()));

                    assert_eq!(call(&methods), expected, "{name}, {index}: {wrong:?}");
                    assert_eq!(left(), before, "{name}, {index}: {wrong:?}");
                    assert_eq!(qp.registrations().len(), registrations, "{name}: {wrong:?}");
                    assert!(qp.status().known().state() == state, "{name}: {wrong:?}");
                }
            }
        }

        drop((qp, creator, file));
        Rest::default().finish(attached, false);
    });
}

/// A longer structure whose rest is 0 is the known one, and flags have 32 bits or 64.
#[test]
fn attributes_may_be_longer() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let member = file.channel().member();
        let modified = passed::to(QpAttrMask::STATE, QpState::Err);
        let longer = |passed: &mut Vec<Passed<'_>>| lengthen(&mut passed[2].1, &[0; 4]);
        let methods = attached.methods();
        let spoiled = Methods {
            spoil: Some(&longer),
            ..attached.methods()
        };
        let (qpn, _) = methods
            .alloc(member, Lifetime::Registrations, |_, _| Ok(()))
            .unwrap();
        let qp = attached.find(qpn).unwrap();

        spoiled.modify(qpn, &modified).unwrap();
        assert!(qp.status().known().state() == Ok(QpState::Err));
        // Without the flag, it is not destroyed.
        assert_eq!(spoiled.destroy(qpn, false), Err(EINVAL));
        spoiled.destroy(qpn, true).unwrap();
        attached.device.check_ended();

        drop((qp, file));
        Rest::default().finish(attached, false);
    });
}
