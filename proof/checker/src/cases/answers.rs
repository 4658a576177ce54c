// SPDX-License-Identifier: GPL-2.0

//! The answers of calls: lists, records, states and errors, where one thread makes them.

use super::{alloc, run_as};
use crate::{
    attributes::InitialState,
    creator::Creator,
    domain::{Domains, NewQp, QpInitAttr},
    event::{EventMask, EventType},
    ib_verbs,
    kernel_ext::process::Process,
    member::{Member, Terms},
    methods::LABEL,
    opened::{with_right, OpenXrcd},
    qp_status::Lifetime,
    rdma::{
        device::{Device, Verb, REPORTED},
        passed,
        qp_attr::{QpAttr, QpAttrMask, QpState},
        uverbs::{call::udata_on, event_file::EventFile, RemoveReason},
    },
    registrations::Registrations,
    right::Right,
    scenarios::Rest,
    uapi::{
        xrc_rcv_record, xrc_rcv_reg_info, RecordSize, XRC_RCV_LIFETIME_DOMAIN,
        XRC_RCV_LIFETIME_REGISTRATIONS,
    },
    uverbs::{flags, Attached, File},
};
use kernel::{
    bindings::{POLLHUP, POLLIN, POLLRDNORM},
    prelude::*,
    runtime,
    uaccess::{UserBuffer, UserPtr},
};
use xrc_rcv_spec::Membership;

/// There are more QPs than are listed with the lock held once.
#[test]
fn qps_are_listed_in_pages() {
    const QPS: usize = 70;

    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qpns: Vec<_> = (0..QPS).map(|_| alloc(&attached, &file)).collect();
        let domain = attached.domain_or_new();
        let list = |after, max| {
            let (qps, total) = domain.list(after, max).unwrap();

            assert_eq!(total, QPS);
            qps.iter().map(|qp| qp.qpn()).collect::<Vec<_>>()
        };

        assert_eq!(list(None, usize::MAX), qpns);
        assert_eq!(list(None, QPS - 1), qpns[..QPS - 1]);
        assert_eq!(list(None, 3), qpns[..3]);
        assert_eq!(list(Some(qpns[63]), 3), qpns[64..67]);
        assert_eq!(list(Some(qpns[QPS - 2]), 3), qpns[QPS - 1..]);
        assert!(list(Some(qpns[QPS - 1]), 3).is_empty());
        assert!(list(None, 0).is_empty());
        assert_eq!(domain.len(), QPS);
        assert_eq!(domain.find(0).err(), Some(EINVAL));
        assert_eq!(domain.find(qpns[QPS - 1] + 1).err(), Some(EINVAL));

        attached.close(&file);
        assert!(domain.list(None, 3).unwrap().0.is_empty() && domain.len() == 0);

        drop((domain, file));
        Rest::default().finish(attached, false);
    });
}

#[test]
fn domains_are_listed_by_id() {
    runtime::check(2, 0x18, || {
        let device = Device::new();
        let domains = Domains::new().unwrap();
        let xrcds = [(); 3].map(|()| OpenXrcd::new(&device));
        let ids = || {
            let list = domains.list().unwrap();

            list.iter().map(|(id, _)| *id).collect::<Vec<_>>()
        };

        for (id, xrcd) in (1..).zip(&xrcds) {
            assert!(domains.get(xrcd).is_none());
            assert_eq!(domains.get_or_new(xrcd).unwrap().id(), id);
            assert_eq!(domains.get_or_new(xrcd).unwrap().id(), id);
            assert_eq!(domains.get(xrcd).unwrap().id(), id);
        }
        assert_eq!(ids(), [1, 2, 3]);
        domains.close(&xrcds[0]);
        assert_eq!(ids(), [2, 3]);
        assert!(domains.get(&xrcds[0]).is_none());
        assert_eq!(domains.get_or_new(&xrcds[0]).unwrap().id(), 4);
        assert_eq!(ids(), [2, 3, 4]);
        domains.close_all();
        assert!(ids().is_empty());
        assert_eq!(domains.get_or_new(&xrcds[1]).err(), Some(ENODEV));
    });
}

/// Returns the members that are listed, with the numbers of their unread records.
fn listed(registrations: &Registrations) -> Vec<(usize, usize)> {
    let mut listed = Vec::new();
    let mut list = |number, unread| -> Result {
        listed.push((number, unread));
        Ok(())
    };

    registrations
        .for_each(|listener, unread| list(listener.number(), unread))
        .unwrap();
    listed
}

#[test]
fn members_are_listed_with_their_unread_records() {
    runtime::check(5, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let others: Vec<_> = (0..140).map(|_| attached.open()).collect();
        let number = |file: &File| file.channel().member().holder(None).listener.number();
        let qp = attached.find(qpn).unwrap();
        let list = || listed(qp.registrations());
        // The QP has no row for members between the two.
        let (near, far) = (&others[4], &others[139]);

        assert_eq!(list(), [(0, 0)]);
        attached.report(qpn);
        attached.register(far, qpn).unwrap();
        attached.register(near, qpn).unwrap();
        assert_eq!(list(), [(0, 2), (number(near), 0), (number(far), 0)]);
        attached.device.report(qpn, REPORTED[1]);
        assert_eq!(list(), [(0, 2), (number(near), 1), (number(far), 1)]);
        assert_eq!(creator.channel().read(1, 1, true), Ok(1));
        assert_eq!(list(), [(0, 1), (number(near), 1), (number(far), 1)]);
        attached.unregister(near).unwrap();
        assert_eq!(list(), [(0, 1), (number(far), 1)]);
        assert!(qp.registrations().for_each(|_, _| Err(EBUSY)) == Err(EBUSY));
        for file in &others[61..64] {
            attached.register(file, qpn).unwrap();
        }

        let numbers: Vec<_> = list().into_iter().map(|(number, _)| number).collect();

        assert_eq!(numbers, [0, 62, 63, 64, number(far)]);

        attached.remove();
        assert!(list().is_empty());

        drop((qp, others, creator));
        Rest::default().finish(attached, false);
    });
}

#[test]
fn members_of_all_are_listed() {
    runtime::check(5, 0x18, || {
        let attached = Attached::new();
        let files: Vec<_> = (0..140)
            .map(|index| {
                let of = match index {
                    3 | 63 | 73 => Membership::All,
                    0 | 4 | 62 | 139 => Membership::Observer,
                    _ => Membership::Named,
                };

                attached.open_of(of, Right::Write, EventMask::ALL)
            })
            .collect();
        let domain = attached.domain_or_new();
        let list = || {
            let mut listed = Vec::new();
            let mut list = |number, keeps| -> Result {
                listed.push((number, keeps));
                Ok(())
            };

            domain
                .for_each_of_all(|listener, keeps| list(listener.number(), keeps))
                .unwrap();
            listed
        };
        let all = [
            (0, false),
            (3, true),
            (4, false),
            (62, false),
            (63, true),
            (73, true),
            (139, false),
        ];

        assert_eq!(list(), all);
        assert!(domain.for_each_of_all(|_, _| Err(EBUSY)) == Err(EBUSY));
        files[0].channel().close();
        assert_eq!(list(), all[1..]);

        drop((domain, files));
        Rest::default().finish(attached, false);
    });
}

/// Returns the next record of a channel, which the checker does not wait for.
fn next(file: &File) -> Option<xrc_rcv_record> {
    file.channel().member().next_record()
}

/// Records have the count of all events, and the time of the last. The totals of REG have those of
/// before.
#[test]
fn records_of_all_kinds() {
    const KINDS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 16];

    runtime::check(5, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let other = attached.open();
        let qpn = alloc(&attached, &file);
        let status = || attached.find(qpn).unwrap();

        for (index, kind) in KINDS.into_iter().enumerate() {
            let events = index as u64 + 2;

            for _ in 1..events {
                attached.device.report(qpn, kind);
            }

            let before = runtime::monotonic_ns();

            attached.device.report(qpn, kind);

            let after = runtime::monotonic_ns();
            let record = next(&file).unwrap();

            assert_eq!((record.type_, record.count), (kind, events));
            assert_eq!(
                (record.qp_num, record.serial, record.label),
                (qpn, 1, LABEL)
            );
            assert!((before..after).contains(&record.last_ns));
            assert!(next(&file).is_none());
        }
        assert_eq!(status().status().events(), (2..10).sum());

        let mut info = Default::default();
        let member = other.channel().member();

        for _ in 0..2 {
            member.register(qpn, Some(&mut info)).unwrap();
            assert_eq!(info.serial, 1);
            for (kind, count) in (0..).zip(info.counts) {
                let index = KINDS.iter().position(|known| *known == kind);

                assert_eq!(count, index.map_or(0, |index| index as u64 + 2));
            }
        }
        assert!(next(&other).is_none());
        member.unregister(qpn);

        file.channel().lose();
        drop((file, other));
        Rest::default().finish(attached, false);
    });
}

/// An event breaks the QP, or not, by its kind.
#[test]
fn events_that_break_the_qp() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();

        for kind in (0..32).filter(|kind| !REPORTED.contains(kind)) {
            let qp = attached.find(alloc(&attached, &file)).unwrap();
            let breaks = [
                ib_verbs::ib_event_type_IB_EVENT_QP_FATAL,
                ib_verbs::ib_event_type_IB_EVENT_QP_REQ_ERR,
                ib_verbs::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            ]
            .contains(&kind);
            let state = if breaks { QpState::Err } else { QpState::Init };

            attached.device.report(qp.qpn(), kind);
            assert!(qp.status().known().state() == Ok(state), "after {kind}");
            assert_eq!(qp.status().events(), 1);
            while next(&file).is_some() {}
        }

        file.channel().lose();
        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// Events that no holder that keeps the QP reads are written to the log.
#[test]
fn events_in_the_log() {
    runtime::check(2, 0x18, || {
        run_as(5, 6);

        let attached = Attached::new();
        let file = attached.open();
        let qpn = attached.alloc(&file, Lifetime::Domain, false).unwrap();
        let no_kind = 30;
        let report = |kind| {
            attached.device.report(qpn, kind);
            attached.device.take_logged()
        };

        assert!(report(REPORTED[0]).is_empty());
        assert_eq!(report(no_kind), [(6, qpn, no_kind)]);
        attached.unregister(&file).unwrap();
        assert_eq!(report(REPORTED[0]), [(6, qpn, REPORTED[0])]);

        run_as(7, 7);

        let reader = attached.open_with(Right::Use, EventMask::ALL);

        attached.register(&reader, qpn).unwrap();
        assert_eq!(report(REPORTED[1]), [(6, qpn, REPORTED[1])]);

        let keeper = attached.open_all(Right::Write);

        assert!(report(REPORTED[1]).is_empty());

        drop((file, reader, keeper));
        Rest::default().finish(attached, false);
    });
}

/// The creator of a QP, its lifetime and its names.
#[test]
fn the_status_of_a_qp() {
    runtime::check(2, 0x18, || {
        run_as(5, 6);

        let attached = Attached::new();
        let file = attached.open();

        for (serial, lifetime) in (1..).zip([Lifetime::Registrations, Lifetime::Domain]) {
            let qpn = attached.alloc(&file, lifetime, false).unwrap();
            let qp = attached.find(qpn).unwrap();
            let status = qp.status();
            let creator = status.creator();

            assert_eq!(
                (status.qpn(), status.serial(), status.label()),
                (qpn, serial, LABEL)
            );
            assert_eq!(status.domain(), attached.domain_or_new().id());
            assert_eq!(status.lifetime().name(), lifetime.name());
            assert_eq!((creator.accounting_uid(), creator.process().uid()), (6, 5));
            for (uid, is_creator) in [(5, true), (6, true), (7, false)] {
                run_as(uid, 7);
                assert_eq!(creator.is_caller(), is_creator);
            }
            run_as(5, 6);
        }
        assert_eq!(
            Lifetime::Registrations.as_raw(),
            XRC_RCV_LIFETIME_REGISTRATIONS
        );
        assert_eq!(Lifetime::Domain.as_raw(), XRC_RCV_LIFETIME_DOMAIN);
        assert_eq!(Lifetime::Registrations.name(), "registrations");
        assert_eq!(Lifetime::Domain.name(), "domain");

        drop(file);
        Rest::default().finish(attached, false);
    });
}

#[test]
fn rights_of_callers() {
    runtime::check(1, 0x18, || {
        let device = Device::new();
        let rights = [Right::Own, Right::Write, Right::Use];
        let xrcd = OpenXrcd::new(&device);

        run_as(5, 5);

        let creator = Creator::current();

        for right in rights {
            let of_caller = |creator| with_right(right, || Right::of_caller(&xrcd, creator));

            run_as(5, 5);
            assert!(of_caller(None) == right);
            assert!(of_caller(Some(&creator)) == Right::Own);
            run_as(6, 6);
            assert!(of_caller(Some(&creator)) == right);
            for needed in rights {
                let result = if right < needed { Err(EACCES) } else { Ok(()) };

                assert!(right.check(needed) == result);
            }
        }
    });
}

/// A reader registers with what right it has, but every right over QPs of its own.
#[test]
fn holders_of_registrations() {
    runtime::check(2, 0x18, || {
        run_as(5, 5);

        let attached = Attached::new();
        let creator = attached.open();
        let qp = attached.find(alloc(&attached, &creator)).unwrap();
        let keeps = || qp.registrations().keeping();
        let readers = [(); 2].map(|()| attached.open_with(Right::Use, EventMask::ALL));

        run_as(6, 6);
        attached.register(&readers[0], qp.qpn()).unwrap();
        assert_eq!((keeps(), qp.registrations().len()), (1, 2));
        run_as(5, 5);
        attached.register(&readers[1], qp.qpn()).unwrap();
        assert_eq!((keeps(), qp.registrations().len()), (2, 3));

        drop((qp, creator, readers));
        Rest::default().finish(attached, false);
    });
}

/// Creates a QP in a state, with attributes.
fn create(
    attached: &Attached,
    initial_state: InitialState,
    attributes: &mut QpAttr,
) -> Result<NewQp> {
    let init = QpInitAttr {
        lifetime: Lifetime::Domain,
        initial_state,
        label: LABEL,
        attributes,
        udata: None,
    };

    attached
        .domain_or_new()
        .create(&attached.xrcd, attached.data.pd(), init, None)
}

/// The peer of a QP is known from RTR on, and from queries.
#[test]
fn states_and_peers() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qp = attached.find(alloc(&attached, &file)).unwrap();
        let known = || {
            let known = qp.status().known();

            (known.state().map(|state| state as u32), known.destination())
        };
        let modify = |mask: QpAttrMask, state, destination| {
            let mut user = passed::attributes(mask | QpAttrMask::STATE, state);

            user.dest_qp_num = destination;
            qp.modify(&passed::passed(user), &udata_on(qp.status().device()))
        };

        assert!(QpState::try_from(7) == Err(EINVAL));
        assert!(known() == (Ok(QpState::Init as u32), 0));
        modify(QpAttrMask::DEST_QPN, QpState::Rtr, 0xab_cdef).unwrap();
        assert!(known() == (Ok(QpState::Rtr as u32), 0xab_cdef));
        modify(QpAttrMask::NONE, QpState::Rts, 0x11).unwrap();
        assert!(known() == (Ok(QpState::Rts as u32), 0xab_cdef));
        qp.query().unwrap();
        assert!(known() == (Ok(QpState::Rts as u32), 0xab_cdef));
        attached.device.fail(Verb::Modify);
        assert!(modify(QpAttrMask::DEST_QPN, QpState::Rtr, 0x22) == Err(EIO));
        assert!(known() == (Ok(QpState::Rts as u32), 0xab_cdef));
        qp.query().unwrap();
        assert!(known() == (Ok(QpState::Rtr as u32), 0x22));
        attached
            .device
            .report(qp.qpn(), ib_verbs::ib_event_type_IB_EVENT_QP_FATAL);
        assert!(known() == (Ok(QpState::Err as u32), 0x22));
        assert_eq!(next(&file).map(|record| record.count), Some(1));
        modify(QpAttrMask::NONE, QpState::Reset, 0x33).unwrap();
        assert!(known() == (Ok(QpState::Reset as u32), 0));

        file.channel().lose();
        drop((qp, file));
        Rest::default().finish(attached, false);
    });
}

/// A QP is created in one of three states, and its ports agree.
#[test]
fn initial_states() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let domain = attached.domain_or_new();
        let port = QpAttrMask::PORT;
        let states = [
            (InitialState::Reset, QpState::Reset),
            (InitialState::Init(port), QpState::Init),
            (InitialState::Rtr(port, QpAttrMask::AV), QpState::Rtr),
        ];

        for (initial, state) in states {
            let new = create(&attached, initial, &mut QpAttr::new()).unwrap();
            let qpn = new.qpn();

            new.publish();

            let qp = attached.find(qpn).unwrap();

            assert!(qp.status().known().state() == Ok(state));
            assert!(qp
                .query()
                .unwrap()
                .is_some_and(|found| found.state() == Ok(state)));
            drop(qp);
            domain.destroy(&domain.find(qpn).unwrap(), false).unwrap();
            attached.device.check_ended();
        }

        let mut attributes = QpAttr::new();

        attributes.set_port(2);
        assert!(create(&attached, states[2].0, &mut attributes).err() == Some(EINVAL));
        assert!(create(&attached, states[1].0, &mut attributes).is_ok());

        drop((domain, file));
        Rest::default().finish(attached, false);
    });
}

/// Rules for the port of a path, of a QP with port 1.
#[test]
fn ports_of_paths() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qp = attached.find(alloc(&attached, &file)).unwrap();
        let modify = |mask: QpAttrMask, state, (port, path_port)| {
            let mut user = passed::attributes(mask, state);

            (user.port_num, user.ah_attr.port_num) = (port, path_port);
            qp.modify(&passed::passed(user), &udata_on(qp.status().device()))
        };
        let (state, av, port) = (QpAttrMask::STATE, QpAttrMask::AV, QpAttrMask::PORT);

        assert!(modify(state | av, QpState::Rtr, (1, 2)) == Err(EINVAL));
        modify(state | av, QpState::Rtr, (1, 1)).unwrap();
        assert!(modify(av | port, QpState::Rts, (1, 2)) == Err(EINVAL));
        modify(av | port, QpState::Rts, (2, 2)).unwrap();
        assert!(modify(state | av, QpState::Rtr, (2, 1)) == Err(EINVAL));
        modify(state | av, QpState::Rtr, (1, 2)).unwrap();
        modify(av, QpState::Rts, (2, 1)).unwrap();
        modify(state | av, QpState::Rtr, (2, 1)).unwrap();

        drop((qp, file));
        Rest::default().finish(attached, false);
    });
}

/// poll(2), before and after events, and after the end of the channel.
#[test]
fn poll_reports_records_and_the_end() {
    runtime::check(5, 0x18, || {
        const READABLE: u32 = POLLIN | POLLRDNORM;

        let attached = Attached::new();
        let (file, creator) = (attached.open(), attached.open());
        let qpn = alloc(&attached, &creator);
        let poll = || file.channel().member().poll();

        attached.register(&file, qpn).unwrap();
        assert_eq!(poll(), 0);
        attached.report(qpn);
        assert_eq!(poll(), READABLE);
        assert_eq!(file.channel().read(4, 4, true), Ok(2));
        assert_eq!(poll(), 0);
        assert_eq!(file.channel().read(4, 4, true), Err(EAGAIN));
        attached.remove();
        assert_eq!(poll(), READABLE | POLLHUP);
        assert_eq!(file.channel().read(4, 4, false), Ok(1), "QP_GONE");
        assert_eq!(poll(), POLLHUP);
        assert_eq!(file.channel().read(4, 4, false), Err(EIO));

        drop((file, creator));
        Rest::default().finish(attached, false);
    });
}

/// Records have the size that the process knows, and a read has room for one.
#[test]
fn sizes_of_records() {
    runtime::check(5, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let known = size_of::<xrc_rcv_record>();
        let new = |size: usize| RecordSize::<xrc_rcv_record>::new(Some(size as u32));

        for size in [0, 1, 24, 31, 33, 36, 257, 264, 4096] {
            assert_eq!(new(size).err(), Some(EINVAL), "a record of {size} bytes");
        }
        for size in [32, 40, 48, 256] {
            let of_size = new(size).unwrap();
            let terms = Terms::new(0, Right::Use, EventMask::ALL).unwrap();
            let process = Some(Process::current());
            let member = Member::new(attached.domain_or_new(), terms, of_size, process).unwrap();
            let mut buffer = UserBuffer::new(3 * size, 3 * size);
            let mut read = |length| member.read(UserPtr::new(&mut buffer), length, true);

            let mut array = KVVec::new();
            let record = xrc_rcv_record::default();

            new(size).unwrap().push(&record, &mut array).unwrap();
            assert_eq!(array.len(), size);
            assert_eq!(new(size).unwrap().bytes(), size);
            assert_eq!(
                new(size).unwrap().zeroes().len(),
                size.saturating_sub(known)
            );
            member.register(qpn, None).unwrap();
            attached.report(qpn);
            assert_eq!(read(size - 1), Err(EINVAL));
            assert_eq!(read(2 * size - 1), Ok(size));
            assert_eq!(read(3 * size), Ok(size));
            assert_eq!(read(3 * size), Err(EAGAIN));
            Member::closed(member.clone(), RemoveReason::FileClosed);
            member.released();
        }

        drop(creator);
        Rest::default().finish(attached, false);
    });
}

/// Errors of flags, masks and arrays.
#[test]
fn errors_of_members() {
    runtime::check(2, 0x18, || {
        let mut added = EventMask::default();

        added.add(EventType::QP_ADDED);
        for flags in [flags(Membership::All), flags(Membership::Observer)] {
            assert!(Terms::new(flags, Right::Write, added).err() == Some(EINVAL));
            assert!(Terms::new(flags, Right::Write, EventMask::default()).is_ok());
        }
        for flags in [2, 4, 5, 8, 1 << 31] {
            assert!(Terms::new(flags, Right::Write, EventMask::ALL).err() == Some(EINVAL));
        }

        let attached = Attached::new();
        let file = attached.open();
        let of = |of| attached.open_of(of, Right::Write, EventMask::ALL);
        let (all, observer) = (of(Membership::All), of(Membership::Observer));
        let qpns = [(); 3].map(|()| alloc(&attached, &file));
        for (of_all, lifetime, is_refused) in [
            (&all, Lifetime::Registrations, false),
            (&all, Lifetime::Domain, false),
            (&observer, Lifetime::Registrations, true),
            (&observer, Lifetime::Domain, false),
        ] {
            let holder = of_all.channel().member().first_holder(lifetime);

            assert_eq!(holder.as_ref().err(), is_refused.then_some(&EINVAL));
            assert!(holder.is_err() || holder.is_ok_and(|holder| holder.is_none()));
        }
        assert!(all.channel().member().unregister_all(&qpns) == (0, Err(EINVAL)));

        drop((file, all, observer));
        Rest::default().finish(attached, false);
    });
}

/// An array ends at its first error, and the numbers before that are counted.
#[test]
fn errors_of_arrays() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let (creator, file) = (attached.open(), attached.open());
        let qpns = [(); 3].map(|()| alloc(&attached, &creator));
        let member = file.channel().member();
        let none = None::<fn(&xrc_rcv_reg_info) -> Result>;
        let array = [qpns[0], qpns[1], 99, qpns[2]];

        assert!(member.register_all(&array, none) == (2, Err(EINVAL)));
        assert!(member.register_all(&qpns, none) == (3, Ok(())));

        let mut serials = Vec::new();
        let fails_at = |index: usize, serials: &mut Vec<u64>| {
            serials.clear();
            member.register_all(
                &qpns,
                Some(|info: &xrc_rcv_reg_info| {
                    serials.push(info.serial);
                    if serials.len() == index {
                        Err(EFAULT)
                    } else {
                        Ok(())
                    }
                }),
            )
        };

        assert!(fails_at(2, &mut serials) == (2, Err(EFAULT)) && serials == [1, 2]);
        assert!(fails_at(3, &mut serials) == (3, Err(EFAULT)) && serials == [1, 2, 3]);
        assert!(fails_at(4, &mut serials) == (3, Ok(())));
        assert!(member.unregister_all(&[qpns[0], 99, qpns[1]]) == (3, Ok(())));
        assert_eq!(
            listed(attached.find(qpns[0]).unwrap().registrations()).len(),
            1
        );
        assert_eq!(
            listed(attached.find(qpns[2]).unwrap().registrations()).len(),
            2
        );

        let domain = attached.domain_or_new();
        let other = Domains::new().unwrap();
        let xrcd = OpenXrcd::new(&attached.device);
        let foreign = other.get_or_new(&xrcd).unwrap();

        assert!(member.check_domain(&domain) == Ok(()));
        assert!(member.check_domain(&foreign) == Err(EINVAL));
        other.close_all();

        drop((domain, foreign, other, xrcd, creator, file));
        Rest::default().finish(attached, false);
    });
}
