// SPDX-License-Identifier: GPL-2.0

//! The log of a domain: its QPs that had events, in the order of their last ones.
//!
//! An event moves its QP to the end of the log and is counted there, whatever the number of
//! registrations: nothing is copied for each of them. A reader has a *cursor*, the position up to
//! which it has read, and reads those of its QPs that come after it.
//!
//! One lock guards the log, the counts of the QPs and the lists of their registrations. It is taken
//! in any context. Nothing in this file sleeps or frees memory.

use crate::kernel_ext::tree::{
    Tree,
    TreeItem, //
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

/// A QP that can be in a log.
pub(crate) trait Logged: TreeItem<BY_POSITION, Key = u64> {
    /// Returns its position, which is the key.
    fn position(&self) -> &Atomic<u64>;
}

/// See the [module's documentation](self).
pub(crate) struct Log<Q: Logged> {
    tree: Tree<Q, BY_POSITION>,
    /// The last position that was given away.
    last: u64,
}

impl<Q: Logged> Log<Q> {
    /// Creates an empty log.
    pub(crate) const fn new() -> Self {
        Self {
            tree: Tree::new(),
            last: 0,
        }
    }

    /// Returns the position of the end.
    pub(crate) fn end(&self) -> u64 {
        self.last
    }

    /// Moves a QP to the end, or adds it there. Returns its position.
    pub(crate) fn move_to_end(&mut self, qp: ArcBorrow<'_, Q>) -> u64 {
        // Not the last reference: the caller has one.
        let moved = self.tree.remove(&qp).unwrap_or_else(|| qp.into());

        // 2^64 events do not happen.
        self.last = self.last.wrapping_add(1);
        moved.position().store(self.last, Relaxed);
        // Cannot fail: the QP is in no tree.
        let _ = self.tree.insert(moved);
        self.last
    }

    /// Removes a QP. Returns the reference, for the caller to drop without the lock.
    #[must_use]
    pub(crate) fn remove(&mut self, qp: &Q) -> Option<Arc<Q>> {
        self.tree.remove(qp)
    }

    /// Returns the first QP after a position.
    pub(crate) fn after(&self, position: u64) -> Option<ArcBorrow<'_, Q>> {
        self.tree.after(Some(&position))
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
        name: u32,
        position: Atomic<u64>,
        links: Links<BY_POSITION>,
        linked: Linked<BY_POSITION>,
    }

    impl_tree_item! {
        impl TreeItem<{ BY_POSITION }> for Item {
            links: links,
            linked: linked,
            key: |item| -> u64 { item.position.load(Relaxed) }
        }
    }

    impl Logged for Item {
        fn position(&self) -> &Atomic<u64> {
            &self.position
        }
    }

    fn item(name: u32) -> Result<Arc<Item>> {
        Ok(Arc::new(
            Item {
                name,
                position: Atomic::new(0),
                links: Links::new(),
                linked: Linked::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Asserts which items come after a position.
    fn assert_after(log: &Log<Item>, mut position: u64, names: &[u32]) {
        for name in names {
            let next = log.after(position);

            assert_eq!(next.as_ref().map(|item| item.name), Some(*name));
            position = next.map_or(position, |item| item.position.load(Relaxed));
        }
        assert!(log.after(position).is_none());
    }

    #[test]
    fn the_last_to_have_an_event_is_at_the_end() -> Result {
        let (one, two, three) = (item(1)?, item(2)?, item(3)?);
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
        let (one, two) = (item(1)?, item(2)?);
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
    fn a_qp_is_removed_once() -> Result {
        let (one, two) = (item(1)?, item(2)?);
        let mut log = Log::<Item>::new();

        assert!(log.remove(&one).is_none());
        log.move_to_end(one.as_arc_borrow());
        log.move_to_end(two.as_arc_borrow());
        assert!(log.remove(&one).is_some_and(|item| item.name == 1));
        assert!(log.remove(&one).is_none());
        assert_after(&log, 0, &[2]);
        Ok(())
    }
}
