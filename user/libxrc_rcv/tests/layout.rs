// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Compares the constants that the crate xrc-rcv declares by hand, and every size and offset, with
//! the C compiler's view of the headers on this machine: the module's, the kernel's and
//! rdma-core's. The crate's package has no such headers, so this is not a test of that package.
//!
//! `verbs_xrcd` is private to rdma-core and in no installed header: the kernel checks the handle
//! that is read from it.

mod c;

use std::mem::offset_of;
use xrc_rcv::EventType;
use xrc_rcv::ffi::*;
use xrc_rcv::uapi::*;
use xrc_rcv::verbs_sys::*;

use c::{Facts, constants, structs};

const WHOLE: Option<&str> = None;

#[test]
fn layout() {
    let mut facts = Facts::default();

    constants!(facts:
        RDMA_VERBS_IOCTL
        IBV_XRCD_INIT_ATTR_FD IBV_XRCD_INIT_ATTR_OFLAGS IBV_QPT_XRC_RECV IBV_QPT_XRC_SEND IBV_QP_INIT_ATTR_XRCD
        IBV_QPT_RC IBV_QP_INIT_ATTR_PD IBV_SEND_SIGNALED
        IBV_WR_SEND IBV_WR_RDMA_WRITE IBV_WR_RDMA_READ IBV_WR_ATOMIC_CMP_AND_SWP IBV_WR_ATOMIC_FETCH_AND_ADD
        IBV_QP_OPEN_ATTR_NUM IBV_QP_OPEN_ATTR_XRCD IBV_QP_OPEN_ATTR_TYPE
        IBV_SRQT_XRC IBV_SRQ_INIT_ATTR_TYPE IBV_SRQ_INIT_ATTR_PD IBV_SRQ_INIT_ATTR_XRCD
        IBV_SRQ_INIT_ATTR_CQ IBV_WC_SUCCESS
    );

    structs!(facts:
        xrc_rcv_qp_info [WHOLE] {
            qp_num state lifetime registrations label dest_qp_num reserved
        }
        xrc_rcv_caps [WHOLE] {
            version alloc_flags event_types max_qps_per_domain max_qps_per_user record_size
                max_registrations_per_qp
        }
        xrc_rcv_reg_info [WHOLE] { serial counts }
        xrc_rcv_record [WHOLE] { last_ns serial count qp_num type_ label }
        xrc_rcv_event [WHOLE] { cookie last_ns qp_num type_ count reserved }
        ib_uverbs_ioctl_hdr [WHOLE] {
            length object_id method_id num_attrs reserved1 driver_id reserved2
        }
        ib_uverbs_global_route [WHOLE] { dgid flow_label sgid_index hop_limit traffic_class }
        ib_uverbs_ah_attr [WHOLE] { grh dlid sl src_path_bits static_rate is_global port_num }
        ib_uverbs_qp_attr [WHOLE] {
            qp_attr_mask qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn
            dest_qp_num qp_access_flags ah_attr alt_ah_attr max_send_wr max_recv_wr max_send_sge
            max_recv_sge max_inline_data pkey_index alt_pkey_index en_sqd_async_notify sq_draining
            max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry
            alt_port_num alt_timeout reserved
        }
        ibv_context [Some("offsetof(struct ibv_context, mutex)")] {
            device ops cmd_fd async_fd num_comp_vectors
        }
        ibv_device [Some("offsetof(struct ibv_device, dev_path)")] { node_type transport_type name dev_name }
        ibv_pd [WHOLE] { context handle }
        ibv_srq [Some("offsetof(struct ibv_srq, mutex)")] { context srq_context pd handle }
        ibv_srq_attr [WHOLE] { max_wr max_sge srq_limit }
        ibv_comp_channel [WHOLE] { context fd }
        ibv_mr [WHOLE] { context pd addr length handle lkey rkey }
        ibv_sge [WHOLE] { addr length lkey }
        ibv_recv_wr [WHOLE] { wr_id next sg_list num_sge }
        ibv_wc [WHOLE] {
            wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid
            sl dlid_path_bits
        }
        ibv_xrcd [WHOLE] { context }
        ibv_global_route [WHOLE] { dgid flow_label sgid_index hop_limit traffic_class }
        ibv_ah_attr [WHOLE] { grh dlid sl src_path_bits static_rate is_global port_num }
        ibv_qp_cap [WHOLE] {
            max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data
        }
        ibv_qp_attr [Some("offsetof(struct ibv_qp_attr, rate_limit)")] {
            qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
            qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify
            sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt
            rnr_retry alt_port_num alt_timeout
        }
        ibv_xrcd_init_attr [WHOLE] { comp_mask fd oflags }
        ibv_qp [Some("offsetof(struct ibv_qp, mutex)")] {
            context qp_context pd send_cq recv_cq srq handle qp_num state qp_type
        }
        ibv_async_event [WHOLE] { element event_type }
        ibv_qp_open_attr [WHOLE] { comp_mask qp_num xrcd qp_context qp_type }
    );

    for event_type in EventType::ALL {
        let prefix = match *event_type {
            EventType::QP_ADDED | EventType::QP_GONE => "XRC_RCV",
            _ => "IBV",
        };
        let name = event_type.name().unwrap();
        facts
            .0
            .push((event_type.raw().into(), format!("{prefix}_EVENT_{name}")));
    }

    facts
        .0
        .push((size_of::<ibv_gid>() as u64, "sizeof(union ibv_gid)".into()));
    facts.0.push((
        align_of::<ibv_gid>() as u64,
        "_Alignof(union ibv_gid)".into(),
    ));
    facts.0.push((
        size_of::<ib_uverbs_attr>() as u64,
        "sizeof(struct ib_uverbs_attr)".into(),
    ));

    for (offset, name) in [
        (offset_of!(ibv_send_wr, sg_list), "sg_list"),
        (offset_of!(ibv_send_wr, num_sge), "num_sge"),
        (offset_of!(ibv_send_wr, opcode), "opcode"),
        (offset_of!(ibv_send_wr, send_flags), "send_flags"),
        (
            offset_of!(ibv_send_wr, wr.rdma.remote_addr),
            "wr.rdma.remote_addr",
        ),
        (offset_of!(ibv_send_wr, wr.rdma.rkey), "wr.rdma.rkey"),
        (
            offset_of!(ibv_send_wr, wr.atomic.remote_addr),
            "wr.atomic.remote_addr",
        ),
        (
            offset_of!(ibv_send_wr, wr.atomic.compare_add),
            "wr.atomic.compare_add",
        ),
        (offset_of!(ibv_send_wr, wr.atomic.swap), "wr.atomic.swap"),
        (offset_of!(ibv_send_wr, wr.atomic.rkey), "wr.atomic.rkey"),
        (
            offset_of!(ibv_send_wr, remote_srqn),
            "qp_type.xrc.remote_srqn",
        ),
    ] {
        facts.0.push((
            offset as u64,
            format!("offsetof(struct ibv_send_wr, {name})"),
        ));
    }
    facts.0.push((
        size_of::<ibv_send_wr>() as u64,
        "sizeof(struct ibv_send_wr)".into(),
    ));
    facts.0.push((
        offset_of!(ibv_port_attr, lid) as u64,
        "offsetof(struct ibv_port_attr, lid)".into(),
    ));
    facts.0.push((
        1,
        format!(
            "sizeof(struct ibv_port_attr) <= {}",
            size_of::<ibv_port_attr>()
        ),
    ));

    for (index, name) in [
        (IBV_OPS_POLL_CQ, "poll_cq"),
        (IBV_OPS_REQ_NOTIFY_CQ, "req_notify_cq"),
        (IBV_OPS_POST_SRQ_RECV, "post_srq_recv"),
        (IBV_OPS_POST_SEND, "post_send"),
        (IBV_OPS_POST_RECV, "post_recv"),
    ] {
        facts.0.push((
            (offset_of!(ibv_context, ops) + index * size_of::<usize>()) as u64,
            format!("offsetof(struct ibv_context, ops.{name})"),
        ));
    }

    // Longer than rdma-core's, so that members added to it are zeroes.
    for (offset, name) in [
        (offset_of!(ibv_srq_init_attr_ex, attr), "attr"),
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
    for (offset, name) in [
        (offset_of!(ibv_qp_init_attr_ex, cap), "cap"),
        (offset_of!(ibv_qp_init_attr_ex, comp_mask), "comp_mask"),
        (offset_of!(ibv_qp_init_attr_ex, pd), "pd"),
        (offset_of!(ibv_qp_init_attr_ex, xrcd), "xrcd"),
    ] {
        facts.0.push((
            offset as u64,
            format!("offsetof(struct ibv_qp_init_attr_ex, {name})"),
        ));
    }
    facts.0.push((
        1,
        format!(
            "sizeof(struct ibv_qp_init_attr_ex) <= {}",
            size_of::<ibv_qp_init_attr_ex>()
        ),
    ));

    // The XRC functions are counted from the end of `verbs_context`, where its context begins.
    let ops = size_of::<verbs_context_xrc_ops>() as u64;
    for (offset, name) in [
        (offset_of!(verbs_context_xrc_ops, open_qp), "open_qp"),
        (
            offset_of!(verbs_context_xrc_ops, create_qp_ex),
            "create_qp_ex",
        ),
        (
            offset_of!(verbs_context_xrc_ops, get_srq_num),
            "get_srq_num",
        ),
        (
            offset_of!(verbs_context_xrc_ops, create_srq_ex),
            "create_srq_ex",
        ),
        (offset_of!(verbs_context_xrc_ops, open_xrcd), "open_xrcd"),
        (offset_of!(verbs_context_xrc_ops, close_xrcd), "close_xrcd"),
        (offset_of!(verbs_context_xrc_ops, sz), "sz"),
    ] {
        facts.0.push((
            ops - offset as u64,
            format!(
                "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {name})"
            ),
        ));
    }

    facts.check(
        &["../src/include/uapi", "libxrc_rcv/include"],
        &[
            "infiniband/verbs.h",
            "rdma/rdma_user_ioctl_cmds.h",
            "rdma/ib_user_verbs.h",
            "rdma/ib_xrc_rcv.h",
            "infiniband/xrc_rcv.h",
        ],
    );
}
