// SPDX-License-Identifier: GPL-2.0

//! The subscribers of a receive QP: its registrations, to which its events are delivered.
//!
//! Owned by the QP and, as the context of its events, by the verbs object. An event comes in any
//! context, with interrupts disabled and locks of the provider held. So the list has a lock that
//! may be taken there; inside it, only that of one event channel at a time is taken. Nothing is allocated
//! or freed with it held, and it is held for [`AT_ONCE`] deliveries at most, however many subscribers
//! there are. A QP with more than that has its events delivered later, by whoever comes first: the
//! workqueue, REG, or who destroys the QP. What has not been delivered to all counts up in one slot per
//! kind of event; that is a [`Round`], which goes once through the list in its order.
//!
//! An event is for those who are registered when it happens. So nobody is added while a round is due.
//! Who is removed gets what the rounds would bring, if the registration ends with the device.
//!
//! What the QP was last seen to be is kept here as well, for those who must not ask the device.

use crate::{
    event::{
        Event,
        EventType, //
    },
    kernel_ext::{
        cond_resched,
        new_spinlock_irq,
        tree::{
            Tree,
            TreeItem, //
        },
        workqueue::UnboundQueue,
        SpinLockIrq, //
    },
    limits,
    notify,
    rdma::{
        device::Device,
        qp::EventHandler,
        qp_attr::{
            QpAttr,
            QpAttrMask,
            QpState, //
        },
        uverbs::{
            FileId,
            RemoveReason, //
        }, //
    }, //
    subscriber::{
        Key,
        Subscriber,
        Wakeup,
        BY_HOLDER, //
    },
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

/// To how many subscribers events are delivered with interrupts off.
const AT_ONCE: usize = 2;

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Subscribers {
    device: ARef<Device>,
    domain: u32,
    events: Atomic<i64>,
    state: Atomic<u32>,
    destination: Atomic<u32>,
    queue: Arc<UnboundQueue>,
    #[pin]
    delivery: Work<Self>,
    #[pin]
    list: SpinLockIrq<List>,
}

impl_has_work! {
    impl HasWork<Self> for Subscribers { self.delivery }
}

struct List {
    tree: Tree<Subscriber, BY_HOLDER>,
    /// Events that happened since the round began.
    pending: Events,
    round: Option<Round>,
}

/// Events that are being delivered to all subscribers.
struct Round {
    events: Events,
    /// Who was the last to get them.
    last: Option<Key>,
}

/// One event of each kind at most, in the order of the first of each kind.
#[derive(Default)]
struct Events {
    len: usize,
    kinds: [EventType; EventType::COUNT],
    times: [u64; EventType::COUNT],
    counts: [u32; EventType::COUNT],
    /// To how many subscribers each was delivered.
    delivered: [u32; EventType::COUNT],
    qpn: u32,
}

impl Events {
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn add(&mut self, event: &Event) {
        let found = self.kinds[..self.len]
            .iter()
            .position(|kind| *kind == event.kind);
        let index = found.unwrap_or(self.len);

        if found.is_none() {
            self.kinds[index] = event.kind;
            self.times[index] = event.time;
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

    /// Delivers them to a subscriber. Returns whose readers are to be woken.
    fn deliver(&mut self, subscriber: &Arc<Subscriber>) -> Option<Wakeup> {
        let mut wakeup = None;

        for index in 0..self.len {
            let (delivered, readers) = subscriber.deliver(&self.get(index));

            self.delivered[index] += u32::from(delivered);
            wakeup = readers.or(wakeup);
        }
        wakeup
    }
}

/// What a [step](List::step) did.
enum Step {
    /// There is nothing to deliver.
    Idle,
    /// There are more subscribers.
    More,
    /// All have these.
    Delivered(Events),
}

impl List {
    /// Whether all events were delivered to all.
    fn is_idle(&self) -> bool {
        self.round.is_none() && self.pending.is_empty()
    }

    /// Delivers what is pending to [`AT_ONCE`] subscribers more. Fills in whose readers are to be woken.
    fn step(&mut self, wakeups: &mut Wakeups) -> Step {
        if self.round.is_none() && !self.pending.is_empty() {
            self.round = Some(Round {
                events: take(&mut self.pending),
                last: None,
            });
        }

        let Some(round) = &mut self.round else {
            return Step::Idle;
        };

        for wakeup in wakeups {
            let Some(subscriber) = self.tree.after(round.last.as_ref()) else {
                break;
            };

            round.last = Some(key(&subscriber));
            *wakeup = round.events.deliver(&subscriber.into());
        }
        if self.tree.after(round.last.as_ref()).is_some() {
            return Step::More;
        }
        match self.round.take() {
            Some(round) => Step::Delivered(round.events),
            None => Step::Idle,
        }
    }
}

fn key(subscriber: &Subscriber) -> Key {
    TreeItem::<BY_HOLDER>::key(subscriber)
}

/// Whose readers are to be woken, once the lock is not held any more.
type Wakeups = [Option<Wakeup>; AT_ONCE];

fn wake(wakeups: Wakeups) {
    for wakeup in wakeups.into_iter().flatten() {
        wakeup.wake();
    }
}

impl Subscribers {
    /// Creates the list of a QP in the domain with the id `domain`. Events for many are delivered by
    /// `queue`.
    pub(crate) fn new(
        device: ARef<Device>,
        domain: u32,
        queue: Arc<UnboundQueue>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                domain,
                events: Atomic::new(0),
                state: Atomic::new(QpState::Reset as u32),
                destination: Atomic::new(0),
                queue,
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

    /// How many registrations there are.
    pub(crate) fn len(&self) -> usize {
        self.list.lock().tree.len()
    }

    /// Whether nobody is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many events there were.
    pub(crate) fn events(&self) -> i64 {
        self.events.load(Relaxed)
    }

    /// The state that the QP was last seen in: by a command that succeeded, or by its events.
    pub(crate) fn state(&self) -> Result<QpState> {
        self.state.load(Relaxed).try_into()
    }

    /// The QP number of the other side, as last seen.
    pub(crate) fn destination(&self) -> u32 {
        self.destination.load(Relaxed)
    }

    /// Keeps what a command found or did.
    pub(crate) fn note(&self, attributes: &QpAttr) {
        if let (true, Ok(state)) = (attributes.mask().has(QpAttrMask::STATE), attributes.state()) {
            self.state.store(state as u32, Relaxed);
        }
        if attributes.mask().has(QpAttrMask::DEST_QPN) {
            self.destination.store(attributes.destination(), Relaxed);
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The number of the domain.
    pub(crate) fn domain(&self) -> u32 {
        self.domain
    }

    /// Adds a registration, if the limit allows it. Returns whether it did: not while there are events
    /// which happened before, and others have to get first. [`Self::deliver_pending`], and try again.
    /// The caller sees to it that only one is added at a time.
    pub(crate) fn add(&self, subscriber: &Arc<Subscriber>) -> Result<bool> {
        limits::another_registration(self.len())?;

        let mut list = self.list.lock();

        if !list.is_idle() {
            return Ok(false);
        }
        list.tree.insert(subscriber.clone()).map_err(|_| EEXIST)?;
        Ok(true)
    }

    /// Removes a registration. It gets no event after this returns.
    pub(crate) fn remove(&self, subscriber: &Arc<Subscriber>, why: RemoveReason) {
        let mut list = self.list.lock();
        let List {
            tree,
            pending,
            round,
        } = &mut *list;
        let removed = tree.remove(subscriber);
        let mut wakeup = None;

        if why == RemoveReason::DeviceRemoved && removed.is_some() {
            if let Some(round) = round {
                if round.last.is_none_or(|last| last < key(subscriber)) {
                    wakeup = round.events.deliver(subscriber);
                }
            }
            wakeup = pending.deliver(subscriber).or(wakeup);
        }
        drop(list);
        drop(removed);
        if let Some(wakeup) = wakeup {
            wakeup.wake();
        }
    }

    /// Whether a registration is one of these.
    pub(crate) fn contains(&self, subscriber: &Subscriber) -> bool {
        let list = self.list.lock();
        let found = list.tree.lower_bound(&key(subscriber));

        found.is_some_and(|found| core::ptr::eq(&*found, subscriber))
    }

    /// Whether a uverbs file is registered.
    pub(crate) fn has(&self, file: FileId) -> bool {
        let list = self.list.lock();
        let found = list.tree.lower_bound(&(Some(file), 0));

        found.is_some_and(|found| found.file() == Some(file))
    }

    /// The registration that follows `previous`, or the first.
    pub(crate) fn after(&self, previous: Option<&Subscriber>) -> Option<Arc<Subscriber>> {
        let key = previous.map(key);

        self.list.lock().tree.after(key.as_ref()).map(Arc::from)
    }

    /// The QP is gone: delivers that to all, after all else. No event may come after this.
    pub(crate) fn gone(&self, qpn: u32) {
        let gone = Event::now(qpn, EventType::QP_GONE);

        self.list.lock().pending.add(&gone);
        self.deliver_pending();
    }

    /// Delivers all that is pending. Must be able to sleep.
    pub(crate) fn deliver_pending(&self) {
        loop {
            let mut wakeups = Wakeups::default();
            let step = self.list.lock().step(&mut wakeups);

            wake(wakeups);
            match step {
                Step::Idle => return,
                Step::More => (),
                Step::Delivered(events) => self.report(&events),
            }
            cond_resched();
        }
    }

    fn report(&self, events: &Events) {
        for index in 0..events.len {
            let (event, delivered) = (events.get(index), events.delivered[index]);

            if event.kind != EventType::QP_GONE {
                self.report_one(event.qpn, event.kind.as_raw(), event.count, delivered);
            }
        }
    }

    fn report_one(&self, qpn: u32, ib_event: u32, count: u32, delivered: u32) {
        notify::event(&self.device, self.domain, qpn, ib_event, count, delivered);
        if delivered == 0 {
            self.device.log_qp_event(qpn, ib_event);
        }
    }
}

impl EventHandler for Subscribers {
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, ib_event: u32) {
        self.events.add(1, Relaxed);
        if EventType::ends_in_error(ib_event) {
            self.state.store(QpState::Err as u32, Relaxed);
        }

        let Some(kind) = EventType::from_ib_event(ib_event) else {
            return self.report_one(qpn, ib_event, 1, 0);
        };
        let event = Event::now(qpn, kind);
        let mut wakeups = Wakeups::default();
        let step = {
            let mut list = self.list.lock();
            let at_once = list.is_idle() && list.tree.len() <= AT_ONCE;

            list.pending.add(&event);
            if at_once {
                list.step(&mut wakeups)
            } else {
                Step::More
            }
        };

        wake(wakeups);
        match step {
            Step::Delivered(events) => self.report(&events),
            // If it is queued already, it has not begun.
            Step::More | Step::Idle => drop(self.queue.enqueue(Arc::from(self))),
        }
    }
}

impl WorkItem for Subscribers {
    type Pointer = Arc<Self>;

    fn run(subscribers: Arc<Self>) {
        subscribers.deliver_pending();
    }
}
