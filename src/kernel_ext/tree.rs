// SPDX-License-Identifier: GPL-2.0

//! An ordered tree of reference-counted objects, linked by members of the objects.
//!
//! Adding an object allocates nothing and cannot fail for lack of memory, which is why this is not
//! `kernel::rbtree`: a node of that is an allocation of its own. `kernel::list` links objects by
//! their members, too, but finds none without a walk.
//!
//! C header: [`include/linux/rbtree.h`](srctree/include/linux/rbtree.h)

use core::{
    cmp::Ordering,
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

/// The places of an object in [`Tree`]s with that `ID`, in `N` of them at once.
#[repr(transparent)]
pub(crate) struct Links<const ID: u64, const N: usize = 1>([Opaque<bindings::rb_node>; N]);

// SAFETY: The links belong to no thread.
unsafe impl<const ID: u64, const N: usize> Send for Links<ID, N> {}

// SAFETY: Only the trees that the object is in access the links, see `Tree`.
unsafe impl<const ID: u64, const N: usize> Sync for Links<ID, N> {}

impl<const ID: u64, const N: usize> Links<ID, N> {
    /// Creates the links of an object that is in no tree.
    pub(crate) const fn new() -> Self {
        Self([const { Opaque::uninit() }; N])
    }
}

/// Whether an object is in [`Tree`]s with that `ID`, for each of its places.
pub(crate) struct Linked<const ID: u64, const N: usize = 1>([Atomic<bool>; N]);

impl<const ID: u64, const N: usize> Linked<ID, N> {
    /// Creates the flags of an object that is in no tree.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(false) }; N])
    }

    /// Returns the flag of each place.
    pub(crate) fn flags(&self) -> &[Atomic<bool>] {
        &self.0
    }
}

/// An object that can be in [`Tree`]s; with several `ID`s, in as many for each of them as it has
/// places. See [`impl_tree_item`].
///
/// # Safety
///
/// `N` being `PLACES`:
///
/// * `OFFSET` must be that of a member of type [`Links<ID, N>`](Links).
/// * `linked` must return the flags of a member of type [`Linked<ID, N>`](Linked), the same one
///   each time.
pub(crate) unsafe trait TreeItem<const ID: u64>: Sized {
    /// The type of the key that orders the tree.
    type Key: Ord;

    /// The number of trees that the object can be in.
    const PLACES: usize;

    /// The offset of the links in the object.
    const OFFSET: usize;

    /// Returns the flags that are set while the links of a place are in use.
    fn linked(&self) -> &[Atomic<bool>];

    /// Returns the key at a place, which is constant while the object is in the tree, and unique
    /// there.
    fn key(&self, place: usize) -> Self::Key;
}

/// Implements [`TreeItem`]: `impl TreeItem<ID> for Type { links: member, linked: member, key:
/// |self, place| … }`. `place` may be left out.
macro_rules! impl_tree_item {
    (
        impl TreeItem<$id:tt> for $type:ty {
            links: $links:ident,
            linked: $linked:ident,
            key: |$item:ident $(, $place:ident)?| -> $key:ty { $($body:tt)* }
        }
    ) => {
        // SAFETY: The offset is that of a member, and `linked` returns the flags of a member. Both
        // have the types with that `ID`, so that another `ID` has other members, and the same
        // number of places: `PLACES` compiles for no others.
        unsafe impl $crate::kernel_ext::tree::TreeItem<$id> for $type {
            type Key = $key;

            // Members of the type itself: not of an object that it or one of them dereferences to.
            const PLACES: usize = {
                let id = $crate::kernel_ext::tree::Id::<$id>;

                $crate::kernel_ext::tree::places(id, |item: &$type| {
                    let _ = ::core::mem::offset_of!($type, $linked);

                    (&raw const item.$links, &raw const item.$linked)
                })
            };

            const OFFSET: usize = ::core::mem::offset_of!($type, $links);

            fn linked(&self) -> &[::kernel::sync::atomic::Atomic<bool>] {
                self.$linked.flags()
            }

            fn key(&self, place: usize) -> $key {
                let $item = self;
                $(let $place = place;)?
                let _ = place;

                $($body)*
            }
        }
    };
}
pub(crate) use impl_tree_item;

/// An `ID` of [`places`].
pub(crate) struct Id<const ID: u64>;

/// Returns the number of places that the members of an item for an `ID` have.
pub(crate) const fn places<T, const ID: u64, const N: usize>(
    _: Id<ID>,
    _: fn(&T) -> (*const Links<ID, N>, *const Linked<ID, N>),
) -> usize {
    N
}

/// See the [module's documentation](self).
///
/// # Invariants
///
/// * Each node of the tree is that of the [`Links`] of a `T`, by `OFFSET`, at `place`, of which the
///   tree owns a reference. The `linked` of that `T` is set at `place`, and these links are in no
///   other tree.
pub(crate) struct Tree<T: TreeItem<ID>, const ID: u64> {
    root: bindings::rb_root,
    len: usize,
    place: usize,
    _items: PhantomData<Arc<T>>,
}

// SAFETY: By the type invariant, it is a collection of references, whose nodes are reached through
// it only.
unsafe impl<T: TreeItem<ID> + Send + Sync, const ID: u64> Send for Tree<T, ID> {}

// SAFETY: By the type invariant, it is a collection of references, whose nodes are reached through
// it only. A shared reference to the tree gives access to shared references to `T`, which is
// `Sync`.
unsafe impl<T: TreeItem<ID> + Send + Sync, const ID: u64> Sync for Tree<T, ID> {}

type Node = bindings::rb_node;

impl<T: TreeItem<ID>, const ID: u64> Tree<T, ID> {
    /// Creates an empty tree, of objects at their first place.
    pub(crate) const fn new() -> Self {
        Self::at(0)
    }

    /// Creates an empty tree, of objects at a place.
    pub(crate) const fn at(place: usize) -> Self {
        // INVARIANT: There is no node.
        Self {
            root: bindings::rb_root {
                rb_node: core::ptr::null_mut(),
            },
            len: 0,
            place,
            _items: PhantomData,
        }
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the offset of the node at a place in an object: `Links` is an array of nodes.
    fn offset(place: usize) -> usize {
        T::OFFSET + place * size_of::<Node>()
    }

    /// Returns the object of a node at a place.
    fn object_of(node: *const Node, place: usize) -> *const T {
        node.wrapping_byte_sub(Self::offset(place)).cast()
    }

    /// # Safety
    ///
    /// `node` must be in a tree of objects at a place, which must not change for `'a`.
    unsafe fn item_of<'a>(node: *mut Node, place: usize) -> ArcBorrow<'a, T> {
        // SAFETY: By the type invariant, the node is the links of an object that was in an `Arc`,
        // and the tree owns a reference to it: as the tree does not change, for `'a`.
        unsafe { ArcBorrow::from_raw(Self::object_of(node, place)) }
    }

    /// Sets the flag of an object at a place. Returns whether it has that place and was in no tree
    /// there.
    fn claim(item: &T, place: usize) -> bool {
        let linked = item.linked().get(place);

        place < T::PLACES && linked.is_some_and(|linked| !linked.xchg(true, Acquire))
    }

    /// Whether an object is in a tree at the place of this one: in this one, if the caller adds it
    /// to no other.
    pub(crate) fn has(&self, item: &T) -> bool {
        let linked = item.linked().get(self.place);

        linked.is_some_and(|linked| linked.load(Relaxed))
    }

    /// Adds an object, or returns it as the error if it is in a tree at that place already, or has
    /// no such place.
    pub(crate) fn insert(&mut self, item: Arc<T>) -> Result<(), Arc<T>> {
        let place = self.place;

        if !Self::claim(&item, place) {
            return Err(item);
        }

        let key = item.key(place);
        let mut parent = core::ptr::null_mut();
        let mut link = &raw mut self.root.rb_node;

        // SAFETY: `link` is where the tree has a pointer to a node: first its root, then a child of
        // a node of it.
        while let Some(node) = NonNull::new(unsafe { *link }) {
            parent = node.as_ptr();
            // SAFETY: The node is in the tree, which does not change before the next line.
            let there = unsafe { Self::item_of(parent, place) }.key(place);

            // SAFETY: The node is in the tree, and so valid.
            link = unsafe {
                match key.cmp(&there) {
                    Ordering::Less => &raw mut (*parent).rb_left,
                    Ordering::Equal | Ordering::Greater => &raw mut (*parent).rb_right,
                }
            };
        }

        let node = Arc::into_raw(item)
            .wrapping_byte_add(Self::offset(place))
            .cast::<Node>()
            .cast_mut();

        // INVARIANT: The tree owns the reference that was given to it. `linked` was not set before,
        // so no tree has the object at that place.
        // SAFETY:
        // * By the requirements of `TreeItem`, the node at `place`, which is less than `PLACES`, is
        //   part of the object. That is valid, as the pointer owns a reference, and stays where it
        //   is: it is in an `Arc`. The node is in an `Opaque`, and nothing else uses it, as no
        //   other tree has the object there.
        // * `link` is the place of a leaf below `parent`, or the root of an empty tree.
        unsafe {
            bindings::rb_link_node(node, parent, link);
            bindings::rb_insert_color(node, &mut self.root);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes an object, if it is in this tree.
    pub(crate) fn remove(&mut self, item: &T) -> Option<Arc<T>> {
        if !self.has(item) {
            return None;
        }

        let key = item.key(self.place);
        let node = self.first_for(|there| *there >= key)?.as_ptr();

        core::ptr::eq(Self::object_of(node, self.place), item).then(|| {
            // SAFETY: The node was just found in the tree.
            unsafe { self.erase(node) }
        })
    }

    /// Removes the first object whose key is greater than `key`, or the first of all without `key`,
    /// if it satisfies `predicate`.
    pub(crate) fn remove_after(
        &mut self,
        key: Option<&T::Key>,
        predicate: impl FnOnce(&T) -> bool,
    ) -> Option<Arc<T>> {
        let node = self.node_after(key)?.as_ptr();
        // SAFETY: The node is in the tree, which does not change before the object is looked at.
        let item = unsafe { Self::item_of(node, self.place) };

        predicate(&item).then(|| {
            // SAFETY: The node was just found in the tree.
            unsafe { self.erase(node) }
        })
    }

    /// Removes the first object.
    pub(crate) fn pop_first(&mut self) -> Option<Arc<T>> {
        // SAFETY: The root is that of a valid tree.
        let node = NonNull::new(unsafe { bindings::rb_first(&self.root) })?;

        // SAFETY: The node was just found in the tree.
        Some(unsafe { self.erase(node.as_ptr()) })
    }

    /// # Safety
    ///
    /// `node` must be in the tree.
    unsafe fn erase(&mut self, node: *mut Node) -> Arc<T> {
        // SAFETY: The node is in this tree by the requirements of this function.
        unsafe { bindings::rb_erase(node, &mut self.root) };
        self.len -= 1;

        // SAFETY: By the type invariant, the tree owned a reference, which `insert` made a pointer
        // of. It is returned here, as the node was just removed from the tree.
        let item = unsafe { Arc::from_raw(Self::object_of(node, self.place)) };

        if let Some(linked) = item.linked().get(self.place) {
            linked.store(false, Release);
        }
        item
    }

    /// Returns the first object whose key is greater than `key`, or the first of all without `key`.
    pub(crate) fn after(&self, key: Option<&T::Key>) -> Option<ArcBorrow<'_, T>> {
        let node = self.node_after(key)?;

        // SAFETY: The node is in the tree, which does not change as long as `self` is borrowed.
        Some(unsafe { Self::item_of(node.as_ptr(), self.place) })
    }

    fn node_after(&self, key: Option<&T::Key>) -> Option<NonNull<Node>> {
        self.first_for(|there| key.is_none_or(|key| there > key))
    }

    /// Returns the objects whose keys are greater than `key`, in order.
    pub(crate) fn all_after<'a>(
        &'a self,
        key: &T::Key,
    ) -> impl Iterator<Item = ArcBorrow<'a, T>> + 'a {
        let mut next = self.first_for(|there| there > key);

        core::iter::from_fn(move || {
            let node = next?.as_ptr();

            // SAFETY: The node is in the tree, which does not change as long as `self` is borrowed.
            next = NonNull::new(unsafe { bindings::rb_next(node) });
            // SAFETY: The node is in the tree, which does not change for `'a`.
            Some(unsafe { Self::item_of(node, self.place) })
        })
    }

    /// Returns the node of the first object whose key satisfies `predicate`, as all greater keys
    /// do.
    fn first_for(&self, predicate: impl Fn(&T::Key) -> bool) -> Option<NonNull<Node>> {
        let mut next = NonNull::new(self.root.rb_node);
        let mut found = None;

        while let Some(node) = next {
            // SAFETY: The node is in the tree, which does not change as long as `self` is borrowed.
            let item = unsafe { Self::item_of(node.as_ptr(), self.place) };
            let holds = predicate(&item.key(self.place));

            if holds {
                found = next;
            }
            // SAFETY: The node is in the tree, and so valid.
            next = NonNull::new(unsafe {
                if holds {
                    (*node.as_ptr()).rb_left
                } else {
                    (*node.as_ptr()).rb_right
                }
            });
        }
        found
    }
}

impl<T: TreeItem<ID>, const ID: u64> Drop for Tree<T, ID> {
    fn drop(&mut self) {
        while let Some(item) = self.pop_first() {
            drop(item);
        }
    }
}

#[kunit_tests(ib_xrc_rcv_tree)]
mod tests {
    use super::*;

    struct Item {
        key: u32,
        links: Links<0>,
        linked: Linked<0>,
    }

    impl_tree_item! {
        impl TreeItem<0> for Item {
            links: links,
            linked: linked,
            key: |item| -> u32 { item.key }
        }
    }

    fn item(key: u32) -> Result<Arc<Item>> {
        Ok(Arc::new(
            Item {
                key,
                links: Links::new(),
                linked: Linked::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// A tree with the keys 2, 4 … 2 * `n`, added in another order, and the objects.
    fn tree(n: u32) -> Result<(Tree<Item, 0>, KVVec<Arc<Item>>)> {
        let mut tree = Tree::new();
        let mut items = KVVec::new();

        for index in 0..n {
            // 7 and n have no common divisor.
            let item = item(2 * (index * 7 % n) + 2)?;

            items.push(item.clone(), GFP_KERNEL)?;
            assert!(tree.insert(item).is_ok());
        }
        Ok((tree, items))
    }

    fn keys(tree: &Tree<Item, 0>) -> Result<KVVec<u32>> {
        let mut keys: KVVec<u32> = KVVec::new();

        while let Some(item) = tree.after(keys.last()) {
            keys.push(item.key, GFP_KERNEL)?;
        }
        Ok(keys)
    }

    #[test]
    fn objects_are_in_order() -> Result {
        let (mut tree, items) = tree(100)?;
        let keys = keys(&tree)?;

        assert_eq!((tree.len(), keys.len()), (100, 100));
        assert!(keys.iter().zip(1..).all(|(key, index)| *key == 2 * index));
        for index in 1..=100 {
            assert_eq!(tree.pop_first().map(|item| item.key), Some(2 * index));
        }
        assert!(tree.len() == 0 && tree.pop_first().is_none());
        assert!(items.iter().all(|item| !item.linked.0[0].load(Acquire)));
        Ok(())
    }

    #[test]
    fn bounds_are_found() -> Result {
        let (tree, _items) = tree(100)?;
        let key = |found: Option<ArcBorrow<'_, Item>>| found.map(|item| item.key);

        assert_eq!(key(tree.after(None)), Some(2));
        assert_eq!(key(tree.after(Some(&0))), Some(2));
        assert_eq!(key(tree.after(Some(&50))), Some(52));
        assert_eq!(key(tree.after(Some(&51))), Some(52));
        assert_eq!(key(tree.after(Some(&200))), None);
        assert!(tree
            .all_after(&0)
            .map(|item| item.key)
            .eq((2..=200).step_by(2)));
        assert!(tree.all_after(&197).map(|item| item.key).eq([198, 200]));
        assert!(tree.all_after(&200).next().is_none());
        Ok(())
    }

    #[test]
    fn only_an_object_of_the_tree_is_removed() -> Result {
        let (mut tree, items) = tree(100)?;

        for item in items.iter().filter(|item| item.key % 4 == 0) {
            assert!(tree
                .remove(item)
                .is_some_and(|removed| Arc::ptr_eq(&removed, item)));
            assert!(tree.remove(item).is_none());
        }
        assert_eq!(tree.len(), 50);
        assert!(items
            .iter()
            .all(|item| tree.has(item) == (item.key % 4 == 2)));
        assert!(keys(&tree)?.iter().all(|key| key % 4 == 2));
        assert!(tree
            .remove_after(Some(&50), |item| item.key != 54)
            .is_none());
        assert!(tree
            .remove_after(Some(&50), |item| item.key == 54)
            .is_some_and(|item| item.key == 54));
        assert!(tree.remove_after(Some(&198), |_| true).is_none());
        assert_eq!(tree.len(), 49);
        // An object that is not in the tree, with the key of an object that is.
        assert!(tree.remove(&*item(2)?).is_none());
        assert_eq!(tree.len(), 49);
        Ok(())
    }

    struct Twice {
        keys: [u32; 2],
        links: Links<0, 2>,
        linked: Linked<0, 2>,
    }

    impl_tree_item! {
        impl TreeItem<0> for Twice {
            links: links,
            linked: linked,
            key: |item, place| -> u32 { item.keys[place] }
        }
    }

    #[test]
    fn an_object_is_in_a_tree_for_each_place() -> Result {
        let (mut first, mut second, mut third) = (Tree::at(0), Tree::at(1), Tree::at(2));
        let mut items = KVVec::new();

        for keys in [[1, 4], [3, 2]] {
            let item = Arc::new(
                Twice {
                    keys,
                    links: Links::new(),
                    linked: Linked::new(),
                },
                GFP_KERNEL,
            )?;

            assert!(first.insert(item.clone()).is_ok());
            assert!(second.insert(item.clone()).is_ok());
            assert!(third.insert(item.clone()).is_err());
            items.push(item, GFP_KERNEL)?;
        }

        let after = |tree: &Tree<Twice, 0>, key| tree.after(Some(&key)).map(|item| item.keys);

        assert_eq!(after(&first, 1), Some([3, 2]));
        assert_eq!(after(&second, 2), Some([1, 4]));
        assert!(Tree::<Twice, 0>::at(1).insert(items[0].clone()).is_err());
        assert!(first.remove(&items[0]).is_some());
        assert_eq!(second.pop_first().map(|item| item.keys), Some([3, 2]));
        assert_eq!((first.len(), second.len()), (1, 1));
        Ok(())
    }

    #[test]
    fn an_object_is_in_one_tree_only() -> Result {
        let (mut first, items) = tree(1)?;
        let mut second: Tree<Item, 0> = Tree::new();

        assert!(second.insert(items[0].clone()).is_err());
        assert!(second.remove(&items[0]).is_none());
        assert!(first.remove(&items[0]).is_some());
        assert!(second.insert(items[0].clone()).is_ok());
        drop(second);
        assert!(first.insert(items[0].clone()).is_ok());
        Ok(())
    }
}
