// SPDX-License-Identifier: GPL-2.0

//! `kernel::rbtree`, over a tree of the standard library.

use crate::alloc::{AllocError, Allocation, Flags};
use core::{marker::PhantomData, ops::Bound};
use std::collections::BTreeMap;

pub struct RBTree<K, V>(BTreeMap<K, (V, Allocation)>);

pub struct RBTreeNode<K, V> {
    key: K,
    value: V,
    allocation: Allocation,
}

pub struct RBTreeNodeReservation<K, V>(Allocation, PhantomData<fn() -> (K, V)>);

impl<K, V> RBTreeNodeReservation<K, V> {
    pub fn new(flags: Flags) -> Result<Self, AllocError> {
        Ok(Self(Allocation::new(flags)?, PhantomData))
    }

    pub fn into_node(self, key: K, value: V) -> RBTreeNode<K, V> {
        RBTreeNode {
            key,
            value,
            allocation: self.0,
        }
    }
}

impl<K, V> RBTreeNode<K, V> {
    pub fn to_key_value(self) -> (K, V) {
        (self.key, self.value)
    }
}

impl<K: Ord, V> RBTree<K, V> {
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn insert(&mut self, node: RBTreeNode<K, V>) -> Option<RBTreeNode<K, V>>
    where
        K: Clone,
    {
        let RBTreeNode {
            key,
            value,
            allocation,
        } = node;
        let (value, allocation) = self.0.insert(key.clone(), (value, allocation))?;

        Some(RBTreeNode {
            key,
            value,
            allocation,
        })
    }

    pub fn try_create_and_insert(
        &mut self,
        key: K,
        value: V,
        flags: Flags,
    ) -> Result<Option<RBTreeNode<K, V>>, AllocError>
    where
        K: Clone,
    {
        Ok(self.insert(RBTreeNodeReservation::new(flags)?.into_node(key, value)))
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key).map(|(value, _)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key).map(|(value, _)| value)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key).map(|(value, _)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, (value, _))| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values().map(|(value, _)| value)
    }

    pub fn cursor_lower_bound_mut(&mut self, key: &K) -> Option<CursorMut<'_, K, V>>
    where
        K: Clone,
    {
        let key = self.0.range(key..).next()?.0.clone();

        Some(CursorMut { tree: self, key })
    }

    pub fn cursor_back_mut(&mut self) -> Option<CursorMut<'_, K, V>>
    where
        K: Clone,
    {
        let key = self.0.last_key_value()?.0.clone();

        Some(CursorMut { tree: self, key })
    }
}

impl<K: Ord, V> Default for RBTree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

pub struct CursorMut<'a, K, V> {
    tree: &'a mut RBTree<K, V>,
    key: K,
}

impl<K: Ord + Clone, V> CursorMut<'_, K, V> {
    pub fn current(&self) -> (&K, &V) {
        (&self.key, &self.tree.0[&self.key].0)
    }

    pub fn move_next(mut self) -> Option<Self> {
        let after = (Bound::Excluded(&self.key), Bound::Unbounded);

        self.key = self.tree.0.range(after).next()?.0.clone();
        Some(self)
    }

    /// The neighbour is the next one, or else the previous one.
    pub fn remove_current(self) -> (Option<Self>, RBTreeNode<K, V>) {
        let Self { tree, key } = self;
        let (value, allocation) = tree.0.remove(&key).expect("the cursor is at a node");
        let neighbour = tree.0.range(&key..).next();
        let neighbour = neighbour.or_else(|| tree.0.last_key_value());
        let neighbour = neighbour.map(|(key, _)| key.clone());
        let node = RBTreeNode {
            key,
            value,
            allocation,
        };

        (neighbour.map(|key| Self { tree, key }), node)
    }
}
