// SPDX-License-Identifier: GPL-2.0
// E0133
//! Attributes with pointers of a kernel user, for longer than the user promised.

use crate::rdma::qp_attributes::{
    Attributes,
    KernelAttributes,
    Mask, //
};

pub(crate) fn keep(user: &KernelAttributes) -> Attributes {
    user.to_attributes(Mask::NONE)
}
