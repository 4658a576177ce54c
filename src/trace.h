/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints for changes and events of receive QPs. The index distinguishes devices
 * with the same name in different network namespaces.
 */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_xrc_rcv

#if !defined(_IB_XRC_RCV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _IB_XRC_RCV_TRACE_H

#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <trace/misc/rdma.h>	/* needs all three */

DECLARE_EVENT_CLASS(ib_xrc_rcv_qp,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u64 label,
		 u32 registrations),
	TP_ARGS(ibdev, domain, qpn, label, registrations),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u64, label)
		__field(u32, registrations)
	),
	TP_fast_assign(
		__entry->index = ibdev->index;
		__assign_str(device);
		__entry->domain = domain;
		__entry->qpn = qpn;
		__entry->label = label;
		__entry->registrations = registrations;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x label=0x%llx registrations=%u",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, __entry->label, __entry->registrations)
);

DEFINE_EVENT(ib_xrc_rcv_qp, ib_xrc_rcv_alloc,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u64 label,
		 u32 registrations),
	TP_ARGS(ibdev, domain, qpn, label, registrations)
);

DEFINE_EVENT(ib_xrc_rcv_qp, ib_xrc_rcv_destroy,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u64 label,
		 u32 registrations),
	TP_ARGS(ibdev, domain, qpn, label, registrations)
);

DECLARE_EVENT_CLASS(ib_xrc_rcv_registration,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u32 registrations,
		 int pid),
	TP_ARGS(ibdev, domain, qpn, registrations, pid),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u32, registrations)
		__field(int, pid)
	),
	TP_fast_assign(
		__entry->index = ibdev->index;
		__assign_str(device);
		__entry->domain = domain;
		__entry->qpn = qpn;
		__entry->registrations = registrations;
		__entry->pid = pid;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x registrations=%u pid=%d",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, __entry->registrations, __entry->pid)
);

DEFINE_EVENT(ib_xrc_rcv_registration, ib_xrc_rcv_reg,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u32 registrations,
		 int pid),
	TP_ARGS(ibdev, domain, qpn, registrations, pid)
);

DEFINE_EVENT(ib_xrc_rcv_registration, ib_xrc_rcv_unreg,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u32 registrations,
		 int pid),
	TP_ARGS(ibdev, domain, qpn, registrations, pid)
);

TRACE_EVENT(ib_xrc_rcv_event,
	TP_PROTO(struct ib_device *ibdev, u32 domain, u32 qpn, u32 type,
		 u32 count, u32 delivered),
	TP_ARGS(ibdev, domain, qpn, type, count, delivered),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u32, type)
		__field(u32, count)
		__field(u32, delivered)
	),
	TP_fast_assign(
		__entry->index = ibdev->index;
		__assign_str(device);
		__entry->domain = domain;
		__entry->qpn = qpn;
		__entry->type = type;
		__entry->count = count;
		__entry->delivered = delivered;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x type=%s count=%u delivered=%u",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, rdma_show_ib_event(__entry->type),
		  __entry->count, __entry->delivered)
);

#endif /* _IB_XRC_RCV_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
