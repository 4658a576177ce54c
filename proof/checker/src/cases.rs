// SPDX-License-Identifier: GPL-2.0

//! Calls that no scenario has: threads that share a file, a domain that does not exist yet, a
//! thread that is killed between two numbers or in a long log, and modifications.

mod answers;
mod attributes;
mod channels;
mod errnos;
mod kernel_users;
mod limits;
mod qp_attributes;
mod wakeups;

use crate::{
    event::{EventMask, EventType},
    kernel_user::KernelUser,
    member::{Member, Terms},
    member_set::ROW,
    opened::with_right,
    qp_status::Lifetime,
    rdma::{
        device::{Verb, REPORTED},
        passed,
        qp_attr::{QpAttr, QpAttrMask, QpState},
        uverbs::{call::udata_on, event_file::EventFile},
    },
    receive_qp::{ReceiveQp, ENDING, UNNEEDED},
    right::Right,
    scenarios::Rest,
    uapi::RecordSize,
    uverbs::{Attached, File},
};
use kernel::{
    prelude::*,
    runtime::{self, Credentials},
    sync::Arc,
};
use std::sync::Arc as StdArc;
use xrc_rcv_spec::Membership;

const LIFETIME: Lifetime = Lifetime::Registrations;

/// The thread runs as a user from now on, whose objects count for a user.
fn run_as(uid: u32, accounting_uid: u32) {
    runtime::run_as(Credentials {
        uid,
        accounting_uid,
        cgroup: 0,
        may_exceed_limits: false,
    });
}

fn alloc(attached: &Attached, file: &File) -> u32 {
    attached.alloc(file, LIFETIME, false).unwrap()
}

/// A registration ends with its QP: its records do not keep the channel from registering with a QP
/// that has the number since. UNREG ends both.
#[test]
fn registrations_with_two_qps_of_a_number() {
    runtime::check(20, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let other = attached.open();
        let lifetime = Lifetime::Registrations;
        let alloc = || attached.alloc(&creator, lifetime, false).unwrap();
        let register = |qpn| attached.register(&other, qpn).unwrap();
        let qpn = alloc();
        let serial = || attached.find(qpn).unwrap().status().serial();
        let first = serial();

        register(qpn);
        attached.destroy(&creator, qpn, true).unwrap();
        assert_eq!(alloc(), qpn, "the number is given away again");
        assert_ne!(serial(), first, "a serial number is not");
        register(qpn);
        assert_eq!(other.channel().read(1, 1, false), Ok(1), "QP_GONE");

        attached.unregister(&creator).unwrap();
        assert!(attached.has_qps(), "the last registration keeps it");
        attached.unregister(&other).unwrap();
        assert!(!attached.has_qps(), "nothing keeps it");

        drop((creator, other));
        Rest::default().finish(attached, false);
    });
}

/// Of more QPs than the log of the domain keeps, a member that reads while they end reads QP_GONE,
/// or that records were lost. Those that read in the end have the records of the last QPs.
#[test]
fn records_of_qps_that_leave_the_log_are_lost() {
    const QPS: u64 = 5;

    for limit in [1, 2, 3] {
        runtime::check(100, 0x18, move || {
            runtime::set_limit(limit);

            let attached = Attached::new();
            let creator = attached.open();
            let files = [
                attached.open(),
                attached.open(),
                attached.open_with(Right::Use, EventMask::ALL),
            ];
            let read = |file: &File, max| {
                let channel = file.channel();

                while channel.gone().last() != Some(&QPS)
                    || channel.gone().len() as u64 != QPS && !channel.has_lost()
                {
                    channel.read(max, max, false).unwrap();
                }
            };
            let reader = {
                let file = files[0].clone();

                runtime::spawn(move || read(&file, 1))
            };

            for serial in 1..=QPS {
                let qpn = alloc(&attached, &creator);

                for file in &files {
                    attached.register(file, qpn).unwrap();
                }
                assert_eq!(attached.find(qpn).unwrap().status().serial(), serial);
                attached.report(qpn);
                attached.destroy(&creator, qpn, true).unwrap();
                attached.unregister(&creator).unwrap();
                assert!(attached.domain_or_new().gone() <= limit as usize);
            }
            reader.join().unwrap();
            for file in &files[1..] {
                let kept: Vec<_> = (QPS - u64::from(limit) + 1..=QPS).collect();

                read(file, 4);
                assert_eq!(file.channel().gone(), kept);
            }
            assert_eq!(attached.domain_or_new().gone(), 0, "all was read");
            for file in &files {
                file.channel().lose();
            }

            runtime::set_limit(0);
            drop((creator, files));
            Rest::default().finish(attached, false);
        });
    }
}

/// OVERRUN is read once, and not by a member that has read all before, or whose mask excludes what
/// was lost.
#[test]
fn overrun_is_read_once_by_those_who_have_lost_records() {
    runtime::check(100, 0x18, || {
        runtime::set_limit(1);

        let attached = Attached::new();
        let creator = attached.open();
        let files = [
            attached.open(),
            attached.open(),
            attached.open_with(Right::Write, EventMask::default()),
        ];
        let end = |read: bool| {
            let qpn = alloc(&attached, &creator);

            for file in &files {
                attached.register(file, qpn).unwrap();
            }
            attached.destroy(&creator, qpn, true).unwrap();
            attached.unregister(&creator).unwrap();
            if read {
                assert_eq!(files[1].channel().read(1, 1, false), Ok(1), "QP_GONE");
            }
        };

        end(true);
        end(true);
        // The first has lost the records of the first QP.
        assert!(files[0].channel().is_readable(), "OVERRUN");
        assert_eq!(files[0].channel().read(1, 1, false), Ok(1));
        assert_eq!(files[0].channel().read(1, 1, false), Ok(1));
        assert!(files[0].channel().has_lost());
        assert_eq!(files[0].channel().gone(), [2]);
        assert_eq!(files[0].channel().read(1, 1, true), Err(EAGAIN));
        end(true);
        for file in &files[1..] {
            assert_eq!(file.channel().read(1, 1, true), Err(EAGAIN));
            assert!(!file.channel().is_readable() && !file.channel().has_lost());
        }
        for file in &files {
            file.channel().lose();
        }

        runtime::set_limit(0);
        drop((creator, files));
        Rest::default().finish(attached, false);
    });
}

/// A poll finds lost records before the worker comes to them: a process that sleeps in a read of
/// the same channel is woken.
#[test]
fn a_reader_sleeps_while_another_finds_lost_records() {
    runtime::check(1000, 0x18, || {
        runtime::set_limit(1);

        let attached = Attached::new();
        let (creator, file) = (attached.open(), attached.open());
        let end = |qpn| {
            attached.destroy(&creator, qpn, true).unwrap();
            attached.unregister(&creator).unwrap();
        };
        let qpn = alloc(&attached, &creator);

        attached.register(&file, qpn).unwrap();

        let reading = {
            let file = file.clone();

            runtime::spawn(move || file.channel().read(1, 1, false))
        };
        let polling = {
            let file = file.clone();

            runtime::spawn(move || file.channel().is_readable())
        };

        end(qpn);
        end(alloc(&attached, &creator));
        polling.join().unwrap();
        assert_eq!(reading.join().unwrap(), Ok(1));
        file.channel().lose();

        runtime::set_limit(0);
        drop((creator, file));
        Rest::default().finish(attached, false);
    });
}

/// After the limit was lowered, two QPs leave the log with the end of each.
#[test]
fn a_limit_that_was_lowered_is_reached() {
    runtime::check(20, 0x18, || {
        runtime::set_limit(4);

        let attached = Attached::new();
        let creator = attached.open();
        let file = attached.open();
        let end = || {
            let qpn = alloc(&attached, &creator);

            attached.register(&file, qpn).unwrap();
            attached.destroy(&creator, qpn, true).unwrap();
            attached.unregister(&creator).unwrap();
            attached.domain_or_new().gone()
        };

        assert_eq!([(); 5].map(|()| end()), [1, 2, 3, 4, 4]);
        runtime::set_limit(1);
        assert_eq!([(); 4].map(|()| end()), [3, 2, 1, 1]);
        assert_eq!(file.channel().read(1, 1, false), Ok(1), "OVERRUN");
        assert_eq!(file.channel().read(1, 1, false), Ok(1), "QP_GONE");
        file.channel().lose();

        runtime::set_limit(0);
        drop((file, creator));
        Rest::default().finish(attached, false);
    });
}

/// The device is removed while the last other file of a domain closes it: a reader of a channel
/// whose own file has closed the domain before finds the end.
#[test]
fn a_channel_ends_when_its_domain_is_closed_meanwhile() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let files = [attached.open(), attached.open()];

        alloc(&attached, &files[0]);
        attached.close_domain(&files[0]);

        let reader = {
            let file = files[0].clone();

            runtime::spawn(move || while file.channel().read(4, 4, false).is_ok() {})
        };
        let closing = {
            let (attached, file) = (attached.clone(), files[1].clone());

            runtime::spawn(move || attached.close_domain(&file))
        };

        attached.remove();
        closing.join().unwrap();
        reader.join().unwrap();

        drop(files);
        Rest::default().finish(attached, false);
    });
}

/// A QP that was destroyed is not kept for members whose masks exclude QP_GONE, once they have read
/// its other events.
#[test]
fn a_qp_is_kept_for_records_alone() {
    runtime::check(100, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let mut mask = EventMask::default();

        mask.add(EventType::from_ib_event(REPORTED[0]).unwrap());

        let files = [
            attached.open_with(Right::Use, EventMask::default()),
            attached.open_with(Right::Use, mask),
        ];
        let wait = |gone| {
            while attached.domain_or_new().gone() != gone {
                runtime::yield_now();
            }
        };
        let end = |report: bool| {
            let qpn = alloc(&attached, &creator);

            for file in &files {
                attached.register(file, qpn).unwrap();
            }
            if report {
                attached.report(qpn);
            }
            attached.destroy(&creator, qpn, true).unwrap();
            assert_eq!(creator.channel().read(4, 4, false).map(|_| ()), Ok(()));
            while creator.channel().read(4, 4, true).is_ok() {}
        };

        end(false);
        wait(0);
        end(true);
        wait(1);
        assert_eq!(files[1].channel().read(4, 4, true), Ok(1));
        wait(0);

        drop((creator, files));
        Rest::default().finish(attached, false);
    });
}

/// A thread finds a QP before ALLOC has returned to another, which has the same channel: it
/// registers once.
#[test]
fn alloc_and_reg_by_one_channel() {
    runtime::check(200, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let other = {
            let (attached, file) = (attached.clone(), file.clone());

            runtime::spawn(move || attached.register(&file, 1))
        };

        assert_eq!(alloc(&attached, &file), 1);
        if let Err(e) = other.join().unwrap() {
            assert_eq!(e, EINVAL);
        }
        attached.unregister(&file).unwrap();
        assert!(!attached.has_qps(), "nothing keeps it");
        while attached.unregister(&file).is_ok() {}

        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// Events of a QP come before ALLOC has succeeded: members read them once it has, and none if it
/// fails.
#[test]
fn events_before_alloc_has_succeeded() {
    for faults in [true, false] {
        runtime::check(300, 0x18, move || {
            let attached = Attached::new();
            let files = [attached.open(), attached.open_all(Right::Use)];
            let reporting = {
                let attached = attached.clone();

                runtime::spawn(move || attached.report(1))
            };
            let reading = {
                let file = files[0].clone();

                runtime::spawn(move || file.channel().read(4, 4, true))
            };
            let result = attached.alloc(&files[0], LIFETIME, faults);
            let read = reading.join().unwrap();

            reporting.join().unwrap();
            assert_eq!(result.is_err(), faults);
            if faults {
                assert_eq!(read, Err(EAGAIN));
                for file in &files {
                    assert_eq!(file.channel().read(4, 4, true), Err(EAGAIN));
                }
            }

            drop(files);
            Rest::default().finish(attached, false);
        });
    }
}

/// Readers sleep while ALLOC adds a QP: `QP_ADDED` wakes a member of all, and an event that came
/// before wakes the channel of the creator.
#[test]
fn alloc_wakes_readers() {
    for of_all in [true, false] {
        runtime::check(300, 0x18, move || {
            let attached = Attached::new();
            let file = attached.open();
            let reader = match of_all {
                true => attached.open_all(Right::Use),
                false => file.clone(),
            };
            let reading = {
                let reader = reader.clone();

                runtime::spawn(move || reader.channel().read(1, 1, false))
            };
            let reporting = {
                let attached = attached.clone();

                runtime::spawn(move || attached.device.report(1, REPORTED[0]))
            };

            assert_eq!(alloc(&attached, &file), 1);
            reporting.join().unwrap();
            // There was no QP yet.
            if !of_all && !attached.device.had_events(1) {
                attached.device.report(1, REPORTED[0]);
            }
            assert_eq!(reading.join().unwrap(), Ok(1));

            drop((reader, file));
            Rest::default().finish(attached, false);
        });
    }
}

/// A channel whose readers take long to wake, as with very many watches, delays those of no other.
#[test]
fn a_slow_channel_holds_up_no_other() {
    runtime::check(100, 0x18, || {
        let attached = Attached::new();
        let (slow, other) = (attached.open(), attached.open());
        let qpn = alloc(&attached, &slow);

        attached.register(&other, qpn).unwrap();

        let waking = slow.channel().member().wait_queue().wakes.lock().unwrap();
        let reading = {
            let other = other.clone();

            runtime::spawn(move || other.channel().read(1, 1, false))
        };

        attached.device.report(qpn, REPORTED[0]);
        assert_eq!(reading.join().unwrap(), Ok(1));
        drop(waking);

        drop((slow, other));
        Rest::default().finish(attached, false);
    });
}

/// A QP that is destroyed while the QPs are listed, one in a call, hides none after it.
#[test]
fn a_list_has_the_qps_that_stay() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let [first, second] = [(); 2].map(|()| alloc(&attached, &file));
        let destroying = {
            let (attached, file) = (attached.clone(), file.clone());

            runtime::spawn(move || attached.destroy(&file, first, true))
        };
        let listed = attached.query_domain(&file, 1).unwrap();

        destroying.join().unwrap().unwrap();
        assert_eq!(listed.last(), Some(&second));

        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// Each allocation of a call fails once: the call fails, and leaves nothing, and is not counted for
/// the limit, which the domain reaches at last.
#[test]
fn each_allocation_fails() {
    runtime::check(20, 0x18, || {
        runtime::set_limit(2);

        let attached = Attached::new();
        let (creator, file) = (attached.open(), attached.open());
        let qpn = alloc(&attached, &creator);
        let failures = |call: &dyn Fn() -> Result| {
            let fails = |index: &usize| {
                let objects = runtime::objects();

                runtime::fail_allocation(*index);

                let result = call();

                if runtime::allocations_succeed() {
                    assert_eq!(result, Err(ENOMEM));
                    assert_eq!(runtime::objects(), objects);
                    return true;
                }
                assert_eq!(result, Ok(()));
                false
            };

            (0..).take_while(fails).count()
        };
        let join = || {
            let joined = attached.try_open(Membership::All, Right::Use, EventMask::ALL);

            joined.map(drop)
        };
        let create = || attached.alloc(&file, LIFETIME, false).map(drop);

        let register = || attached.register(&file, qpn);
        let list = || attached.query_domain(&file, 2).map(drop);

        assert_eq!(
            [
                failures(&join),
                failures(&create),
                failures(&register),
                failures(&list)
            ],
            [2, 5, 3, 3]
        );
        assert_eq!(failures(&|| attached.modify(&file, qpn, QpState::Err)), 1);

        runtime::set_limit(0);
        drop((creator, file));
        Rest::default().finish(attached, false);
    });
}

/// The calls of processes that have the right that these need, or that before it.
#[test]
fn calls_need_rights() {
    runtime::check(20, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qpn = attached.alloc(&file, Lifetime::Domain, false).unwrap();
        let check = |needed, before, call: &dyn Fn() -> Result| {
            assert_eq!(with_right(before, call), Err(EACCES));
            assert_eq!(with_right(needed, call), Ok(()));
        };

        check(Right::Write, Right::Use, &|| {
            attached.alloc(&file, Lifetime::Domain, false).map(drop)
        });
        check(Right::Write, Right::Use, &|| {
            attached.modify(&file, qpn, QpState::Err)
        });
        with_right(Right::Use, || {
            attached.query(&file, qpn).unwrap();
            assert_eq!(attached.query_domain(&file, 1).unwrap().len(), 2);
        });
        check(Right::Own, Right::Write, &|| {
            attached.destroy(&file, qpn, true)
        });

        let qpn = attached.query_domain(&file, 1).unwrap()[0];

        attached.unregister(&file).unwrap();
        check(Right::Write, Right::Use, &|| {
            attached.destroy(&file, qpn, false)
        });
        assert_eq!(attached.query_domain(&file, 1), Ok(Vec::new()));

        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// The domain is created by one of two threads, and is that of both.
#[test]
fn two_threads_create_a_domain() {
    runtime::check(100, 0x18, || {
        let attached = Attached::new();
        let open = {
            let attached = attached.clone();

            move || {
                attached.get_xrcd();
                attached.domain_or_new()
            }
        };
        let other = runtime::spawn(open.clone());
        let domains = [open(), other.join().unwrap()];

        assert!(
            Arc::ptr_eq(&domains[0], &domains[1]),
            "an XRCD has two domains"
        );
        drop((domains, open));
        attached.put_xrcd();
        attached.put_xrcd();
        Rest::default().finish(attached, false);
    });
}

/// UNREG of an array by a thread that is killed: the QPs of the numbers that it counts are
/// destroyed when it returns, the others are kept.
#[test]
fn unreg_of_an_array_by_a_killed_thread() {
    const QPS: usize = 3;

    for index in 0..=QPS {
        runtime::check(50, 0x18, move || {
            let attached = Attached::new();
            let file = attached.open();
            let qpns: Vec<_> = (0..QPS).map(|_| alloc(&attached, &file)).collect();
            let killed = {
                let (attached, file) = (attached.clone(), file.clone());

                runtime::spawn(move || attached.unregister_killed(&file, index))
            };
            let (done, result) = killed.join().unwrap();

            assert_eq!(done, index);
            assert_eq!(result, if index < QPS { Err(EINTR) } else { Ok(()) });
            for (position, qpn) in qpns.iter().enumerate() {
                let exists = attached.device.history(*qpn).is_some();

                assert_eq!(exists, position >= done, "the QP {position} of {done}");
            }

            drop(file);
            Rest::default().finish(attached, false);
        });
    }
}

/// A thread ends several QPs, together with helpers. When it returns, no list has one of them.
fn several_end(lifetime: Lifetime, qps: usize, last_is_slow: bool) {
    runtime::check(20, 0x18, move || {
        let attached = Attached::new();
        let file = attached.open();
        let qpns: Vec<_> = (0..qps)
            .map(|_| attached.alloc(&file, lifetime, false).unwrap())
            .collect();

        if last_is_slow {
            attached.device.is_slow_with(qpns[qps - 1]);
        }
        if lifetime == Lifetime::Domain {
            attached.close_domain(&file);
        } else {
            assert_eq!(attached.unregister_killed(&file, qps), (qps, Ok(())));
        }
        assert!(!attached.has_qps());
        for id in [UNNEEDED, ENDING] {
            assert_eq!(runtime::listed(id), 0, "a list has a QP that was destroyed");
        }

        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// The device is slow to destroy the last QP, with which the thread begins: helpers destroy the
/// others meanwhile, which are more than there are helpers.
#[test]
fn several_end_beside_a_slow_one() {
    for lifetime in [Lifetime::Registrations, Lifetime::Domain] {
        several_end(lifetime, 20, true);
    }
}

/// The thread comes to some of the QPs before the helpers.
#[test]
fn several_end_by_either() {
    for lifetime in [Lifetime::Registrations, Lifetime::Domain] {
        several_end(lifetime, 4, false);
    }
}

/// A member registers again with a QP whose events it has not passed, as those of another QP come
/// before them: it reads none of before.
#[test]
fn a_member_that_registers_again_reads_no_earlier_event() {
    runtime::check(20, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let file = attached.open();
        let unread = alloc(&attached, &creator);
        let qpn = alloc(&attached, &creator);

        attached.register(&file, unread).unwrap();
        attached.report(unread);
        for _ in 0..2 {
            attached.register(&file, qpn).unwrap();
            attached.report(qpn);
            attached.unregister(&file).unwrap();
        }
        attached.register(&file, qpn).unwrap();
        assert_eq!(file.channel().read(16, 16, true), Ok(REPORTED.len()));

        drop((file, creator));
        Rest::default().finish(attached, false);
    });
}

/// UNREG of a number ends no registration with a greater one.
#[test]
fn unreg_of_a_number_without_registration() {
    runtime::check(20, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let other = attached.open();
        let first = alloc(&attached, &other);

        alloc(&attached, &file);
        attached.register(&file, first).unwrap();
        attached.unregister(&file).unwrap();
        assert_eq!(attached.unregister_unknown(&file, first), (1, Ok(())));
        assert_eq!(attached.find(first + 1).map(|qp| qp.qpn()), Ok(first + 1));

        drop((file, other));
        Rest::default().finish(attached, false);
    });
}

/// A kernel user closes the domain while the device is removed, and another thread destroys the
/// last QP: both wait for that.
#[test]
fn two_threads_close_a_domain() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let user = KernelUser::open(&attached, Membership::Named);

        user.alloc(&attached, LIFETIME).unwrap();

        let threads = [
            {
                let (attached, user) = (attached.clone(), user.clone());

                runtime::spawn(move || user.unregister(&attached))
            },
            {
                let (attached, user) = (attached.clone(), user.clone());

                runtime::spawn(move || user.close_domain(&attached))
            },
            {
                let attached = attached.clone();

                runtime::spawn(move || attached.remove())
            },
        ];

        for thread in threads {
            thread.join().unwrap();
        }
        user.leave(&attached);
        drop(user);
        Rest::default().finish(attached, false);
    });
}

/// The descriptor of a channel is closed while the device is removed: its registrations end once.
#[test]
fn a_channel_is_closed_while_the_device_is_removed() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();

        for _ in 0..4 {
            alloc(&attached, &file);
        }

        let closing = {
            let file = file.clone();

            runtime::spawn(move || file.channel().close())
        };

        attached.remove();
        closing.join().unwrap();

        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// A process that has the descriptor of a channel alone registers while its uverbs file is closed,
/// or the device removed: no registration is left. If `is_last`, the QP ends with the channel.
fn register_while_the_file_ends(removes: bool, is_last: bool) {
    runtime::check(1000, 0x18, move || {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let file = attached.open();
        let qp = attached.find(qpn).unwrap();

        if is_last {
            let registered = attached.register(&file, qpn);

            assert_eq!(registered.and(attached.unregister(&creator)), Ok(()));
        }

        let registering = {
            let (attached, file) = (attached.clone(), file.clone());

            runtime::spawn(move || {
                let _ = attached.register_by_ioctl(&file, qpn);
            })
        };

        if removes {
            attached.remove();
        } else {
            attached.close(&file);
        }
        registering.join().unwrap();
        assert_eq!(qp.registrations().len(), usize::from(!removes && !is_last));
        assert_eq!(attached.register_by_ioctl(&file, qpn), Err(EIO));
        assert_ne!(attached.unregister_by_ioctl(&file), Ok(()));

        drop((qp, file, creator));
        Rest::default().finish(attached, false);
    });
}

#[test]
fn a_process_without_the_file_registers_while_it_is_closed() {
    register_while_the_file_ends(false, false);
    register_while_the_file_ends(false, true);
}

#[test]
fn a_process_without_the_file_registers_while_the_device_is_removed() {
    register_while_the_file_ends(true, false);
    register_while_the_file_ends(true, true);
}

/// A worker calls the handlers of several kernel users, while one of them unregisters, one leaves
/// and other events come.
#[test]
fn a_worker_calls_handlers() {
    runtime::check(200, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let users: Vec<_> = (0..4)
            .map(|_| {
                let user = KernelUser::open(&attached, Membership::Named);

                user.register(&attached, qpn).unwrap();
                user
            })
            .collect();
        let reports = {
            let attached = attached.clone();

            runtime::spawn(move || attached.report(qpn))
        };

        users[1].unregister(&attached);
        users[2].leave(&attached);
        attached.report(qpn);
        reports.join().unwrap();
        attached.destroy(&creator, qpn, true).unwrap();
        for user in &users {
            user.wait(true);
            user.leave(&attached);
            user.close_domain(&attached);
        }

        drop((users, creator));
        Rest::default().finish(attached, false);
    });
}

/// Of more records than a worker passes to a handler before it serves others, each comes.
#[test]
fn a_handler_gets_many_records() {
    const QPS: usize = 20;

    runtime::check(100, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let user = KernelUser::open(&attached, Membership::Named);

        for _ in 0..QPS {
            let qpn = alloc(&attached, &creator);

            user.register(&attached, qpn).unwrap();
            attached.report(qpn);
        }
        user.wait(false);
        attached.close(&creator);
        user.leave(&attached);
        user.close_domain(&attached);

        drop((user, creator));
        Rest::default().finish(attached, false);
    });
}

/// A worker wakes more members than an event does at once, while one of them leaves.
#[test]
fn a_worker_wakes_many_readers() {
    runtime::check(100, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let qpn = alloc(&attached, &creator);
        let files: Vec<_> = (0..5).map(|_| attached.open()).collect();

        for file in &files {
            attached.register(file, qpn).unwrap();
        }

        let readers: Vec<_> = files[1..]
            .iter()
            .map(|file| {
                let file = file.clone();

                runtime::spawn(move || {
                    let mut records = 0;

                    while records < REPORTED.len() {
                        records += file.channel().read(1, 1, false).unwrap();
                    }
                })
            })
            .collect();

        attached.report(qpn);
        files[0].channel().close();
        for reader in readers {
            reader.join().unwrap();
        }

        drop((files, creator));
        Rest::default().finish(attached, false);
    });
}

/// A reader that waits gets the records that another has put back.
#[test]
fn a_record_that_is_put_back_wakes_a_reader() {
    runtime::check(200, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qpn = alloc(&attached, &file);
        let reader = {
            let file = file.clone();

            runtime::spawn(move || {
                let mut records = 0;

                while records < REPORTED.len() {
                    records += file.channel().read(1, 1, false).unwrap();
                }
            })
        };
        let faults = {
            let file = file.clone();

            runtime::spawn(move || file.channel().read(2, 0, true))
        };

        attached.report(qpn);
        assert!(faults.join().unwrap().is_err(), "its buffer is not there");
        reader.join().unwrap();

        drop(file);
        Rest::default().finish(attached, false);
    });
}

/// A reader that is killed stops in a log that is longer than it passes at once, in read(2) and in
/// poll(2), before it finds the record at the end. Poll then does not say that there is none: the
/// processes that share an epoll instance with the killed one would not be woken for it.
#[test]
fn a_killed_reader_stops_in_the_log() {
    const QPS: usize = 17;

    runtime::check(5, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let files = [attached.open(), attached.open()];
        let qpns: Vec<_> = (0..QPS).map(|_| alloc(&attached, &creator)).collect();

        for file in &files {
            attached.register(file, qpns[QPS - 1]).unwrap();
        }
        qpns.iter().for_each(|qpn| attached.report(*qpn));

        let killed = {
            let [reader, poller] = files.clone();

            runtime::spawn(move || {
                // After the page of the buffer was brought in.
                runtime::kill_after(1);

                (
                    reader.channel().read(1, 1, true),
                    poller.channel().is_readable(),
                )
            })
        };

        assert_eq!(killed.join().unwrap(), (Err(EINTR), true));
        for file in &files {
            assert!(file.channel().is_readable(), "the record is still there");
        }

        drop((creator, files));
        Rest::default().finish(attached, false);
    });
}

/// Returns which members the domain has, of the first rows.
fn members(attached: &Attached) -> Vec<usize> {
    let domain = attached.domain_or_new();
    let log = domain.log().lock();

    (0..4 * ROW)
        .filter(|number| log.members.get(*number).is_some())
        .collect()
}

/// More members than two rows have: two threads become the first of the next row at the same time,
/// and numbers that were given back are given away again. Readers of two rows wait for the events
/// of a QP that had others before; when it is destroyed, a worker takes the other members away.
#[test]
fn more_members_than_two_rows() {
    runtime::check(10, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let others: Vec<_> = (1..2 * ROW - 1)
            .map(|_| attached.open_with(Right::Use, EventMask::default()))
            .collect();

        join_at_once(&attached);

        let files = [(); 3].map(|()| attached.open());

        assert_eq!(members(&attached), Vec::from_iter(0..2 * ROW + 2));
        signal_rows(&attached, &creator, &others, &files);
        drop((others, files, creator));
        Rest::default().finish(attached, false);
    });
}

/// Two threads join while the numbers of the rows that exist are taken, and leave.
fn join_at_once(attached: &StdArc<Attached>) {
    let join = {
        let domain = attached.domain_or_new();

        move || {
            let size = RecordSize::new(None).unwrap();
            let terms = Terms::new(0, Right::Use, EventMask::ALL).unwrap();

            Member::new(domain, terms, size, None).unwrap()
        }
    };
    let last = join.clone()();
    let other = runtime::spawn(join.clone());
    let joined = [join(), other.join().unwrap()];

    assert_eq!(members(attached), Vec::from_iter(0..2 * ROW + 2));
    drop((last, joined));
}

/// All read the events of a QP, up to its end.
fn signal_rows(
    attached: &StdArc<Attached>,
    creator: &StdArc<File>,
    others: &[StdArc<File>],
    files: &[StdArc<File>; 3],
) {
    let qpn = alloc(attached, creator);

    attached.report(qpn);
    for file in [others, files].concat() {
        attached.register(&file, qpn).unwrap();
    }

    let readers = files.clone().map(|file| {
        runtime::spawn(move || {
            while file.channel().gone().is_empty() {
                file.channel().read(4, 4, false).unwrap();
            }
        })
    });

    attached.report(qpn);
    while !files.iter().all(|file| file.channel().is_complete(false)) {
        runtime::yield_now();
    }
    attached.destroy(creator, qpn, true).unwrap();
    for reader in readers {
        reader.join().unwrap();
    }
    while creator.channel().read(4, 4, true).is_ok() {}
    while attached.domain_or_new().gone() != 0 {
        runtime::yield_now();
    }
}

/// A channel that is closed loses its registration with the last of more QPs than are looked at
/// with the lock held once.
#[test]
fn a_channel_of_a_domain_with_many_qps_is_closed() {
    const QPS: usize = 65;

    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let file = attached.open();
        let qpns: Vec<_> = (0..QPS).map(|_| alloc(&attached, &creator)).collect();
        let last = attached.find(qpns[QPS - 1]).unwrap();

        attached.register(&file, last.qpn()).unwrap();
        assert_eq!(last.registrations().len(), 2);
        file.channel().close();
        assert_eq!(last.registrations().len(), 1);

        drop((last, file, creator));
        Rest::default().finish(attached, false);
    });
}

fn to_state(state: QpState) -> QpAttr {
    let mut attributes = QpAttr::new();

    attributes.towards(state, QpAttrMask::NONE);
    attributes
}

/// The state that is known without a query is that of the device.
fn check_known(qp: &ReceiveQp) {
    let known = qp.status().known().state();
    let attributes = qp.query().unwrap().expect("the QP exists");

    assert!(known == attributes.state(), "another state is known");
}

/// After each modification, and after those of several threads beside a query.
#[test]
fn the_known_state_is_that_of_the_device() {
    runtime::check(200, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qpn = alloc(&attached, &file);
        let qp = attached.find(qpn).unwrap();

        check_known(&qp);
        qp.modify_from_kernel(&mut to_state(QpState::Rtr)).unwrap();
        check_known(&qp);

        // A device that fails may have modified the QP: a query finds out.
        attached.device.fail(Verb::Modify);
        assert!(qp.modify_from_kernel(&mut to_state(QpState::Err)) == Err(EIO));
        assert!(qp.status().known().state() == Ok(QpState::Rtr));
        qp.query().unwrap();
        check_known(&qp);
        assert!(qp.status().known().state() == Ok(QpState::Err));

        let call = |call: fn(&ReceiveQp)| {
            let qp = qp.clone();

            runtime::spawn(move || call(&qp))
        };
        let threads = [
            call(|qp| {
                qp.modify_from_kernel(&mut to_state(QpState::Reset))
                    .unwrap()
            }),
            call(|qp| {
                let user = passed::to(QpAttrMask::STATE, QpState::Init);

                qp.modify(&user, &udata_on(qp.status().device())).unwrap();
            }),
            call(|qp| {
                qp.query().unwrap();
            }),
        ];

        for thread in threads {
            thread.join().unwrap();
        }
        check_known(&qp);

        drop((qp, file));
        Rest::default().finish(attached, false);
    });
}

/// A read with a full buffer passes a few events of other members at most, a read with room all.
#[test]
fn a_read_with_a_full_buffer_stops() {
    const OTHERS: u32 = 24;
    // 16 events. Each QP has a position for QP_ADDED as well.
    const AT_ONCE: u64 = 2 * 16;

    runtime::check(20, 0x18, || {
        let attached = Attached::new();
        let (file, other) = (attached.open(), attached.open());
        let listener = file.channel().member().holder(None).listener;
        let end = || attached.domain_or_new().log().lock().end();

        attached.device.report(alloc(&attached, &file), REPORTED[0]);

        let position = end();

        for _ in 0..OTHERS {
            attached.report(alloc(&attached, &other));
        }
        assert!(end() > position + AT_ONCE, "there are more events");
        assert_eq!(file.channel().read(1, 1, true), Ok(1));
        assert!((position..=position + AT_ONCE).contains(&listener.cursor()));
        assert_eq!(file.channel().read(1, 1, true), Err(EAGAIN));
        assert_eq!(listener.cursor(), end());

        drop((listener, file, other));
        Rest::default().finish(attached, false);
    });
}

/// Verbs beside the end of the QP: they find it, or have EINVAL.
#[test]
fn verbs_beside_the_end_of_the_qp() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let qpn = alloc(&attached, &file);
        let qp = attached.find(qpn).unwrap();
        let call = |call: fn(StdArc<Attached>, Arc<ReceiveQp>, StdArc<File>)| {
            let (attached, qp, file) = (attached.clone(), qp.clone(), file.clone());

            runtime::spawn(move || call(attached, qp, file))
        };
        let modify: fn(StdArc<Attached>, Arc<ReceiveQp>, StdArc<File>) = |_, qp, _| {
            let result = qp.modify_from_kernel(&mut to_state(QpState::Err));

            assert!(result == Ok(()) || result == Err(EINVAL), "of MODIFY");
        };
        let threads = [
            call(modify),
            call(modify),
            call(|_, qp, _| {
                qp.query().unwrap();
            }),
            call(|attached, _, file| attached.unregister(&file).unwrap()),
        ];

        for thread in threads {
            thread.join().unwrap();
        }
        assert!(qp.query().unwrap().is_none(), "the QP was destroyed");
        assert!(qp.modify_from_kernel(&mut to_state(QpState::Err)) == Err(EINVAL));

        drop((qp, file));
        Rest::default().finish(attached, false);
    });
}

/// A QP is created and destroyed.
fn live(attached: &Attached, creator: &File) {
    let qpn = alloc(attached, creator);

    let ended = attached.destroy(creator, qpn, true);

    ended.and_then(|()| attached.unregister(creator)).unwrap();
}

/// A QP that one thread creates, while a process becomes a member of all: it finds the QP in a list
/// after it has joined, or gets QP_ADDED.
#[test]
fn a_member_of_all_misses_no_qp() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let joins = {
            let attached = attached.clone();

            runtime::spawn(move || attached.open_all(Right::Use))
        };
        let qpn = alloc(&attached, &creator);
        let member = joins.join().unwrap();

        while member.channel().read(4, 4, true).is_ok() {}
        assert!(member.channel().known().contains(&1));
        attached.report(qpn);
        assert_eq!(member.channel().read(4, 4, true), Ok(REPORTED.len()));
        attached.unregister(&creator).unwrap();
        assert!(!attached.has_qps(), "a reader does not keep it");

        drop((creator, member));
        Rest::default().finish(attached, false);
    });
}

/// Members of all lose the records of QPs that leave the log: they read that once, and then those
/// that are left. All that they have passed, or leave unread, is not kept.
#[test]
fn members_of_all_lose_records_once() {
    runtime::check(50, 0x18, || {
        runtime::set_limit(1);

        let attached = Attached::new();
        let creator = attached.open();
        let of = |of| attached.open_of(of, Right::Write, EventMask::ALL);
        let silent = EventMask::default();
        let silent = attached.open_of(Membership::All, Right::Write, silent);
        let files = [
            of(Membership::All),
            of(Membership::Observer),
            of(Membership::All),
        ];
        let end = || live(&attached, &creator);
        let gone = || attached.domain_or_new().gone();

        end();
        assert_eq!(
            files[1].channel().read(4, 4, false),
            Ok(2),
            "QP_ADDED, QP_GONE"
        );
        end();
        end();
        assert_eq!(gone(), 1);
        for file in &files[..2] {
            assert_eq!(file.channel().read(1, 1, false), Ok(1));
            assert!(file.channel().has_lost(), "OVERRUN comes first");
            assert_eq!(file.channel().read(4, 4, false), Ok(2));
            assert_eq!(file.channel().read(4, 4, true), Err(EAGAIN));
            assert_eq!(file.channel().gone().last(), Some(&3));
        }
        assert_eq!(gone(), 1, "one has not read");
        files[2].channel().close();
        assert_eq!(gone(), 0, "it has left");
        assert_eq!(silent.channel().read(4, 4, true), Err(EAGAIN));
        end();
        assert_eq!(gone(), 1);

        runtime::set_limit(0);
        drop((creator, files, silent));
        Rest::default().finish(attached, false);
    });
}

/// Members of all read, and leave, while QPs end and leave the log.
#[test]
fn members_of_all_beside_qps_that_end() {
    const QPS: u64 = 4;

    for limit in [1, 2, 4] {
        runtime::check(100, 0x18, move || {
            runtime::set_limit(limit);

            let attached = Attached::new();
            let creator = attached.open();
            let files = [
                attached.open_all(Right::Use),
                attached.open_all(Right::Write),
            ];
            let reader = {
                let file = files[0].clone();

                runtime::spawn(move || {
                    let channel = file.channel();

                    while channel.gone().last() != Some(&QPS) {
                        channel.read(2, 2, false).unwrap();
                    }
                    assert!(channel.gone().len() as u64 == QPS || channel.has_lost());
                })
            };
            let leaver = {
                let file = files[1].clone();

                runtime::spawn(move || file.channel().close())
            };

            for _ in 0..QPS {
                live(&attached, &creator);
            }
            reader.join().unwrap();
            leaver.join().unwrap();
            assert_eq!(attached.domain_or_new().gone(), 0, "all was read");

            runtime::set_limit(0);
            drop((creator, files));
            Rest::default().finish(attached, false);
        });
    }
}

/// A member of all leaves more QPs that have ended than it passes with the lock held once.
#[test]
fn a_member_of_all_leaves_many_ends() {
    const QPS: usize = 40;

    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let creator = attached.open();
        let member = attached.open_all(Right::Use);

        for _ in 0..QPS {
            live(&attached, &creator);
        }
        assert_eq!(attached.domain_or_new().gone(), QPS);
        member.channel().close();
        assert_eq!(attached.domain_or_new().gone(), 0);

        drop((creator, member));
        Rest::default().finish(attached, false);
    });
}
