// SPDX-License-Identifier: GPL-2.0

//! Several event channels of one uverbs file: each is a member of the domain, and all end with the
//! file.

use super::{alloc, LIFETIME};
use crate::{
    event::{EventMask, EventType},
    kernel_ext::over_limit,
    rdma::{device::REPORTED, uverbs::event_file::EventFile},
    right::Right,
    scenarios::Rest,
    uverbs::{Attached, Channel, File},
};
use kernel::{
    bindings::{POLLHUP, POLLIN, POLLRDNORM},
    prelude::*,
    runtime::{self, Limit},
};
use std::sync::Arc as StdArc;
use xrc_rcv_spec::Membership;

/// Opens a file with two event channels, of which the scheduler chooses the older one.
fn open_two(attached: &Attached, of: [Membership; 2]) -> [StdArc<File>; 2] {
    let is_swapped = runtime::choose(2) == 1;
    let [older, newer] = if is_swapped { [of[1], of[0]] } else { of };
    let older = attached.open_of(older, Right::Write, EventMask::ALL);
    let newer = another(attached, &older, newer);

    if is_swapped {
        [newer, older]
    } else {
        [older, newer]
    }
}

fn another(attached: &Attached, file: &File, of: Membership) -> StdArc<File> {
    attached
        .open_another(file, of, Right::Write, EventMask::ALL)
        .unwrap()
}

/// Registers both channels with a QP that nothing else keeps.
fn register_both(attached: &Attached, files: &[StdArc<File>; 2]) -> u32 {
    let creator = attached.open();
    let qpn = alloc(attached, &creator);

    for file in files {
        attached.register(file, qpn).unwrap();
    }
    attached.unregister(&creator).unwrap();
    qpn
}

fn spawn<R: Send + 'static>(
    attached: &StdArc<Attached>,
    file: &StdArc<File>,
    call: impl FnOnce(&Attached, &File) -> R + Send + 'static,
) -> runtime::JoinHandle<R> {
    let (attached, file) = (attached.clone(), file.clone());

    runtime::spawn(move || call(&attached, &file))
}

/// Reads the records that there are. Returns their number, and the error of the next read.
fn read(channel: &Channel) -> (usize, Error) {
    let mut records = 0;

    loop {
        match channel.read(1, 1, true) {
            Ok(read) => records += read,
            Err(e) => return (records, e),
        }
    }
}

/// Both have registered with a QP: each reads each event once, by its own mask, and UNREG of one
/// leaves the other, whose end is that of the QP.
#[test]
fn each_channel_of_a_file_has_its_registration() {
    runtime::check(50, 0x18, || {
        let attached = Attached::new();
        let files = open_two(&attached, [Membership::Named; 2]);
        let mut mask = EventMask::default();

        mask.add(EventType::from_ib_event(REPORTED[1]).unwrap());

        let masked = attached.open_another(&files[0], Membership::Named, Right::Write, mask);
        let masked = masked.unwrap();
        let qpn = register_both(&attached, &files);

        attached.register(&masked, qpn).unwrap();

        let reader = spawn(&attached, &files[1], |_, file| {
            let mut records = 0;

            while records < REPORTED.len() {
                records += file.channel().read(4, 4, false).unwrap();
            }
            records
        });

        attached.report(qpn);
        assert_eq!(read(files[0].channel()), (REPORTED.len(), EAGAIN));
        assert_eq!(read(masked.channel()), (1, EAGAIN));
        assert_eq!(reader.join().unwrap(), REPORTED.len());
        attached.unregister(&masked).unwrap();
        attached.unregister(&files[0]).unwrap();
        assert!(attached.has_qps(), "the other keeps it");
        attached.report(qpn);
        for (file, records) in [(&files[0], 0), (&masked, 0), (&files[1], REPORTED.len())] {
            assert_eq!(read(file.channel()), (records, EAGAIN));
        }
        attached.unregister(&files[1]).unwrap();
        assert!(!attached.has_qps(), "nothing keeps it");

        drop((masked, files));
        Rest::default().finish(attached, false);
    });
}

/// One is a member of all, and keeps the QPs or not.
#[test]
fn a_channel_of_a_file_is_a_member_of_all() {
    for (of, keeps) in [(Membership::All, true), (Membership::Observer, false)] {
        runtime::check(50, 0x18, move || {
            let attached = Attached::new();
            let [named, all] = open_two(&attached, [Membership::Named, of]);
            let qpn = alloc(&attached, &named);

            attached.report(qpn);
            assert_eq!(read(named.channel()), (REPORTED.len(), EAGAIN));
            assert_eq!(read(all.channel()), (1 + REPORTED.len(), EAGAIN));
            attached.unregister(&named).unwrap();
            assert_eq!(attached.has_qps(), keeps);
            if keeps {
                attached.report(qpn);
                assert_eq!(read(all.channel()), (REPORTED.len(), EAGAIN));
                all.channel().close();
                assert!(!attached.has_qps(), "nothing keeps it");
            } else {
                assert_eq!(all.channel().read(4, 4, false), Ok(1), "QP_GONE");
                assert_eq!(read(all.channel()), (0, EAGAIN));
            }
            assert_eq!(read(named.channel()), (0, EAGAIN));

            drop((named, all));
            Rest::default().finish(attached, false);
        });
    }
}

/// Channels count for the limit on the registrations of a QP, and one user for that on QPs.
#[test]
fn channels_of_a_file_and_limits() {
    runtime::check(20, 0x18, || {
        runtime::set_limit_on(Limit::RegistrationsPerQp, 2);

        let attached = Attached::new();
        let files = open_two(&attached, [Membership::Named; 2]);
        let third = another(&attached, &files[0], Membership::Named);
        let qpn = alloc(&attached, &files[0]);

        attached.register(&files[1], qpn).unwrap();
        assert_eq!(attached.register(&third, qpn), Err(over_limit()));
        files[1].channel().close();
        attached.register(&third, qpn).unwrap();
        runtime::set_limit_on(Limit::RegistrationsPerQp, 0);

        super::run_as(7, 7);
        runtime::set_limit_on(Limit::QpsPerUser, 1);
        alloc(&attached, &files[0]);
        for file in [&files[0], &third] {
            let result = attached.alloc(file, LIFETIME, false);

            assert_eq!(result, Err(over_limit()));
        }

        runtime::set_limit_on(Limit::QpsPerUser, 0);
        drop((third, files));
        Rest::default().finish(attached, false);
    });
}

/// The file is closed, while the QP has an event, and a process that has one of the descriptors
/// alone registers it with another QP: it succeeds, and the registration ends with the others, or
/// it fails with EIO.
#[test]
fn a_file_ends_all_its_channels() {
    let (named, all) = (Membership::Named, Membership::All);

    for of in [[named, named], [named, all]] {
        runtime::check(300, 0x18, move || {
            let attached = Attached::new();
            let creator = attached.open();
            let files = open_two(&attached, of);
            let qpn = register_both(&attached, &files);
            let other = attached.find(alloc(&attached, &creator)).unwrap();
            let other_qpn = other.qpn();

            attached.report(qpn);

            let threads = [
                spawn(&attached, &files[0], move |attached, _| {
                    attached.report(qpn);
                    Ok(())
                }),
                spawn(&attached, &files[0], move |attached, file| {
                    attached.register_by_ioctl(file, other_qpn)
                }),
            ];

            attached.close(&files[1]);
            assert!(attached.find(qpn).is_err(), "nothing keeps it");
            for thread in threads {
                let result = thread.join().unwrap();

                assert!([Ok(()), Err(EIO)].contains(&result), "{result:?}");
            }
            assert_eq!(other.registrations().len(), 1, "that of its creator");
            for file in &files {
                assert_eq!(read(file.channel()), (0, EIO));
                assert_eq!(file.channel().member().poll(), POLLHUP);
                assert_eq!(attached.register_by_ioctl(file, other_qpn), Err(EIO));
            }

            drop((other, files, creator));
            Rest::default().finish(attached, false);
        });
    }
}

/// One keeps the QP, with which the other registers by its descriptor: it is found, or its
/// registration keeps it until the other ends, too.
#[test]
fn a_channel_registers_while_another_of_its_file_ends() {
    runtime::check(1000, 0x18, || {
        let attached = Attached::new();
        let files = open_two(&attached, [Membership::Named; 2]);
        let qpn = alloc(&attached, &files[0]);
        let registering = spawn(&attached, &files[1], move |attached, file| {
            attached.register_by_ioctl(file, qpn)
        });

        attached.close(&files[0]);
        assert!(!attached.has_qps(), "nothing keeps it");
        if let Err(e) = registering.join().unwrap() {
            assert!([EINVAL, EIO].contains(&e), "{e:?}");
        }

        drop(files);
        Rest::default().finish(attached, false);
    });
}

/// The descriptor of a channel is closed while its file, or the device, ends both: the channel has
/// no registration when it is closed, be the file's end at the other or at its own.
#[test]
fn a_descriptor_is_closed_while_its_file_ends() {
    for removes in [false, true] {
        runtime::check(500, 0x18, move || {
            let attached = Attached::new();
            let creator = attached.open();
            let files = open_two(&attached, [Membership::Named; 2]);
            // A file that stays, but for the removal, has the domain open.
            let qps = files.clone().map(|file| {
                let qp = attached.find(alloc(&attached, &creator)).unwrap();

                attached.register(&file, qp.qpn()).unwrap();
                attached.unregister(&creator).unwrap();
                qp
            });
            let closed = {
                let registrations = qps[0].registrations().clone();

                spawn(&attached, &files[0], move |_, file| {
                    file.channel().close();
                    registrations.len()
                })
            };

            attached.report(qps[0].qpn());
            attached.report(qps[1].qpn());
            if removes {
                attached.remove();
            } else {
                attached.close(&files[1]);
            }
            assert_eq!(closed.join().unwrap(), 0);
            assert!(!attached.has_qps());
            assert_eq!(files[0].channel().read(1, 1, true), Err(EIO));
            if removes {
                assert_eq!(read(files[1].channel()), (REPORTED.len() + 1, EIO));
            } else {
                assert_eq!(read(files[1].channel()), (0, EIO));
            }

            drop((qps, files, creator));
            Rest::default().finish(attached, false);
        });
    }
}

/// The one handle of the domain is closed: both read the end of the QP, and can name none, nor can
/// the file have another channel.
#[test]
fn the_domain_of_two_channels_is_closed() {
    for of in [Membership::Named, Membership::All] {
        runtime::check(100, 0x18, move || {
            let attached = Attached::new();
            let files = open_two(&attached, [Membership::Named, of]);
            let qpn = alloc(&attached, &files[0]);
            let reader = spawn(&attached, &files[0], |_, file| {
                while file.channel().gone().is_empty() {
                    file.channel().read(1, 1, false).unwrap();
                }
            });

            attached.register(&files[1], qpn).unwrap();
            attached.report(qpn);

            let joining = spawn(&attached, &files[0], |attached, file| {
                let of = Membership::All;

                attached.open_another(file, of, Right::Use, EventMask::ALL)
            });

            attached.close_domain(&files[1]);
            reader.join().unwrap();
            if let Err(e) = joining.join().unwrap() {
                assert_eq!(e, ENOENT);
            }
            while files[1].channel().read(4, 4, true).is_ok() {}
            for file in &files {
                assert_eq!(file.channel().gone(), [1]);
                assert_eq!(read(file.channel()), (0, EAGAIN), "the channel stays");
                assert_eq!(attached.register(file, qpn), Err(EINVAL));
                assert_eq!(attached.alloc(file, LIFETIME, false), Err(ENOENT));
                let joined = attached.open_another(file, of, Right::Write, EventMask::ALL);

                assert_eq!(joined.err(), Some(ENOENT));
            }

            drop(files);
            Rest::default().finish(attached, false);
        });
    }
}

/// A file closes its handle of a domain that another has open: its channels stay members.
#[test]
fn two_channels_outlive_the_handle_of_their_domain() {
    runtime::check(50, 0x18, || {
        let attached = Attached::new();
        let other = attached.open();
        let files = open_two(&attached, [Membership::Named, Membership::All]);
        let qpn = alloc(&attached, &files[0]);

        attached.close_domain(&files[0]);
        assert_eq!(
            attached.alloc(&files[1], LIFETIME, false),
            Err(ENOENT),
            "there is one handle"
        );
        attached.report(qpn);
        attached
            .register(&files[0], alloc(&attached, &other))
            .unwrap();
        attached.close(&other);
        assert_eq!(read(files[0].channel()), (REPORTED.len() + 2, EAGAIN));

        drop((files, other));
        Rest::default().finish(attached, false);
    });
}

/// The device is removed, while one of two channels is read, and another is created: each reads its
/// unread events, QP_GONE, and its end.
#[test]
fn the_device_of_two_channels_is_removed() {
    runtime::check(300, 0x18, || {
        let attached = Attached::new();
        let files = open_two(&attached, [Membership::Named; 2]);
        let qpn = register_both(&attached, &files);
        let reader = spawn(&attached, &files[0], |_, file| {
            while file.channel().read(1, 1, false).is_ok() {}
            file.channel().gone()
        });

        attached.report(qpn);

        let joining = spawn(&attached, &files[0], |attached, file| {
            let of = Membership::All;

            attached.open_another(file, of, Right::Write, EventMask::ALL)
        });

        attached.remove();
        assert_eq!(reader.join().unwrap(), [1]);
        assert_eq!(
            files[1].channel().member().poll(),
            POLLHUP | POLLIN | POLLRDNORM
        );
        assert_eq!(read(files[1].channel()), (REPORTED.len() + 1, EIO));
        match joining.join().unwrap() {
            Ok(joined) => {
                assert_eq!(read(joined.channel()).1, EIO);
                assert_eq!(joined.channel().gone(), [1]);
            }
            Err(e) => assert_eq!(e, EIO),
        }
        for file in &files {
            assert_eq!(attached.register(file, qpn), Err(EIO));
            assert_eq!(attached.register_by_ioctl(file, qpn), Err(EIO));
        }

        drop(files);
        Rest::default().finish(attached, false);
    });
}
