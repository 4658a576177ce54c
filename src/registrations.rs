// SPDX-License-Identifier: GPL-2.0

//! The registrations of a receive QP, and the events that are for them.
//!
//! Owned by the QP and, as the context of its events, by the verbs object. A registration is a bit,
//! by the number of the member: it *listens* to the events of the QP, and may *keep* the QP.
//!
//! An event comes in any context, with locks of the provider held and, without PREEMPT_RT,
//! interrupts disabled. It is counted, and moves to the end of the [log](crate::log) of its domain:
//! no member is visited for that, nor a bit of any. Unread are the events after the cursor of the
//! member. An event is for the registrations that exist when it happens: if the QP has events after
//! the cursor of a member that registers, the position of the log is noted from which on they are
//! for that member.
//!
//! A worker looks at the rows, one at a time, and has the readers of those members woken that have
//! an unread event, but for those that no task waits for. That holds for QP_GONE, too: the thread
//! that destroys the QP has locks that others wait for.
//!
//! A member of all QPs has no bit in any of them: it listens to each from `QP_ADDED` on, and keeps
//! each, as the [members](crate::members) of the domain say. An event does not visit these either.
//! Which of them have to pass the end of the QP before it leaves the log is a number here, of those
//! that listened when it ended: their cursors are before that.
//!
//! A registration that ends with the QP or with the device still has its unread events, and, with
//! the device, listens until the QP is gone. The worker takes away members of a QP that was
//! destroyed that have nothing to read of it, as their masks exclude QP_GONE. If a QP leaves the
//! log before its events are read, the worker takes all its members away, and those that had not
//! read all have lost records.

use crate::{
    event::{
        Counts,
        Event,
        EventMask,
        EventType, //
    },
    kernel_ext::{
        cond_resched,
        new_spinlock_irq,
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        },
        SpinLockIrq, //
    },
    limits,
    listener::Listener,
    log::{
        Log,
        Logged,
        QpName,
        BY_NUMBER,
        BY_POSITION,
        PLACES, //
    },
    member_set::{
        bit,
        first,
        MemberRows,
        Room,
        ROW, //
    },
    notify,
    qp_status::{
        Lifetime,
        QpStatus, //
    },
    rdma::{
        qp::EventHandler,
        uverbs::RemoveReason, //
    },
    right::Right,
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

/// The number of [steps](Registrations::signal_step) after which a worker serves other QPs of the
/// device.
const TURN: usize = 32;

/// The number of QPs that leave the log with the end of another: those that are too many after the
/// limit was lowered leave it little by little.
const EVICTED_AT_ONCE: usize = 2;

/// The log of a domain. Its lock is taken in any context.
pub(crate) type DomainLog = SpinLockIrq<Log<Registrations>>;

/// Creates the log of a domain.
pub(crate) fn new_log() -> Result<Arc<DomainLog>> {
    Arc::pin_init(
        new_spinlock_irq!(Log::new(), "DomainLog"),
        GFP_KERNEL_ACCOUNT,
    )
}

/// The holder of a registration.
pub(crate) struct Holder {
    pub(crate) listener: Arc<Listener>,
    /// The right with which the member registers.
    pub(crate) right: Right,
}

impl Holder {
    /// Whether the QP stays as long as the registration, unless its domain is closed.
    pub(crate) fn keeps(&self) -> bool {
        self.right >= Right::Write
    }
}

/// See the [module's documentation](self). Members that change are atomic, and changed with the
/// lock of the log held.
#[pin_data]
pub(crate) struct Registrations {
    status: QpStatus,
    log: Arc<DomainLog>,
    counts: Counts,
    workers: Arc<Workers>,
    /// The QP was destroyed, and QP_GONE happens.
    is_destroyed: Atomic<bool>,
    numbers: Numbers,
    links: Links<BY_POSITION, PLACES>,
    logged: Linked<BY_POSITION, PLACES>,
    name_links: Links<BY_NUMBER>,
    named: Linked<BY_NUMBER>,
    #[pin]
    delivery: Work<Self>,
    lists: LockedBy<Lists, Log<Self>>,
}

/// The numbers of registrations.
struct Numbers {
    all: Atomic<usize>,
    /// Those that keep the QP.
    keeping: Atomic<usize>,
    /// Those whose masks exclude each kind of event: few do.
    excluding: [Atomic<usize>; EventType::COUNT],
    /// Those that were added so far, and those that ended.
    changes: Atomic<u64>,
}

impl Numbers {
    const fn new() -> Self {
        Self {
            all: Atomic::new(0),
            keeping: Atomic::new(0),
            excluding: [const { Atomic::new(0) }; EventType::COUNT],
            changes: Atomic::new(0),
        }
    }

    /// Adds the number of registrations of a member, each of which keeps the QP or not: 1 or -1.
    fn add(&self, listener: &Listener, keeps: bool, added: isize) {
        let change = |number: &Atomic<usize>| {
            number.store(number.load(Relaxed).wrapping_add_signed(added), Relaxed);
        };

        change(&self.all);
        if keeps {
            change(&self.keeping);
        }
        for kind in listener.mask().others().kinds() {
            change(&self.excluding[kind.index()]);
        }
        self.changes
            .store(self.changes.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

impl_has_work! {
    impl HasWork<Self> for Registrations { self.delivery }
}

impl_tree_item! {
    impl TreeItem<{ BY_POSITION }> for Registrations {
        links: links,
        linked: logged,
        key: |registrations, place| -> u64 {
            // That of the QPs that were destroyed follows those of the kinds.
            let kind = EventType::from_index(place).unwrap_or(EventType::QP_GONE);

            registrations.counts.position(kind)
        }
    }
}

impl_tree_item! {
    impl TreeItem<{ BY_NUMBER }> for Registrations {
        links: name_links,
        linked: named,
        key: |registrations| -> QpName { registrations.name() }
    }
}

impl Logged for Registrations {
    fn set_position(&self, kind: EventType, position: u64) {
        self.counts.set_position(kind, position);
    }

    fn logged(&self) -> EventMask {
        self.counts.logged()
    }
}

/// The registrations of some members.
#[derive(Default)]
struct RegistrationRow {
    /// Those that keep the QP.
    keeps: u64,
    /// The members that listen to its events.
    listening: u64,
    /// Those of them whose registrations have ended with the device.
    released: u64,
    /// The position of the log after which events are for each member, if there were events of the
    /// QP when one of them registered that it had not passed.
    since: Option<Since>,
}

type Since = KBox<[u64; ROW]>;

impl RegistrationRow {
    fn listens(&self, member: usize) -> bool {
        self.listening & bit(member) != 0
    }

    fn since(&self, member: usize) -> u64 {
        self.since
            .as_ref()
            .map_or(0, |positions| positions[member % ROW])
    }

    /// A member does not listen to the events any more.
    fn remove(&mut self, member: usize) {
        let others = !bit(member);

        self.keeps &= others;
        self.listening &= others;
        self.released &= others;
    }
}

struct Lists {
    rows: MemberRows<RegistrationRow>,
    /// The number of members that listen to the events, with a bit.
    members: usize,
    /// The number of members of all QPs that have not passed the end of the QP.
    followers: usize,
    /// The QP leaves the log: the worker takes the members away.
    is_evicted: bool,
    /// There were events since the worker began.
    is_pending: bool,
    /// The worker is at work.
    is_signalling: bool,
    /// The next row whose members it signals, and those of the row before that it has not.
    row: usize,
    left: u64,
    /// The position up to which it has signalled events, and will have when it is done.
    signalled: u64,
    until: u64,
}

impl Registrations {
    /// Creates the registrations of a QP of the domain that has the log. The workers wake members.
    pub(crate) fn new(
        status: QpStatus,
        log: Arc<DomainLog>,
        workers: Arc<Workers>,
    ) -> Result<Arc<Self>> {
        let lists = LockedBy::new(
            &*log,
            Lists {
                rows: MemberRows::new(),
                members: 0,
                followers: 0,
                is_evicted: false,
                is_pending: false,
                is_signalling: false,
                row: 0,
                left: 0,
                signalled: 0,
                until: 0,
            },
        );

        Arc::pin_init(
            pin_init!(Self {
                status,
                lists,
                log,
                counts: Counts::new(),
                workers,
                is_destroyed: Atomic::new(false),
                numbers: Numbers::new(),
                links: Links::new(),
                logged: Linked::new(),
                name_links: Links::new(),
                named: Linked::new(),
                delivery <- new_work!("Registrations::delivery"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the number of registrations, without those of members of all QPs.
    pub(crate) fn len(&self) -> usize {
        self.numbers.all.load(Relaxed)
    }

    /// Returns the number of registrations.
    pub(crate) fn registered(&self) -> usize {
        self.len() + self.log.lock().members.of_all().number
    }

    /// Returns the number of registrations that keep the QP, without those of members of all QPs.
    pub(crate) fn keeping(&self) -> usize {
        self.numbers.keeping.load(Relaxed)
    }

    /// Whether a registration keeps the QP. That stays so while the order of the domain is held.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept_by(&self.log.lock())
    }

    fn is_kept_by(&self, log: &Log<Self>) -> bool {
        self.keeping() != 0 || log.members.of_all().keeping != 0
    }

    /// Whether the QP stays for registrations only, and none keeps it.
    pub(crate) fn is_unneeded(&self, log: &Log<Self>) -> bool {
        self.status.lifetime() == Lifetime::Registrations && !self.is_kept_by(log)
    }

    /// Returns the number of registrations that were added or ended so far.
    pub(crate) fn changes(&self) -> u64 {
        self.numbers.changes.load(Relaxed)
    }

    /// Returns the status of the QP.
    pub(crate) fn status(&self) -> &QpStatus {
        &self.status
    }

    /// Returns the number and the serial number of the QP.
    pub(crate) fn name(&self) -> QpName {
        (self.status.qpn(), self.status.serial())
    }

    /// Returns the values that tracepoints and notifiers report. They stay while the order of the
    /// domain is held.
    pub(crate) fn report(&self) -> notify::Qp<'_> {
        notify::Qp {
            label: self.status.label(),
            lifetime: self.status.lifetime().as_raw(),
            registrations: self.len() as u32,
            keeping: self.keeping() as u32,
            keeping_all: self.log.lock().members.of_all().keeping as u32,
            changes: self.changes(),
            ..self.status.report(self.status.qpn())
        }
    }

    /// Returns the row of a member if that has a bit: it listens to the events, or has unread ones.
    fn row<'a>(&'a self, log: &'a Log<Self>, member: usize) -> Option<&'a RegistrationRow> {
        let row = self.lists.access(log).rows.get(member / ROW)?;

        row.listens(member).then_some(row)
    }

    /// Whether a member has a bit: it listens to the events, or has unread ones.
    pub(crate) fn listens(&self, log: &Log<Self>, listener: &Listener) -> bool {
        self.row(log, listener.number()).is_some()
    }

    /// Whether the last event of a kind is unread.
    pub(crate) fn is_unread(&self, log: &Log<Self>, listener: &Listener, kind: EventType) -> bool {
        listener.mask().has(kind) && self.is_for(log, listener, self.counts.position(kind))
    }

    /// Whether a member has yet to read an event at a position. If so, all at later positions.
    fn is_for(&self, log: &Log<Self>, listener: &Listener, position: u64) -> bool {
        let member = listener.number();

        if position <= listener.cursor() {
            return false;
        }
        if log.members.follows(member) {
            let added = self.counts.position(EventType::QP_ADDED);

            return (1..=position).contains(&added) && !self.is_evicted(log);
        }
        self.row(log, member)
            .is_some_and(|row| position > row.since(member))
    }

    /// Whether the QP leaves the log, and its unread events are lost.
    pub(crate) fn is_evicted(&self, log: &Log<Self>) -> bool {
        self.lists.access(log).is_evicted
    }

    /// Returns the number of unread records.
    fn unread(&self, log: &Log<Self>, listener: &Listener) -> usize {
        self.logged_kinds(listener)
            .filter(|kind| self.is_unread(log, listener, *kind))
            .count()
    }

    /// Returns the position of the last event that is unread.
    fn last_unread(&self, log: &Log<Self>, listener: &Listener) -> Option<u64> {
        self.logged_kinds(listener)
            .map(|kind| self.counts.position(kind))
            .max()
            .filter(|last| self.is_for(log, listener, *last))
    }

    /// Returns the events of a kind that have happened. Called with the lock of the log held.
    pub(crate) fn events(&self, kind: EventType) -> Event {
        self.counts.event(kind)
    }

    /// Whether the QP has events of before now that a member, which registers now, would read.
    fn has_earlier(&self, listener: &Listener) -> bool {
        let mut kinds = self.logged_kinds(listener);

        kinds.any(|kind| self.counts.position(kind) > listener.cursor())
    }

    /// Returns the kinds of events of which the log has one, and that a member reads.
    fn logged_kinds(&self, listener: &Listener) -> impl Iterator<Item = EventType> {
        self.counts.logged().and(listener.mask()).kinds()
    }

    /// Whether a member is registered. `info` becomes the totals of the events that have happened
    /// if it is.
    fn is_registered(
        &self,
        log: &Log<Self>,
        listener: &Listener,
        info: Option<&mut xrc_rcv_reg_info>,
    ) -> bool {
        let is_registered = self.listens(log, listener) || log.members.is_of_all(listener.number());

        if let Some(info) = info.filter(|_| is_registered) {
            *info = self.counts.to_info(self.status.serial());
        }
        is_registered
    }

    /// The QP was added to its domain: `QP_ADDED` is the first event for members of all QPs, and
    /// those that came before follow.
    pub(crate) fn publish(self: ArcBorrow<'_, Self>) {
        let mut log = self.log.lock();
        let mut is_heard = false;

        log.publish(self);
        if log.members.of_all().following == 0 {
            // Those that come later do not read it, only what is after it.
            log.pass(self, EventType::QP_ADDED);
        } else {
            self.counts.add(EventType::QP_ADDED);
            is_heard |= self.note(&mut log, EventType::QP_ADDED);
        }
        for kind in EventType::iter().filter(|kind| self.counts.is_held_back(*kind)) {
            self.report_event(self.status.qpn(), kind);
            is_heard |= self.note(&mut log, kind);
        }
        drop(log);
        if is_heard {
            Self::queue(self.into());
        }
    }

    /// Whether the QP is or was in its domain: its creation did not fail.
    fn is_published(&self) -> bool {
        self.counts.position(EventType::QP_ADDED) != 0
    }

    /// Ends the registration of the creator of a QP that is not published.
    pub(crate) fn withdraw(&self, first: &Listener) {
        let taken = self.take(&mut self.log.lock(), first);

        drop(taken);
    }

    /// Makes room for a registration of a member, unless it is registered: returns whether it is,
    /// and `info` becomes the totals of the events of now if so.
    pub(crate) fn make_room(
        &self,
        listener: &Listener,
        mut info: Option<&mut xrc_rcv_reg_info>,
    ) -> Result<bool> {
        let member = listener.number();

        loop {
            let mut log = self.log.lock();

            if self.is_registered(&log, listener, info.as_deref_mut()) {
                return Ok(true);
            }

            let has_earlier = self.has_earlier(listener);
            let row = self.lists.access_mut(&mut log).rows.get_mut(member / ROW);
            let has_row = row.is_some();

            if row.is_some_and(|row| !has_earlier || row.since.is_some()) {
                return Ok(false);
            }
            drop(log);
            if has_row {
                self.make_since(member)?;
            } else {
                self.make_row(member)?;
            }
        }
    }

    /// Adds the row of a member.
    fn make_row(&self, member: usize) -> Result {
        let room = Room::new(member)?;
        let mut log = self.log.lock();
        let left = self.lists.access_mut(&mut log).rows.grow(room);

        drop(log);
        drop(left);
        Ok(())
    }

    /// Adds the positions of the log after which events are for each member of a row.
    fn make_since(&self, member: usize) -> Result {
        let since = Since::new([0; ROW], GFP_KERNEL_ACCOUNT)?;
        let mut log = self.log.lock();
        let row = self.lists.access_mut(&mut log).rows.get_mut(member / ROW);
        let left = match row {
            Some(row) if row.since.is_none() => row.since.replace(since),
            _ => Some(since),
        };

        drop(log);
        drop(left);
        Ok(())
    }

    /// Adds a registration, unless there is one. `info` becomes the totals of the events before it,
    /// or of now. `EDQUOT` over the limit. Calls must be serialised.
    pub(crate) fn add(
        &self,
        holder: &Holder,
        mut info: Option<&mut xrc_rcv_reg_info>,
    ) -> Result<Added> {
        let keeps = holder.keeps();
        let mut log = self.log.lock();

        if self.is_registered(&log, &holder.listener, info.as_deref_mut()) {
            return Ok(Added::Existed);
        }
        if limits::is_reached(self.len(), self.keeping(), keeps) {
            // Without the lock: it reports a privilege that is denied, or used.
            drop(log);
            limits::another_registration(self.len(), self.keeping(), keeps)?;
            log = self.log.lock();
        }

        let member = holder.listener.number();
        let end = log.end();
        let lists = self.lists.access_mut(&mut log);
        let Some(row) = lists.rows.get_mut(member / ROW) else {
            return Ok(Added::NoRoom);
        };

        match &mut row.since {
            Some(positions) => positions[member % ROW] = end,
            None if self.has_earlier(&holder.listener) => return Ok(Added::NoRoom),
            None => (),
        }
        row.listening |= bit(member);
        if keeps {
            row.keeps |= bit(member);
        }
        lists.members += 1;
        self.numbers.add(&holder.listener, keeps, 1);
        if let Some(info) = info {
            *info = self.counts.to_info(self.status.serial());
        }
        Ok(Added::New)
    }

    /// Ends a registration. No event is for it after this returns; those that are unread are
    /// discarded, unless it ends with the device: they, and those that follow until QP_GONE, can
    /// still be read, until it is ended again. Returns whether it had not ended before, or with the
    /// QP; and whether the QP is [unneeded](Self::is_unneeded) now.
    pub(crate) fn remove(&self, listener: &Listener, why: RemoveReason) -> (bool, bool) {
        // Dropped after the lock is released.
        let mut taken = None;
        let mut log = self.log.lock();
        let existed = if why == RemoveReason::DeviceRemoved {
            self.release(&mut log, listener)
        } else {
            taken = self.take(&mut log, listener);
            taken.as_ref().is_some_and(|taken| taken.existed)
        };
        let is_unneeded = self.is_unneeded(&log);

        drop(log);
        drop(taken);
        (existed, is_unneeded)
    }

    /// Ends a registration with the device, unless it had ended: its events can still be read.
    /// Returns whether it had not.
    fn release(&self, log: &mut Log<Self>, listener: &Listener) -> bool {
        let member = listener.number();
        // It may end with the channel at the same time.
        let Some(row) = self
            .lists
            .access_mut(log)
            .rows
            .get_mut(member / ROW)
            .filter(|row| row.listening & !row.released & bit(member) != 0)
            .filter(|_| !self.is_gone())
        else {
            return false;
        };

        self.numbers.add(listener, row.keeps & bit(member) != 0, -1);
        row.keeps &= !bit(member);
        row.released |= bit(member);
        true
    }

    /// Whether QP_GONE has happened. Called with the lock of the log held.
    fn is_gone(&self) -> bool {
        self.counts.total(EventType::QP_GONE) != 0
    }

    /// Takes a registration out of the lists, and the QP out of the log if it was destroyed and
    /// this was the last of a member. Returns `None` if it was not there.
    fn take(&self, log: &mut Log<Self>, listener: &Listener) -> Option<Taken> {
        let is_gone = self.is_gone();
        let member = listener.number();
        let lists = self.lists.access_mut(log);
        let row = lists
            .rows
            .get_mut(member / ROW)
            .filter(|row| row.listens(member))?;
        let kept = row.keeps & bit(member) != 0;
        let is_released = row.released & bit(member) != 0;

        row.remove(member);
        lists.members -= 1;

        let is_read = is_gone && lists.members == 0 && lists.followers == 0;
        let existed = !is_gone && !is_released;

        if existed {
            self.numbers.add(listener, kept, -1);
        }
        Some(Taken {
            existed,
            _qp: is_read.then(|| log.remove(self)).flatten(),
        })
    }

    /// A member listens no more to the QP, which is gone. Returns what is not needed any more.
    pub(crate) fn forget(&self, log: &mut Log<Self>, member: usize) -> Option<Arc<Self>> {
        let follows = log.members.follows(member);
        let lists = self.lists.access_mut(log);

        if follows {
            // None is left of a QP that leaves the log.
            lists.followers = lists.followers.saturating_sub(1);
        } else {
            let row = lists.rows.get_mut(member / ROW)?;

            if !row.listens(member) {
                return None;
            }
            row.remove(member);
            lists.members -= 1;
        }
        if lists.members != 0 || lists.followers != 0 {
            return None;
        }
        log.remove(self)
    }

    /// Calls a function with each member that is registered and the number of its unread records,
    /// without the lock.
    pub(crate) fn for_each(&self, mut call: impl FnMut(&Listener, usize) -> Result) -> Result {
        let mut member = 0;

        while let Some(listed) = self.listed_from(&mut member) {
            if let Some((listener, unread)) = listed {
                call(&listener, unread)?;
            }
        }
        Ok(())
    }

    /// Returns a member that is registered and the number of its unread records, or none of the
    /// rest of its row, and advances to the next member; `None` after the last row.
    fn listed_from(&self, member: &mut usize) -> Option<Option<(Arc<Listener>, usize)>> {
        let log = self.log.lock();
        let number = *member / ROW;
        let rows = &self.lists.access(&log).rows;

        if number >= rows.len() {
            return None;
        }

        let registered = rows
            .get(number)
            .map_or(0, |row| row.listening & !row.released)
            & (u64::MAX << (*member % ROW));

        if registered == 0 {
            *member = (number + 1) * ROW;
            return Some(None);
        }

        let next = number * ROW + first(registered);

        *member = next + 1;
        Some(
            log.members
                .get(next)
                .map(|listener| (listener.clone(), self.unread(&log, listener))),
        )
    }

    /// The QP has been destroyed: QP_GONE is the last event. If no member listens, none can read
    /// it: it is reported, and the QP leaves the log.
    pub(crate) fn gone(self: ArcBorrow<'_, Self>) {
        self.is_destroyed.store(true, Relaxed);

        let mut log = self.log.lock();

        self.report_event(self.status.qpn(), EventType::QP_GONE);
        if !self.is_heard(&log) {
            let removed = log.remove(&self);

            drop(log);
            drop(removed);
            return;
        }
        self.counts.add(EventType::QP_GONE);
        self.note(&mut log, EventType::QP_GONE);
        drop(log);
        Self::queue(self.into());
        for _ in 0..EVICTED_AT_ONCE {
            self.evict_oldest();
        }
    }

    /// Whether a member listens to the events.
    fn is_heard(&self, log: &Log<Self>) -> bool {
        self.lists.access(log).members != 0 || log.members.of_all().following != 0
    }

    /// Takes the QP that was destroyed before all others out of the log, if there are too many. A
    /// worker takes its members away, but for those of all QPs: they find out by their cursors.
    fn evict_oldest(&self) {
        let mut log = self.log.lock();
        let Some(oldest) = log.evict(limits::gone_per_domain()) else {
            return;
        };
        let lists = oldest.lists.access_mut(&mut log);

        lists.is_evicted = true;
        lists.is_pending = true;
        lists.followers = 0;

        let has_members = lists.members != 0;
        let removed = (!has_members).then(|| log.remove(&oldest)).flatten();

        drop(log);
        drop(removed);
        if has_members {
            Self::queue(oldest);
        }
    }

    /// Adds an event, which was counted, to the log. Returns whether a member listens to it.
    fn note(self: ArcBorrow<'_, Self>, log: &mut Log<Self>, kind: EventType) -> bool {
        log.add(self, kind);

        let is_heard = self.is_heard(log);
        let followers = log.members.of_all().following;
        let lists = self.lists.access_mut(log);

        lists.is_pending |= is_heard;
        if kind == EventType::QP_GONE {
            lists.followers = followers;
        }
        is_heard
    }

    /// Counts an event, and has the listeners signalled. May be called in any context.
    fn post(self: ArcBorrow<'_, Self>, qpn: u32, kind: EventType) {
        let mut log = self.log.lock();

        // A device that failed to destroy the QP may go on to report events of it.
        if self.is_destroyed.load(Relaxed) {
            return;
        }

        self.counts.add(kind);

        let is_kept = self.is_kept_by(&log);
        // The creation can still fail: neither a record nor a report is left then.
        let is_heard = self.is_published() && {
            self.report_event(qpn, kind);
            self.note(&mut log, kind)
        };

        drop(log);
        // A registration that does not keep the QP may be a stranger's.
        if !is_kept {
            self.status.log_event(qpn, kind.as_raw());
        }
        if is_heard {
            Self::queue(self.into());
        }
    }

    /// Has a worker signal the listeners.
    fn queue(registrations: Arc<Self>) {
        let workers = registrations.workers.clone();
        let queue = workers.delivery(registrations.is_destroyed.load(Relaxed));

        // An item that is queued already has not begun, and signals all of them.
        drop(queue.enqueue(registrations));
    }

    /// Signals the next member of a row, or looks at the next row. Returns `false` if all events
    /// were signalled.
    fn signal_step(&self) -> bool {
        // Woken and dropped after the lock is released.
        let (mut readable, mut removed) = (None, None);
        let mut log = self.log.lock();
        let end = log.end();
        let following_rows = log.members.following_rows();
        let lists = self.lists.access_mut(&mut log);

        if !lists.is_signalling {
            if !lists.is_pending {
                return false;
            }
            lists.is_pending = false;
            lists.is_signalling = true;
            lists.row = 0;
            lists.left = 0;
            lists.until = end;
        }
        if lists.left != 0 {
            (readable, removed) = self.signal_member(&mut log);
        } else if lists.row < lists.rows.len().max(following_rows) {
            self.look_at_row(&mut log);
        } else {
            lists.is_signalling = false;
            lists.signalled = lists.until;
        }
        drop(log);
        drop(removed);
        if let Some(listener) = readable {
            listener.wake_later();
        }
        true
    }

    /// Finds the members of the next row that are to be signalled: those that an event after the
    /// last time may be for, unless no task waits for them; and those that are to be taken
    /// away from a QP that was destroyed.
    fn look_at_row(&self, log: &mut Log<Self>) {
        let lists = self.lists.access(log);
        let listening = lists.rows.get(lists.row).map_or(0, |row| row.listening);
        let left = log.members.row(lists.row * ROW).map_or(0, |members| {
            let kinds = self.counts.logged().kinds();
            let wanted = kinds
                .filter(|kind| self.counts.position(*kind) > lists.signalled)
                .fold(0, |wanted, kind| wanted | members.wanting[kind.index()]);
            let waiting = (listening | members.following) & wanted & !members.idle;

            if lists.is_evicted {
                listening
            } else if self.is_gone() {
                // Those that do not read its end are taken away.
                waiting | listening & !members.wanting[EventType::QP_GONE.index()]
            } else {
                waiting
            }
        });
        let lists = self.lists.access_mut(log);

        lists.left = left;
        lists.row += 1;
    }

    /// Returns the next of the members if its readers are to be woken: an event after the last
    /// time is for it. Takes it away from a QP that was destroyed if it has no record of that to
    /// read, or the QP leaves the log; returns what is not needed any more.
    fn signal_member(&self, log: &mut Log<Self>) -> (Option<Arc<Listener>>, Option<Arc<Self>>) {
        let lists = self.lists.access_mut(log);
        let member = (lists.row - 1) * ROW + first(lists.left);
        let (is_evicted, signalled) = (lists.is_evicted, lists.signalled);

        lists.left &= !bit(member);

        // It may have read all, and even have ended, since the row was looked at.
        let listener = log.members.get(member);
        let last = listener.and_then(|listener| self.last_unread(log, listener));
        let is_readable = last.is_some_and(|last| is_evicted || last > signalled);
        let readable = listener.filter(|_| is_readable).cloned();

        if let Some(listener) = &readable {
            if is_evicted {
                listener.lose();
            }
            // A task that begins to wait after this finds the event first.
            log.members.set_idle(member, !listener.has_waiters());
        }
        // A member of all takes itself off when it passes the end of the QP.
        let has_none = self.is_gone() && last.is_none() && !log.members.follows(member);
        let removed = (is_evicted || has_none).then(|| self.forget(log, member));

        (readable, removed.flatten())
    }

    /// Reports an event, with the lock of the log held: reports are in order, and QP_GONE is the
    /// last.
    fn report_event(&self, qpn: u32, kind: EventType) {
        if !notify::is_reported() {
            return;
        }

        let qp = notify::Qp {
            registrations: self.len() as u32,
            changes: self.changes(),
            ..self.status.report(qpn)
        };
        let excluding = self.numbers.excluding[kind.index()].load(Relaxed) as u32;
        let delivered = qp.registrations.wrapping_sub(excluding);

        if kind == EventType::QP_GONE {
            notify::gone(qp, delivered);
        } else {
            notify::event(qp, kind.as_raw(), delivered);
        }
    }
}

/// The result of [`Registrations::add`].
pub(crate) enum Added {
    /// Nothing: the member was registered.
    Existed,
    /// It is registered now, which the caller reports.
    New,
    /// Nothing: [room has to be made](Registrations::make_room), be it for events that have come
    /// since that was done.
    NoRoom,
}

/// A registration that was taken out of the lists, and its QP if that was taken out of the log with
/// it, for the caller to drop without the lock.
#[must_use]
struct Taken {
    /// It had not ended with the QP or the device.
    existed: bool,
    _qp: Option<Arc<Registrations>>,
}

impl EventHandler for Registrations {
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, ib_event: u32) {
        self.status.note_event(ib_event);

        let Some(kind) = EventType::from_ib_event(ib_event) else {
            return self.status.log_event(qpn, ib_event);
        };

        self.post(qpn, kind);
    }
}

impl WorkItem for Registrations {
    type Pointer = Arc<Self>;

    fn run(registrations: Arc<Self>) {
        for _ in 0..TURN {
            if !registrations.signal_step() {
                return;
            }
            cond_resched();
        }
        Self::queue(registrations);
    }
}
