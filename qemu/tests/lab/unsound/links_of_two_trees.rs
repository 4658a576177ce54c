// SPDX-License-Identifier: GPL-2.0
// E0308
//! Links in two trees: each would write to the nodes of the other.

use crate::kernel_ext::tree::{
    impl_tree_item,
    Linked,
    Links, //
};

struct Item {
    links: Links<0>,
    first: Linked<0>,
    second: Linked<1>,
}

impl_tree_item! {
    impl TreeItem<0> for Item {
        links: links,
        linked: first,
        key: |_item| -> u32 { 0 }
    }
}

impl_tree_item! {
    impl TreeItem<1> for Item {
        links: links,
        linked: second,
        key: |_item| -> u32 { 0 }
    }
}
