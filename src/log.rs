// SPDX-License-Identifier: GPL-2.0

//! The log of a domain: the events of its QPs, one of each kind, in the order of the last of it.
//!
//! An event moves its QP to the end of those that had one of its kind, whatever the number of
//! registrations: nothing is copied for each of them. A reader has a *cursor*, the position up to
//! which it has read: the events of its QPs that come after it are unread, and no others.
//!
//! A QP that was destroyed stays in the log as long as an event channel has records of it to read.
//! The log keeps a number of such QPs: that of a domain whose readers do not read is bounded, and
//! those who have not read the records of a QP that leaves it get one record, OVERRUN. They leave
//! it in the order of their ends: members of all QPs compare their cursors with the position of the
//! last such end.
//!
//! QPs are found by number, too: a number may be used again while records of the QP that had it
//! before are unread.
//!
//! One lock guards the log, the counts of the QPs and the lists of their registrations. It is taken
//! in any context. Nothing in this file sleeps or frees memory.

use crate::{
    event::{
        EventMask,
        EventType, //
    },
    kernel_ext::tree::{
        Tree,
        TreeItem, //
    },
    members::Members, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// The [`Tree`]s of the events in a log, of each kind at the place of its
/// [index](EventType::index), and of the QPs that were destroyed, at the place [`GONE`].
pub(crate) const BY_POSITION: u64 = 1;

/// The place of the QPs that were destroyed.
pub(crate) const GONE: usize = EventType::COUNT;

/// The number of places in trees of `BY_POSITION`.
pub(crate) const PLACES: usize = GONE + 1;

/// The [`Tree`] of the QPs that can be found.
pub(crate) const BY_NUMBER: u64 = 2;

/// The number of a QP, and its [serial number](crate::qp_status::QpStatus::serial), which is not 0.
pub(crate) type QpName = (u32, u64);

/// A QP that can be in a log. The key at the place of a kind is the position of the last event of
/// that kind; at the place [`GONE`], that of `QP_GONE`.
pub(crate) trait Logged:
    TreeItem<BY_POSITION, Key = u64> + TreeItem<BY_NUMBER, Key = QpName>
{
    /// Sets the position of the last event of a kind.
    fn set_position(&self, kind: EventType, position: u64);

    /// Returns the kinds whose position was set.
    fn logged(&self) -> EventMask;
}

/// See the [module's documentation](self).
pub(crate) struct Log<Q: Logged> {
    /// The QPs that had an event of a kind, for each kind; and those that were destroyed, and are
    /// kept.
    trees: [Tree<Q, BY_POSITION>; PLACES],
    /// The QPs that can have registrations.
    named: Tree<Q, BY_NUMBER>,
    /// The members of the domain.
    pub(crate) members: Members,
    /// The last position that was given away.
    last: u64,
    /// That of the end of the last QP that was evicted.
    evicted: u64,
}

impl<Q: Logged> Log<Q> {
    /// Creates an empty log.
    pub(crate) fn new() -> Self {
        Self {
            trees: core::array::from_fn(Tree::at),
            named: Tree::new(),
            members: Members::new(),
            last: 0,
            evicted: 0,
        }
    }

    /// Returns the position of the end.
    pub(crate) fn end(&self) -> u64 {
        self.last
    }

    /// Returns the position of the end of the last QP that was [evicted](Self::evict).
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the number of QPs that were destroyed, and are kept.
    pub(crate) fn gone(&self) -> usize {
        self.trees[GONE].len()
    }

    /// Adds a QP that can be found by its number.
    pub(crate) fn publish(&mut self, qp: ArcBorrow<'_, Q>) {
        // Cannot fail: a new QP is in no tree.
        let _ = self.named.insert(qp.into());
    }

    /// Adds an event at the end, in place of the one of the QP and kind before. `QP_GONE` is the
    /// last of a QP.
    pub(crate) fn add(&mut self, qp: ArcBorrow<'_, Q>, kind: EventType) {
        let Some(events) = self.trees.get_mut(kind.index()) else {
            return;
        };
        // Not the last reference: the caller has one.
        let moved = events.remove(&qp).unwrap_or_else(|| qp.into());

        // 2^64 events do not happen.
        self.last = self.last.wrapping_add(1);
        moved.set_position(kind, self.last);
        // Cannot fail: the QP is not in the tree, nor in that of QPs that were destroyed.
        let _ = events.insert(moved);
        if kind == EventType::QP_GONE {
            let _ = self.trees[GONE].insert(qp.into());
        }
    }

    /// Gives an event a position at the end, without adding it: no member reads it.
    pub(crate) fn pass(&mut self, qp: ArcBorrow<'_, Q>, kind: EventType) {
        self.last = self.last.wrapping_add(1);
        qp.set_position(kind, self.last);
    }

    /// Removes a QP. Returns a reference that the log had to it, for the caller to drop without the
    /// lock.
    #[must_use]
    pub(crate) fn remove(&mut self, qp: &Q) -> Option<Arc<Q>> {
        let mut removed = self.named.remove(qp);

        // At most one of the two is dropped in each step: not the last reference.
        for kind in qp.logged().kinds() {
            let events = self.trees.get_mut(kind.index());

            removed = events.and_then(|events| events.remove(qp)).or(removed);
        }
        self.trees[GONE].remove(qp).or(removed)
    }

    /// Returns the QP that was destroyed before all others that are kept, if more than a number
    /// are: it is not kept any more. It is in the log until it is [removed](Self::remove).
    pub(crate) fn evict(&mut self, kept: usize) -> Option<Arc<Q>> {
        if self.gone() <= kept {
            return None;
        }

        let first = self.trees[GONE].pop_first()?;

        self.evicted = TreeItem::<BY_POSITION>::key(&*first, GONE);
        Some(first)
    }

    /// Returns the first QP that ended after a position and is kept, and the position of its end.
    pub(crate) fn gone_after(&self, position: u64) -> Option<(ArcBorrow<'_, Q>, u64)> {
        let qp = self.trees[GONE].after(Some(&position))?;
        let at = TreeItem::<BY_POSITION>::key(&*qp, GONE);

        Some((qp, at))
    }

    /// Returns the first event after a position, its QP and its own position.
    pub(crate) fn after(&self, position: u64) -> Option<(EventType, ArcBorrow<'_, Q>, u64)> {
        EventType::iter()
            .filter_map(|kind| {
                let qp = self.trees.get(kind.index())?.after(Some(&position))?;
                let at = TreeItem::<BY_POSITION>::key(&*qp, kind.index());

                Some((kind, qp, at))
            })
            .min_by_key(|(_, _, at)| *at)
    }

    /// Returns the QPs whose number and serial number are greater, in order.
    pub(crate) fn after_name(&self, name: QpName) -> impl Iterator<Item = ArcBorrow<'_, Q>> {
        self.named.all_after(&name)
    }
}

#[kunit_tests(ib_xrc_rcv_log)]
mod tests {
    use super::*;
    use crate::kernel_ext::tree::{
        impl_tree_item,
        Linked,
        Links, //
    };
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    struct Item {
        name: QpName,
        positions: [Atomic<u64>; EventType::COUNT],
        links: Links<BY_POSITION, PLACES>,
        linked: Linked<BY_POSITION, PLACES>,
        named_links: Links<BY_NUMBER>,
        named: Linked<BY_NUMBER>,
    }

    impl_tree_item! {
        impl TreeItem<{ BY_POSITION }> for Item {
            links: links,
            linked: linked,
            key: |item, place| -> u64 {
                item.positions[place.min(EventType::QP_GONE.index())].load(Relaxed)
            }
        }
    }

    impl_tree_item! {
        impl TreeItem<{ BY_NUMBER }> for Item {
            links: named_links,
            linked: named,
            key: |item| -> QpName { item.name }
        }
    }

    impl Logged for Item {
        fn set_position(&self, kind: EventType, position: u64) {
            self.positions[kind.index()].store(position, Relaxed);
        }

        fn logged(&self) -> EventMask {
            let mut kinds = EventMask::default();

            for kind in EventType::iter() {
                if self.positions[kind.index()].load(Relaxed) != 0 {
                    kinds.add(kind);
                }
            }
            kinds
        }
    }

    fn item(name: QpName) -> Result<Arc<Item>> {
        Ok(Arc::new(
            Item {
                name,
                positions: [const { Atomic::new(0) }; EventType::COUNT],
                links: Links::new(),
                linked: Linked::new(),
                named_links: Links::new(),
                named: Linked::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns three items, whose numbers are 1, 2 and 3.
    fn items() -> Result<(Arc<Item>, Arc<Item>, Arc<Item>)> {
        Ok((item((1, 1))?, item((2, 2))?, item((3, 3))?))
    }

    /// Returns two kinds.
    fn kinds() -> Result<(EventType, EventType)> {
        let mut kinds = EventType::iter();

        Ok((
            kinds.next().ok_or(EINVAL)?,
            kinds.next().ok_or(EINVAL)?, //
        ))
    }

    /// Asserts which events come after a position, by number and kind.
    fn assert_after(log: &Log<Item>, mut position: u64, events: &[(u32, EventType)]) {
        for (number, kind) in events {
            let next = log.after(position);

            assert!(next
                .as_ref()
                .is_some_and(|(found, item, _)| (item.name.0, *found) == (*number, *kind)));
            position = next.map_or(position, |(_, _, at)| at);
        }
        assert!(log.after(position).is_none());
    }

    #[test]
    fn the_last_event_of_a_kind_is_at_the_end() -> Result {
        let (one, two, _) = items()?;
        let (first, second) = kinds()?;
        let mut log = Log::<Item>::new();

        assert_eq!(log.end(), 0);
        assert_after(&log, 0, &[]);
        log.add(two.as_arc_borrow(), first);
        log.add(one.as_arc_borrow(), first);
        log.add(two.as_arc_borrow(), second);
        assert_after(&log, 0, &[(2, first), (1, first), (2, second)]);
        log.add(two.as_arc_borrow(), first);
        assert_after(&log, 0, &[(1, first), (2, second), (2, first)]);
        log.add(two.as_arc_borrow(), first);
        assert_after(&log, 0, &[(1, first), (2, second), (2, first)]);
        Ok(())
    }

    #[test]
    fn a_cursor_has_all_later_events_before_it() -> Result {
        let (one, two, _) = items()?;
        let (first, second) = kinds()?;
        let mut log = Log::<Item>::new();

        log.add(one.as_arc_borrow(), first);

        let cursor = log.end();

        assert_after(&log, cursor, &[]);
        log.add(two.as_arc_borrow(), first);
        log.add(one.as_arc_borrow(), second);
        assert_after(&log, cursor, &[(2, first), (1, second)]);
        log.add(one.as_arc_borrow(), first);
        assert_after(&log, cursor, &[(2, first), (1, second), (1, first)]);
        Ok(())
    }

    #[test]
    fn the_qp_that_was_destroyed_first_is_evicted() -> Result {
        let (one, two, three) = items()?;
        let (first, _) = kinds()?;
        let gone = EventType::QP_GONE;
        let mut log = Log::<Item>::new();
        let evicted = |log: &mut Log<Item>, kept| log.evict(kept).map(|item| item.name.0);

        for item in [&one, &two, &three] {
            log.publish(item.as_arc_borrow());
            log.add(item.as_arc_borrow(), first);
        }
        log.add(two.as_arc_borrow(), gone);
        log.add(one.as_arc_borrow(), gone);
        assert_eq!(log.gone(), 2);
        let end_of = |log: &Log<Item>, position| {
            log.gone_after(position).map(|(item, at)| (item.name.0, at))
        };

        assert_eq!(end_of(&log, 0), Some((2, 4)));
        assert_eq!(end_of(&log, 4), Some((1, 5)));
        assert_eq!(end_of(&log, 5), None);
        assert_eq!((evicted(&mut log, 2), log.evicted()), (None, 0));
        assert_eq!((evicted(&mut log, 1), log.evicted()), (Some(2), 4));
        assert_eq!((evicted(&mut log, 1), log.gone()), (None, 1));
        // Until it is removed.
        assert_after(
            &log,
            0,
            &[(1, first), (2, first), (3, first), (2, gone), (1, gone)],
        );
        drop(log.remove(&two));
        assert_after(&log, 0, &[(1, first), (3, first), (1, gone)]);
        assert_eq!(evicted(&mut log, 0), Some(1));
        assert_eq!(evicted(&mut log, 0), None);
        Ok(())
    }

    #[test]
    fn qps_of_a_number_are_found_the_oldest_first() -> Result {
        let (old, new, other) = (item((1, 2))?, item((1, 5))?, item((2, 3))?);
        let mut log = Log::<Item>::new();
        let after = |log: &Log<Item>, name| log.after_name(name).next().map(|item| item.name);

        for item in [&other, &new, &old] {
            log.publish(item.as_arc_borrow());
        }
        assert_eq!(after(&log, (1, 0)), Some((1, 2)));
        assert_eq!(after(&log, (1, 2)), Some((1, 5)));
        assert_eq!(after(&log, (1, 5)), Some((2, 3)));
        assert_eq!(after(&log, (2, 3)), None);
        drop(log.remove(&new));
        assert_eq!(after(&log, (1, 2)), Some((2, 3)));
        Ok(())
    }

    #[test]
    fn a_qp_is_removed_from_all_trees() -> Result {
        let (one, two, _) = items()?;
        let (first, second) = kinds()?;
        let mut log = Log::<Item>::new();

        assert!(log.remove(&one).is_none());
        log.publish(one.as_arc_borrow());
        for kind in [first, second, EventType::QP_GONE] {
            log.add(one.as_arc_borrow(), kind);
        }
        log.add(two.as_arc_borrow(), second);
        assert!(log
            .remove(&one)
            .is_some_and(|item| Arc::ptr_eq(&item, &one)));
        assert!(log.remove(&one).is_none());
        assert_eq!(log.gone(), 0);
        assert!(log.after_name((1, 0)).next().is_none());
        assert_after(&log, 0, &[(2, second)]);
        Ok(())
    }
}
