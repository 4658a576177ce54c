// SPDX-License-Identifier: GPL-2.0
// E0308
//! A flag that can be exchanged while the links are in use.

use crate::kernel_ext::tree::{
    impl_tree_item,
    Linked,
    Links, //
};
use kernel::prelude::*;

struct Item {
    links: Links<0>,
    linked: KBox<Linked<0>>,
}

impl_tree_item! {
    impl TreeItem<0> for Item {
        links: links,
        linked: linked,
        key: |_item| -> u32 { 0 }
    }
}
