// SPDX-License-Identifier: GPL-2.0
// E0609
//! The flag of an object that several can share, each with links of its own.

use crate::kernel_ext::tree::{
    impl_tree_item,
    Linked,
    Links, //
};
use core::ops::Deref;
use kernel::sync::Arc;

struct Shared {
    linked: Linked<0>,
}

struct Item {
    links: Links<0>,
    shared: Arc<Shared>,
}

impl Deref for Item {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl_tree_item! {
    impl TreeItem<0> for Item {
        links: links,
        linked: linked,
        key: |_item| -> u32 { 0 }
    }
}
