// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Compares what the layer declares with what the C compiler makes of `<infiniband/ofa_xrc.h>`,
//! found as old programs find it, over rdma-core's own header.

#[path = "../../xrc-rcv/tests/c/mod.rs"]
mod c;

use std::mem::offset_of;

use ofa_xrc_c::ffi::*;

use c::{Facts, constants, structs};

const WHOLE: Option<&str> = None;

#[test]
fn layout() {
    let mut facts = Facts::default();

    constants!(facts:
        IBV_QPT_XRC IBV_QPT_XRC_SEND IBV_SRQT_XRC
        IBV_SRQ_INIT_ATTR_TYPE IBV_SRQ_INIT_ATTR_PD IBV_SRQ_INIT_ATTR_XRCD IBV_SRQ_INIT_ATTR_CQ
        IBV_EVENT_QP_FATAL IBV_XRC_QP_EVENT_FLAG
    );

    structs!(facts:
        ibv_srq [Some("offsetof(struct ibv_srq, mutex)")] {
            context srq_context pd handle xrc_srq_num
        }
        ibv_qp_init_attr [WHOLE] {
            qp_context send_cq recv_cq srq cap qp_type sq_sig_all xrc_domain
        }
        ibv_srq_attr [WHOLE] { max_wr max_sge srq_limit }
        ibv_srq_init_attr [WHOLE] { srq_context attr }
        ibv_async_event [WHOLE] { element event_type }
    );

    // Longer than rdma-core's, so that it finds zeroes in what it may add.
    for (offset, name) in [
        (offset_of!(ibv_srq_init_attr_ex, comp_mask), "comp_mask"),
        (offset_of!(ibv_srq_init_attr_ex, srq_type), "srq_type"),
        (offset_of!(ibv_srq_init_attr_ex, pd), "pd"),
        (offset_of!(ibv_srq_init_attr_ex, xrcd), "xrcd"),
        (offset_of!(ibv_srq_init_attr_ex, cq), "cq"),
    ] {
        facts.0.push((
            offset as u64,
            format!("offsetof(struct ibv_srq_init_attr_ex, {name})"),
        ));
    }
    facts.0.push((
        1,
        format!(
            "sizeof(struct ibv_srq_init_attr_ex) <= {}",
            size_of::<ibv_srq_init_attr_ex>()
        ),
    ));

    facts.check(
        &["ofed/include/ofa_xrc", "ofed/include"],
        &["infiniband/verbs.h"],
    );
}
