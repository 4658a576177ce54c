// SPDX-License-Identifier: GPL-2.0

//! Attributes of QPs as processes pass them.

use super::{
    bindings::uapi::ib_uverbs_qp_attr,
    qp_attr::{QpAttrMask, QpState, UserQpAttr},
};

/// Returns attributes with the first port.
pub(crate) fn attributes(mask: QpAttrMask, state: QpState) -> ib_uverbs_qp_attr {
    let mut attributes = ib_uverbs_qp_attr {
        qp_attr_mask: mask.bits(),
        qp_state: state as u32,
        port_num: 1,
        ..Default::default()
    };

    attributes.ah_attr.port_num = 1;
    attributes
}

/// Returns attributes as the module takes them.
pub(crate) fn passed(attributes: ib_uverbs_qp_attr) -> UserQpAttr {
    // SAFETY: It is a transparent wrapper.
    unsafe { core::mem::transmute(attributes) }
}

/// Returns attributes with the first port, as the module takes them.
pub(crate) fn to(mask: QpAttrMask, state: QpState) -> UserQpAttr {
    passed(attributes(mask, state))
}

/// Returns attributes with another mask.
pub(crate) fn with_mask(attributes: ib_uverbs_qp_attr, mask: QpAttrMask) -> ib_uverbs_qp_attr {
    ib_uverbs_qp_attr {
        qp_attr_mask: mask.bits(),
        ..attributes
    }
}

/// Returns attributes as a process gets them.
pub(crate) fn contents(attributes: UserQpAttr) -> ib_uverbs_qp_attr {
    // SAFETY: It is a transparent wrapper.
    unsafe { core::mem::transmute(attributes) }
}
