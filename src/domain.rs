// SPDX-License-Identifier: GPL-2.0

//! An XRC domain with receive QPs.
//!
//! Made with the first receive QP of an open `ib_xrcd`, of which it knows no more than the
//! identity; gone with that domain's last close. Owned by the device's [`Domains`]; registrations
//! hold references.
//!
//! Its lock makes finding a QP and registering with it, and being the last to leave and taking
//! the QP out, one step each. So nobody ever registers with a QP that is about to be destroyed.
//! No verb is called with the lock held, and nothing is allocated.

use crate::{
    attributes::InitialState,
    kernel_ext::workqueue::UnboundQueue,
    limits::{
        self,
        DrainCounter,
        UserQuota, //
    },
    notify,
    rdma::{
        cgroup::Charge,
        pd::ProtectionDomain,
        qp::TargetQp,
        qp_attr::QpAttr,
        udata::UData,
        uverbs::RemoveReason,
        xrcd::{
            Xrcd,
            XrcdId, //
        }, //
    },
    receive_qp::{
        Lifetime,
        QpResources,
        ReceiveQp, //
    },
    subscriber::{
        Holder,
        Subscriber, //
    },
    subscribers::Subscribers,
    ufile::UFileRef, //
};
use core::mem::{
    replace,
    MaybeUninit, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Domain {
    id: u32,
    qp_count: Arc<DrainCounter>,
    /// Helps who closes the domain, so that QPs are destroyed at the same time: each takes a command
    /// or more of the device, and there can be thousands.
    queue: Arc<UnboundQueue>,
    #[pin]
    qps: Mutex<Qps>,
}

/// QPs by their numbers.
struct Qps {
    tree: RBTree<u32, Arc<ReceiveQp>>,
    len: usize,
}

impl Qps {
    fn new() -> Self {
        Self {
            tree: RBTree::new(),
            len: 0,
        }
    }

    fn get(&self, qpn: u32) -> Option<&Arc<ReceiveQp>> {
        self.tree.get(&qpn)
    }

    fn insert(&mut self, node: RBTreeNode<u32, Arc<ReceiveQp>>) {
        // A device does not give the number of a QP that it has to another.
        self.tree.insert(node);
        self.len += 1;
    }

    fn remove(&mut self, qpn: u32) {
        if self.tree.remove(&qpn).is_some() {
            self.len -= 1;
        }
    }
}

/// Somebody's being registered with a QP: what a handle or a kernel user's pointer stands for.
pub(crate) struct Registration {
    domain: Arc<Domain>,
    qp: Arc<ReceiveQp>,
    subscriber: Arc<Subscriber>,
    /// `None` for the kernel.
    ufile: Option<UFileRef>,
}

/// A QP that nobody can find yet. Dropping it undoes all.
pub(crate) struct NewQp {
    registration: KBox<Registration>,
    node: RBTreeNodeReservation<u32, Arc<ReceiveQp>>,
}

/// What a new QP is to be.
pub(crate) struct QpInitAttr<'a> {
    pub(crate) lifetime: Lifetime,
    pub(crate) initial_state: InitialState,
    pub(crate) attributes: QpAttr,
    /// That of the request, if a process makes it.
    pub(crate) udata: Option<UData<'a>>,
}

impl Domain {
    fn new(id: u32, queue: Arc<UnboundQueue>) -> Result<Arc<Self>> {
        let qp_count = DrainCounter::new()?;

        Arc::pin_init(
            pin_init!(Self {
                id,
                qp_count,
                queue,
                qps <- new_mutex!(Qps::new(), "Domain::qps"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The number that the module gave it.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Creates a QP in the domain, takes it as far as is wished, and registers its creator.
    pub(crate) fn create(
        self: &Arc<Self>,
        xrcd: &Xrcd,
        pd: &Arc<ProtectionDomain>,
        mut init_attr: QpInitAttr<'_>,
        subscriber: Arc<Subscriber>,
        ufile: Option<UFileRef>,
    ) -> Result<NewQp> {
        let device = xrcd.device();
        let counted = self.qp_count.add(limits::per_domain())?;
        let user = UserQuota::take()?;
        let charge = Charge::hca_object(device)?;
        let subscribers = Subscribers::new(device.into(), self.id)?;
        let qp = ReceiveQp::new(
            QpResources {
                // SAFETY: `qp_count` counts the QP from above until after it is destroyed, and
                // `close`, which `ClientOperations::domain_closed` calls, waits until there is none.
                qp: unsafe { TargetQp::new(pd.clone(), xrcd, subscribers.clone(), crate::NAME) }?,
                _charge: charge,
                _user: user,
                _counted: counted,
            },
            init_attr.lifetime,
            subscribers,
        )?;

        // The first event can come as soon as the QP can receive.
        qp.subscribers().reserve()?.take(subscriber.clone())?;
        qp.set_up(
            init_attr.initial_state,
            &mut init_attr.attributes,
            init_attr.udata.as_ref(),
        )?;

        Ok(NewQp {
            registration: KBox::new(
                Registration {
                    domain: self.clone(),
                    qp,
                    subscriber,
                    ufile,
                },
                GFP_KERNEL_ACCOUNT,
            )?,
            node: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Finds a QP of the domain.
    pub(crate) fn find(&self, qpn: u32) -> Result<Arc<ReceiveQp>> {
        self.qps.lock().get(qpn).cloned().ok_or(EINVAL)
    }

    /// Registers with a QP that was found in the domain. `EINVAL` if it is not there any more.
    pub(crate) fn register(
        self: &Arc<Self>,
        qp: &Arc<ReceiveQp>,
        subscriber: Arc<Subscriber>,
        ufile: Option<UFileRef>,
    ) -> Result<KBox<Registration>> {
        let room: KBox<MaybeUninit<Registration>> = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let place = qp.subscribers().reserve()?;
        let qps = self.qps.lock();
        let qp = qps
            .get(qp.qpn())
            .filter(|found| Arc::ptr_eq(found, qp))
            .cloned()
            .ok_or(EINVAL)?;

        if let Holder::File(file, _) = subscriber.holder() {
            if qp.subscribers().has(*file) {
                return Err(EEXIST);
            }
        }
        place.take(subscriber.clone())?;
        notify::registered(qp.report(), subscriber.pid());
        drop(qps);

        Ok(KBox::write(
            room,
            Registration {
                domain: self.clone(),
                qp,
                subscriber,
                ufile,
            },
        ))
    }

    /// Destroys a QP of lifetime [`Lifetime::Domain`]. `EBUSY` if a registration is not `own`.
    pub(crate) fn destroy(&self, qpn: u32, own: impl Fn(&Subscriber) -> bool) -> Result {
        let mut qps = self.qps.lock();
        let qp = qps.get(qpn).cloned().ok_or(EINVAL)?;

        if qp.lifetime() != Lifetime::Domain {
            return Err(EINVAL);
        }
        if qp.subscribers().any(|subscriber| !own(subscriber)) {
            return Err(EBUSY);
        }
        qps.remove(qpn);
        notify::destroyed(qp.report());
        drop(qps);
        qp.destroy();
        Ok(())
    }

    /// How many QPs it has.
    pub(crate) fn len(&self) -> usize {
        self.qps.lock().len
    }

    /// Up to `max` QPs with numbers greater than `after`, in their order, and how many there are
    /// in all.
    pub(crate) fn list(
        &self,
        after: Option<u32>,
        max: usize,
    ) -> Result<(KVVec<Arc<ReceiveQp>>, usize)> {
        loop {
            let wanted = max.min(self.len());
            let mut list = KVVec::with_capacity(wanted, GFP_KERNEL)?;
            let mut qps = self.qps.lock();
            let total = qps.len;

            // More QPs appeared meanwhile than there is room for.
            if max.min(total) > list.capacity() {
                continue;
            }

            let first = match after {
                Some(after) => after.checked_add(1),
                None => Some(0),
            };
            let mut next = first
                .filter(|_| max != 0)
                .and_then(|first| qps.tree.cursor_lower_bound_mut(&first));

            while let Some(cursor) = next {
                let (_, qp) = cursor.current();

                list.push_within_capacity(qp.clone())?;
                next = if list.len() == max {
                    None
                } else {
                    cursor.move_next()
                };
            }
            return Ok((list, total));
        }
    }

    /// Destroys all its QPs, with the help of the workqueue. Nobody can be creating one.
    fn close(&self) {
        let mut qps = replace(&mut *self.qps.lock(), Qps::new()).tree;

        for qp in qps.values() {
            notify::destroyed(qp.report());
            qp.clone().help_to_destroy(&self.queue);
        }
        // The workqueue begins at the other end.
        while let Some(cursor) = qps.cursor_back_mut() {
            let (_, node) = cursor.remove_current();

            node.to_key_value().1.destroy();
        }
        // Also for those that their last holder is destroying: the domain must not go before its
        // QPs.
        self.qp_count.wait_until_none();
    }
}

impl NewQp {
    /// The QP number.
    pub(crate) fn qpn(&self) -> u32 {
        self.registration.qp.qpn()
    }

    /// Lets the QP be found. Cannot fail.
    pub(crate) fn publish(self) -> KBox<Registration> {
        let Registration {
            domain,
            qp,
            subscriber,
            ..
        } = &*self.registration;
        let node = self.node.into_node(qp.qpn(), qp.clone());
        let mut qps = domain.qps.lock();

        qps.insert(node);
        notify::allocated(qp.report());
        notify::registered(qp.report(), subscriber.pid());
        drop(qps);
        self.registration
    }
}

impl Registration {
    /// The QP number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// The registration.
    pub(crate) fn subscriber(&self) -> &Arc<Subscriber> {
        &self.subscriber
    }

    /// Gives the registration up. The last one out destroys the QP, if that is its lifetime.
    ///
    /// When a file goes with all that it has, the end of its last registration destroys all QPs.
    pub(crate) fn leave(self: KBox<Self>, why: RemoveReason) {
        let Self {
            domain,
            qp,
            subscriber,
            ufile,
        } = KBox::into_inner(self);
        let qpn = qp.qpn();
        let last = {
            let mut qps = domain.qps.lock();
            let subscribers = qp.subscribers();

            subscribers.remove(&subscriber);
            notify::unregistered(qp.report(), subscriber.pid());

            let in_domain = qps.get(qpn).is_some_and(|found| Arc::ptr_eq(found, &qp));
            let unneeded =
                qp.lifetime() == Lifetime::Registrations && subscribers.is_empty() && in_domain;

            if unneeded {
                qps.remove(qpn);
                notify::destroyed(qp.report());
            }
            unneeded
        };

        subscriber.end(qpn, why);
        match ufile {
            Some(ufile) if why != RemoveReason::Destroyed => {
                ufile.release(last.then_some(&qp), &domain.queue);
            }
            _ if last => qp.destroy(),
            _ => (),
        }
    }
}

/// The domains of a device that have or had receive QPs.
///
/// Its lock is held for no longer than to look one up.
#[pin_data]
pub(crate) struct Domains {
    queue: Arc<UnboundQueue>,
    last_id: Atomic<u32>,
    #[pin]
    table: Mutex<RBTree<XrcdId, Arc<Domain>>>,
}

impl Domains {
    /// None.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queue = Arc::new(UnboundQueue::new(crate::NAME)?, GFP_KERNEL)?;

        Arc::pin_init(
            pin_init!(Self {
                queue,
                last_id: Atomic::new(0),
                table <- new_mutex!(RBTree::new(), "Domains::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// The domain of an open XRCD, if it has or had QPs.
    pub(crate) fn get(&self, xrcd: &Xrcd) -> Option<Arc<Domain>> {
        self.table.lock().get(&xrcd.id()).cloned()
    }

    /// The domain of an open XRCD.
    pub(crate) fn get_or_new(&self, xrcd: &Xrcd) -> Result<Arc<Domain>> {
        if let Some(domain) = self.get(xrcd) {
            return Ok(domain);
        }

        // Of two who make it at once, the second drops its own, and a number.
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let id = self.last_id.fetch_add(1, Relaxed).wrapping_add(1);
        let domain = Domain::new(id, self.queue.clone())?;
        let mut table = self.table.lock();

        if let Some(domain) = table.get(&xrcd.id()) {
            return Ok(domain.clone());
        }
        table.insert(room.into_node(xrcd.id(), domain.clone()));
        drop(table);
        Ok(domain)
    }

    /// All domains, by their numbers.
    pub(crate) fn list(&self) -> Result<RBTree<u32, Arc<Domain>>> {
        let mut list: KVVec<Arc<Domain>> = KVVec::new();

        loop {
            let wanted = {
                let table = self.table.lock();
                let wanted = table.iter().count();

                // More domains appeared meanwhile than there is room for.
                if wanted <= list.capacity() {
                    for domain in table.values() {
                        list.push_within_capacity(domain.clone())?;
                    }
                    break;
                }
                wanted
            };

            list.reserve(wanted, GFP_KERNEL)?;
        }

        let mut sorted = RBTree::new();

        for domain in list {
            sorted.try_create_and_insert(domain.id, domain, GFP_KERNEL)?;
        }
        Ok(sorted)
    }

    /// The device goes: so do all QPs.
    pub(crate) fn close_all(&self) {
        let mut domains = replace(&mut *self.table.lock(), RBTree::new());

        while let Some(cursor) = domains.cursor_front_mut() {
            let (_, node) = cursor.remove_current();
            let (_, domain) = node.to_key_value();

            domain.close();
        }
    }

    /// The XRCD is closed for the last time: its QPs go.
    pub(crate) fn close(&self, xrcd: &Xrcd) {
        let domain = self.table.lock().remove(&xrcd.id());

        if let Some(domain) = domain {
            domain.close();
        }
    }
}
