// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Compares what the layer declares with what the C compiler makes of `<infiniband/ofa_xrc.h>`,
//! found as old programs find it, over rdma-core's own header.

#[path = "../../xrc-rcv/tests/c/mod.rs"]
mod c;

use ofa_xrc_c::ffi::*;

use c::{Facts, constants, structs};

const WHOLE: Option<&str> = None;

#[test]
fn layout() {
    let mut facts = Facts::default();

    constants!(facts:
        IBV_QPT_XRC IBV_QPT_XRC_SEND IBV_QPT_XRC_RECV IBV_QP_INIT_ATTR_XRCD IBV_SRQT_XRC
        IBV_SRQ_INIT_ATTR_TYPE IBV_SRQ_INIT_ATTR_PD IBV_SRQ_INIT_ATTR_XRCD IBV_SRQ_INIT_ATTR_CQ
        IBV_EVENT_QP_FATAL IBV_XRC_QP_EVENT_FLAG
    );

    structs!(facts:
        ibv_srq [Some("offsetof(struct ibv_srq, mutex)")] {
            context srq_context pd handle xrc_srq_num
        }
        ibv_qp [Some("offsetof(struct ibv_qp, mutex)")] {
            context qp_context pd send_cq recv_cq srq handle qp_num state qp_type
        }
        ibv_qp_init_attr [WHOLE] {
            qp_context send_cq recv_cq srq cap qp_type sq_sig_all xrc_domain
        }
        ibv_srq_attr [WHOLE] { max_wr max_sge srq_limit }
        ibv_srq_init_attr [WHOLE] { srq_context attr }
        ibv_async_event [WHOLE] { element event_type }
    );

    // These two are longer than rdma-core's, so that it finds zeroes in what it may add.
    for (rust, c) in [
        (
            std::mem::offset_of!(ibv_qp_init_attr_ex, comp_mask),
            "qp_init_attr_ex, comp_mask",
        ),
        (
            std::mem::offset_of!(ibv_qp_init_attr_ex, pd),
            "qp_init_attr_ex, pd",
        ),
        (
            std::mem::offset_of!(ibv_qp_init_attr_ex, xrcd),
            "qp_init_attr_ex, xrcd",
        ),
        (
            std::mem::offset_of!(ibv_srq_init_attr_ex, comp_mask),
            "srq_init_attr_ex, comp_mask",
        ),
        (
            std::mem::offset_of!(ibv_srq_init_attr_ex, srq_type),
            "srq_init_attr_ex, srq_type",
        ),
        (
            std::mem::offset_of!(ibv_srq_init_attr_ex, pd),
            "srq_init_attr_ex, pd",
        ),
        (
            std::mem::offset_of!(ibv_srq_init_attr_ex, xrcd),
            "srq_init_attr_ex, xrcd",
        ),
        (
            std::mem::offset_of!(ibv_srq_init_attr_ex, cq),
            "srq_init_attr_ex, cq",
        ),
    ] {
        facts
            .0
            .push((rust as u64, format!("offsetof(struct ibv_{c})")));
    }
    for (rust, c) in [
        (
            size_of::<ibv_qp_init_attr_ex>(),
            "struct ibv_qp_init_attr_ex",
        ),
        (
            size_of::<ibv_srq_init_attr_ex>(),
            "struct ibv_srq_init_attr_ex",
        ),
    ] {
        facts.0.push((1, format!("sizeof({c}) <= {rust}")));
    }

    facts.check(
        &["ofed/include/ofa_xrc", "ofed/include"],
        &["infiniband/verbs.h"],
    );
}
