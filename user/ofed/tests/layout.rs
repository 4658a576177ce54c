// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Compares the layer's declarations with the C compiler's view of `<infiniband/ofa_xrc.h>`,
//! found as old programs find it, over rdma-core's own header.

#[path = "../../libxrc_rcv/tests/c/mod.rs"]
mod c;

use ofa_xrc_c::ffi::*;

use c::{Facts, constants, structs};

const WHOLE: Option<&str> = None;

#[test]
fn layout() {
    let mut facts = Facts::default();

    constants!(facts:
        IBV_QPT_XRC IBV_QPT_XRC_SEND IBV_EVENT_QP_FATAL IBV_XRC_QP_EVENT_FLAG
    );

    structs!(facts:
        ibv_context [Some("offsetof(struct ibv_context, mutex)")] {
            device ops cmd_fd ofa_core_async_fd num_comp_vectors async_fd
        }
        ibv_srq [Some("offsetof(struct ibv_srq, mutex)")] {
            context srq_context pd handle xrc_srq_num
        }
        ibv_qp_init_attr [WHOLE] {
            qp_context send_cq recv_cq srq cap qp_type sq_sig_all xrc_domain
        }
        ibv_srq_init_attr [WHOLE] { srq_context attr }
        ibv_async_event [WHOLE] { element event_type }
    );

    facts.check(
        &["ofed/include/ofa_xrc", "ofed/include"],
        &["infiniband/verbs.h"],
    );
}
