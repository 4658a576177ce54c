// SPDX-License-Identifier: GPL-2.0

//! `kernel::list`

use crate::{
    runtime,
    sync::{Arc, ArcBorrow},
};
use core::{
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering},
};
use std::collections::VecDeque;

/// Whether there is a [`ListArc`] of an object.
pub struct AtomicTracker(AtomicBool);

impl AtomicTracker {
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }
}

#[derive(Default)]
pub struct ListLinks(());

impl ListLinks {
    pub fn new() -> Self {
        Self(())
    }
}

pub trait ListArcSafe {
    fn tracker(&self) -> &AtomicTracker;
}

/// An [`Arc`] of an object that has no other `ListArc`.
pub struct ListArc<T: ListArcSafe>(Arc<T>);

pub trait TryNewListArc: ListArcSafe {
    fn try_new_list_arc(&self) -> bool {
        runtime::interleave();
        !self.tracker().0.swap(true, Ordering::SeqCst)
    }
}

impl<T: TryNewListArc> ListArc<T> {
    pub fn try_from_arc_or_drop(arc: Arc<T>) -> Option<Self> {
        arc.try_new_list_arc().then_some(Self(arc))
    }
}

impl<T: ListArcSafe> Deref for ListArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ListArcSafe> Drop for ListArc<T> {
    fn drop(&mut self) {
        self.0.tracker().0.store(false, Ordering::SeqCst);
    }
}

pub struct List<T: ListArcSafe>(VecDeque<ListArc<T>>);

impl<T: ListArcSafe> List<T> {
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub fn push_back(&mut self, item: ListArc<T>) {
        self.0.push_back(item);
    }

    pub fn pop_back(&mut self) -> Option<ListArc<T>> {
        self.0.pop_back()
    }

    pub fn iter(&self) -> impl Iterator<Item = ArcBorrow<'_, T>> {
        self.0.iter().map(|item| item.0.as_arc_borrow())
    }
}

impl<T: ListArcSafe> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[macro_export]
#[doc(hidden)]
macro_rules! __impl_list_arc_safe {
    (impl ListArcSafe<0> for $type:ty { tracked_by $field:ident: AtomicTracker; }) => {
        impl $crate::list::ListArcSafe for $type {
            fn tracker(&self) -> &AtomicTracker {
                &self.$field
            }
        }

        impl TryNewListArc for $type {}
    };
}
pub use crate::__impl_list_arc_safe as impl_list_arc_safe;

#[macro_export]
#[doc(hidden)]
macro_rules! __impl_list_item {
    (impl ListItem<0> for $type:ty { using ListLinks { self.$field:ident }; }) => {
        const _: fn(&$type) -> &ListLinks = |item| &item.$field;
    };
}
pub use crate::__impl_list_item as impl_list_item;
