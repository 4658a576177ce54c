// SPDX-License-Identifier: GPL-2.0

//! The subscribers of a receive QP: its registrations, to which its events are delivered.
//!
//! Owned by the QP and, as the context of its events, by the verbs object. An event comes in any
//! context, with locks of the provider held and, without PREEMPT_RT, interrupts disabled. So the
//! list has a lock that may be taken there; inside it, only that of one event channel at a time is
//! taken. Nothing is allocated with it held, and it is held for [`AT_ONCE`] deliveries at most,
//! however many subscribers there are. The events of a QP with more subscribers are counted by type
//! until a thread that may sleep delivers them: a worker, or a caller of REG. That holds for
//! QP_GONE, too: the thread that destroys the QP has locks that others wait for. A *round* delivers
//! the events that were pending when it began to each subscriber, in the order of the list.
//!
//! An event is for the registrations that exist when it happens. A subscriber that is added during
//! a round is skipped by it; a caller that adds a subscriber while events are pending behind a
//! round waits for the end of that round. A subscriber that is removed with the device gets the
//! events that the rounds would have delivered.
//!
//! The last known state of the QP is kept here, too, because its events change it.

use crate::{
    event::{
        Event,
        EventMask,
        EventType, //
    },
    kernel_ext::{
        cond_resched,
        new_spinlock_irq,
        tree::{
            Tree,
            TreeItem, //
        },
        SpinLockIrq, //
    },
    known_state::KnownState,
    limits,
    notify,
    rdma::{
        device::Device,
        qp::EventHandler,
        uverbs::RemoveReason, //
    },
    subscriber::{
        Delivery,
        Key,
        Subscriber,
        BY_HOLDER, //
    },
    workers::Workers, //
};
use core::mem::take;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// The number of subscribers that events are delivered to with interrupts disabled.
const AT_ONCE: usize = 2;

/// The number of [steps](Subscribers::deliver_step) after which a worker delivers the events of
/// other QPs of the device.
const TURN: usize = 16;

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Subscribers {
    device: ARef<Device>,
    domain: u32,
    serial: u64,
    user: u32,
    events: Atomic<i64>,
    known: KnownState,
    workers: Arc<Workers>,
    /// The QP was destroyed.
    is_gone: Atomic<bool>,
    /// The number of registrations. Written with the lock of the list held.
    len: Atomic<usize>,
    /// The number of those that keep the QP. Written with the lock of the list held.
    keeping: Atomic<usize>,
    /// The number of registrations that were added or ended so far. Written with the lock of the
    /// list held.
    changes: Atomic<u64>,
    #[pin]
    delivery: Work<Self>,
    #[pin]
    list: SpinLockIrq<List>,
}

impl_has_work! {
    impl HasWork<Self> for Subscribers { self.delivery }
}

struct List {
    /// During a round, its cursor is at the next subscriber that the events are delivered to.
    tree: Tree<Subscriber, BY_HOLDER>,
    /// Events since the round began.
    pending: Events,
    /// Events that are being delivered to all subscribers.
    round: Option<Events>,
}

/// At most one event of each type, in the order in which the first of each type happened.
#[derive(Default)]
struct Events {
    len: usize,
    kinds: [EventType; EventType::COUNT],
    times: [u64; EventType::COUNT],
    /// The number of [changes](Subscribers::changes) before the first event of each type.
    since: [u64; EventType::COUNT],
    counts: [u32; EventType::COUNT],
    /// The number of subscribers that each was for, and the number of those that it was delivered
    /// to.
    subscribers: [u32; EventType::COUNT],
    delivered: [u32; EventType::COUNT],
    /// The kinds that a registration that keeps the QP got, or that its event mask excludes.
    settled: EventMask,
    qpn: u32,
}

impl Events {
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event that happens after a number of [changes](Subscribers::changes).
    fn add(&mut self, event: &Event, changes: u64) {
        let found = self.kinds[..self.len]
            .iter()
            .position(|kind| *kind == event.kind);
        let index = found.unwrap_or(self.len);

        if found.is_none() {
            self.kinds[index] = event.kind;
            self.times[index] = event.time;
            self.since[index] = changes;
            self.len += 1;
        }
        self.qpn = event.qpn;
        self.counts[index] = self.counts[index].saturating_add(event.count);
    }

    fn get(&self, index: usize) -> Event {
        Event {
            qpn: self.qpn,
            kind: self.kinds[index],
            count: self.counts[index],
            time: self.times[index],
        }
    }

    /// Delivers the events to a subscriber.
    fn deliver(&mut self, subscriber: ArcBorrow<'_, Subscriber>) {
        for index in 0..self.len {
            self.subscribers[index] += 1;
            match subscriber.deliver(&self.get(index)) {
                Delivery::Done => self.delivered[index] += 1,
                Delivery::Masked => (),
                Delivery::Impossible => continue,
            }
            if subscriber.keeps() {
                self.settled.add(self.kinds[index]);
            }
        }
    }

    /// Returns the events for the log, of which QP_GONE is none: those that no registration that
    /// keeps the QP got, nor excluded by its event mask. One that does not may be a stranger's.
    fn undelivered(&self) -> Undelivered {
        let mut kinds = EventMask::default();

        for index in 0..self.len {
            let kind = self.kinds[index];

            if kind != EventType::QP_GONE && !self.settled.has(kind) {
                kinds.add(kind);
            }
        }
        Undelivered {
            qpn: self.qpn,
            kinds,
        }
    }
}

/// Events for the log.
struct Undelivered {
    qpn: u32,
    kinds: EventMask,
}

/// The result of a [step](Subscribers::step).
enum Step {
    /// There is nothing to deliver.
    Idle,
    /// More subscribers follow in the round.
    More,
    /// The round is over.
    Over(Undelivered),
}

impl List {
    /// Whether all events were delivered.
    fn is_idle(&self) -> bool {
        self.round.is_none() && self.pending.is_empty()
    }

    /// Begins a round with the pending events, unless there is one.
    fn begin_round(&mut self) {
        if self.round.is_none() && !self.pending.is_empty() {
            self.round = Some(take(&mut self.pending));
            self.tree.rewind();
        }
    }

    /// Whether the round is yet to reach the place of a subscriber.
    fn comes_in_round(&self, subscriber: &Subscriber) -> bool {
        let next = self.tree.at_cursor().filter(|_| self.round.is_some());

        next.is_some_and(|next| key(&next) <= key(subscriber))
    }
}

fn key(subscriber: &Subscriber) -> Key {
    TreeItem::<BY_HOLDER>::key(subscriber)
}

impl Subscribers {
    /// Creates the list of the `serial`th QP of the domain with the id `domain`, which counts for
    /// the uid `user`. The workers deliver the events of a QP with many subscribers.
    pub(crate) fn new(
        device: ARef<Device>,
        domain: u32,
        serial: u64,
        user: u32,
        workers: Arc<Workers>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                domain,
                serial,
                user,
                events: Atomic::new(0),
                known: KnownState::new(),
                workers,
                is_gone: Atomic::new(false),
                len: Atomic::new(0),
                keeping: Atomic::new(0),
                changes: Atomic::new(0),
                delivery <- new_work!("Subscribers::delivery"),
                list <- new_spinlock_irq!(
                    List {
                        tree: Tree::new(),
                        pending: Events::default(),
                        round: None,
                    },
                    "Subscribers::list"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the number of registrations.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Returns the number of registrations that keep the QP.
    pub(crate) fn keeping(&self) -> usize {
        self.keeping.load(Relaxed)
    }

    /// Returns the number of registrations that were added or ended so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Returns the number of events of the QP.
    pub(crate) fn events(&self) -> i64 {
        self.events.load(Relaxed)
    }

    /// Returns the last known state of the QP.
    pub(crate) fn known(&self) -> &KnownState {
        &self.known
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the workqueues of the device.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Returns the id of the domain.
    pub(crate) fn domain(&self) -> u32 {
        self.domain
    }

    /// Returns which of the QPs of the domain it is, in the order in which they were created.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Adds a registration. `EDQUOT` over the limit. Returns `false` if events are pending behind a
    /// round: they would be coalesced with later ones, which the registration is to get. The caller
    /// calls [`Self::deliver_step`] then, and tries again. Calls must be serialised.
    pub(crate) fn add(&self, subscriber: &Arc<Subscriber>) -> Result<bool> {
        let keeps = subscriber.keeps();

        limits::another_registration(self.len(), self.keeping(), keeps)?;

        let mut list = self.list.lock();

        list.begin_round();
        if !list.pending.is_empty() {
            return Ok(false);
        }

        let comes_in_round = list.comes_in_round(subscriber);

        subscriber.skips_round().store(comes_in_round, Relaxed);
        // Cannot fail: a new subscriber is in no list.
        list.tree.insert(subscriber.clone()).map_err(|_| EINVAL)?;
        self.changed(&list, self.keeping() + usize::from(keeps));
        Ok(true)
    }

    /// Removes a registration. No event is delivered to it after this returns.
    pub(crate) fn remove(&self, subscriber: &Arc<Subscriber>, why: RemoveReason) {
        let mut list = self.list.lock();
        let comes_in_round = list.comes_in_round(subscriber);
        let List {
            tree,
            pending,
            round,
        } = &mut *list;
        let removed = tree.remove(subscriber);

        if why == RemoveReason::DeviceRemoved && removed.is_some() {
            let subscriber = subscriber.as_arc_borrow();

            if let Some(events) = round {
                if comes_in_round && !subscriber.skips_round().load(Relaxed) {
                    events.deliver(subscriber);
                }
            }
            pending.deliver(subscriber);
        }
        if removed.is_some() {
            let keeps = usize::from(subscriber.keeps());

            self.changed(&list, self.keeping().saturating_sub(keeps));
        }
        drop(list);
        drop(removed);
    }

    /// A registration was added to the list, or removed from it: now `keeping` keep the QP.
    fn changed(&self, list: &List, keeping: usize) {
        self.len.store(list.tree.len(), Relaxed);
        self.keeping.store(keeping, Relaxed);
        self.changes.store(self.changes().wrapping_add(1), Relaxed);
    }

    /// Returns the registration that follows `previous`, or the first.
    pub(crate) fn after(&self, previous: Option<&Subscriber>) -> Option<Arc<Subscriber>> {
        let key = previous.map(key);

        self.list.lock().tree.after(key.as_ref()).map(Arc::from)
    }

    /// Delivers QP_GONE to each subscriber, after all pending events, or has a worker deliver it.
    /// The QP has been destroyed: no event of it follows.
    pub(crate) fn gone(self: ArcBorrow<'_, Self>, qpn: u32) {
        self.is_gone.store(true, Relaxed);
        self.post(&Event::now(qpn, EventType::QP_GONE));
    }

    /// Delivers an event to [`AT_ONCE`] subscribers, if there are not more and no event is pending.
    /// Else a worker delivers it. May be called in any context.
    fn post(self: ArcBorrow<'_, Self>, event: &Event) {
        let step = {
            let mut list = self.list.lock();
            let at_once = list.is_idle() && list.tree.len() <= AT_ONCE;

            list.pending.add(event, self.changes());
            if at_once {
                self.step(&mut list)
            } else {
                Step::More
            }
        };

        match step {
            Step::Over(events) => self.log(events),
            Step::More | Step::Idle => Self::queue(self.into()),
        }
    }

    /// Has a worker deliver the pending events.
    fn queue(subscribers: Arc<Self>) {
        let workers = subscribers.workers.clone();
        let queue = workers.delivery(subscribers.is_gone.load(Relaxed));

        // An item that is queued already has not begun, and delivers all of them.
        drop(queue.enqueue(subscribers));
    }

    /// Delivers pending events to the next [`AT_ONCE`] subscribers. Returns `false` if there are no
    /// pending events. May sleep.
    pub(crate) fn deliver_step(&self) -> bool {
        let step = self.step(&mut self.list.lock());

        match step {
            Step::Idle => return false,
            Step::More => (),
            Step::Over(events) => self.log(events),
        }
        cond_resched();
        true
    }

    /// Delivers the events of the round to the next [`AT_ONCE`] subscribers. The events of a round
    /// are reported with the lock held, so that their reports are in order, and QP_GONE is the
    /// last.
    fn step(&self, list: &mut List) -> Step {
        list.begin_round();

        let Some(round) = &mut list.round else {
            return Step::Idle;
        };

        for _ in 0..AT_ONCE {
            let Some(subscriber) = list.tree.at_cursor() else {
                break;
            };

            if !subscriber.skips_round().xchg(false, Relaxed) {
                round.deliver(subscriber);
            }
            list.tree.advance();
        }
        if list.tree.at_cursor().is_some() {
            return Step::More;
        }
        self.report_round(round);

        let undelivered = round.undelivered();

        list.round = None;
        Step::Over(undelivered)
    }

    fn report_round(&self, events: &Events) {
        for index in 0..events.len {
            let event = events.get(index);
            let qp = self.report(event.qpn, events.subscribers[index]);
            let delivery = notify::Delivery {
                since: events.since[index],
                delivered: events.delivered[index],
            };

            if event.kind == EventType::QP_GONE {
                notify::gone(qp, delivery);
            } else {
                notify::event(qp, event.kind.as_raw(), event.count, delivery);
            }
        }
    }

    fn report(&self, qpn: u32, registrations: u32) -> notify::Qp<'_> {
        notify::Qp {
            device: &self.device,
            domain: self.domain,
            qpn,
            serial: self.serial,
            label: 0,
            lifetime: 0,
            registrations,
            keeping: 0,
            changes: self.changes(),
        }
    }

    fn log(&self, events: Undelivered) {
        let kinds = (0..EventType::COUNT).filter_map(EventType::from_index);

        for kind in kinds.filter(|kind| events.kinds.has(*kind)) {
            self.device
                .log_qp_event(self.user, events.qpn, kind.as_raw());
        }
    }
}

impl EventHandler for Subscribers {
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, ib_event: u32) {
        self.events.add(1, Relaxed);
        if EventType::ends_in_error(ib_event) {
            self.known.note_break();
        }

        let Some(kind) = EventType::from_ib_event(ib_event) else {
            return self.device.log_qp_event(self.user, qpn, ib_event);
        };

        self.post(&Event::now(qpn, kind));
    }
}

impl WorkItem for Subscribers {
    type Pointer = Arc<Self>;

    fn run(subscribers: Arc<Self>) {
        for _ in 0..TURN {
            if !subscribers.deliver_step() {
                return;
            }
        }
        Self::queue(subscribers);
    }
}
