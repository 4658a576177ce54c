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
pub struct AtomicTracker<const ID: u64 = 0>(AtomicBool);

impl<const ID: u64> AtomicTracker<ID> {
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }
}

#[derive(Default)]
pub struct ListLinks<const ID: u64 = 0>(());

impl<const ID: u64> ListLinks<ID> {
    pub fn new() -> Self {
        Self(())
    }
}

pub trait ListArcSafe<const ID: u64 = 0> {
    fn tracker(&self) -> &AtomicTracker<ID>;
}

/// An [`Arc`] of an object that has no other `ListArc`.
pub struct ListArc<T: ListArcSafe<ID>, const ID: u64 = 0>(Arc<T>);

pub trait TryNewListArc<const ID: u64 = 0>: ListArcSafe<ID> {
    fn try_new_list_arc(&self) -> bool {
        runtime::interleave();
        !self.tracker().0.swap(true, Ordering::SeqCst)
    }
}

impl<T: TryNewListArc<ID>, const ID: u64> ListArc<T, ID> {
    pub fn try_from_arc_or_drop(arc: Arc<T>) -> Option<Self> {
        arc.try_new_list_arc().then_some(Self(arc))
    }
}

impl<T: ListArcSafe<ID>, const ID: u64> ListArc<T, ID> {
    pub fn into_arc(self) -> Arc<T> {
        self.0.clone()
    }
}

impl<T: ListArcSafe<ID>, const ID: u64> Deref for ListArc<T, ID> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ListArcSafe<ID>, const ID: u64> Drop for ListArc<T, ID> {
    fn drop(&mut self) {
        self.0.tracker().0.store(false, Ordering::SeqCst);
    }
}

pub struct List<T: ListArcSafe<ID>, const ID: u64 = 0>(VecDeque<ListArc<T, ID>>);

impl<T: ListArcSafe<ID>, const ID: u64> List<T, ID> {
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub fn push_back(&mut self, item: ListArc<T, ID>) {
        runtime::count_listed(ID, 1);
        self.0.push_back(item);
    }

    pub fn pop_back(&mut self) -> Option<ListArc<T, ID>> {
        self.taken(|items| items.pop_back())
    }

    pub fn pop_front(&mut self) -> Option<ListArc<T, ID>> {
        self.taken(|items| items.pop_front())
    }

    /// # Safety
    ///
    /// The item must be in no other list of this kind.
    pub unsafe fn remove(&mut self, item: &T) -> Option<ListArc<T, ID>> {
        let place = self
            .0
            .iter()
            .position(|other| core::ptr::eq(&**other, item));

        self.taken(|items| items.remove(place?))
    }

    fn taken(
        &mut self,
        take: impl FnOnce(&mut VecDeque<ListArc<T, ID>>) -> Option<ListArc<T, ID>>,
    ) -> Option<ListArc<T, ID>> {
        take(&mut self.0).inspect(|_| runtime::count_listed(ID, -1))
    }

    pub fn iter(&self) -> impl Iterator<Item = ArcBorrow<'_, T>> {
        self.0.iter().map(|item| item.0.as_arc_borrow())
    }
}

impl<T: ListArcSafe<ID>, const ID: u64> Default for List<T, ID> {
    fn default() -> Self {
        Self::new()
    }
}

#[macro_export]
#[doc(hidden)]
macro_rules! __impl_list_arc_safe {
    (impl ListArcSafe<$id:tt> for $type:ty { tracked_by $field:ident: AtomicTracker$(<$of:tt>)?; }) => {
        impl $crate::list::ListArcSafe<$id> for $type {
            fn tracker(&self) -> &AtomicTracker<$id> {
                &self.$field
            }
        }

        impl TryNewListArc<$id> for $type {}
    };
}
pub use crate::__impl_list_arc_safe as impl_list_arc_safe;

#[macro_export]
#[doc(hidden)]
macro_rules! __impl_list_item {
    (impl ListItem<$id:tt> for $type:ty { using ListLinks { self.$field:ident }; }) => {
        const _: fn(&$type) -> &ListLinks<$id> = |item| &item.$field;
    };
}
pub use crate::__impl_list_item as impl_list_item;
