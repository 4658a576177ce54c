// SPDX-License-Identifier: GPL-2.0

//! Limits on the receive QPs of a domain and of a user, and on the registrations of a QP.
//!
//! Each QP counts against the limits on its domain and its user until it is destroyed. The limits
//! are module parameters, which are read when a QP is created or registered with; 0 means
//! unlimited. `CAP_SYS_RESOURCE` exempts from the limits.
//!
//! The QPs of a subordinate uid, of which any user may have thousands, count for the user who
//! created the user namespace. Those of uid 0 count for the RDMA cgroup of their creator:
//! containers without user namespaces are all of uid 0, and neighbours do not share a quota.

use crate::{
    bindings,
    creator::Creator,
    kernel_ext::over_limit,
    rdma::cgroup::Charge, //
};
use kernel::{
    new_condvar,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        global_lock,
        Arc,
        CondVar,
        SpinLock, //
    }, //
};

/// Returns the limit on the QPs of a domain.
pub(crate) fn per_domain() -> u32 {
    // SAFETY: The function has no requirements: it reads a module parameter.
    unsafe { bindings::ib_xrc_rcv_max_qps_per_domain() }
}

/// The number of QPs that the log of a domain keeps after they were destroyed, where the QPs of a
/// domain are not limited: the default of the limit.
const GONE_WITHOUT_LIMIT: u32 = 16384;

/// Returns the number of QPs that were destroyed that the log of a domain keeps: as many as the
/// domain can have, which can all end at the same time.
pub(crate) fn gone_per_domain() -> usize {
    let limit = match per_domain() {
        0 => GONE_WITHOUT_LIMIT,
        limit => limit,
    };

    limit as usize
}

/// Returns the limit on the QPs of a user, on all devices.
pub(crate) fn per_user() -> u32 {
    // SAFETY: The function has no requirements: it reads a module parameter.
    unsafe { bindings::ib_xrc_rcv_max_qps_per_user() }
}

/// Returns the limit on the registrations of a QP.
pub(crate) fn per_qp() -> u32 {
    // SAFETY: The function has no requirements: it reads a module parameter.
    unsafe { bindings::ib_xrc_rcv_max_registrations_per_qp() }
}

/// Checks whether a QP with `len` registrations, of which `keeping` keep it, may get another one.
/// `EDQUOT` if not.
///
/// Those that do not keep it are half of the limit at most, so that callers who may only read the
/// domain's file leave some to those who may write to it.
pub(crate) fn another_registration(len: usize, keeping: usize, keeps: bool) -> Result {
    take_registration(len, keeping, keeps, may_exceed)
}

/// Whether [`another_registration`] needs a privilege, or fails.
pub(crate) fn is_reached(len: usize, keeping: usize, keeps: bool) -> bool {
    take_registration(len, keeping, keeps, || false).is_err()
}

fn take_registration(
    len: usize,
    keeping: usize,
    keeps: bool,
    may_exceed: impl Fn() -> bool,
) -> Result {
    let limit = per_qp();

    take_one(len.try_into()?, limit, &may_exceed)?;
    if !keeps {
        take_share(len.saturating_sub(keeping).try_into()?, limit, &may_exceed)?;
    }
    Ok(())
}

/// Whether the current process is exempt from the limits.
fn may_exceed() -> bool {
    // SAFETY: The function reads the credentials of the current task, and must be called in process
    // context, as QPs are created and registered with. It does not sleep.
    unsafe { bindings::ib_xrc_rcv_may_exceed_limits() }
}

/// Returns the number of uses after another one. `EDQUOT` if that exceeds the limit.
fn take_one(used: u32, limit: u32, may_exceed: impl FnOnce() -> bool) -> Result<u32> {
    let taken = used.checked_add(1).ok_or_else(over_limit)?;

    if limit != 0 && taken > limit && !may_exceed() {
        return Err(over_limit());
    }
    Ok(taken)
}

/// As [`take_one`], of half of a limit.
fn take_share(used: u32, limit: u32, may_exceed: impl FnOnce() -> bool) -> Result {
    if limit != 0 && used >= limit / 2 && !may_exceed() {
        return Err(over_limit());
    }
    Ok(())
}

/// Counts the QPs of a domain, from before they are created until after they are destroyed, and
/// waits until the domain has none.
#[pin_data]
pub(crate) struct DrainCounter {
    #[pin]
    count: SpinLock<Count>,
    #[pin]
    none: CondVar,
}

/// Counts as one in a [`DrainCounter`] until it is dropped.
pub(crate) struct DrainGuard(Arc<DrainCounter>);

struct Count {
    qps: u32,
    is_closed: bool,
}

impl DrainCounter {
    /// Creates a counter of zero.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                count <- new_spinlock!(
                    Count {
                        qps: 0,
                        is_closed: false,
                    },
                    "DrainCounter::count"
                ),
                none <- new_condvar!("DrainCounter::none"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds one to the count. `EDQUOT` if that exceeds `limit`, `ENODEV` after [`Self::drain`].
    pub(crate) fn add(self: &Arc<Self>, limit: u32) -> Result<DrainGuard> {
        let mut count = self.count.lock();

        if count.is_closed {
            return Err(ENODEV);
        }
        count.qps = take_one(count.qps, limit, may_exceed)?;
        Ok(DrainGuard(self.clone()))
    }

    /// Waits until the count is zero. Nothing can be added after this was called.
    pub(crate) fn drain(&self) {
        let mut count = self.count.lock();

        count.is_closed = true;
        while count.qps != 0 {
            self.none.wait(&mut count);
        }
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();

        count.qps = count.qps.saturating_sub(1);
        if count.qps == 0 {
            self.0.none.notify_all();
        }
    }
}

global_lock! {
    // SAFETY: `init` initialises it, once, and before a device is attached: only QPs are counted in
    // it.
    unsafe(uninit) static USERS: SpinLock<Option<Users>> = None;
}

/// The user whose quota a QP counts against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum User {
    /// A uid.
    Uid(u32),
    /// Uid 0 in an RDMA cgroup.
    RootOf(usize),
}

impl User {
    /// Returns the user for whom the QPs of a creator count that are charged to its cgroup.
    fn new(creator: &Creator, charge: &Charge) -> Self {
        match creator.accounting_uid() {
            0 => Self::RootOf(charge.cgroup()),
            uid => Self::Uid(uid),
        }
    }
}

/// The number of QPs of each user that has any.
type Users = RBTree<User, u32>;

/// Counts a QP against the quota of a user until it is dropped, which is before the charge to the
/// user's cgroup is: the cgroup is no other until then.
pub(crate) struct UserQuota {
    user: User,
}

/// Initialises the table of users.
///
/// # Safety
///
/// Must be called once, and before any other function of this file.
pub(crate) unsafe fn init() {
    // SAFETY: By the requirements of this function, this is the one call, and nothing has used
    // `USERS`.
    unsafe { USERS.init() };
}

impl UserQuota {
    /// Counts a QP of the calling process. `EDQUOT` if that exceeds the limit.
    pub(crate) fn take(creator: &Creator, charge: &Charge) -> Result<Self> {
        let user = User::new(creator, charge);
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut guard = USERS.lock();
        let users = guard.get_or_insert_with(RBTree::new);
        let take = |used| take_one(used, per_user(), may_exceed);

        if let Some(qps) = users.get_mut(&user) {
            *qps = take(*qps)?;
        } else {
            users.insert(room.into_node(user, take(0)?));
        }
        Ok(Self { user })
    }
}

impl Drop for UserQuota {
    fn drop(&mut self) {
        let mut guard = USERS.lock();
        let Some(users) = guard.as_mut() else {
            return;
        };

        if let Some(qps) = users.get_mut(&self.user) {
            *qps = qps.saturating_sub(1);
            if *qps == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[kunit_tests(ib_xrc_rcv_limits)]
mod tests {
    use super::*;

    #[test]
    fn no_limit() -> Result {
        assert_eq!(take_one(0, 0, || false)?, 1);
        assert_eq!(take_one(1_000_000, 0, || false)?, 1_000_001);
        Ok(())
    }

    #[test]
    fn up_to_the_limit() -> Result {
        assert_eq!(take_one(0, 2, || false)?, 1);
        assert_eq!(take_one(1, 2, || false)?, 2);
        assert_eq!(take_one(2, 2, || false).err(), Some(over_limit()));
        Ok(())
    }

    #[test]
    fn lowered_limit() {
        assert_eq!(take_one(5, 2, || false).err(), Some(over_limit()));
    }

    #[test]
    fn half_of_the_limit() -> Result {
        take_share(1, 4, || false)?;
        take_share(1_000_000, 0, || false)?;
        take_share(2, 4, || true)?;
        assert_eq!(take_share(2, 4, || false).err(), Some(over_limit()));
        assert_eq!(take_share(0, 1, || false).err(), Some(over_limit()));
        Ok(())
    }

    #[test]
    fn privileged_exceed_the_limit() -> Result {
        assert_eq!(take_one(2, 2, || true)?, 3);
        Ok(())
    }

    #[test]
    fn privilege_is_checked_only_over_the_limit() -> Result {
        let mut checked = false;

        take_one(0, 2, || {
            checked = true;
            true
        })?;
        assert!(!checked);
        Ok(())
    }

    #[test]
    fn counter_does_not_wrap() {
        assert_eq!(take_one(u32::MAX, 0, || true).err(), Some(over_limit()));
    }

    /// With a spinlock held, a mutex cannot be taken. A mutex would let a process that others keep
    /// from the CPU hold up each user of the module.
    #[test]
    fn no_quota_is_waited_for() -> Result {
        let spinlock = Arc::pin_init(new_spinlock!((), "tests::spinlock"), GFP_KERNEL)?;
        let guard = spinlock.lock();

        // No QP counts for this uid.
        drop(UserQuota {
            user: User::Uid(u32::MAX),
        });
        drop(guard);
        Ok(())
    }

    #[test]
    fn guards_are_counted() -> Result {
        let qp_count = DrainCounter::new()?;
        let first = qp_count.add(0)?;
        let second = qp_count.add(0)?;

        assert_eq!(qp_count.count.lock().qps, 2);
        drop(first);
        assert_eq!(qp_count.count.lock().qps, 1);
        drop(second);
        qp_count.drain();
        assert_eq!(qp_count.add(0).err(), Some(ENODEV));
        Ok(())
    }
}
