// SPDX-License-Identifier: GPL-2.0

//! Each error that the documents name for a method is provoked here, or is in [`ELSEWHERE`] with
//! the reason. The test fails if one has neither or both.

use super::{alloc, qp_attributes::distinct, run_as};
use crate::{
    bindings::uapi::ib_uverbs_qp_attr,
    event::EventMask,
    methods::Methods,
    opened::with_right,
    qp_status::Lifetime,
    rdma::{
        device::Verb,
        passed,
        qp_attr::QpAttrMask,
        uverbs::call::{Contents, Passed},
    },
    right::Right,
    scenarios::Rest,
    uapi::{XRC_RCV_EVENT_CHANNEL_ALL, XRC_RCV_EVENT_CHANNEL_OBSERVE},
    uverbs::Attached,
};
use core::cell::RefCell;
use kernel::{
    error::code,
    prelude::{Error, Result},
    runtime::{self, Limit},
};
use std::collections::BTreeSet;
use xrc_rcv_spec::{Errno, Method};

use Errno::*;
use Method::*;

/// Errors that are not provoked here, by method, and why.
const ELSEWHERE: [(&[Method], &[Errno], &str); 9] = [
    (
        &[
            Alloc,
            Modify,
            Query,
            Destroy,
            QueryDomain,
            EventChannelAlloc,
        ],
        &[ENOENT, EBUSY],
        "uverbs looks the handle up: module/hostile, and module/stress while others close it",
    ),
    (
        &[Alloc, Reg, Unreg],
        &[EBADF],
        "uverbs looks the descriptor up: module/registration, module/hostile",
    ),
    (
        &[EventChannelAlloc],
        &[EMFILE, ENFILE],
        "uverbs makes the descriptor: module/channel, and failing allocations",
    ),
    (
        &[Modify, Destroy],
        &[EFAULT],
        "uverbs copies the attributes, and there are no results: module/hostile",
    ),
    (
        &[Query, Destroy, QueryCaps],
        &[ENOMEM],
        "uverbs has memory for the attributes, the module allocates none: module/failnth",
    ),
    (
        &[Destroy, QueryCaps, EventChannelAlloc],
        &[EIO],
        "uverbs refuses calls when the device is removed: module/removal",
    ),
    (
        &[Alloc, Modify, Query, QueryDomain, EventChannelAlloc],
        &[EINTR],
        "a caller that is killed while it waits for another thread: module/stalled",
    ),
    (
        &[Read],
        &[EINTR],
        "a signal that comes while it waits: module/channel",
    ),
    (
        &[EventChannelAlloc],
        &[EFAULT],
        "there are no results: module/hostile",
    ),
];

/// Makes calls, and keeps their errors.
struct Provoked<'a> {
    attached: &'a Attached,
    seen: RefCell<BTreeSet<(Method, Errno)>>,
}

/// Calls a method, maybe with other attributes.
type Call<'a> = &'a dyn Fn(&Methods<'_>) -> Result;

impl Provoked<'_> {
    /// A call fails.
    fn by(&self, method: Method, result: Result) {
        let error = result.expect_err(method.name());
        let errno = Errno::from_number(-error.to_errno()).expect("an error of the tables");

        assert!(method.errors().has(errno), "{}: {errno}", method.name());
        self.seen.borrow_mut().insert((method, errno));
    }

    /// A call fails with attributes that are changed.
    fn by_attributes(&self, method: Method, call: Call<'_>, change: fn(&mut Vec<Passed<'_>>)) {
        let methods = Methods {
            spoil: Some(&change),
            ..self.attached.methods()
        };

        self.by(method, call(&methods));
    }

    /// Each error of the tables is provoked, or has a reason.
    fn check(&self) {
        let seen = self.seen.borrow();

        for method in Method::ALL {
            for errno in Errno::ALL
                .iter()
                .filter(|errno| method.errors().has(**errno))
            {
                let mut elsewhere = ELSEWHERE.iter();
                let reason = elsewhere.find(|(methods, errnos, _)| {
                    methods.contains(method) && errnos.contains(errno)
                });
                // DESTROY of a QP that is kept is EBUSY, too.
                let is_both = (*method, *errno) == (Destroy, EBUSY);

                match (seen.contains(&(*method, *errno)), reason) {
                    (true, None) | (false, Some(_)) => (),
                    (true, Some(_)) if is_both => (),
                    (true, Some((.., reason))) => {
                        panic!("{} {errno} is provoked: {reason}", method.name())
                    }
                    (false, None) => panic!("nothing provokes {} {errno}", method.name()),
                }
            }
        }
    }
}

/// Attributes that are longer than known, with a byte that is not 0.
fn lengthen(passed: &mut Vec<Passed<'_>>) {
    for Passed(_, contents) in passed {
        match contents {
            Contents::In(bytes) if bytes.len() == size_of::<ib_uverbs_qp_attr>() => {
                bytes.extend([0, 0, 0, 1]);
            }
            _ => (),
        }
    }
}

/// No result can be written.
fn point_nowhere(passed: &mut Vec<Passed<'_>>) {
    for Passed(_, contents) in passed {
        if let Contents::Out(_, write) = contents {
            *write = &|_| Err(code::EFAULT);
        }
    }
}

#[cfg(not(miri))]
#[test]
fn each_error_is_provoked() {
    runtime::check(1, 0x18, || {
        let attached = Attached::with_roce(1 << 1);
        let (creator, file) = (attached.open(), attached.open());
        let qpn = alloc(&attached, &creator);
        let member = file.channel().member();
        let device = &attached.device;
        let to_rtr = || passed::passed(passed::with_mask(distinct(), QpAttrMask::AV));
        let create = |methods: &Methods<'_>| {
            let attributes = passed::passed(distinct());

            methods
                .alloc_with(member, Lifetime::Domain, &attributes, |_, _| Ok(()))
                .map(drop)
        };
        let calls: [(Method, Call<'_>); 9] = [
            (Alloc, &create),
            (Modify, &|methods| methods.modify(qpn, &to_rtr())),
            (Query, &|methods| methods.query(qpn).map(drop)),
            (Destroy, &|methods| methods.destroy(qpn, true)),
            (QueryCaps, &|methods| methods.query_caps().map(drop)),
            (EventChannelAlloc, &|methods| {
                methods.open_channel(EventMask::ALL, 0).map(drop)
            }),
            (Reg, &|methods| methods.register(member, &[qpn]).1),
            (Unreg, &|methods| methods.unregister(member, &[qpn]).1),
            (QueryDomain, &|methods| methods.query_domain(0, 1).map(drop)),
        ];
        let provoked = Provoked {
            attached: &attached,
            seen: RefCell::default(),
        };
        let call = |method: Method| {
            let (_, call) = calls.iter().find(|(of, _)| *of == method).unwrap();

            call(&attached.methods())
        };

        for (method, call) in calls {
            provoked.by_attributes(method, call, |passed| drop(passed.remove(0)));
            provoked.by_attributes(method, call, |passed| passed[0].0 = 0x1fff);
        }
        for (method, call) in calls {
            match method {
                Alloc | Query | QueryCaps | Reg | Unreg | QueryDomain => {
                    provoked.by_attributes(method, call, point_nowhere);
                }
                _ => (),
            }
            if let Alloc | Modify = method {
                provoked.by_attributes(method, call, lengthen);
            }
        }
        for method in [Alloc, Modify, Reg, Unreg, QueryDomain, EventChannelAlloc] {
            runtime::fail_allocation(0);
            provoked.by(method, call(method));
            assert!(runtime::allocations_succeed());
        }

        // The provider fails, the cgroup is full, or the address is not known.
        device.fail(Verb::Create);
        provoked.by(Alloc, call(Alloc));
        for (method, verb) in [
            (Modify, Verb::Modify),
            (Query, Verb::Query),
            (QueryDomain, Verb::Query),
        ] {
            device.fail(verb);
            provoked.by(method, call(method));
        }
        device.fail_with(Verb::Charge, code::EAGAIN);
        provoked.by(Alloc, call(Alloc));
        for errno in [ENODATA, ENETUNREACH, EHOSTUNREACH, ETIMEDOUT, ENOBUFS] {
            for method in [Alloc, Modify] {
                device.fail_with(Verb::Resolve, Error::from_errno(-errno.number()));
                provoked.by(method, call(method));
            }
        }

        // Rights, partitions and limits.
        run_as(7, 7);
        with_right(Right::Use, || {
            for method in [Alloc, Modify, Destroy] {
                provoked.by(method, call(method));
            }
        });
        device.deny(7, 1, 0);
        provoked.by(Reg, call(Reg));
        device.deny(8, 1, 0);
        runtime::set_limit_on(Limit::RegistrationsPerQp, 1);
        provoked.by(Reg, call(Reg));

        let observers = XRC_RCV_EVENT_CHANNEL_ALL | XRC_RCV_EVENT_CHANNEL_OBSERVE;

        provoked.by(
            EventChannelAlloc,
            attached
                .methods()
                .open_channel(EventMask::ALL, observers)
                .map(drop),
        );
        runtime::set_limit_on(Limit::RegistrationsPerQp, 0);
        runtime::set_limit(1);
        provoked.by(Alloc, call(Alloc));
        runtime::set_limit(0);
        device.fail_with(Verb::Share, code::EPERM);
        provoked.by(Alloc, call(Alloc));
        device.fail_with(Verb::Share, code::EPERM);
        provoked.by(EventChannelAlloc, call(EventChannelAlloc));

        // DESTROY of a QP that is kept.
        let kept = attached.alloc(&file, Lifetime::Domain, false).unwrap();

        provoked.by(Destroy, attached.destroy(&file, kept, false));
        attached.destroy(&file, kept, true).unwrap();
        while file.channel().read(4, 4, true).is_ok() {}

        // Reads, and callers that are killed: a thread for each, which does no more.
        provoked.by(Read, file.channel().read(0, 0, true).map(drop));
        provoked.by(Read, file.channel().read(1, 1, true).map(drop));
        attached.register(&file, qpn).unwrap();
        attached.report(qpn);
        provoked.by(Read, file.channel().read(1, 0, true).map(drop));
        while file.channel().read(4, 4, true).is_ok() {}

        let killed = |call: fn(&Attached, &crate::uverbs::File, u32) -> Result| {
            let (attached, file) = (attached.clone(), file.clone());

            runtime::spawn(move || {
                runtime::kill();
                call(&attached, &file, qpn)
            })
            .join()
            .unwrap()
        };

        provoked.by(
            Reg,
            killed(|attached, file, qpn| {
                attached
                    .methods()
                    .register(file.channel().member(), &[qpn])
                    .1
            }),
        );
        provoked.by(
            Unreg,
            killed(|attached, file, qpn| {
                attached
                    .methods()
                    .unregister(file.channel().member(), &[qpn])
                    .1
            }),
        );

        // A process that has the descriptor alone, when the file is closed.
        attached.close(&file);
        provoked.by(Reg, member.register_all(&[qpn], None::<fn(&_) -> _>).1);
        provoked.by(Unreg, member.unregister_all(&[qpn]).1);
        provoked.by(Read, file.channel().read(1, 1, true).map(drop));

        provoked.check();
        drop((creator, file));
        Rest::default().finish(attached, false);
    });
}
