// SPDX-License-Identifier: GPL-2.0
// E0621
//! A request that outlives its call.

use crate::{
    device::AttachedDevice,
    rdma::uverbs::call::{
        Call,
        UserRequest, //
    },
};

pub(crate) fn keep<'a>(call: &Call<'_, AttachedDevice>) -> UserRequest<'a> {
    call.request()
}
