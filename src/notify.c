// SPDX-License-Identifier: GPL-2.0
/*
 * Reports changes of receive QPs: tracepoints, and the notifier chain for providers.
 */

#include <linux/export.h>
#include <rdma/ib_xrc_rcv.h>

#include "module.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static BLOCKING_NOTIFIER_HEAD(notifiers);

int ib_xrc_rcv_register_notifier(struct notifier_block *nb)
{
	return blocking_notifier_chain_register(&notifiers, nb);
}
EXPORT_SYMBOL_GPL(ib_xrc_rcv_register_notifier);

int ib_xrc_rcv_unregister_notifier(struct notifier_block *nb)
{
	return blocking_notifier_chain_unregister(&notifiers, nb);
}
EXPORT_SYMBOL_GPL(ib_xrc_rcv_unregister_notifier);

/* Whether anyone gets reports of registrations and events; who comes now gets the next. */
bool ib_xrc_rcv_is_reported(void)
{
	return trace_ib_xrc_rcv_reg_enabled() || trace_ib_xrc_rcv_unreg_enabled() ||
	       trace_ib_xrc_rcv_event_enabled() || trace_ib_xrc_rcv_gone_enabled() ||
	       rcu_access_pointer(notifiers.head);
}

void ib_xrc_rcv_notify(enum ib_xrc_rcv_action action, const struct ib_xrc_rcv_qp *qp, int pid,
		       const void *file, u64 mask, bool forced)
{
	struct ib_xrc_rcv_notifier_info info = {
		.device = qp->ibdev,
		.qpn = qp->qpn,
		.registrations = qp->registrations,
	};

	switch (action) {
	case IB_XRC_RCV_ALLOC:
		trace_ib_xrc_rcv_alloc(qp);
		break;
	case IB_XRC_RCV_REG:
		trace_ib_xrc_rcv_reg(qp, pid, file, mask);
		break;
	case IB_XRC_RCV_UNREG:
		trace_ib_xrc_rcv_unreg(qp, pid, file, mask);
		break;
	case IB_XRC_RCV_DESTROY:
		trace_ib_xrc_rcv_destroy(qp, forced);
		break;
	}
	blocking_notifier_call_chain(&notifiers, action, &info);
}

void ib_xrc_rcv_notify_event(const struct ib_xrc_rcv_qp *qp, u32 type, u32 delivered)
{
	trace_ib_xrc_rcv_event(qp, type, delivered);
}

void ib_xrc_rcv_notify_gone(const struct ib_xrc_rcv_qp *qp, u32 delivered)
{
	trace_ib_xrc_rcv_gone(qp, delivered);
}

void ib_xrc_rcv_notify_close(const struct ib_xrc_rcv_qp *qp)
{
	trace_ib_xrc_rcv_close(qp->ibdev, qp->domain);
}
