// SPDX-License-Identifier: GPL-2.0

//! A member of a domain: an event channel, with the registrations that events are read for.
//!
//! A process creates it through its uverbs file, with a handle of the domain. The file descriptor
//! owns it. The right that the process had then is that of the registrations of the member: they
//! keep QPs, or are for events only. Those with QPs of the caller's always keep them. A kernel user
//! is a member with every right, whose handler reads the channel in place of processes.
//!
//! It has no list of its registrations: each is a bit of its QP, and the QPs are in the log of the
//! domain, by number and serial number: a QP number may be used again while events of the QP that
//! had it before are unread. A member of all QPs has one registration, with those that exist and
//! those that are created later: it registers with no other, and ends it with the channel.
//!
//! A process that has the descriptor registers by an ioctl of the file, or, if it has the uverbs
//! file, by a method: the two differ in what reads their arguments. uverbs holds the file during a
//! method, but not during an ioctl, which finds the member closed under the domain's lock.
//!
//! All registrations end when the descriptor or the uverbs file is closed, the kernel user leaves,
//! or the device is removed. Those that end with the device stay for their unread events until the
//! descriptor is closed, or the kernel user leaves.

use crate::{
    channel_ioctl::Request,
    creator::Creator,
    domain::Domain,
    event::{
        no_totals,
        EventMask,
        EventType, //
    },
    event_channel::EventChannel,
    kernel_ext::{
        cond_resched,
        process::{
            is_killed,
            Process, //
        },
        this_module,
        wait_queue::WaitQueue, //
    },
    listener::EventReader,
    log::QpName,
    qp_status::Lifetime,
    rdma::{
        security,
        uverbs::{
            event_file::{
                EventFile,
                FileOperations,
                FileType, //
            },
            RemoveReason, //
        }, //
    },
    receive_qp::UnneededQps,
    registrations::{
        Holder,
        Registrations, //
    },
    right::Right,
    uapi::{
        xrc_rcv_record,
        xrc_rcv_reg_info,
        RecordSize,
        XRC_RCV_EVENT_CHANNEL_ALL,
        XRC_RCV_EVENT_CHANNEL_OBSERVE,
        XRC_RCV_OBJECT_EVENT_CHANNEL, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// The number of QPs that are looked at for a registration before the lock of the log is released.
const LOOKED_AT_ONCE: usize = 64;

/// See the [module's documentation](self).
pub(crate) struct Member {
    channel: EventChannel,
    terms: Terms,
    domain: Arc<Domain>,
}

/// The right of a member, and its events.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    right: Right,
    mask: EventMask,
    is_of_all: bool,
}

impl Terms {
    /// Returns those of a member with a right in the domain. `EINVAL` for flags that are unknown or
    /// need another, or a mask of a member of all QPs that has events but not `QP_GONE`.
    pub(crate) fn new(flags: u32, right: Right, mask: EventMask) -> Result<Self> {
        const ALL: u32 = XRC_RCV_EVENT_CHANNEL_ALL;
        const OBSERVES: u32 = ALL | XRC_RCV_EVENT_CHANNEL_OBSERVE;

        let right = match flags {
            // Its registrations begin after their QPs were added.
            0 => {
                return Ok(Self {
                    right,
                    mask: mask.without(EventType::QP_ADDED),
                    is_of_all: false,
                })
            }
            ALL => right,
            OBSERVES => Right::Use,
            _ => return Err(EINVAL),
        };

        // A QP leaves the log when all have passed its end, which those with no event never do.
        if !mask.has(EventType::QP_GONE) && !mask.is_empty() {
            return Err(EINVAL);
        }
        Ok(Self {
            right,
            mask,
            is_of_all: true,
        })
    }
}

impl Member {
    /// Creates a member of a domain, for a process or a kernel user, whose channel has records of a
    /// size. One of all QPs has yet to [register](Self::register_with_all).
    pub(crate) fn new(
        domain: Arc<Domain>,
        terms: Terms,
        record_size: RecordSize<xrc_rcv_record>,
        process: Option<Process>,
    ) -> Result<Arc<Self>> {
        let channel = EventChannel::new(domain.log().clone(), terms.mask, record_size, process)?;

        Ok(Arc::new(
            Self {
                channel,
                terms,
                domain,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Creates a member of a domain for a kernel user, which handles events by what `reader`
    /// returns.
    pub(crate) fn join(
        domain: Arc<Domain>,
        terms: Terms,
        reader: impl FnOnce(Arc<Self>) -> Result<KBox<dyn EventReader>>,
    ) -> Result<Arc<Self>> {
        let member = Self::new(domain, terms, RecordSize::new(None)?, None)?;

        member
            .channel
            .listener()
            .set_reader(reader(member.clone())?);
        if let Err(e) = member.register_with_all() {
            member.leave()?;
            return Err(e);
        }
        Ok(member)
    }

    /// Registers a member of all QPs with them, once; does nothing for another. `EDQUOT` over the
    /// limit.
    pub(crate) fn register_with_all(&self) -> Result {
        if !self.terms.is_of_all {
            return Ok(());
        }
        self.domain.register_with_all(&Holder {
            listener: self.channel.listener().clone(),
            right: self.terms.right,
        })
    }

    /// Ends all registrations of a kernel user. No event is handled after this. `EBUSY` if the call
    /// comes from its handler.
    pub(crate) fn leave(&self) -> Result {
        drop(self.channel.listener().take_reader()?);
        self.end_all(RemoveReason::FileClosed);
        Ok(())
    }

    /// Takes the next unread event of a kernel user.
    pub(crate) fn next_record(&self) -> Option<xrc_rcv_record> {
        self.channel.next_record()
    }

    /// Returns the domain.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Fails with `EINVAL` unless it is a member of the domain.
    pub(crate) fn check_domain(&self, domain: &Arc<Domain>) -> Result {
        if !Arc::ptr_eq(&self.domain, domain) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Returns the holder of a registration with a QP that the calling process creates, or that has
    /// a creator. Over a QP of its own the process has every right, whatever right the member has.
    pub(crate) fn holder(&self, creator: Option<&Creator>) -> Holder {
        let right = match creator {
            Some(creator) if !creator.is_caller() => self.terms.right,
            _ => Right::Own,
        };

        Holder {
            listener: self.channel.listener().clone(),
            right,
        }
    }

    /// Returns the holder of the registration with a QP that the calling process creates. A member
    /// of all QPs has none of its own with it; `EINVAL` if it does not keep a QP that needs that.
    pub(crate) fn first_holder(&self, lifetime: Lifetime) -> Result<Option<Holder>> {
        let holder = self.holder(None);

        if !self.terms.is_of_all {
            return Ok(Some(holder));
        }
        if lifetime == Lifetime::Registrations && self.terms.right < Right::Write {
            return Err(EINVAL);
        }
        Ok(None)
    }

    /// Registers with a QP of the domain, unless the member is registered. `info` becomes the
    /// totals of the events before, or those of now if it was registered. `EINVAL` if the domain
    /// has no such QP; `EDQUOT` over a limit; `EACCES` if a process may not use a partition.
    pub(crate) fn register(&self, qpn: u32, mut info: Option<&mut xrc_rcv_reg_info>) -> Result {
        let qp = self.domain.find(qpn)?;
        let holder = self.holder(Some(qp.status().creator()));
        let registrations = qp.registrations();

        // Before the domain's lock is taken: it may wait for the end of the QP.
        if security::ENFORCED && holder.listener.process().is_some() {
            if registrations.make_room(&holder.listener, info.as_deref_mut())? {
                return Ok(());
            }
            qp.admit_caller()?;
        }
        self.domain.register(&qp, &holder, info)
    }

    /// Calls `call` with each of the QP numbers, until it fails, the caller is killed or the member
    /// closed. Returns the number of calls that succeeded, and the error.
    fn for_each(&self, qpns: &[u32], mut call: impl FnMut(u32) -> Result) -> (usize, Result) {
        let listener = self.channel.listener();

        for (done, qpn) in qpns.iter().enumerate() {
            let result = match listener.check_open() {
                Ok(()) if is_killed() => Err(EINTR),
                Ok(()) => call(*qpn),
                closed => closed,
            };

            if result.is_err() {
                // The QP may have ended with the registrations of the member.
                return (done, listener.check_open().and(result));
            }
            cond_resched();
        }
        (qpns.len(), Ok(()))
    }

    /// Registers with QPs, in order, see [`register`](Self::register), and passes the totals of
    /// each to `registered`, if that is given. Returns the number of those that the member is
    /// registered with, the one among them for which `registered` failed, and the error.
    pub(crate) fn register_all(
        &self,
        qpns: &[u32],
        registered: Option<impl FnMut(&xrc_rcv_reg_info) -> Result>,
    ) -> (usize, Result) {
        let Some(mut registered) = registered else {
            return self.for_each(qpns, |qpn| self.register(qpn, None));
        };
        let mut info = no_totals();
        let mut told = Ok(());
        let (done, result) = self.for_each(qpns, |qpn| {
            told?;
            self.register(qpn, Some(&mut info))?;
            told = registered(&info);
            Ok(())
        });

        (done, result.and(told))
    }

    /// Ends registrations with QPs, in order; their unread events are discarded. A QP number of
    /// none is skipped. A QP that no registration keeps any more is destroyed. Returns the number
    /// of QP numbers that were processed, and the error of the next: `EINVAL` for a member of all
    /// QPs.
    pub(crate) fn unregister_all(&self, qpns: &[u32]) -> (usize, Result) {
        if self.terms.is_of_all {
            return (0, Err(EINVAL));
        }

        let mut unneeded = UnneededQps::new();
        let result = self.for_each(qpns, |qpn| {
            self.end((qpn, 0), qpn, RemoveReason::Destroyed, &mut unneeded);
            Ok(())
        });

        unneeded.destroy();
        result
    }

    /// As [`unregister_all`](Self::unregister_all), with one QP number, even if the caller is
    /// killed. Does nothing for a member of all QPs: it has no bit.
    pub(crate) fn unregister(&self, qpn: u32) {
        let mut unneeded = UnneededQps::new();

        self.end((qpn, 0), qpn, RemoveReason::Destroyed, &mut unneeded);
        unneeded.destroy();
    }

    /// Ends the registrations with the QPs that follow a name, up to a number. QPs that no
    /// registration keeps any more are added to `unneeded`, also those that a member of all QPs
    /// kept, in case that another thread has not come to them.
    fn end(&self, mut after: QpName, last: u32, why: RemoveReason, unneeded: &mut UnneededQps) {
        let listener = self.channel.listener();

        while let Some((qp, is_last)) = self.registered_after(after, last) {
            after = qp.name();
            unneeded.add(self.domain.unregister(&qp, listener, why));
            if is_last {
                return;
            }
            cond_resched();
        }
    }

    /// Returns the first QP that follows a name, up to a number, with a registration, or that no
    /// registration keeps; and whether no other QP follows that.
    fn registered_after(&self, mut after: QpName, last: u32) -> Option<(Arc<Registrations>, bool)> {
        loop {
            let log = self.domain.log().lock();
            let mut qps = log
                .after_name(after)
                .take_while(|qp| qp.name().0 <= last)
                .peekable();

            for _ in 0..LOOKED_AT_ONCE {
                let qp = qps.next()?;

                if qp.listens(&log, self.channel.listener()) || qp.is_unneeded(&log) {
                    return Some((qp.into(), qps.peek().is_none()));
                }
                after = qp.name();
            }
            drop(qps);
            drop(log);
            cond_resched();
        }
    }

    /// Ends all registrations.
    fn end_all(&self, why: RemoveReason) {
        let mut unneeded = UnneededQps::new();

        if self.terms.is_of_all {
            self.domain.release_all(self.channel.listener().number());
            if why != RemoveReason::DeviceRemoved {
                self.channel.unregister_from_all();
            }
        }
        self.end((0, 0), u32::MAX, why, &mut unneeded);
        unneeded.destroy();
    }
}

static OPERATIONS: FileOperations<Member> = FileOperations::new(this_module());
static TYPE: FileType<Member> = FileType::new(c"[xrc_rcv_event]", &OPERATIONS);

impl EventFile for Member {
    const OBJECT: u32 = XRC_RCV_OBJECT_EVENT_CHANNEL;
    const TYPE: &'static FileType<Self> = &TYPE;

    fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize> {
        self.channel.read(buffer, length, nonblocking)
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.channel.wait_queue()
    }

    fn poll(&self) -> u32 {
        self.channel.poll()
    }

    fn ioctl(&self, request: u32, argument: UserPtr) -> Result {
        match Request::new(request, argument)? {
            Request::Register(qpns, mut infos) => qpns.for_each(|qpns| {
                let write = infos
                    .as_mut()
                    .map(|infos| move |info: &_| infos.write(info));

                self.register_all(qpns, write)
            }),
            Request::Unregister(qpns) => qpns.for_each(|qpns| self.unregister_all(qpns)),
        }
    }

    fn closed(member: Arc<Self>, why: RemoveReason) {
        member.domain.close_member(member.channel.listener());
        member.end_all(why);
        // Events come until the QPs of the device have ended.
        member.channel.end(why == RemoveReason::DeviceRemoved);
    }

    fn released(&self) {
        // Those that ended with the device.
        self.end_all(RemoveReason::FileClosed);
    }
}
