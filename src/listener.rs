// SPDX-License-Identifier: GPL-2.0

//! The readers of the events of a member: processes, or the handler of a kernel user.
//!
//! Any number of processes read an event channel, or watch it with epoll. The thread that adds an
//! event, or ends the channel, does not wake them: a worker does, once for all events that are
//! added until it begins. The channels are in a list, from which up to [`WAKERS`] workers take one
//! at a time: a channel with very many watches takes one of them, and the others go on.
//!
//! A worker of another workqueue calls the handler of a kernel user, for each record: it may sleep,
//! and no process waits for it.

use crate::{
    event::EventMask,
    kernel_ext::{
        cond_resched,
        process::{
            current_thread,
            Process, //
        },
        wait_queue::{
            new_wait_queue,
            WaitQueue, //
        },
        workqueue::{
            ModuleQueue,
            ModuleQueueOwner, //
        }, //
    },
    notify::{
        self,
        FileId, //
    }, //
};
use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        AtomicTracker,
        List,
        ListArc,
        ListLinks,
        TryNewListArc, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        global_lock,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// Has the items of [`Waker`]s.
static WAKEUPS: ModuleQueue = ModuleQueue::new();

/// Calls the handlers of kernel users: an item for each, which is queued once at a time.
static HANDLERS: ModuleQueue = ModuleQueue::new();

global_lock! {
    // SAFETY: `init` initialises it, once, and before a listener is created.
    unsafe(uninit) static READY: SpinLock<Option<Ready>> = None;
}

/// The number of channels whose readers are woken at the same time.
const WAKERS: usize = 16;

/// The channels whose readers are to be woken, in order.
struct Ready {
    listeners: List<Listener, READABLE>,
    wakers: KVVec<Arc<Waker>>,
    /// A bit for each waker whose item is neither queued nor running.
    idle: u16,
}

const _: () = assert!(WAKERS == u16::BITS as usize);

impl Ready {
    fn new() -> Result<Self> {
        let mut wakers = KVVec::with_capacity(WAKERS, GFP_KERNEL)?;

        for number in 0..WAKERS {
            wakers.push(Waker::new(number)?, GFP_KERNEL)?;
        }
        Ok(Self {
            listeners: List::new(),
            wakers,
            idle: u16::MAX,
        })
    }

    /// Adds a channel, unless it is in the list. Returns the waker to queue, if one is idle.
    fn add(&mut self, listener: &Arc<Listener>) -> Option<Arc<Waker>> {
        let item = ListArc::try_from_arc_or_drop(listener.clone())?;

        self.listeners.push_back(item);

        let waker = self.wakers.get(self.idle.trailing_zeros() as usize)?;

        self.idle &= !waker.bit();
        Some(waker.clone())
    }

    /// Takes the first channel out. With none, the waker is idle.
    fn next(&mut self, waker: &Waker) -> Option<Arc<Listener>> {
        let next = self.listeners.pop_front();

        if next.is_none() {
            self.idle |= waker.bit();
        }
        next.map(ListArc::into_arc)
    }
}

/// Wakes the readers of channels, one after the other, until none is in the list.
#[pin_data]
struct Waker {
    number: usize,
    #[pin]
    work: Work<Self>,
}

impl Waker {
    fn new(number: usize) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                number,
                work <- new_work!("Waker::work"),
            }),
            GFP_KERNEL,
        )
    }

    fn bit(&self) -> u16 {
        1 << self.number
    }
}

impl_has_work! {
    impl HasWork<Self> for Waker { self.work }
}

impl WorkItem for Waker {
    type Pointer = Arc<Self>;

    fn run(waker: Arc<Self>) {
        let next = || READY.lock().as_mut()?.next(&waker);

        while let Some(listener) = next() {
            listener.readable.notify_all();
            cond_resched();
        }
    }
}

/// The workqueues that serve the readers of all members. Dropped in declaration order: no waker
/// runs when the list is.
pub(crate) struct ReaderQueues {
    _wakeups: ModuleQueueOwner,
    _handlers: ModuleQueueOwner,
    _ready: ReadyOwner,
}

/// Drops the list, which is empty.
struct ReadyOwner;

impl Drop for ReadyOwner {
    fn drop(&mut self) {
        let ready = READY.lock().take();

        drop(ready);
    }
}

/// Allocates the workqueues that serve readers.
///
/// # Safety
///
/// Must be called once, before a listener is created. When the result is dropped, no event channel
/// may be open, and each kernel user must have left.
pub(crate) unsafe fn init() -> Result<ReaderQueues> {
    // SAFETY: By the requirements of this function, this is the one call, and nothing has used
    // `READY`.
    unsafe { READY.init() };
    *READY.lock() = Some(Ready::new()?);

    // Empties it, too, if a workqueue cannot be allocated.
    let ready = ReadyOwner;

    // SAFETY: By the requirements of this function, this is called once. All that queues an item
    // runs with a reference to this module, and the result is dropped when there is none:
    // * A reader that finds records lost has the file open, or is the handler of a kernel user.
    // * Workers of a device, and the thread that closes its domains, are done when the device is
    //   detached: the device has a reference until then.
    // * So is `EventFile::closed`, which may queue an item after the channel was released: the
    //   release does not wait for a thread that destroys the objects of the uverbs file. But
    //   ib_uverbs has destroyed those of all files of a device before that is detached.
    let wakeups = unsafe { WAKEUPS.init(c"ib_xrc_rcv_wakeup") }?;
    // SAFETY: By the requirements of this function, this is called once. The module of a kernel
    // user has a reference to this one until that has left. The item of a kernel user queues itself
    // again with the lock of the reader held, with which the reader is taken away when it leaves.
    // Workers and readers queue it as they queue those of processes.
    let handlers = unsafe { HANDLERS.init(c"ib_xrc_rcv_handlers") }?;

    Ok(ReaderQueues {
        _wakeups: wakeups,
        _handlers: handlers,
        _ready: ready,
    })
}

/// The number of records that a handler is called for before others are served.
const TURN: usize = 16;

/// Handles the events of a kernel user.
pub(crate) trait EventReader: Send + Sync {
    /// Handles the next unread record. Returns whether there was one. May sleep.
    fn handle_next(&self) -> bool;
}

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Listener {
    /// The events that are reported.
    mask: EventMask,
    /// The process that created the channel; `None` for a kernel user.
    process: Option<Process>,
    /// The number of the member in the domain. Set before there is a registration.
    number: Atomic<usize>,
    /// The position in the log up to which all events were read, or are not for this member.
    /// Changed with the lock of the log held.
    cursor: Atomic<u64>,
    /// Events were lost, and the member has not read that. Changed with the lock of the log held.
    has_lost: Atomic<bool>,
    /// The position up to which a member of all QPs has read that events were lost. Changed with
    /// the lock of the log held.
    lost_read: Atomic<u64>,
    /// The device is being removed: the channel is at its end when the QPs of the domain are.
    /// Changed with the lock of the log held.
    is_ending: Atomic<bool>,
    has_ended: Atomic<bool>,
    /// No registration begins any more. Changed with `Domain::order` held.
    is_closed: Atomic<bool>,
    #[pin]
    readable: WaitQueue,
    /// That of a kernel user, until it leaves. Held while it is called.
    #[pin]
    reader: Mutex<Option<KBox<dyn EventReader>>>,
    /// The thread that calls it; 0 if none does.
    caller: Atomic<usize>,
    /// Calls the handler of a kernel user.
    #[pin]
    handling: Work<Self>,
    /// Links the listener into [`Ready`].
    #[pin]
    links: ListLinks<READABLE>,
    #[pin]
    tracker: AtomicTracker<READABLE>,
}

/// The list of [`Ready`].
const READABLE: u64 = 2;

impl_has_work! {
    impl HasWork<Self> for Listener { self.handling }
}

impl_list_arc_safe! {
    impl ListArcSafe<READABLE> for Listener {
        tracked_by tracker: AtomicTracker<READABLE>;
    }
}

impl_list_item! {
    impl ListItem<READABLE> for Listener {
        using ListLinks { self.links };
    }
}

impl Listener {
    /// Creates a listener to the events of a mask that has read the log up to a position, for a
    /// process or a kernel user.
    pub(crate) fn new(
        mask: EventMask,
        position: u64,
        process: Option<Process>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                mask,
                process,
                number: Atomic::new(0),
                cursor: Atomic::new(position),
                has_lost: Atomic::new(false),
                lost_read: Atomic::new(0),
                is_ending: Atomic::new(false),
                has_ended: Atomic::new(false),
                is_closed: Atomic::new(false),
                readable <- new_wait_queue!("Listener::readable"),
                reader <- new_mutex!(None, "Listener::reader"),
                caller: Atomic::new(0),
                handling <- new_work!("Listener::handling"),
                links <- ListLinks::new(),
                tracker <- AtomicTracker::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the events that are reported.
    pub(crate) fn mask(&self) -> EventMask {
        self.mask
    }

    /// Returns the process that created the channel; `None` for a kernel user.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns the number of the member in the domain.
    pub(crate) fn number(&self) -> usize {
        self.number.load(Relaxed)
    }

    /// Sets the number of the member in the domain, before there is a registration.
    pub(crate) fn set_number(&self, number: usize) {
        self.number.store(number, Relaxed);
    }

    /// Returns the holder of a registration for reports.
    pub(crate) fn report(&self) -> notify::HolderReport {
        notify::HolderReport {
            pid: self.process().map_or(0, Process::pid),
            file: FileId::of(self),
            mask: self.mask.as_raw(),
        }
    }

    /// Returns the position in the log. Called with the lock of the log held.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Relaxed)
    }

    /// Passes the events up to a position. Called with the lock of the log held.
    pub(crate) fn advance(&self, position: u64) {
        self.cursor.store(position, Relaxed);
    }

    /// Events of a QP are lost, which the member has not read. Called with the lock of the log
    /// held. The caller has the readers [woken](Self::wake_later) without it.
    pub(crate) fn lose(&self) {
        self.has_lost.store(true, Relaxed);
    }

    /// Whether events of registered QPs were lost, and the member has not read that. Called with
    /// the lock of the log held.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Relaxed)
    }

    /// Whether a member of all QPs has lost the end at a position, and has not read that. Called
    /// with the lock of the log held.
    pub(crate) fn has_lost_end(&self, position: u64) -> bool {
        position > self.cursor().max(self.lost_read.load(Relaxed))
    }

    /// The member has read that events were lost, up to a position. Called with the lock of the log
    /// held.
    pub(crate) fn note_lost_read(&self, position: u64) {
        self.has_lost.store(false, Relaxed);
        self.lost_read.store(position, Relaxed);
    }

    /// Whether the channel is at its end when the QPs of the domain are. Called with the lock of
    /// the log held.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    /// The channel is at its end when the QPs of the domain are. Called with the lock of the log
    /// held.
    pub(crate) fn end_with_qps(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// Whether no event is added any more: all that there are were added before.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Acquire)
    }

    /// Fails with `EIO` if its registrations have ended with the uverbs file or the device, or are
    /// about to.
    pub(crate) fn check_open(&self) -> Result {
        if self.is_closed.load(Relaxed) {
            return Err(EIO);
        }
        Ok(())
    }

    /// Its registrations are about to end. Called with the domain's lock held.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    /// Returns the queue of the tasks that wait for events.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        &self.readable
    }

    /// Whether a task waits for events, or may: epoll does as long as it watches the channel. The
    /// handler of a kernel user does not wait, it is called.
    pub(crate) fn has_waiters(&self) -> bool {
        self.readable.has_waiters()
    }

    /// Sets what handles the events of a kernel user.
    pub(crate) fn set_reader(&self, reader: KBox<dyn EventReader>) {
        *self.reader.lock() = Some(reader);
    }

    /// Takes what handles the events of a kernel user: it is not called any more. Waits while it is
    /// called; `EBUSY` if it makes this call.
    pub(crate) fn take_reader(&self) -> Result<Option<KBox<dyn EventReader>>> {
        if self.caller.load(Relaxed) == current_thread() {
            return Err(EBUSY);
        }
        Ok(self.reader.lock().take())
    }

    /// Has a kernel user handle its next record. Returns whether there was one.
    fn handle_next(&self) -> bool {
        let reader = self.reader.lock();
        let Some(reader) = &*reader else {
            return false;
        };

        self.caller.store(current_thread(), Relaxed);

        let is_handled = reader.handle_next();

        self.caller.store(0, Relaxed);
        is_handled
    }

    /// Has a worker handle the other records of a kernel user, unless that has left: nothing is
    /// queued for it then.
    fn handle_later(self: &Arc<Self>) {
        let reader = self.reader.lock();

        // With the lock: it cannot leave meanwhile.
        if reader.is_some() {
            self.wake_later();
        }
    }

    /// Has a worker wake the processes that read, or call the handler. Called with interrupts
    /// enabled.
    pub(crate) fn wake_later(self: &Arc<Self>) {
        if self.process.is_none() {
            // An item that is queued already has not begun, and serves this event as well.
            drop(HANDLERS.enqueue(self.clone()));
            return;
        }

        // So does the waker of a channel that is in the list already.
        let waker = READY.lock().as_mut().and_then(|ready| ready.add(self));

        if let Some(waker) = waker {
            // It is queued once: it was idle.
            drop(WAKEUPS.enqueue(waker));
        }
    }

    /// Ends the channel: no event is added after this.
    pub(crate) fn end(self: &Arc<Self>) {
        self.has_ended.store(true, Release);
        self.wake_later();
    }
}

impl WorkItem for Listener {
    type Pointer = Arc<Self>;

    fn run(listener: Arc<Self>) {
        for _ in 0..TURN {
            if !listener.handle_next() {
                return;
            }
            cond_resched();
        }
        listener.handle_later();
    }
}
