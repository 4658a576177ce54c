// SPDX-License-Identifier: GPL-2.0
// E0621
//! The `ib_udata` of a call that is over.

use crate::rdma::{
    udata::UData,
    uverbs::call::{
        Call,
        Handler, //
    },
};

pub(crate) fn keep<'a, H: Handler>(call: &Call<'_, H>) -> UData<'a> {
    call.udata()
}
