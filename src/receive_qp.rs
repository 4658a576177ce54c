// SPDX-License-Identifier: GPL-2.0

//! A receive QP: an XRC target QP that belongs to no process.
//!
//! Member of one domain from when it can be found until it is destroyed. The domain's table holds
//! a reference, and so does each registration; the verbs object goes when the QP is destroyed,
//! whoever still has references. Verbs are called one at a time: providers serialise what they do to
//! a QP, and ib_core does not serialise all that it does itself. Whoever waits for its turn can be
//! killed, and no address is resolved in it. Event handlers do not wait for it.
//!
//! Destroying it is the last turn. Of several callers of [`ReceiveQp::destroy`], the first destroys
//! the QP, and the others return when it is destroyed.

use crate::{
    attributes::{
        modification,
        port_rule,
        InitialState,
        Port, //
    },
    kernel_ext::{
        killable_mutex::{
            lock_killable,
            new_killable_mutex,
            KillableMutex, //
        },
        workqueue::UnboundQueue, //
    },
    limits::{
        DrainGuard,
        UserQuota, //
    },
    notify,
    rdma::{
        cgroup::Charge,
        qp::TargetQp,
        qp_attr::{
            QpAttr,
            QpState,
            UserQpAttr, //
        },
        security::{
            self,
            Label, //
        },
        udata::UData, //
    },
    subscribers::Subscribers,
    uapi, //
};
use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        AtomicTracker,
        ListLinks,
        TryNewListArc, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// What keeps a receive QP alive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Its registrations: it goes with the last one.
    Registrations,
    /// Its domain.
    Domain,
}

impl Lifetime {
    /// As processes know it.
    pub(crate) fn as_raw(self) -> u32 {
        match self {
            Self::Registrations => uapi::XRC_RCV_LIFETIME_REGISTRATIONS,
            Self::Domain => uapi::XRC_RCV_LIFETIME_DOMAIN,
        }
    }

    /// As it is shown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Registrations => "registrations",
            Self::Domain => "domain",
        }
    }
}

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct ReceiveQp {
    qpn: u32,
    lifetime: Lifetime,
    subscribers: Arc<Subscribers>,
    /// It is about to be destroyed: whose turn comes now calls no verb any more.
    is_going: Atomic<bool>,
    /// `None` once it is destroyed.
    #[pin]
    verbs: KillableMutex<Option<QpResources>>,
    #[pin]
    destruction: Work<Self>,
    /// In the list of the file that is closed.
    #[pin]
    links: ListLinks,
    #[pin]
    tracker: AtomicTracker,
}

/// What there is as long as the QP exists. Goes in this order: what was charged for the QP is
/// given back after the QP.
pub(crate) struct QpResources {
    pub(crate) qp: TargetQp<Subscribers>,
    pub(crate) _charge: Charge,
    pub(crate) _user: UserQuota,
    pub(crate) _counted: DrainGuard,
}

impl_has_work! {
    impl HasWork<Self> for ReceiveQp { self.destruction }
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for ReceiveQp {
        tracked_by tracker: AtomicTracker;
    }
}

impl_list_item! {
    impl ListItem<0> for ReceiveQp {
        using ListLinks { self.links };
    }
}

impl ReceiveQp {
    /// Wraps a QP in RESET.
    pub(crate) fn new(
        verbs: QpResources,
        lifetime: Lifetime,
        subscribers: Arc<Subscribers>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qpn: verbs.qp.qpn(),
                lifetime,
                subscribers,
                is_going: Atomic::new(false),
                verbs <- new_killable_mutex!(Some(verbs), "ReceiveQp::verbs"),
                destruction <- new_work!("ReceiveQp::destruction"),
                links <- ListLinks::new(),
                tracker <- AtomicTracker::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The QP number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// What keeps it alive.
    pub(crate) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// Who is registered.
    pub(crate) fn subscribers(&self) -> &Arc<Subscribers> {
        &self.subscribers
    }

    /// The QP as it is reported now.
    pub(crate) fn report(&self) -> notify::Qp<'_> {
        notify::Qp {
            device: self.subscribers.device(),
            domain: self.subscribers.domain(),
            qpn: self.qpn,
            registrations: self.subscribers.len() as u32,
        }
    }

    /// Takes a new QP as far as its creator wants it.
    pub(crate) fn set_up(
        &self,
        initial_state: InitialState,
        attributes: &mut QpAttr,
        udata: Option<&UData<'_>>,
    ) -> Result {
        let same_port = attributes.path_port() == attributes.port();
        let mut modify = |state, mask| {
            let attributes = attributes.towards(state, mask);

            self.with_qp(|qp| self.modify_and_note(qp, attributes, udata))?
                .ok_or(EINVAL)
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

    /// Modifies it on behalf of a process.
    pub(crate) fn modify(&self, user: &UserQpAttr, udata: &UData<'_>) -> Result {
        let mask = modification(user.mask()?);
        let state = user.state(mask)?;
        let mut attributes = user.resolve(self.subscribers.device(), mask)?;
        let path_port = attributes.path_port();

        self.with_qp(|qp| {
            match port_rule(mask, state) {
                Port::MustBeOwn if path_port != qp.port() => return Err(EINVAL),
                Port::MustMatch if path_port != attributes.port() => return Err(EINVAL),
                Port::FromPath => attributes.set_port(path_port),
                Port::AsGiven | Port::MustBeOwn | Port::MustMatch => (),
            }
            self.modify_and_note(qp, &mut attributes, Some(udata))
        })?
        .ok_or(EINVAL)
    }

    /// Lets the calling process register, if it may use the partitions that the QP uses now.
    pub(crate) fn admit_caller(&self) -> Result {
        if !security::ENFORCED {
            return Ok(());
        }

        let label = Label::of_caller()?;

        self.with_qp(|qp| qp.admits(&label))?.ok_or(EINVAL)
    }

    /// Modifies it on behalf of the kernel.
    pub(crate) fn modify_from_kernel(&self, attributes: &mut QpAttr) -> Result {
        self.with_qp(|qp| self.modify_and_note(qp, attributes, None))?
            .ok_or(EINVAL)
    }

    /// All its attributes; none if it is destroyed.
    pub(crate) fn query(&self) -> Result<Option<QpAttr>> {
        self.with_qp(|qp| {
            let attributes = qp.query()?;

            self.subscribers.note(&attributes);
            Ok(attributes)
        })
    }

    /// Calls verbs when it is the caller's turn; `None` if the QP is or will be destroyed.
    fn with_qp<R>(
        &self,
        call: impl FnOnce(&mut TargetQp<Subscribers>) -> Result<R>,
    ) -> Result<Option<R>> {
        let mut verbs = lock_killable(&self.verbs)?;

        match &mut *verbs {
            Some(verbs) if !self.is_going.load(Acquire) => call(&mut verbs.qp).map(Some),
            _ => Ok(None),
        }
    }

    fn modify_and_note(
        &self,
        qp: &mut TargetQp<Subscribers>,
        attributes: &mut QpAttr,
        udata: Option<&UData<'_>>,
    ) -> Result {
        qp.modify(attributes, udata)?;
        self.subscribers.note(attributes);
        Ok(())
    }

    /// Destroys it, and tells those who are registered still. It must not be in its domain any
    /// more. When this returns, it is destroyed, no matter by whom.
    ///
    /// Of those who are about to call a verb, this waits for the one whose turn it is.
    pub(crate) fn destroy(&self) {
        self.is_going.store(true, Release);

        let mut turn = self.verbs.lock();

        if let Some(verbs) = turn.take() {
            let QpResources { qp, .. } = verbs;

            drop(qp);
            self.subscribers.gone(self.qpn);
        }
    }

    /// Has the workqueue destroy it, if the caller does not come to it first. It must not be in
    /// its domain any more.
    pub(crate) fn help_to_destroy(self: Arc<Self>, queue: &UnboundQueue) {
        self.is_going.store(true, Release);
        // It is taken out of its domain once, so it is queued once.
        let _ = queue.enqueue(self);
    }
}

impl WorkItem for ReceiveQp {
    type Pointer = Arc<Self>;

    fn run(qp: Arc<Self>) {
        qp.destroy();
    }
}
