// SPDX-License-Identifier: GPL-2.0

//! The log of a domain: its QPs that had events, in the order of their last ones.
//!
//! An event moves its QP to the end of the log and is counted there, whatever the number of
//! registrations: nothing is copied for each of them. A reader has a *cursor*, the position up to
//! which it has read, and reads those of its QPs that come after it.
//!
//! A QP that was destroyed stays in the log as long as an event channel has records of it to read.
//! The log keeps a number of such QPs: that of a domain whose readers do not read is bounded, and
//! those who have not read the records of a QP that leaves it get one record, OVERRUN.
//!
//! QPs are found by number, too: a number may be used again while records of the QP that had it
//! before are unread.
//!
//! One lock guards the log, the counts of the QPs and the lists of their registrations. It is taken
//! in any context. Nothing in this file sleeps or frees memory.

use crate::{
    kernel_ext::tree::{
        Tree,
        TreeItem, //
    },
    members::Members, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

/// The [`Tree`] of a log.
pub(crate) const BY_POSITION: u64 = 1;

/// The [`Tree`] of the QPs that can be found.
pub(crate) const BY_NUMBER: u64 = 2;

/// The number of a QP, and its [serial number](crate::qp_status::QpStatus::serial), which is not 0.
pub(crate) type QpName = (u32, u64);

/// A QP that can be in a log.
pub(crate) trait Logged:
    TreeItem<BY_POSITION, Key = u64> + TreeItem<BY_NUMBER, Key = QpName>
{
    /// Returns its position, which is the key.
    fn position(&self) -> &Atomic<u64>;
}

/// The references that the log had to a QP, for the caller to drop without the lock.
pub(crate) type Removed<Q> = [Option<Arc<Q>>; 2];

/// See the [module's documentation](self).
pub(crate) struct Log<Q: Logged> {
    /// The QPs that exist and had events.
    existing: Tree<Q, BY_POSITION>,
    /// The QPs that were destroyed.
    gone: Tree<Q, BY_POSITION>,
    /// The QPs that can have registrations.
    named: Tree<Q, BY_NUMBER>,
    /// The members of the domain.
    pub(crate) members: Members,
    /// The last position that was given away.
    last: u64,
}

impl<Q: Logged> Log<Q> {
    /// Creates an empty log.
    pub(crate) fn new() -> Self {
        Self {
            existing: Tree::new(),
            gone: Tree::new(),
            named: Tree::new(),
            members: Members::new(),
            last: 0,
        }
    }

    /// Returns the position of the end.
    pub(crate) fn end(&self) -> u64 {
        self.last
    }

    /// Returns the number of QPs that were destroyed.
    pub(crate) fn gone(&self) -> usize {
        self.gone.len()
    }

    /// Adds a QP that can be found by its number.
    pub(crate) fn publish(&mut self, qp: ArcBorrow<'_, Q>) {
        // Cannot fail: a new QP is in no tree.
        let _ = self.named.insert(qp.into());
    }

    /// Moves a QP to the end, or adds it there. Returns its position.
    pub(crate) fn move_to_end(&mut self, qp: ArcBorrow<'_, Q>) -> u64 {
        let (moved, position) = self.renumber(qp);

        // Cannot fail: the QP is in no tree.
        let _ = self.existing.insert(moved);
        position
    }

    /// Moves a QP that was destroyed to the end. Returns its position, which does not change any
    /// more.
    pub(crate) fn move_gone(&mut self, qp: ArcBorrow<'_, Q>) -> u64 {
        let (moved, position) = self.renumber(qp);

        // Cannot fail: the QP is in no tree.
        let _ = self.gone.insert(moved);
        position
    }

    fn renumber(&mut self, qp: ArcBorrow<'_, Q>) -> (Arc<Q>, u64) {
        // Not the last reference: the caller has one.
        let moved = self.existing.remove(&qp).unwrap_or_else(|| qp.into());

        // 2^64 events do not happen.
        self.last = self.last.wrapping_add(1);
        moved.position().store(self.last, Relaxed);
        (moved, self.last)
    }

    /// Removes a QP.
    #[must_use]
    pub(crate) fn remove(&mut self, qp: &Q) -> Removed<Q> {
        let logged = match self.existing.remove(qp) {
            None => self.gone.remove(qp),
            logged => logged,
        };

        [logged, self.named.remove(qp)]
    }

    /// Takes the QP out that was destroyed before all others, if more than a number were: it is not
    /// read any more. It can be found by its number until it is [removed](Self::remove).
    pub(crate) fn evict(&mut self, kept: usize) -> Option<Arc<Q>> {
        if self.gone.len() <= kept {
            return None;
        }
        self.gone.pop_first()
    }

    /// Returns the first QP after a position.
    pub(crate) fn after(&self, position: u64) -> Option<ArcBorrow<'_, Q>> {
        let existing = self.existing.after(Some(&position));
        let gone = self.gone.after(Some(&position));

        match (existing, gone) {
            (Some(existing), Some(gone)) => {
                let at = |qp: &ArcBorrow<'_, Q>| qp.position().load(Relaxed);

                Some(if at(&existing) < at(&gone) {
                    existing
                } else {
                    gone
                })
            }
            (existing, gone) => existing.or(gone),
        }
    }

    /// Returns the first QP whose number and serial number are greater.
    pub(crate) fn after_name(&self, name: QpName) -> Option<ArcBorrow<'_, Q>> {
        self.named.after(Some(&name))
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

    struct Item {
        name: QpName,
        position: Atomic<u64>,
        links: Links<BY_POSITION>,
        linked: Linked<BY_POSITION>,
        named_links: Links<BY_NUMBER>,
        named: Linked<BY_NUMBER>,
    }

    impl_tree_item! {
        impl TreeItem<{ BY_POSITION }> for Item {
            links: links,
            linked: linked,
            key: |item| -> u64 { item.position.load(Relaxed) }
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
        fn position(&self) -> &Atomic<u64> {
            &self.position
        }
    }

    fn item(name: QpName) -> Result<Arc<Item>> {
        Ok(Arc::new(
            Item {
                name,
                position: Atomic::new(0),
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

    /// Asserts which items come after a position, by number.
    fn assert_after(log: &Log<Item>, mut position: u64, numbers: &[u32]) {
        for number in numbers {
            let next = log.after(position);

            assert_eq!(next.as_ref().map(|item| item.name.0), Some(*number));
            position = next.map_or(position, |item| item.position.load(Relaxed));
        }
        assert!(log.after(position).is_none());
    }

    #[test]
    fn the_last_to_have_an_event_is_at_the_end() -> Result {
        let (one, two, three) = items()?;
        let mut log = Log::<Item>::new();

        assert_eq!(log.end(), 0);
        assert_after(&log, 0, &[]);
        log.move_to_end(two.as_arc_borrow());
        log.move_to_end(one.as_arc_borrow());
        log.move_to_end(three.as_arc_borrow());
        assert_after(&log, 0, &[2, 1, 3]);
        log.move_to_end(two.as_arc_borrow());
        assert_after(&log, 0, &[1, 3, 2]);
        log.move_to_end(two.as_arc_borrow());
        assert_after(&log, 0, &[1, 3, 2]);
        Ok(())
    }

    #[test]
    fn a_cursor_has_all_later_events_before_it() -> Result {
        let (one, two, _) = items()?;
        let mut log = Log::<Item>::new();

        log.move_to_end(one.as_arc_borrow());

        let cursor = log.end();

        assert_after(&log, cursor, &[]);
        log.move_to_end(two.as_arc_borrow());
        assert_after(&log, cursor, &[2]);
        log.move_to_end(one.as_arc_borrow());
        assert_after(&log, cursor, &[2, 1]);
        Ok(())
    }

    #[test]
    fn qps_that_were_destroyed_are_in_the_order_of_all() -> Result {
        let (one, two, three) = items()?;
        let mut log = Log::<Item>::new();

        log.move_gone(two.as_arc_borrow());
        log.move_to_end(one.as_arc_borrow());
        log.move_to_end(three.as_arc_borrow());
        assert_after(&log, 0, &[2, 1, 3]);
        log.move_gone(one.as_arc_borrow());
        assert_after(&log, 0, &[2, 3, 1]);
        assert_eq!(log.gone(), 2);
        Ok(())
    }

    #[test]
    fn the_one_that_was_destroyed_first_is_evicted() -> Result {
        let (one, two, three) = items()?;
        let mut log = Log::<Item>::new();
        let evicted = |log: &mut Log<Item>, kept| log.evict(kept).map(|item| item.name.0);

        for item in [&one, &two, &three] {
            log.publish(item.as_arc_borrow());
            log.move_to_end(item.as_arc_borrow());
        }
        log.move_gone(two.as_arc_borrow());
        log.move_gone(one.as_arc_borrow());
        assert_eq!(evicted(&mut log, 2), None);
        assert_eq!(evicted(&mut log, 1), Some(2));
        assert_eq!(evicted(&mut log, 1), None);
        assert_after(&log, 0, &[3, 1]);
        assert_eq!(log.after_name((1, 1)).map(|item| item.name.0), Some(2));
        assert_eq!(evicted(&mut log, 0), Some(1));
        assert_eq!(evicted(&mut log, 0), None);
        Ok(())
    }

    #[test]
    fn qps_of_a_number_are_found_the_oldest_first() -> Result {
        let (old, new, other) = (item((1, 2))?, item((1, 5))?, item((2, 3))?);
        let mut log = Log::<Item>::new();
        let after = |log: &Log<Item>, name| log.after_name(name).map(|item| item.name);

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
    fn a_qp_is_removed_once() -> Result {
        let (one, two, three) = items()?;
        let mut log = Log::<Item>::new();
        let removes = |log: &mut Log<Item>, item: &Item| log.remove(item).iter().flatten().count();

        assert_eq!(removes(&mut log, &one), 0);
        log.publish(one.as_arc_borrow());
        log.move_to_end(one.as_arc_borrow());
        log.move_to_end(two.as_arc_borrow());
        log.move_gone(three.as_arc_borrow());
        assert_eq!(removes(&mut log, &one), 2);
        assert_eq!(removes(&mut log, &one), 0);
        assert_eq!(removes(&mut log, &three), 1);
        assert_after(&log, 0, &[2]);
        Ok(())
    }
}
