/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions of the module that its Rust part calls. Read by bindgen.
 */

#ifndef _IB_XRC_RCV_MODULE_H
#define _IB_XRC_RCV_MODULE_H

#include <rdma/ib_xrc_rcv.h>

unsigned int ib_xrc_rcv_max_qps_per_domain(void);
unsigned int ib_xrc_rcv_max_qps_per_user(void);
unsigned int ib_xrc_rcv_max_registrations_per_qp(void);
unsigned int ib_xrc_rcv_accounting_uid(void);
bool ib_xrc_rcv_may_exceed_limits(void);

/* A receive QP in a report. For an event, the registrations are those that it was for. */
struct ib_xrc_rcv_qp {
	struct ib_device	*ibdev;
	u64			label;
	u64			serial;
	u32			domain;
	u32			qpn;
	u32			lifetime;
	u32			registrations;
	u32			keeping;	/* registrations that keep the QP; 0 for an event */
	u32			keeping_all;	/* members that keep all QPs; 0 for an event */
	u64			changes;	/* registrations that were added or ended so far */
};

bool ib_xrc_rcv_is_reported(void);
void ib_xrc_rcv_notify(enum ib_xrc_rcv_action action, const struct ib_xrc_rcv_qp *qp, int pid,
		       const void *file, u64 mask, bool forced);
void ib_xrc_rcv_notify_event(const struct ib_xrc_rcv_qp *qp, u32 type, u32 delivered);
void ib_xrc_rcv_notify_gone(const struct ib_xrc_rcv_qp *qp, u32 delivered);
void ib_xrc_rcv_notify_close(const struct ib_xrc_rcv_qp *qp);

#endif /* _IB_XRC_RCV_MODULE_H */
