// SPDX-License-Identifier: GPL-2.0
// E0133
//! QpAttr with pointers of a kernel user, for longer than the user promised.

use crate::rdma::qp_attr::{
    KernelQpAttr,
    QpAttr,
    QpAttrMask, //
};

pub(crate) fn keep(user: &KernelQpAttr) -> QpAttr {
    user.to_attributes(QpAttrMask::NONE)
}
