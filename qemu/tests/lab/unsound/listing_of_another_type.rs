// SPDX-License-Identifier: GPL-2.0
// E0308
//! Files whose operations expect data of another type.

use crate::kernel_ext::{
    debugfs::{
        Dir,
        Listing,
        ListingOperations, //
    },
    this_module, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

static OPERATIONS: ListingOperations<u64> = ListingOperations::new(this_module());

pub(crate) fn list(parent: Arc<Dir>, data: &Arc<u32>) -> Result<Listing<u32>> {
    Listing::new(c"list", parent, &OPERATIONS, data, &[])
}
