// SPDX-License-Identifier: GPL-2.0

//! An XRC domain with receive QPs.
//!
//! Created with the first member or receive QP of an open `ib_xrcd`, which identifies it, and
//! closed when the `ib_xrcd` is closed for the last time. The device's [`Domains`] owns it; members
//! hold references.
//!
//! Under the lock `order`, looking up a QP and registering with it are one step, and so are
//! removing the last registration and removing the QP from the domain: no registration is ever
//! added to a QP that is about to be destroyed. No verb is called with the lock held, and no memory
//! is allocated.
//!
//! Looking a QP up takes the spinlock of the table only. `order` is a mutex, because notifiers of
//! providers sleep; if it were taken to look up, a QUERY would wait for a process that registers at
//! the lowest priority and does not run.

use crate::{
    attributes::InitialState,
    creator::Creator,
    kernel_ext::{
        cond_resched,
        mutex::lock_killable,
        tree::Tree, //
    },
    limits::{
        self,
        DrainCounter,
        UserQuota, //
    },
    listener::Listener,
    members::OfAll,
    notify,
    qp_status::{
        Lifetime,
        QpStatus, //
    },
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
        EndingQps,
        QpResources,
        ReceiveQp,
        UnneededQps,
        IN_DOMAIN, //
    },
    registrations::{
        new_log,
        Added,
        DomainLog,
        Holder,
        Registrations, //
    },
    uapi::xrc_rcv_reg_info, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SpinLock, //
    }, //
};

/// See the [module's documentation](self).
#[pin_data]
pub(crate) struct Domain {
    id: u32,
    qp_count: Arc<DrainCounter>,
    ending: Arc<EndingQps>,
    log: Arc<DomainLog>,
    last_serial: Atomic<u64>,
    /// Held while a QP is added, removed, registered with or unregistered from, and for the
    /// reports of that.
    #[pin]
    order: Mutex<()>,
    /// Changed with `order` held.
    #[pin]
    qps: SpinLock<Qps>,
}

/// The QPs of a domain, by QP number.
struct Qps {
    tree: Tree<ReceiveQp, IN_DOMAIN>,
    /// No QP is found or added any more, although a kernel user may still be creating one. Those
    /// that are left are about to be destroyed.
    is_closed: bool,
}

impl Qps {
    fn new() -> Self {
        Self {
            tree: Tree::new(),
            is_closed: false,
        }
    }

    /// Returns the first QP with a greater number, or the first of all.
    fn after(&self, qpn: Option<u32>) -> Option<ArcBorrow<'_, ReceiveQp>> {
        self.tree.after(qpn.as_ref()).filter(|_| !self.is_closed)
    }

    fn get(&self, qpn: u32) -> Option<ArcBorrow<'_, ReceiveQp>> {
        self.after(qpn.checked_sub(1)).filter(|qp| qp.qpn() == qpn)
    }

    /// Takes out the QP that has these registrations, if it can be found.
    fn remove(&mut self, registrations: &Arc<Registrations>) -> Option<Arc<ReceiveQp>> {
        if self.is_closed {
            return None;
        }
        self.tree
            .remove_after(registrations.status().qpn().checked_sub(1).as_ref(), |qp| {
                Arc::ptr_eq(qp.registrations(), registrations)
            })
    }

    /// Returns the number of QPs that can be found.
    fn len(&self) -> usize {
        if self.is_closed {
            0
        } else {
            self.tree.len()
        }
    }
}

/// The number of QPs that are listed before the lock is released, and preemption enabled.
const LISTED_AT_ONCE: usize = 64;

/// A QP that is not in its domain yet. Destroyed on drop, unless it is published.
pub(crate) struct NewQp {
    domain: Arc<Domain>,
    qp: Arc<ReceiveQp>,
    first: FirstRegistration,
}

/// The registration of the creator of a QP that is not in its domain yet, if it registers. Ends on
/// drop.
struct FirstRegistration {
    qp: Arc<Registrations>,
    holder: Option<Holder>,
}

/// Parameters of a new receive QP.
pub(crate) struct QpInitAttr<'a> {
    pub(crate) lifetime: Lifetime,
    /// The label of the QP.
    pub(crate) label: u64,
    pub(crate) initial_state: InitialState,
    pub(crate) attributes: &'a mut QpAttr,
    /// `None` for a kernel user.
    pub(crate) udata: Option<UData<'a>>,
}

impl Domain {
    fn new(id: u32, domains: &Domains) -> Result<Arc<Self>> {
        let qp_count = DrainCounter::new()?;
        let ending = domains.ending()?;
        let log = new_log()?;

        Arc::pin_init(
            pin_init!(Self {
                id,
                qp_count,
                ending,
                log,
                last_serial: Atomic::new(0),
                order <- new_mutex!((), "Domain::order"),
                qps <- new_spinlock!(Qps::new(), "Domain::qps"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the number by which tracepoints and debugfs name the domain.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> &Arc<DomainLog> {
        &self.log
    }

    /// Creates a QP in the domain, registers its creator if that is given, and modifies the
    /// QP to its initial state.
    pub(crate) fn create(
        self: &Arc<Self>,
        xrcd: &Xrcd,
        pd: &Arc<ProtectionDomain>,
        init_attr: QpInitAttr<'_>,
        holder: Option<Holder>,
    ) -> Result<NewQp> {
        let device = xrcd.device();
        let counted = self.qp_count.add(limits::per_domain())?;
        let creator = Creator::current();
        let charge = Charge::hca_object(device)?;
        let user = UserQuota::take(&creator, &charge)?;
        let serial = self.last_serial.fetch_add(1, Relaxed).wrapping_add(1);
        let registrations = Registrations::new(
            QpStatus::new(
                device.into(),
                self.id,
                serial,
                creator,
                init_attr.lifetime,
                init_attr.label,
            ),
            self.log.clone(),
            self.ending.workers().clone(),
        )?;
        let (qp, modifier) =
            // SAFETY: `qp_count` counts the QP from above until after it is destroyed, and `close`,
            // which `ClientOperations::domain_closed` calls, waits until there is none.
            unsafe { TargetQp::new(pd.clone(), xrcd, registrations.clone(), crate::NAME) }?;
        let qp = ReceiveQp::new(
            QpResources {
                qp,
                _user: user,
                _charge: charge,
                _counted: counted,
            },
            modifier,
            registrations.clone(),
            self.ending.clone(),
        )?;
        let mut new = NewQp {
            domain: self.clone(),
            qp,
            first: FirstRegistration {
                qp: registrations.clone(),
                holder: None,
            },
        };

        // The first event can come as soon as the QP can receive; not before.
        if let Some(holder) = holder {
            registrations.make_room(&holder.listener, None)?;
            // There is room for it: the QP has no events.
            let Added::New = registrations.add(&holder, None)? else {
                return Err(EINVAL);
            };
            new.first.holder = Some(holder);
        }
        new.qp.set_up(
            init_attr.initial_state,
            init_attr.attributes,
            init_attr.udata.as_ref(),
        )?;
        Ok(new)
    }

    /// Looks up a QP by its number.
    pub(crate) fn find(&self, qpn: u32) -> Result<Arc<ReceiveQp>> {
        self.qps.lock().get(qpn).map(Arc::from).ok_or(EINVAL)
    }

    /// Whether a QP that was looked up before can still be found. That stays so while `order` is
    /// held.
    fn has(&self, qp: &ReceiveQp) -> bool {
        let qps = self.qps.lock();

        !qps.is_closed && qps.tree.has(qp)
    }

    /// Takes a QP out of the domain, if it can be found: it is not found any more. Called with
    /// `order` held.
    fn remove(&self, qp: &ReceiveQp) {
        let removed = self.qps.lock().tree.remove(qp);

        drop(removed);
    }

    /// A member is about to end its registrations: a REG by an ioctl of its file, for which uverbs
    /// does not wait, begins none after this.
    pub(crate) fn close_member(&self, listener: &Listener) {
        let _order = self.order.lock();

        listener.close();
    }

    /// Registers with a QP that was looked up before, unless the holder is registered. `EINVAL` if
    /// the QP is about to be destroyed, `EIO` if the member was closed. `info` becomes the totals
    /// of the events before the registration, or those of now if it was registered.
    pub(crate) fn register(
        &self,
        qp: &Arc<ReceiveQp>,
        holder: &Holder,
        mut info: Option<&mut xrc_rcv_reg_info>,
    ) -> Result {
        let registrations = qp.registrations();

        loop {
            let order = lock_killable(&self.order)?;

            holder.listener.check_open()?;
            if !self.has(qp) {
                return Err(EINVAL);
            }
            match registrations.add(holder, info.as_deref_mut())? {
                Added::Existed => return Ok(()),
                Added::New => {
                    if notify::is_reported() {
                        notify::registered(registrations.report(), holder.listener.report());
                    }
                    return Ok(());
                }
                Added::NoRoom => drop(order),
            }
            // Without the lock: it may reclaim memory.
            if registrations.make_room(&holder.listener, info.as_deref_mut())? {
                return Ok(());
            }
        }
    }

    /// Registers a member with all QPs, those that exist and those that are created later: their
    /// events from now on are for it. `EDQUOT` over the limit.
    pub(crate) fn register_with_all(&self, holder: &Holder) -> Result {
        // As for each registration that keeps a QP: it comes before the end of the last one, or the
        // QP is removed.
        let _order = lock_killable(&self.order)?;
        let of_all = self.of_all();

        limits::another_registration(of_all.number, of_all.keeping, holder.keeps())?;

        let mut log = self.log.lock();
        let member = holder.listener.number();

        holder.listener.advance(log.end());
        log.members.register_with_all(member, holder.keeps());
        Ok(())
    }

    /// A member keeps all QPs no more. Those that none keeps are there until they are
    /// [unregistered](Self::unregister) from.
    pub(crate) fn release_all(&self, member: usize) {
        let _order = self.order.lock();

        self.log.lock().members.release_all(member);
    }

    /// Ends a registration with a QP, if there is one. If none keeps the QP any more, one of
    /// [`Lifetime::Registrations`] is removed from the domain, and returned for the caller to
    /// destroy. Ending the registration and removing the QP are one step under the domain's lock,
    /// so that no other registration is added in between.
    ///
    /// Nothing is reported of a registration that has ended before, or with the QP. Unread events
    /// are discarded, unless it ends with the device.
    #[must_use = "a QP that was removed from its domain has to be destroyed"]
    pub(crate) fn unregister(
        &self,
        registrations: &Arc<Registrations>,
        listener: &Listener,
        why: RemoveReason,
    ) -> Option<Arc<ReceiveQp>> {
        let _order = self.order.lock();

        let (existed, is_unneeded) = registrations.remove(listener, why);

        if existed && notify::is_reported() {
            notify::unregistered(registrations.report(), listener.report());
        }
        if !is_unneeded {
            return None;
        }

        let qp = self.qps.lock().remove(registrations)?;

        notify::destroyed(registrations.report(), false);
        Some(qp)
    }

    /// Destroys a QP that was looked up before. `EINVAL` if it is about to be destroyed, or not of
    /// lifetime [`Lifetime::Domain`]; `EBUSY` if a registration keeps it. Neither its lifetime nor
    /// registrations keep a QP from being destroyed by `force`.
    pub(crate) fn destroy(&self, qp: &Arc<ReceiveQp>, force: bool) -> Result {
        let order = self.order.lock();

        if !self.has(qp) || (qp.status().lifetime() != Lifetime::Domain && !force) {
            return Err(EINVAL);
        }
        if qp.registrations().is_kept() && !force {
            return Err(EBUSY);
        }
        self.remove(qp);
        notify::destroyed(qp.registrations().report(), force);
        drop(order);
        qp.destroy();
        Ok(())
    }

    /// Returns the number of QPs that were destroyed, and of which a member has events to read.
    pub(crate) fn gone(&self) -> usize {
        self.log.lock().gone()
    }

    /// Returns the numbers of members of all QPs.
    pub(crate) fn of_all(&self) -> OfAll {
        self.log.lock().members.of_all()
    }

    /// Calls a function with each member of all QPs, and whether it keeps them, without the lock.
    pub(crate) fn for_each_of_all(
        &self,
        mut call: impl FnMut(&Listener, bool) -> Result,
    ) -> Result {
        let mut from = 0;
        let next = |from| {
            let log = self.log.lock();
            let (listener, keeps) = log.members.next_of_all(from)?;

            Some((listener.clone(), keeps))
        };

        while let Some((listener, keeps)) = next(from) {
            from = listener.number() + 1;
            call(&listener, keeps)?;
        }
        Ok(())
    }

    /// Returns the number of QPs.
    pub(crate) fn len(&self) -> usize {
        self.qps.lock().len()
    }

    /// Returns up to `max` QPs with numbers greater than `after`, in ascending order, and the
    /// number of all QPs. QPs that are created or destroyed meanwhile may be missing.
    pub(crate) fn list(
        &self,
        after: Option<u32>,
        max: usize,
    ) -> Result<(KVVec<Arc<ReceiveQp>>, usize)> {
        let mut list = KVVec::with_capacity(max.min(self.len()), GFP_KERNEL)?;
        let mut last = after;

        loop {
            let total = self.len();
            let wanted = max.min(total);

            // Other QPs were created meanwhile.
            if wanted > list.capacity() {
                list.reserve(wanted.saturating_sub(list.len()), GFP_KERNEL)?;
            }

            let room = wanted.saturating_sub(list.len()).min(LISTED_AT_ONCE);

            if room == 0 || !self.list_some(&mut last, room, &mut list)? {
                return Ok((list, total));
            }
        }
    }

    /// Adds up to `max` QPs with numbers greater than `last`, for which the list has room, and sets
    /// `last` to the greatest. Returns whether others may follow.
    fn list_some(
        &self,
        last: &mut Option<u32>,
        max: usize,
        list: &mut KVVec<Arc<ReceiveQp>>,
    ) -> Result<bool> {
        let qps = self.qps.lock();

        for _ in 0..max {
            let Some(qp) = qps.after(*last) else {
                return Ok(false);
            };

            *last = Some(qp.qpn());
            list.push_within_capacity(qp.into())?;
        }
        Ok(qps.after(*last).is_some())
    }

    /// Destroys all QPs, together with workers. Each of several callers returns when all are
    /// destroyed.
    fn close(&self) {
        let mut unneeded = UnneededQps::new();

        {
            let _order = self.order.lock();

            if let Some(qp) = self.begin_close() {
                notify::closed(qp.registrations().report());
            }
        }
        while let Some(qp) = self.take_first() {
            unneeded.add(Some(qp));
        }
        unneeded.destroy();
        // A QP whose last registration was removed may be being destroyed by another thread. The
        // XRCD must not be closed before that has finished.
        self.qp_count.drain();
        self.end_members();
    }

    /// From now on no QP can be found. Returns the first to the first caller. Called with `order`
    /// held.
    fn begin_close(&self) -> Option<Arc<ReceiveQp>> {
        let mut qps = self.qps.lock();
        let first = qps.after(None).map(Arc::from);

        qps.is_closed = true;
        first
    }

    /// Takes the first QP out of a domain that is closed.
    fn take_first(&self) -> Option<Arc<ReceiveQp>> {
        // In order with the end of a registration that is removed meanwhile.
        let _order = self.order.lock();
        let qp = self.qps.lock().tree.pop_first()?;

        notify::destroyed(qp.registrations().report(), false);
        Some(qp)
    }

    /// The QPs have ended: so are the members whose device is being removed.
    fn end_members(&self) {
        let end = self.log.lock().members.close();

        for number in 0..end {
            let ending = {
                let log = self.log.lock();
                let member = log.members.get(number);

                member.filter(|member| member.is_ending()).cloned()
            };

            if let Some(listener) = ending {
                listener.end();
            }
            cond_resched();
        }
    }
}

impl Drop for FirstRegistration {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.qp.withdraw(&holder.listener);
        }
    }
}

impl NewQp {
    /// Returns the QP number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Returns the serial number.
    pub(crate) fn serial(&self) -> u64 {
        self.qp.status().serial()
    }

    /// Adds the QP to its domain, or destroys it if that was closed with the device. Cannot fail.
    pub(crate) fn publish(self) {
        let Self {
            domain,
            qp,
            mut first,
        } = self;
        let first = first.holder.take();
        let registrations = qp.registrations();
        let order = domain.order.lock();
        let is_closed = {
            let mut qps = domain.qps.lock();

            if !qps.is_closed {
                // Cannot fail: a new QP is in no tree.
                let _ = qps.tree.insert(qp.clone());
            }
            qps.is_closed
        };

        notify::allocated(registrations.report());
        if let Some(holder) = &first {
            notify::registered(registrations.report(), holder.listener.report());
        }
        // Reports of events follow those.
        registrations.as_arc_borrow().publish();
        if is_closed {
            notify::closed(registrations.report());
            notify::destroyed(registrations.report(), false);
        }
        drop(order);
        if is_closed {
            qp.destroy();
        }
    }
}

/// The domains of a device that have or had members or receive QPs.
///
/// The lock is held only to look up, add or remove a domain.
#[pin_data]
pub(crate) struct Domains {
    last_id: Atomic<u32>,
    /// The workqueues of the device, too; `None` until the first domain is created.
    #[pin]
    ending: Mutex<Option<Arc<EndingQps>>>,
    #[pin]
    table: SpinLock<DomainTable>,
}

struct DomainTable {
    domains: RBTree<XrcdId, Arc<Domain>>,
    /// The device is being removed.
    is_closed: bool,
}

impl Domains {
    /// Creates an empty table.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                last_id: Atomic::new(0),
                ending <- new_mutex!(None, "Domains::ending"),
                table <- new_spinlock!(
                    DomainTable {
                        domains: RBTree::new(),
                        is_closed: false,
                    },
                    "Domains::table"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the domain of an open XRCD, if it has or had members or QPs.
    pub(crate) fn get(&self, xrcd: &Xrcd) -> Option<Arc<Domain>> {
        self.find(xrcd.id())
    }

    fn find(&self, id: XrcdId) -> Option<Arc<Domain>> {
        self.table.lock().domains.get(&id).cloned()
    }

    /// Returns the domain of an open XRCD, creating it if it does not exist. `ENODEV` if the device
    /// is being removed.
    pub(crate) fn get_or_new(&self, xrcd: &Xrcd) -> Result<Arc<Domain>> {
        if let Some(domain) = self.get(xrcd) {
            return Ok(domain);
        }

        // Another thread may have added the domain meanwhile: its own is used, and the id is
        // skipped.
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let id = self.last_id.fetch_add(1, Relaxed).wrapping_add(1);
        let domain = Domain::new(id, self)?;
        let mut table = self.table.lock();

        if table.is_closed {
            return Err(ENODEV);
        }
        if let Some(domain) = table.domains.get(&xrcd.id()) {
            return Ok(domain.clone());
        }
        table
            .domains
            .insert(room.into_node(xrcd.id(), domain.clone()));
        drop(table);
        Ok(domain)
    }

    /// Returns the list of QPs that are to be destroyed, which is allocated, with the workqueues,
    /// if this is the first domain.
    fn ending(&self) -> Result<Arc<EndingQps>> {
        let mut ending = self.ending.lock();

        if let Some(ending) = &*ending {
            return Ok(ending.clone());
        }
        Ok(ending.insert(EndingQps::new()?).clone())
    }

    /// Returns all domains, by id. Those that are created or closed meanwhile may be missing.
    pub(crate) fn list(&self) -> Result<RBTree<u32, Arc<Domain>>> {
        let mut sorted = RBTree::new();
        let mut next = self.after(None);

        while let Some((id, domain)) = next {
            sorted.try_create_and_insert(domain.id, domain, GFP_KERNEL)?;
            next = self.after(Some(id));
        }
        Ok(sorted)
    }

    /// Returns the domain that follows one in the table, or the first.
    fn after(&self, previous: Option<XrcdId>) -> Option<(XrcdId, Arc<Domain>)> {
        let mut table = self.table.lock();
        let Some(previous) = previous else {
            let (id, domain) = table.domains.iter().next()?;

            return Some((*id, domain.clone()));
        };
        let cursor = table.domains.cursor_lower_bound_mut(&previous)?;
        let cursor = if *cursor.current().0 == previous {
            cursor.move_next()?
        } else {
            cursor
        };
        let (id, domain) = cursor.current();

        Some((*id, domain.clone()))
    }

    /// Destroys all QPs of the device, which is being removed. No domain is created any more.
    pub(crate) fn close_all(&self) {
        self.table.lock().is_closed = true;
        loop {
            let first = self.table.lock().domains.keys().next().copied();
            let Some(id) = first else {
                break;
            };

            self.close_one(id);
        }

        let ending = self.ending.lock().clone();

        if let Some(ending) = ending {
            ending.workers().drain();
        }
    }

    /// Destroys the QPs of an XRCD that is closed for the last time.
    pub(crate) fn close(&self, xrcd: &Xrcd) {
        self.close_one(xrcd.id());
    }

    /// Removes the domain from the table after its QPs are destroyed, so that a kernel user that
    /// closes the XRCD and the removal of the device each find it, and wait for its QPs.
    fn close_one(&self, id: XrcdId) {
        let Some(domain) = self.find(id) else {
            return;
        };

        domain.close();

        // Dropped without the lock.
        let removed = self.table.lock().domains.remove(&id);

        drop(removed);
    }
}

#[kunit_tests(ib_xrc_rcv_domain)]
mod tests {
    use super::*;

    /// With a spinlock held, a mutex cannot be taken. A mutex would let a process that others keep
    /// from the CPU hold up each user of the device.
    #[test]
    fn no_domain_is_waited_for() -> Result {
        let domains = Domains::new()?;
        let spinlock = Arc::pin_init(new_spinlock!((), "tests::spinlock"), GFP_KERNEL)?;
        let guard = spinlock.lock();

        assert!(domains.after(None).is_none());
        drop(guard);
        Ok(())
    }
}
