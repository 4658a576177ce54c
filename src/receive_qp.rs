// SPDX-License-Identifier: GPL-2.0

//! A receive QP: an XRC target QP that belongs to no process.
//!
//! It belongs to one domain, where it can be looked up until it is destroyed. The domain holds a
//! reference, and so does each registration; the `ib_qp` is destroyed with the QP, even if there
//! are still references.
//!
//! Verbs are called with the QP's semaphore held for reading, so that it is not destroyed
//! meanwhile. Queries exclude nothing. Modifications take turns before that: providers serialise
//! their own access to a QP, but ib_core does not serialise all of its access. A thread that waits
//! can be killed. Nothing is held while addresses are resolved, and event handlers take neither. Of
//! several callers of [`ReceiveQp::destroy`], the first destroys the QP, and the others return when
//! it is destroyed.
//!
//! A thread that has to destroy many QPs adds them to the [`EndingQps`] of the device, from where
//! workers take the first and the thread its own, the last first.

use crate::{
    attributes::{
        modification,
        port_rule,
        InitialState,
        Port, //
    },
    kernel_ext::{
        cond_resched,
        mutex::lock_killable,
        rwsem::{
            new_rwsem,
            RwSemaphore, //
        },
        tree::{
            impl_tree_item,
            Linked,
            Links, //
        }, //
    },
    limits::{
        DrainGuard,
        UserQuota, //
    },
    qp_status::QpStatus,
    rdma::{
        cgroup::Charge,
        qp::{
            Modifier,
            TargetQp, //
        },
        qp_attr::{
            QpAttr,
            QpState,
            UserQpAttr, //
        },
        security::SecurityLabel,
        udata::UData, //
    },
    registrations::Registrations,
    workers::Workers, //
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
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct ReceiveQp {
    qpn: u32,
    registrations: Arc<Registrations>,
    ending: Arc<EndingQps>,
    /// The QP is about to be destroyed: no further verb is called.
    is_dying: Atomic<bool>,
    /// Modifications take turns.
    #[pin]
    modifier: Mutex<Modifier>,
    /// `None` after the QP was destroyed.
    #[pin]
    verbs: RwSemaphore<Option<QpResources>>,
    /// Destroys QPs of [`EndingQps`], of which this was one.
    #[pin]
    destruction: Work<Self>,
    number_links: Links<IN_DOMAIN>,
    numbered: Linked<IN_DOMAIN>,
    /// Links the QP into a list of [`UnneededQps`].
    #[pin]
    links: ListLinks<UNNEEDED>,
    #[pin]
    tracker: AtomicTracker<UNNEEDED>,
    /// Links the QP into [`EndingQps`].
    #[pin]
    ending_links: ListLinks<ENDING>,
    #[pin]
    ending_tracker: AtomicTracker<ENDING>,
}

/// The trees of QPs by number, of their domains.
pub(crate) const IN_DOMAIN: u64 = 0;

/// The lists of [`UnneededQps`].
pub(crate) const UNNEEDED: u64 = 0;

/// The lists of [`EndingQps`].
pub(crate) const ENDING: u64 = 1;

/// Resources held while the QP exists. Dropped in declaration order: charges are released after the
/// QP is destroyed, and the quota before the charge to the cgroup that it may be that of.
pub(crate) struct QpResources {
    pub(crate) qp: TargetQp<Registrations>,
    pub(crate) _user: UserQuota,
    pub(crate) _charge: Charge,
    pub(crate) _counted: DrainGuard,
}

impl_has_work! {
    impl HasWork<Self> for ReceiveQp { self.destruction }
}

impl_tree_item! {
    impl TreeItem<{ IN_DOMAIN }> for ReceiveQp {
        links: number_links,
        linked: numbered,
        key: |qp| -> u32 { qp.qpn }
    }
}

impl_list_arc_safe! {
    impl ListArcSafe<UNNEEDED> for ReceiveQp {
        tracked_by tracker: AtomicTracker<UNNEEDED>;
    }
}

impl_list_arc_safe! {
    impl ListArcSafe<ENDING> for ReceiveQp {
        tracked_by ending_tracker: AtomicTracker<ENDING>;
    }
}

impl_list_item! {
    impl ListItem<UNNEEDED> for ReceiveQp {
        using ListLinks { self.links };
    }
}

impl_list_item! {
    impl ListItem<ENDING> for ReceiveQp {
        using ListLinks { self.ending_links };
    }
}

impl ReceiveQp {
    /// Wraps a QP in RESET and its modifier.
    pub(crate) fn new(
        verbs: QpResources,
        modifier: Modifier,
        registrations: Arc<Registrations>,
        ending: Arc<EndingQps>,
    ) -> Result<Arc<Self>> {
        let qpn = verbs.qp.qpn();

        registrations.status().set_qpn(qpn);
        Arc::pin_init(
            pin_init!(Self {
                qpn,
                registrations,
                ending,
                is_dying: Atomic::new(false),
                modifier <- new_mutex!(modifier, "ReceiveQp::modifier"),
                verbs <- new_rwsem!(Some(verbs), "ReceiveQp::verbs"),
                destruction <- new_work!("ReceiveQp::destruction"),
                number_links: Links::new(),
                numbered: Linked::new(),
                links <- ListLinks::new(),
                tracker <- AtomicTracker::new(),
                ending_links <- ListLinks::new(),
                ending_tracker <- AtomicTracker::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the QP number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Returns the registrations.
    pub(crate) fn registrations(&self) -> &Arc<Registrations> {
        &self.registrations
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> &QpStatus {
        self.registrations.status()
    }

    /// Modifies a new QP to its initial state.
    pub(crate) fn set_up(
        &self,
        initial_state: InitialState,
        attributes: &mut QpAttr,
        udata: Option<&UData<'_>>,
    ) -> Result {
        let same_port = attributes.path_port() == attributes.port();
        let mut modify = |state, mask| {
            let attributes = attributes.towards(state, mask);

            self.modify_qp(|qp, modifier| {
                self.status()
                    .known()
                    .note_modify(attributes, |attr| qp.modify(modifier, attr, udata))
            })
        };

        match initial_state {
            InitialState::Reset => Ok(()),
            InitialState::Init(init) => modify(QpState::Init, init),
            InitialState::Rtr(..) if !same_port => Err(EINVAL),
            InitialState::Rtr(init, rtr) => {
                modify(QpState::Init, init)?;
                modify(QpState::Rtr, rtr)
            }
        }
    }

    /// Modifies the QP on behalf of a process.
    pub(crate) fn modify(&self, user: &UserQpAttr, udata: &UData<'_>) -> Result {
        let mask = modification(user.mask()?);
        let state = user.state(mask)?;
        let mut attributes = user.resolve(self.status().device(), mask)?;
        let path_port = attributes.path_port();

        self.modify_qp(|qp, modifier| {
            match port_rule(mask, state) {
                Port::MustBeOwn if path_port != qp.port() => return Err(EINVAL),
                Port::MustMatch if path_port != attributes.port() => return Err(EINVAL),
                Port::FromPath => attributes.set_port(path_port),
                Port::AsGiven | Port::MustBeOwn | Port::MustMatch => (),
            }
            self.status().known().note_modify(&mut attributes, |attr| {
                qp.modify(modifier, attr, Some(udata))
            })
        })
    }

    /// Checks that the calling process may use the partitions that the QP uses now.
    pub(crate) fn admit_caller(&self) -> Result {
        let caller = SecurityLabel::of_caller()?;

        self.with_qp(|qp| qp.admits(&caller))?.ok_or(EINVAL)
    }

    /// Modifies the QP on behalf of a kernel user.
    pub(crate) fn modify_from_kernel(&self, attributes: &mut QpAttr) -> Result {
        self.modify_qp(|qp, modifier| {
            self.status()
                .known()
                .note_modify(attributes, |attr| qp.modify(modifier, attr, None))
        })
    }

    /// Returns all attributes, or `None` if the QP was destroyed.
    pub(crate) fn query(&self) -> Result<Option<QpAttr>> {
        self.with_qp(|qp| self.status().known().note_query(|| qp.query()))
    }

    /// Calls verbs of the QP. Returns `None` if it was or is about to be destroyed.
    fn with_qp<R>(
        &self,
        call: impl FnOnce(&TargetQp<Registrations>) -> Result<R>,
    ) -> Result<Option<R>> {
        let verbs = self.verbs.read_killable()?;

        match &*verbs {
            Some(verbs) if !self.is_dying.load(Acquire) => call(&verbs.qp).map(Some),
            _ => Ok(None),
        }
    }

    /// Calls a verb that modifies the QP, in turn. `EINVAL` if it was or is about to be destroyed.
    fn modify_qp(
        &self,
        call: impl FnOnce(&TargetQp<Registrations>, &mut Modifier) -> Result,
    ) -> Result {
        // The turn comes first: threads that wait for theirs hold no semaphore, and the QP is
        // destroyed without them. With the semaphore held, ten processes that modify a QP, on a
        // device that takes seconds for it, would keep the one that closes the domain waiting until
        // the last of them has had its turn.
        let mut modifier = lock_killable(&self.modifier)?;

        self.with_qp(|qp| call(qp, &mut modifier))?.ok_or(EINVAL)
    }

    /// Destroys the QP, and has `QP_GONE` delivered to the remaining registrations. The QP must
    /// have been removed from its domain. It is destroyed on return, by this or by another caller.
    ///
    /// Waits for verbs in progress, and for no thread that waits to call one.
    pub(crate) fn destroy(&self) {
        self.is_dying.store(true, Release);

        let mut verbs = self.verbs.write();

        if let Some(verbs) = verbs.take() {
            // The domain is not closed before the rest is dropped: QP_GONE is queued by then.
            let QpResources { qp, .. } = verbs;

            drop(qp);
            self.registrations.as_arc_borrow().gone();
        }
    }

    /// Has workers destroy the QP, unless the caller [takes it back](Self::take_back) first. The QP
    /// must have been removed from its domain, which is done once.
    pub(crate) fn help_to_destroy(self: Arc<Self>) {
        self.is_dying.store(true, Release);
        self.ending.clone().add(self);
    }

    /// Destroys a QP that workers may be asked to destroy. It is destroyed on return.
    pub(crate) fn take_back(&self) {
        // SAFETY: The QP is in no list of this kind but that of its `ending`: only
        // `help_to_destroy` adds it to one, to that.
        let taken = unsafe { self.ending.list.lock().qps.remove(self) };

        drop(taken);
        self.destroy();
    }
}

/// The QPs of a device that are to be destroyed, in the order in which they were added, by threads
/// that destroy many.
///
/// A few work items take from the list, instead of one for each QP: destroying a QP takes one or
/// more commands of the device, which executes some at a time. They only help: who waits for a QP
/// takes it back, unless a worker has begun with it.
#[pin_data]
pub(crate) struct EndingQps {
    workers: Arc<Workers>,
    #[pin]
    list: SpinLock<EndingList>,
}

struct EndingList {
    qps: List<ReceiveQp, ENDING>,
    /// The number of work items that are queued, or take QPs from the list.
    helpers: usize,
}

/// The number of QPs that workers destroy at the same time. Devices execute a limited number of
/// commands at a time: mlx4 10 to 16, mlx5 32.
const HELPERS: usize = 16;

impl EndingQps {
    /// Creates an empty list, and allocates the workqueues of the device.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let workers = Arc::new(Workers::new()?, GFP_KERNEL)?;

        Arc::pin_init(
            pin_init!(Self {
                workers,
                list <- new_spinlock!(
                    EndingList {
                        qps: List::new(),
                        helpers: 0,
                    },
                    "EndingQps::list"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the workqueues of the device.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Adds a QP, whose work item becomes another helper unless there are enough.
    fn add(&self, qp: Arc<ReceiveQp>) {
        // It is added once, so it is in no list, and its work item is not queued.
        let Some(item) = ListArc::try_from_arc_or_drop(qp.clone()) else {
            return;
        };
        let mut list = self.list.lock();
        let helps = list.helpers < HELPERS;

        list.qps.push_back(item);
        if helps {
            list.helpers += 1;
        }
        drop(list);
        if helps {
            let _ = self.workers.destruction.enqueue(qp);
        }
    }

    /// Takes the first QP out. `None` if there is none: the caller helps no more.
    fn next(&self) -> Option<ListArc<ReceiveQp, ENDING>> {
        let mut list = self.list.lock();
        let next = list.qps.pop_front();

        if next.is_none() {
            list.helpers -= 1;
        }
        next
    }
}

/// QPs that were removed from their domain, for one thread to destroy, together with workers if
/// they are several: thousands are not destroyed one after the other.
pub(crate) struct UnneededQps {
    last: Option<Arc<ReceiveQp>>,
    shared: List<ReceiveQp, UNNEEDED>,
}

impl UnneededQps {
    /// Creates an empty list.
    pub(crate) fn new() -> Self {
        Self {
            last: None,
            shared: List::new(),
        }
    }

    /// Adds a QP, if there is one. Workers destroy the one before: the last close of its domain
    /// waits for that, and must not wait until the caller, which may not run, has added all.
    pub(crate) fn add(&mut self, qp: Option<Arc<ReceiveQp>>) {
        let Some(before) = qp.and_then(|qp| self.last.replace(qp)) else {
            return;
        };

        before.clone().help_to_destroy();
        // It is removed from its domain once, so it is in no list.
        if let Some(before) = ListArc::try_from_arc_or_drop(before) {
            self.shared.push_back(before);
        }
    }

    /// Destroys the QPs. All are destroyed on return.
    pub(crate) fn destroy(mut self) {
        if let Some(qp) = self.last {
            qp.destroy();
        }
        // Workers begin with the first.
        while let Some(qp) = self.shared.pop_back() {
            qp.take_back();
        }
    }
}

impl WorkItem for ReceiveQp {
    type Pointer = Arc<Self>;

    fn run(helper: Arc<Self>) {
        while let Some(qp) = helper.ending.next() {
            qp.destroy();
            cond_resched();
        }
    }
}
