// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Limits of what users may have of a service: descriptors that it keeps, and connections to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of things of a kind that each user has. The owner of the domain's file may have all
/// of them; the others together half, and each of them an eighth: so that they can use up what they
/// share, and not what the owner needs.
#[derive(Clone)]
pub(super) struct Quota(Arc<Mutex<Counts>>);

struct Counts {
    limit: usize,
    owner: u32,
    by_user: BTreeMap<u32, usize>,
}

/// One thing of a user, which counts until this is dropped.
pub(super) struct Share {
    quota: Quota,
    uid: u32,
}

impl Quota {
    pub(super) fn new(limit: usize, owner: u32) -> Quota {
        Quota(Arc::new(Mutex::new(Counts {
            limit,
            owner,
            by_user: BTreeMap::new(),
        })))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more for a user, unless that is more than the user may have.
    pub(super) fn take(&self, uid: u32) -> Option<Share> {
        let counts = self.counts();
        let (all, owners) = (counts.total(), counts.of(counts.owner));
        let is_owner = uid == counts.owner;
        let others_are_full = all - owners >= counts.limit / 2;
        if all >= counts.limit
            || counts.of(uid) >= counts.share(uid)
            || (!is_owner && others_are_full)
        {
            return None;
        }
        drop(counts);
        Some(self.count(uid))
    }

    /// Counts one more, whatever the limit: a descriptor from before a restart stays.
    pub(super) fn count(&self, uid: u32) -> Share {
        *self.counts().by_user.entry(uid).or_default() += 1;
        Share {
            quota: self.clone(),
            uid,
        }
    }

    /// The number of all, and its limit.
    pub(super) fn used(&self) -> (usize, usize) {
        let counts = self.counts();
        (counts.total(), counts.limit)
    }

    /// The number of a user, and its limit.
    pub(super) fn used_by(&self, uid: u32) -> (usize, usize) {
        let counts = self.counts();
        (counts.of(uid), counts.share(uid))
    }
}

impl Counts {
    fn total(&self) -> usize {
        self.by_user.values().sum()
    }

    fn of(&self, uid: u32) -> usize {
        self.by_user.get(&uid).copied().unwrap_or_default()
    }

    fn share(&self, uid: u32) -> usize {
        match uid == self.owner {
            true => self.limit,
            false => (self.limit / 8).max(1),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.quota.counts();
        if let Some(count) = counts.by_user.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.by_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_has_what_others_leave() {
        let quota = Quota::new(16, 7);
        let take = |uid, times| -> Vec<Share> {
            let taken = std::iter::from_fn(|| quota.take(uid));
            taken.take(times).collect()
        };
        let others: Vec<_> = (100..120).map(|uid| take(uid, 100)).collect();
        let lengths: Vec<_> = others.iter().map(Vec::len).collect();
        assert_eq!(lengths[..5], [2, 2, 2, 2, 0]);
        assert_eq!(take(7, 100).len(), 8);
        assert_eq!(quota.used(), (8, 16));
        drop(others);
        let owners = take(7, 100);
        assert_eq!((owners.len(), quota.used_by(7)), (16, (16, 16)));
        assert!(quota.take(100).is_none());
        drop(owners);
        assert_eq!((quota.used(), quota.used_by(100)), ((0, 16), (0, 2)));
    }

    #[test]
    fn what_was_there_before_counts() {
        let quota = Quota::new(1, 7);
        let before = [quota.count(8), quota.count(8)];
        assert!(quota.take(7).is_none() && quota.used().0 == 2);
        drop(before);
        assert!(quota.take(8).is_none() && quota.take(7).is_some());
    }
}
