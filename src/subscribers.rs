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
//! before it. A registration that ends with the QP or with the device stays in the list until its
//! events are read, or its channel is closed. If the QP leaves the log before, a worker takes the
//! registrations out of the list, and the members that had not read all get OVERRUN.

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
        QpName,
        Removed,
        BY_NUMBER,
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

/// The number of QPs that leave the log with the end of another: those that are too many after the
/// limit was lowered leave it little by little.
const EVICTED_AT_ONCE: usize = 2;

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
    /// The QP was destroyed, and QP_GONE happens.
    is_destroyed: Atomic<bool>,
    registrations: Numbers,
    position: Atomic<u64>,
    links: Links<BY_POSITION>,
    logged: Linked<BY_POSITION>,
    name_links: Links<BY_NUMBER>,
    named: Linked<BY_NUMBER>,
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

impl_tree_item! {
    impl TreeItem<{ BY_NUMBER }> for Subscribers {
        links: name_links,
        linked: named,
        key: |subscribers| -> QpName { subscribers.name() }
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
    /// The number of those of event channels.
    channels: usize,
    /// The QP has left the log: a worker takes them out of the list.
    is_evicted: bool,
    /// A worker has signalled those before the cursor.
    is_signalling: bool,
    /// There were events since the worker signalled the first.
    is_pending: bool,
}

/// A subscriber that was taken out of the list, and its QP if that was taken out of the log with
/// it, for the caller to drop without the lock.
#[must_use]
pub(crate) struct Taken(
    #[expect(dead_code)] Arc<Subscriber>,
    #[expect(dead_code)] Option<Removed<Subscribers>>,
);

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
                channels: 0,
                is_evicted: false,
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
                is_destroyed: Atomic::new(false),
                registrations: Numbers::new(),
                position: Atomic::new(0),
                links: Links::new(),
                logged: Linked::new(),
                name_links: Links::new(),
                named: Linked::new(),
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

    /// Returns the number and the serial number of the QP.
    pub(crate) fn name(&self) -> QpName {
        (self.status.qpn(), self.status.serial())
    }

    /// Returns the values that tracepoints and notifiers report.
    pub(crate) fn report(&self) -> notify::Qp<'_> {
        notify::Qp {
            label: self.status.label(),
            lifetime: self.status.lifetime().as_raw(),
            registrations: self.len() as u32,
            keeping: self.keeping() as u32,
            changes: self.changes(),
            ..self.status.report(self.status.qpn())
        }
    }

    /// Returns the position in the log. Called with its lock held.
    pub(crate) fn at(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Returns the workqueues of the device.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Returns the totals of the events that have happened, if an event channel is registered.
    pub(crate) fn info_of(&self, channel: FileId) -> Option<xrc_rcv_reg_info> {
        let log = self.log.lock();

        self.of_channel(&log, channel)
            .map(|_| self.counts.to_info(self.status.serial()))
    }

    /// The QP can be found by its number.
    pub(crate) fn publish(self: ArcBorrow<'_, Self>) {
        self.log.lock().publish(self);
    }

    /// Takes a QP, which could not be found and has no event any more, out of the log, and the
    /// registration of its creator out of the list.
    pub(crate) fn withdraw(&self, first: Option<&Subscriber>) {
        let removed = {
            let mut log = self.log.lock();
            let taken = first.and_then(|subscriber| self.take(&mut log, subscriber));

            (taken, log.remove(self))
        };

        drop(removed);
    }

    /// Adds a registration, and returns the totals of the events before it. `EDQUOT` over the
    /// limit. Calls must be serialised.
    pub(crate) fn add(&self, subscriber: &Arc<Subscriber>) -> Result<xrc_rcv_reg_info> {
        limits::another_registration(self.len(), self.keeping(), subscriber.keeps())?;

        let mut log = self.log.lock();

        subscriber.begin(log.end());

        let list = self.list.access_mut(&mut log);

        // Cannot fail: a new subscriber is in no list.
        list.tree.insert(subscriber.clone()).map_err(|_| EINVAL)?;
        if let Some(listener) = subscriber.listener() {
            list.channels += 1;
            listener.count_subscribers(usize::wrapping_add);
        }
        self.registrations.add(subscriber);
        Ok(self.counts.to_info(self.status.serial()))
    }

    /// Ends a registration. No event is for it after this returns; those that are unread are
    /// discarded, unless it ends with the device: they, and QP_GONE, can still be read, until it is
    /// ended again. Returns `false` if it had ended before, or with the QP.
    pub(crate) fn remove(
        self: ArcBorrow<'_, Self>,
        subscriber: &Subscriber,
        why: RemoveReason,
    ) -> bool {
        let mut log = self.log.lock();
        // It may end with the channel at the same time.
        let is_listed = subscriber
            .file()
            .is_none_or(|channel| self.of_channel(&log, channel).is_some());
        let exists = is_listed && !self.is_gone() && !subscriber.is_removed();

        if why == RemoveReason::DeviceRemoved {
            if exists {
                self.registrations.remove(subscriber);
                subscriber.remove_with_device();
                log.move_to_end(self);
            }
            return exists;
        }

        let taken = self.take(&mut log, subscriber);

        drop(log);
        exists && taken.is_some()
    }

    /// Whether QP_GONE has happened. Called with the lock of the log held.
    fn is_gone(&self) -> bool {
        self.counts.total(EventType::QP_GONE) != 0
    }

    /// Takes a registration out of the list, and the QP out of the log if it was destroyed and this
    /// was the last of a channel.
    fn take(&self, log: &mut Log<Self>, subscriber: &Subscriber) -> Option<Taken> {
        let list = self.list.access_mut(log);
        let taken = list.tree.remove(subscriber)?;

        if let Some(listener) = taken.listener() {
            list.channels -= 1;
            listener.count_subscribers(usize::wrapping_sub);
        }

        let is_over = self.is_gone();
        let is_read = is_over && list.channels == 0;

        if !is_over && !taken.is_removed() {
            self.registrations.remove(&taken);
        }
        Some(Taken(taken, is_read.then(|| log.remove(self))))
    }

    /// Takes the registration of a channel out of the list if it has ended with the QP or the
    /// device: its events were read.
    pub(crate) fn take_read(&self, log: &mut Log<Self>, channel: FileId) -> Option<Taken> {
        let subscriber: Arc<Subscriber> = self.of_channel(log, channel)?.into();

        if !self.is_gone() && !subscriber.is_removed() {
            return None;
        }
        self.take(log, &subscriber)
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
        self.is_destroyed.store(true, Relaxed);
        self.post(self.status.qpn(), EventType::QP_GONE);
        self.leave_unread();
        for _ in 0..EVICTED_AT_ONCE {
            self.evict_oldest();
        }
    }

    /// Takes the QP, which was destroyed, out of the log unless a channel has a registration.
    fn leave_unread(&self) {
        let mut log = self.log.lock();
        let is_unread = self.list.access(&log).channels == 0;
        let removed = is_unread.then(|| log.remove(self));

        drop(log);
        drop(removed);
    }

    /// Takes the QP that was destroyed before all others out of the log, if there are too many.
    fn evict_oldest(&self) {
        let mut log = self.log.lock();
        let Some((oldest, removed)) = log.evict(limits::gone_per_domain()) else {
            return;
        };
        let list = oldest.list.access_mut(&mut log);

        list.is_evicted = true;
        list.is_pending = true;
        drop(log);
        drop(removed);
        Self::queue(oldest);
    }

    /// Counts an event, and has the subscribers signalled. May be called in any context.
    fn post(self: ArcBorrow<'_, Self>, qpn: u32, kind: EventType) {
        let done = {
            let mut log = self.log.lock();

            let position = if kind == EventType::QP_GONE {
                log.move_gone(self)
            } else {
                log.move_to_end(self)
            };

            self.counts.add(kind, position);
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
        let queue = workers.delivery(subscribers.is_destroyed.load(Relaxed));

        // An item that is queued already has not begun, and signals all of them.
        drop(queue.enqueue(subscribers));
    }

    /// Signals the next [`AT_ONCE`] subscribers, or takes them out of the list if the QP has left
    /// the log. Returns `false` if all events were signalled.
    fn signal_step(&self) -> bool {
        // Dropped after the lock is released.
        let mut taken = [const { None }; AT_ONCE];
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
        for place in &mut taken {
            let list = self.list.access_mut(&mut log);
            let Some(subscriber) = list.tree.at_cursor() else {
                break;
            };

            if list.is_evicted && subscriber.has_channel() {
                let subscriber: Arc<Subscriber> = subscriber.into();

                subscriber.lose(&self.counts);
                *place = self.take(&mut log, &subscriber);
            } else {
                subscriber.signal(&self.status, &self.counts);
                list.tree.advance();
            }
        }

        let list = self.list.access_mut(&mut log);

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
