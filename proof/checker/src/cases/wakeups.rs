// SPDX-License-Identifier: GPL-2.0

//! Wakeups: a member that no task waits for gets none until the next read or poll of its channel.

use super::alloc;
use crate::{
    event::EventMask,
    kernel_user::KernelUser,
    rdma::{device::REPORTED, uverbs::event_file::EventFile},
    right::Right,
    scenarios::Rest,
    uverbs::{Attached, Channel, File},
};
use kernel::runtime;
use std::sync::Arc as StdArc;
use xrc_rcv_spec::Membership;

const QPS: usize = 4;

/// Creates QPs, and a channel that is registered with them, or with all.
fn registered(attached: &Attached, of: Membership) -> ([StdArc<File>; 2], [u32; QPS]) {
    let creator = attached.open();
    let qpns = [(); QPS].map(|()| alloc(attached, &creator));
    let file = attached.open_of(of, Right::Use, EventMask::ALL);

    if of == Membership::Named {
        for qpn in qpns {
            attached.register(&file, qpn).unwrap();
        }
    }
    ([creator, file], qpns)
}

fn report(attached: &Attached, qpn: u32) {
    attached.device.report(qpn, REPORTED[0]);
}

/// Waits as an edge-triggered watch of epoll does, or a poll of io_uring that is made once for many
/// events: it polls the channel after a wakeup only.
fn wait_for_edge(channel: &Channel, edges: &mut u64) {
    loop {
        channel.member().wait_queue().wait_for_edge(edges);
        if channel.is_readable() {
            return;
        }
    }
}

/// An event is an edge if it comes after a process has heard of those before: it has read nothing,
/// put a record back, or read one of several.
#[test]
fn an_event_after_a_look_is_an_edge() {
    let looks: [fn(&Channel); QPS] = [
        |_| (),
        |channel| assert!(channel.read(2, 0, true).is_err(), "its buffer is not there"),
        |channel| assert_eq!(channel.read(1, 1, true), Ok(1)),
        |channel| assert_eq!(channel.read(4, 4, true), Ok(QPS - 1)),
    ];

    for of in [Membership::Named, Membership::All] {
        runtime::check(100, 0x18, move || {
            let attached = Attached::new();
            let (files, qpns) = registered(&attached, of);
            let channel = files[1].channel();
            let mut edges = 0;

            channel.member().wait_queue().watch();
            for (qpn, look) in qpns.into_iter().zip(looks) {
                report(&attached, qpn);
                wait_for_edge(channel, &mut edges);
                look(channel);
            }

            drop(files);
            Rest::default().finish(attached, false);
        });
    }
}

/// Processes that share an instance of epoll are woken one at a time: if one is killed before it
/// looks, the next event wakes another.
#[test]
fn a_watch_is_woken_by_each_event() {
    for of in [Membership::Named, Membership::All] {
        runtime::check(100, 0x18, move || {
            let attached = Attached::new();
            let (files, qpns) = registered(&attached, of);
            let queue = files[1].channel().member().wait_queue();
            let mut edges = 0;

            queue.watch();
            for qpn in qpns {
                report(&attached, qpn);
                queue.wait_for_edge(&mut edges);
            }

            drop(files);
            Rest::default().finish(attached, false);
        });
    }
}

/// A thread polls a channel whose records were discarded, and waits for the next event.
#[test]
fn a_poll_after_discarded_events_waits_for_the_next() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let (files, qpns) = registered(&attached, Membership::Named);

        report(&attached, qpns[QPS - 1]);
        attached.unregister(&files[1]).unwrap();

        let file = files[1].clone();
        let poller = runtime::spawn(move || {
            let channel = file.channel();

            channel
                .member()
                .wait_queue()
                .wait_interruptible(|| channel.is_readable().then_some(()))
        });

        report(&attached, qpns[0]);
        poller.join().unwrap().unwrap();

        drop(files);
        Rest::default().finish(attached, false);
    });
}

/// Threads sleep in a read of one channel, and each takes a record, while another polls it, and
/// UNREG discards the record of a QP, which may be unread.
#[test]
fn each_reader_of_a_channel_gets_a_record() {
    for of in [Membership::Named, Membership::All] {
        runtime::check(300, 0x18, move || {
            let attached = Attached::new();
            let (files, qpns) = registered(&attached, of);
            let spawn = |call: fn(&Channel) -> bool| {
                let file = files[1].clone();

                runtime::spawn(move || call(file.channel()))
            };
            let readers =
                [(); QPS - 1].map(|()| spawn(|channel| channel.read(1, 1, false) == Ok(1)));
            let poller = spawn(Channel::is_readable);

            report(&attached, qpns[QPS - 1]);
            if of == Membership::Named {
                attached.unregister(&files[1]).unwrap();
            }
            for qpn in &qpns[..QPS - 1] {
                report(&attached, *qpn);
            }
            for reader in readers {
                assert!(reader.join().unwrap());
            }
            poller.join().unwrap();

            drop(files);
            Rest::default().finish(attached, false);
        });
    }
}

/// A kernel user leaves, whose handler may not have been called for an event. The next one gets its
/// number, and its handler is called.
#[test]
fn a_kernel_user_has_the_number_of_another() {
    for of in [Membership::Named, Membership::All] {
        runtime::check(300, 0x18, move || {
            let attached = Attached::new();
            let creator = attached.open();
            let qpn = alloc(&attached, &creator);

            for stays in [false, true] {
                let user = KernelUser::open(&attached, of);

                if of == Membership::Named {
                    user.register(&attached, qpn).unwrap();
                }
                report(&attached, qpn);
                if stays {
                    user.wait(false);
                }
                user.leave(&attached);
                user.close_domain(&attached);
            }

            drop(creator);
            Rest::default().finish(attached, false);
        });
    }
}

/// Of QPs that were destroyed, the log has no more than it keeps, although a member that no task
/// waits for reads nothing.
#[test]
fn a_member_that_nobody_waits_for_is_taken_away() {
    runtime::check(50, 0x18, || {
        runtime::set_limit(1);

        let attached = Attached::new();
        let (creator, file) = (attached.open(), attached.open());
        let domain = attached.domain_or_new();

        for _ in 0..QPS {
            let qpn = alloc(&attached, &creator);

            attached.register(&file, qpn).unwrap();
            attached.destroy(&creator, qpn, true).unwrap();
            attached.unregister(&creator).unwrap();
        }
        while domain.log().lock().after_name((0, 0)).count() > 1 {
            runtime::yield_now();
        }
        file.channel().lose();

        runtime::set_limit(0);
        drop((domain, creator, file));
        Rest::default().finish(attached, false);
    });
}
