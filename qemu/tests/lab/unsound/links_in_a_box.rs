// SPDX-License-Identifier: GPL-2.0
// E0308
//! Links that are not part of the object: the tree would write over the pointer to them.

use crate::kernel_ext::tree::{
    impl_tree_item,
    Linked,
    Links, //
};
use kernel::prelude::*;

struct Item {
    links: KBox<Links<0>>,
    linked: Linked<0>,
}

impl_tree_item! {
    impl TreeItem<0> for Item {
        links: links,
        linked: linked,
        key: |_item| -> u32 { 0 }
    }
}
