// SPDX-License-Identifier: GPL-2.0

//! A receive QP: an XRC target QP that belongs to no process.
//!
//! Member of one domain from when it can be found until it is destroyed. The domain's table holds
//! a reference, and so does each membership; the verbs object goes when the QP is destroyed,
//! whoever still has references. Its lock is taken by whoever calls verbs on it, one at a time;
//! event handlers do not take it.

use crate::{
    attributes::{
        modification,
        port_rule,
        Creation,
        Port, //
    },
    fan_out::FanOut,
    limits::{
        Inhabitant,
        UserShare, //
    },
    rdma::{
        cgroup::Charge,
        qp::TargetQp,
        qp_attributes::{
            Attributes,
            State,
            UserAttributes, //
        },
        security::{
            self,
            Label, //
        },
        uverbs::call::UserRequest,
        workqueue::UnboundQueue, //
    },
    uapi, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
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
    pub(crate) fn number(self) -> u32 {
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
    number: u32,
    lifetime: Lifetime,
    fan_out: Arc<FanOut>,
    /// `None` once it is destroyed.
    #[pin]
    verbs: Mutex<Option<Verbs>>,
    #[pin]
    destruction: Work<Self>,
}

/// What there is as long as the QP exists. Goes in this order: what was charged for the QP is
/// given back after the QP.
pub(crate) struct Verbs {
    pub(crate) qp: TargetQp<FanOut>,
    pub(crate) _charge: Charge,
    pub(crate) _user: UserShare,
    pub(crate) _inhabitant: Inhabitant,
    /// Who waits for the QP to be destroyed, but not for it alone.
    pub(crate) departing: Option<Inhabitant>,
}

/// The QP, or `EINVAL` if it is destroyed.
fn existing(verbs: &mut Option<Verbs>) -> Result<&mut TargetQp<FanOut>> {
    verbs.as_mut().map(|verbs| &mut verbs.qp).ok_or(EINVAL)
}

impl_has_work! {
    impl HasWork<Self> for ReceiveQp { self.destruction }
}

impl ReceiveQp {
    /// Wraps a QP in RESET.
    pub(crate) fn new(verbs: Verbs, lifetime: Lifetime, fan_out: Arc<FanOut>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                number: verbs.qp.number(),
                lifetime,
                fan_out,
                verbs <- new_mutex!(Some(verbs), "ReceiveQp::verbs"),
                destruction <- new_work!("ReceiveQp::destruction"),
            }),
            GFP_KERNEL,
        )
    }

    /// The QP number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What keeps it alive.
    pub(crate) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// Who is registered.
    pub(crate) fn fan_out(&self) -> &Arc<FanOut> {
        &self.fan_out
    }

    /// Takes a new QP as far as its creator wants it.
    pub(crate) fn set_up(
        &self,
        creation: Creation,
        attributes: &mut Attributes,
        request: Option<&UserRequest<'_>>,
    ) -> Result {
        let mut verbs = self.verbs.lock();
        let qp = existing(&mut verbs)?;

        match creation {
            Creation::Reset => Ok(()),
            Creation::Init(init) => qp.modify(attributes.towards(State::Init, init), request),
            Creation::ReadyToReceive(init, rtr) => {
                if attributes.path_port() != attributes.port() {
                    return Err(EINVAL);
                }
                qp.modify(attributes.towards(State::Init, init), request)?;
                qp.modify(attributes.towards(State::ReadyToReceive, rtr), request)
            }
        }
    }

    /// Modifies it on behalf of a process.
    pub(crate) fn modify(&self, user: &UserAttributes, request: &UserRequest<'_>) -> Result {
        let mask = modification(user.mask()?);
        let state = user.state(mask)?;
        let mut attributes = user.resolve(self.fan_out.device(), mask)?;
        let mut verbs = self.verbs.lock();
        let qp = existing(&mut verbs)?;
        let path_port = attributes.path_port();

        match port_rule(mask, state) {
            Port::MustBeOwn if path_port != qp.port() => return Err(EINVAL),
            Port::MustMatch if path_port != attributes.port() => return Err(EINVAL),
            Port::FromPath => attributes.set_port(path_port),
            Port::AsGiven | Port::MustBeOwn | Port::MustMatch => (),
        }
        qp.modify(&mut attributes, Some(request))
    }

    /// Lets the calling process register, if it may use the partitions that the QP uses now.
    pub(crate) fn admit_caller(&self) -> Result {
        if !security::ENFORCED {
            return Ok(());
        }

        let label = Label::of_caller()?;
        let mut verbs = self.verbs.lock();

        existing(&mut verbs)?.admits(&label)
    }

    /// Modifies it on behalf of the kernel.
    pub(crate) fn modify_from_kernel(&self, attributes: &mut Attributes) -> Result {
        let mut verbs = self.verbs.lock();

        existing(&mut verbs)?.modify(attributes, None)
    }

    /// All its attributes.
    pub(crate) fn query(&self) -> Result<Attributes> {
        let mut verbs = self.verbs.lock();

        existing(&mut verbs)?.query()
    }

    /// Destroys it, and tells those who are registered still. It must not be in its domain any
    /// more.
    pub(crate) fn destroy(&self) {
        let verbs = self.verbs.lock().take();

        if let Some(verbs) = verbs {
            let Verbs { qp, .. } = verbs;

            drop(qp);
            self.fan_out.gone(self.number);
        }
    }
}

impl ReceiveQp {
    /// Has the workqueue destroy it. It must not be in its domain any more.
    pub(crate) fn destroy_later(
        self: Arc<Self>,
        queue: &UnboundQueue,
        departing: Option<Inhabitant>,
    ) {
        if let Some(verbs) = &mut *self.verbs.lock() {
            verbs.departing = departing;
        }
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
