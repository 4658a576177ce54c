// SPDX-License-Identifier: GPL-2.0
/*
 * Exports the functions for kernel users, which kernel_api.rs defines: Rust has no
 * EXPORT_SYMBOL_GPL().
 */

#include <linux/export.h>
#include <rdma/ib_xrc_rcv.h>

#define EXPORT_RUST EXPORT_SYMBOL_GPL

EXPORT_RUST(ib_xrc_rcv_join);
EXPORT_RUST(ib_xrc_rcv_leave);
EXPORT_RUST(ib_xrc_rcv_alloc_qp);
EXPORT_RUST(ib_xrc_rcv_reg_qp);
EXPORT_RUST(ib_xrc_rcv_unreg_qp);
EXPORT_RUST(ib_xrc_rcv_modify_qp);
EXPORT_RUST(ib_xrc_rcv_query_qp);
EXPORT_RUST(ib_xrc_rcv_destroy_qp);
