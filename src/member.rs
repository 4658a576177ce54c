// SPDX-License-Identifier: GPL-2.0

//! A member of a domain: an event channel, with the registrations that events are read for.
//!
//! A process creates it through its uverbs file, with a handle of the domain. The file descriptor
//! owns it. The right that the process had then is that of the registrations of the member: they
//! keep QPs, or are for events only. Those with QPs of the caller's always keep them.
//!
//! The registrations are in a table, by QP number and serial number: a QP number may be used again
//! while QP_GONE of the QP that had it before is unread. The lock of the table is held while a
//! registration is added or ended, so that the calls of several threads have an order. It is taken
//! outside of the domain's locks, and released before a QP is destroyed.
//!
//! All registrations end when the descriptor or the uverbs file is closed, or the device removed.
//! Those that end with the device are kept for their unread events until the descriptor is closed.

use crate::{
    creator::Creator,
    domain::{
        Domain,
        NewQp,
        Registration, //
    },
    event::EventMask,
    event_channel::EventChannel,
    kernel_ext::{
        cond_resched,
        mutex::lock_killable,
        process::{
            is_killed,
            Process, //
        },
        this_module,
        wait_queue::WaitQueue, //
    },
    rdma::uverbs::{
        event_file::{
            EventFile,
            FileOperations,
            FileType, //
        },
        RemoveReason, //
    },
    receive_qp::{
        ReceiveQp,
        UnneededQps, //
    },
    right::Right,
    subscriber::{
        Holder,
        Subscriber, //
    },
    uapi::{
        xrc_rcv_record,
        xrc_rcv_reg_info,
        RecordSize,
        XRC_RCV_OBJECT_EVENT_CHANNEL, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
    uaccess::UserPtr, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Member {
    channel: EventChannel,
    right: Right,
    /// `None` after the file was closed, or the device removed.
    #[pin]
    table: Mutex<Option<Table>>,
    /// The registrations that ended with the device.
    #[pin]
    ended: Mutex<Option<Table>>,
}

struct Table {
    domain: Arc<Domain>,
    registrations: RBTree<QpKey, Registration>,
}

/// The number of a QP, and its [serial number](crate::qp_status::QpStatus::serial).
type QpKey = (u32, u64);

fn key(qp: &ReceiveQp) -> QpKey {
    (qp.qpn(), qp.status().serial())
}

/// Memory for an entry of a table.
pub(crate) type Room = RBTreeNodeReservation<QpKey, Registration>;

impl Member {
    /// Creates a member of a domain, for a process with a right in it, whose channel reports the
    /// events of a mask in records of a size.
    pub(crate) fn new(
        domain: Arc<Domain>,
        right: Right,
        mask: EventMask,
        record_size: RecordSize<xrc_rcv_record>,
    ) -> Result<Arc<Self>> {
        let channel = EventChannel::new(domain.log().clone(), mask, record_size)?;

        Arc::pin_init(
            pin_init!(Self {
                channel,
                right,
                table <- new_mutex!(
                    Some(Table {
                        domain,
                        registrations: RBTree::new(),
                    }),
                    "Member::table"
                ),
                ended <- new_mutex!(None, "Member::ended"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Fails with `EINVAL` unless it is a member of the domain.
    pub(crate) fn check_domain(&self, domain: &Arc<Domain>) -> Result {
        match &*lock_killable(&self.table)? {
            Some(table) if Arc::ptr_eq(&table.domain, domain) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Creates the subscriber for a registration with a QP that the calling process creates, or
    /// that has a creator. Over a QP of its own the process has every right, whatever right the
    /// member has.
    pub(crate) fn subscriber(&self, creator: Option<&Creator>) -> Result<Arc<Subscriber>> {
        let right = match creator {
            Some(creator) if !creator.is_caller() => self.right,
            _ => Right::Own,
        };

        Subscriber::new(Holder::File(
            self.channel.listener().clone(),
            Process::current(),
            right,
        ))
    }

    /// Adds a new QP, with the member's registration, to its domain. Cannot fail.
    pub(crate) fn publish(&self, qp: NewQp, room: Room) {
        let mut table = self.table.lock();
        let Some(registration) = qp.publish() else {
            return;
        };

        match &mut *table {
            Some(table) => {
                let node = room.into_node(registration.key(), registration);

                table.registrations.insert(node);
            }
            // The caller holds the file: it is not closed.
            None => drop(registration),
        }
    }

    /// Registers with a QP of the domain, unless the member is registered. Returns the totals of
    /// the events before, or those of now if it was registered. `EINVAL` if the domain has no such
    /// QP; `EDQUOT` over a limit; `EACCES` if the caller may not use a partition.
    fn register(&self, qpn: u32) -> Result<xrc_rcv_reg_info> {
        let (domain, qp) = {
            let table = lock_killable(&self.table)?;
            let Table {
                domain,
                registrations,
            } = (*table).as_ref().ok_or(EIO)?;
            let qp = domain.find(qpn)?;

            if registrations.get(&key(&qp)).is_some() {
                return Ok(qp.subscribers().info());
            }
            (domain.clone(), qp)
        };
        // Without the lock, for which ALLOC waits without being killed: these may reclaim memory,
        // and wait for the end of the QP.
        let room = Room::new(GFP_KERNEL_ACCOUNT)?;
        let subscriber = self.subscriber(Some(qp.status().creator()))?;

        qp.admit_caller()?;

        let mut table = lock_killable(&self.table)?;
        let Table { registrations, .. } = (*table).as_mut().ok_or(EIO)?;

        // Another thread may have registered meanwhile.
        if registrations.get(&key(&qp)).is_some() {
            return Ok(qp.subscribers().info());
        }

        let (registration, info) = domain.register(&qp, subscriber)?;

        registrations.insert(room.into_node(key(&qp), registration));
        Ok(info)
    }

    /// Calls `call` with each of the QP numbers, until it fails or the caller is killed. Returns
    /// the number of calls that succeeded, and the error.
    fn for_each(qpns: &[u32], mut call: impl FnMut(u32) -> Result) -> (usize, Result) {
        for (done, qpn) in qpns.iter().enumerate() {
            let result = if is_killed() { Err(EINTR) } else { call(*qpn) };

            if result.is_err() {
                return (done, result);
            }
            cond_resched();
        }
        (qpns.len(), Ok(()))
    }

    /// Registers with QPs, in order, see [`register`](Self::register), and passes the totals of
    /// each to `registered`. Returns the number of those that the member is registered with, and
    /// the error of the next.
    pub(crate) fn register_all(
        &self,
        qpns: &[u32],
        mut registered: impl FnMut(&xrc_rcv_reg_info) -> Result,
    ) -> (usize, Result) {
        Self::for_each(qpns, |qpn| registered(&self.register(qpn)?))
    }

    /// Ends registrations with QPs, in order; their unread events are discarded. One that the
    /// member does not have is skipped. A QP that no registration keeps any more is destroyed.
    /// Returns the number of QP numbers that were processed, and the error of the next.
    pub(crate) fn unregister_all(&self, qpns: &[u32]) -> (usize, Result) {
        let mut unneeded = UnneededQps::new();
        let result = Self::for_each(qpns, |qpn| self.unregister(qpn, &mut unneeded));

        unneeded.destroy();
        result
    }

    /// Ends the oldest registration with a QP that has, or had, a number: a caller that clears up
    /// after QP_GONE does not end that with a QP that has the number since. A QP that no
    /// registration keeps any more is added to `unneeded`.
    fn unregister(&self, qpn: u32, unneeded: &mut UnneededQps) -> Result {
        let mut table = lock_killable(&self.table)?;
        let Table { registrations, .. } = (*table).as_mut().ok_or(EIO)?;

        let cursor = registrations
            .cursor_lower_bound_mut(&(qpn, 0))
            .filter(|cursor| cursor.current().0 .0 == qpn);

        if let Some(cursor) = cursor {
            let (_, node) = cursor.remove_current();
            let (_, registration) = node.to_key_value();

            unneeded.add(registration.end(RemoveReason::Destroyed));
        }
        Ok(())
    }

    /// Ends all registrations.
    fn end(&self, why: RemoveReason) {
        let Some(mut table) = self.table.lock().take() else {
            return;
        };
        let mut unneeded = UnneededQps::new();

        if why == RemoveReason::DeviceRemoved {
            for registration in table.registrations.values() {
                unneeded.add(registration.end(why));
                cond_resched();
            }
            *self.ended.lock() = Some(table);
        } else {
            while let Some(registration) = table.pop() {
                unneeded.add(registration.end(why));
                cond_resched();
            }
        }
        unneeded.destroy();
    }
}

impl Table {
    /// Takes the last registration.
    fn pop(&mut self) -> Option<Registration> {
        let (_, node) = self.registrations.cursor_back_mut()?.remove_current();

        Some(node.to_key_value().1)
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

    fn closed(member: Arc<Self>, why: RemoveReason) {
        member.end(why);
        member.channel.end();
    }

    fn released(&self) {
        let ended = self.ended.lock().take();
        let Some(mut table) = ended else {
            return;
        };

        while let Some(registration) = table.pop() {
            registration.forget();
            cond_resched();
        }
    }
}
