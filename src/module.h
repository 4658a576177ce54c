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

void ib_xrc_rcv_notify(enum ib_xrc_rcv_action action, struct ib_device *ibdev, u32 domain,
		       u32 qpn, u64 label, u32 registrations, int pid);
void ib_xrc_rcv_notify_event(struct ib_device *ibdev, u32 domain, u32 qpn, u32 type,
			     u32 count, u32 delivered);

#endif /* _IB_XRC_RCV_MODULE_H */
