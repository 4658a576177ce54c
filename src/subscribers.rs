// SPDX-License-Identifier: GPL-2.0

//! The subscribers of a receive QP: its registrations, and the events that are for them.
//!
//! Owned by the QP and, as the context of its events, by the verbs object. An event comes in any
//! context, with locks of the provider held and, without PREEMPT_RT, interrupts disabled. It is
//! counted, and moves the QP to the end of the [log](crate::log) of its domain: no subscriber is
//! visited for that. Then the subscribers are signalled, which wakes the readers of their channels,
//! and calls the handlers of kernel users: at once, if they are [`AT_ONCE`] at most, else by a
//! worker, so many at a time. That holds for QP_GONE, too: the thread that destroys the QP has
//! locks that others wait for.
//!
//! An event is for the registrations that exist when it happens: each remembers where the log ended
//! before it. A registration that ends with the device stays in the list, for its unread events,
//! until its channel is closed.

use crate::{
    event::{
        Counts,
        EventType, //
    },
    kernel_ext::{
        cond_resched,
        new_spinlock_irq,
        tree::{
            impl_tree_item,
            Linked,
            Links,
            Tree,
            TreeItem, //
        },
        SpinLockIrq, //
    },
    limits,
    log::{
        Log,
        Logged,
        BY_POSITION, //
    },
    notify::{
        self,
        FileId, //
    },
    qp_status::QpStatus,
    rdma::{
        qp::EventHandler,
        uverbs::RemoveReason, //
    },
    subscriber::{
        Key,
        Subscriber,
        BY_HOLDER, //
    },
    uapi::xrc_rcv_reg_info,
    workers::Workers, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        LockedBy, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// The number of subscribers that are signalled with interrupts disabled.
const AT_ONCE: usize = 2;

/// The number of [steps](Subscribers::signal_step) after which a worker signals the subscribers of
/// other QPs of the device.
const TURN: usize = 16;

/// The log of a domain. Its lock is taken in any context.
pub(crate) type DomainLog = SpinLockIrq<Log<Subscribers>>;

/// Creates the log of a domain.
pub(crate) fn new_log() -> Result<Arc<DomainLog>> {
    Arc::pin_init(
        new_spinlock_irq!(Log::new(), "DomainLog"),
        GFP_KERNEL_ACCOUNT,
    )
}

/// See the [module's documentation](self). Members that change are atomic, and changed with the
/// lock of the log held.
#[pin_data]
pub(crate) struct Subscribers {
    status: QpStatus,
    log: Arc<DomainLog>,
    counts: Counts,
    workers: Arc<Workers>,
    /// The QP was destroyed.
    is_gone: Atomic<bool>,
    registrations: Numbers,
    position: Atomic<u64>,
    links: Links<BY_POSITION>,
    logged: Linked<BY_POSITION>,
    #[pin]
    delivery: Work<Self>,
    list: LockedBy<List, Log<Self>>,
}

/// The numbers of registrations.
struct Numbers {
    all: Atomic<usize>,
    /// Those that keep the QP.
    keeping: Atomic<usize>,
    /// Those that keep the QP and whose holder can get events.
    hearing: Atomic<usize>,
    /// Those that an event of each kind is delivered to.
    wanting: [Atomic<usize>; EventType::COUNT],
    /// Those that were added so far, and those that ended.
    changes: Atomic<u64>,
}

impl Numbers {
    const fn new() -> Self {
        Self {
            all: Atomic::new(0),
            keeping: Atomic::new(0),
            hearing: Atomic::new(0),
            wanting: [const { Atomic::new(0) }; EventType::COUNT],
            changes: Atomic::new(0),
        }
    }

    /// A registration was added.
    fn add(&self, subscriber: &Subscriber) {
        self.change(subscriber, |number| number.wrapping_add(1));
    }

    /// A registration has ended.
    fn remove(&self, subscriber: &Subscriber) {
        self.change(subscriber, |number| number.wrapping_sub(1));
    }

    fn change(&self, subscriber: &Subscriber, count: fn(usize) -> usize) {
        let change = |number: &Atomic<usize>, counts: bool| {
            if counts {
                number.store(count(number.load(Relaxed)), Relaxed);
            }
        };
        let (keeps, hears) = (subscriber.keeps(), subscriber.hears());

        change(&self.all, true);
        change(&self.keeping, keeps);
        change(&self.hearing, keeps && hears);
        for kind in subscriber.mask().kinds() {
            change(&self.wanting[kind.index()], hears);
        }

        let changes = self.changes.load(Relaxed);

        self.changes.store(changes.wrapping_add(1), Relaxed);
    }
}

impl_has_work! {
    impl HasWork<Self> for Subscribers { self.delivery }
}

impl_tree_item! {
    impl TreeItem<{ BY_POSITION }> for Subscribers {
        links: links,
        linked: logged,
        key: |subscribers| -> u64 { subscribers.position.load(Relaxed) }
    }
}

impl Logged for Subscribers {
    fn position(&self) -> &Atomic<u64> {
        &self.position
    }
}

struct List {
    /// The cursor is at the next subscriber that a worker signals.
    tree: Tree<Subscriber, BY_HOLDER>,
    /// A worker has signalled those before the cursor.
    is_signalling: bool,
    /// There were events since the worker signalled the first.
    is_pending: bool,
}

fn key(subscriber: &Subscriber) -> Key {
    TreeItem::<BY_HOLDER>::key(subscriber)
}

impl Subscribers {
    /// Creates the list of a QP of the domain that has the log. The workers signal the subscribers,
    /// if they are many.
    pub(crate) fn new(
        status: QpStatus,
        log: Arc<DomainLog>,
        workers: Arc<Workers>,
    ) -> Result<Arc<Self>> {
        let list = LockedBy::new(
            &*log,
            List {
                tree: Tree::new(),
                is_signalling: false,
                is_pending: false,
            },
        );

        Arc::pin_init(
            pin_init!(Self {
                status,
                list,
                log,
                counts: Counts::new(),
                workers,
                is_gone: Atomic::new(false),
                registrations: Numbers::new(),
                position: Atomic::new(0),
                links: Links::new(),
                logged: Linked::new(),
                delivery <- new_work!("Subscribers::delivery"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the number of registrations.
    pub(crate) fn len(&self) -> usize {
        self.registrations.all.load(Relaxed)
    }

    /// Returns the number of registrations that keep the QP.
    pub(crate) fn keeping(&self) -> usize {
        self.registrations.keeping.load(Relaxed)
    }

    /// Returns the number of registrations that were added or ended so far.
    pub(crate) fn changes(&self) -> u64 {
        self.registrations.changes.load(Relaxed)
    }

    /// Returns the numbers of events of each kind.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the status of the QP.
    pub(crate) fn status(&self) -> &QpStatus {
        &self.status
    }

    /// Returns the position in the log. Called with its lock held.
    pub(crate) fn at(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Returns the workqueues of the device.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Returns the totals of the events that have happened.
    pub(crate) fn info(&self) -> xrc_rcv_reg_info {
        let _log = self.log.lock();

        self.counts.to_info(self.status.serial())
    }

    /// Adds a registration, and returns the totals of the events before it. `EDQUOT` over the
    /// limit. Calls must be serialised.
    pub(crate) fn add(&self, subscriber: &Arc<Subscriber>) -> Result<xrc_rcv_reg_info> {
        limits::another_registration(self.len(), self.keeping(), subscriber.keeps())?;

        let mut log = self.log.lock();

        subscriber.begin(log.end());
        // Cannot fail: a new subscriber is in no list.
        self.list
            .access_mut(&mut log)
            .tree
            .insert(subscriber.clone())
            .map_err(|_| EINVAL)?;
        self.registrations.add(subscriber);
        Ok(self.counts.to_info(self.status.serial()))
    }

    /// Removes a registration. No event is for it after this returns; those that are unread are
    /// discarded. If it ends with the device, it stays until [`forget`](Self::forget) is called:
    /// its unread events, and QP_GONE, can still be read.
    pub(crate) fn remove(self: ArcBorrow<'_, Self>, subscriber: &Subscriber, why: RemoveReason) {
        if why != RemoveReason::DeviceRemoved {
            return self.forget(subscriber);
        }

        let mut log = self.log.lock();

        self.registrations.remove(subscriber);
        subscriber.remove_with_device();
        // That of a QP that was destroyed is unread, or was read.
        if self.counts.total(EventType::QP_GONE) == 0 {
            log.move_to_end(self);
        }
    }

    /// Takes a registration out of the list.
    pub(crate) fn forget(&self, subscriber: &Subscriber) {
        let removed = {
            let mut log = self.log.lock();
            let removed = self.list.access_mut(&mut log).tree.remove(subscriber);

            if removed.is_some() && !subscriber.is_removed() {
                self.registrations.remove(subscriber);
            }
            removed
        };

        drop(removed);
    }

    /// Returns the registration of an event channel.
    pub(crate) fn of_channel<'a>(
        &'a self,
        log: &'a Log<Self>,
        channel: FileId,
    ) -> Option<ArcBorrow<'a, Subscriber>> {
        self.list.access(log).tree.get(&channel.addr())
    }

    /// Returns the registration that follows `previous`, or the first.
    pub(crate) fn after(&self, previous: Option<&Subscriber>) -> Option<Arc<Subscriber>> {
        let key = previous.map(key);
        let log = self.log.lock();

        self.list
            .access(&log)
            .tree
            .after(key.as_ref())
            .map(Arc::from)
    }

    /// The QP has been destroyed: QP_GONE is the last event.
    pub(crate) fn gone(self: ArcBorrow<'_, Self>) {
        self.is_gone.store(true, Relaxed);
        self.post(self.status.qpn(), EventType::QP_GONE);
    }

    /// Takes the QP out of the log. No event of it follows, and it has no registration.
    pub(crate) fn leave_log(&self) {
        let removed = self.log.lock().remove(self);

        drop(removed);
    }

    /// Counts an event, and has the subscribers signalled. May be called in any context.
    fn post(self: ArcBorrow<'_, Self>, qpn: u32, kind: EventType) {
        let done = {
            let mut log = self.log.lock();

            self.counts.add(kind, log.move_to_end(self));
            self.report_event(qpn, kind);

            let list = self.list.access_mut(&mut log);
            let at_once = list.tree.len() <= AT_ONCE;
            let mut next = list.tree.after(None).filter(|_| at_once);

            while let Some(subscriber) = next {
                subscriber.signal(&self.status, &self.counts);
                next = list.tree.after(Some(&key(&subscriber)));
            }
            list.is_pending |= !at_once;
            at_once
        };

        // QP_GONE is not for the kernel log. A registration that does not keep the QP may be a
        // stranger's.
        if kind != EventType::QP_GONE && self.registrations.hearing.load(Relaxed) == 0 {
            self.status.log_event(qpn, kind.as_raw());
        }
        if !done {
            Self::queue(self.into());
        }
    }

    /// Has a worker signal the subscribers.
    fn queue(subscribers: Arc<Self>) {
        let workers = subscribers.workers.clone();
        let queue = workers.delivery(subscribers.is_gone.load(Relaxed));

        // An item that is queued already has not begun, and signals all of them.
        drop(queue.enqueue(subscribers));
    }

    /// Signals the next [`AT_ONCE`] subscribers. Returns `false` if all events were signalled.
    fn signal_step(&self) -> bool {
        let mut log = self.log.lock();
        let list = self.list.access_mut(&mut log);

        if !list.is_signalling {
            if !list.is_pending {
                return false;
            }
            list.is_pending = false;
            list.is_signalling = true;
            list.tree.rewind();
        }
        for _ in 0..AT_ONCE {
            let Some(subscriber) = list.tree.at_cursor() else {
                break;
            };

            subscriber.signal(&self.status, &self.counts);
            list.tree.advance();
        }
        list.is_signalling = list.tree.at_cursor().is_some();
        true
    }

    /// Reports an event, with the lock of the log held: reports are in order, and QP_GONE is the
    /// last.
    fn report_event(&self, qpn: u32, kind: EventType) {
        let qp = notify::Qp {
            registrations: self.len() as u32,
            changes: self.changes(),
            ..self.status.report(qpn)
        };
        let delivered = self.registrations.wanting[kind.index()].load(Relaxed) as u32;

        if kind == EventType::QP_GONE {
            notify::gone(qp, delivered);
        } else {
            notify::event(qp, kind.as_raw(), delivered);
        }
    }
}

impl EventHandler for Subscribers {
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, ib_event: u32) {
        self.status.note_event(ib_event);

        let Some(kind) = EventType::from_ib_event(ib_event) else {
            return self.status.log_event(qpn, ib_event);
        };

        self.post(qpn, kind);
    }
}

impl WorkItem for Subscribers {
    type Pointer = Arc<Self>;

    fn run(subscribers: Arc<Self>) {
        for _ in 0..TURN {
            if !subscribers.signal_step() {
                return;
            }
            cond_resched();
        }
        Self::queue(subscribers);
    }
}
