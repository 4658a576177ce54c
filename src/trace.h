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

TRACE_DEFINE_ENUM(XRC_RCV_LIFETIME_REGISTRATIONS);
TRACE_DEFINE_ENUM(XRC_RCV_LIFETIME_DOMAIN);

#define xrc_rcv_show_lifetime(lifetime)					\
	__print_symbolic(lifetime,					\
			 { XRC_RCV_LIFETIME_REGISTRATIONS, "registrations" },	\
			 { XRC_RCV_LIFETIME_DOMAIN, "domain" })

TRACE_EVENT(ib_xrc_rcv_alloc,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp),
	TP_ARGS(qp),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, qp->ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u64, label)
		__field(u32, registrations)
		__field(u32, keeping)
		__field(u32, keeping_all)
		__field(u32, lifetime)
		__field(u64, serial)
		__field(u64, changes)
	),
	TP_fast_assign(
		__entry->index = qp->ibdev->index;
		__assign_str(device);
		__entry->domain = qp->domain;
		__entry->qpn = qp->qpn;
		__entry->label = qp->label;
		__entry->registrations = qp->registrations;
		__entry->keeping = qp->keeping;
		__entry->keeping_all = qp->keeping_all;
		__entry->lifetime = qp->lifetime;
		__entry->serial = qp->serial;
		__entry->changes = qp->changes;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x label=0x%llx registrations=%u keeping=%u keeping_all=%u lifetime=%s serial=%llu changes=%llu",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, __entry->label, __entry->registrations,
		  __entry->keeping, __entry->keeping_all,
		  xrc_rcv_show_lifetime(__entry->lifetime),
		  __entry->serial, __entry->changes)
);

/* Forced by DESTROY with FORCE. */
TRACE_EVENT(ib_xrc_rcv_destroy,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp, bool forced),
	TP_ARGS(qp, forced),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, qp->ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u64, label)
		__field(u32, registrations)
		__field(u32, keeping)
		__field(u32, keeping_all)
		__field(u32, lifetime)
		__field(bool, forced)
		__field(u64, serial)
		__field(u64, changes)
	),
	TP_fast_assign(
		__entry->index = qp->ibdev->index;
		__assign_str(device);
		__entry->domain = qp->domain;
		__entry->qpn = qp->qpn;
		__entry->label = qp->label;
		__entry->registrations = qp->registrations;
		__entry->keeping = qp->keeping;
		__entry->keeping_all = qp->keeping_all;
		__entry->lifetime = qp->lifetime;
		__entry->forced = forced;
		__entry->serial = qp->serial;
		__entry->changes = qp->changes;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x label=0x%llx registrations=%u keeping=%u keeping_all=%u lifetime=%s forced=%d serial=%llu changes=%llu",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, __entry->label, __entry->registrations,
		  __entry->keeping, __entry->keeping_all,
		  xrc_rcv_show_lifetime(__entry->lifetime),
		  __entry->forced, __entry->serial, __entry->changes)
);

/* The file is the member, of which the hash is printed. The pid of a kernel user is 0. */
DECLARE_EVENT_CLASS(ib_xrc_rcv_registration,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp, int pid, const void *file,
		 u64 mask),
	TP_ARGS(qp, pid, file, mask),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, qp->ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u32, registrations)
		__field(u32, keeping)
		__field(u32, keeping_all)
		__field(int, pid)
		__field(const void *, file)
		__field(u64, mask)
		__field(u64, serial)
		__field(u64, changes)
	),
	TP_fast_assign(
		__entry->index = qp->ibdev->index;
		__assign_str(device);
		__entry->domain = qp->domain;
		__entry->qpn = qp->qpn;
		__entry->registrations = qp->registrations;
		__entry->keeping = qp->keeping;
		__entry->keeping_all = qp->keeping_all;
		__entry->pid = pid;
		__entry->file = file;
		__entry->mask = mask;
		__entry->serial = qp->serial;
		__entry->changes = qp->changes;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x registrations=%u keeping=%u keeping_all=%u pid=%d file=%p mask=0x%llx serial=%llu changes=%llu",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, __entry->registrations, __entry->keeping,
		  __entry->keeping_all, __entry->pid, __entry->file, __entry->mask,
		  __entry->serial, __entry->changes)
);

DEFINE_EVENT(ib_xrc_rcv_registration, ib_xrc_rcv_reg,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp, int pid, const void *file,
		 u64 mask),
	TP_ARGS(qp, pid, file, mask)
);

DEFINE_EVENT(ib_xrc_rcv_registration, ib_xrc_rcv_unreg,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp, int pid, const void *file,
		 u64 mask),
	TP_ARGS(qp, pid, file, mask)
);

TRACE_EVENT(ib_xrc_rcv_event,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp, u32 type, u32 delivered),
	TP_ARGS(qp, type, delivered),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, qp->ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u32, type)
		__field(u32, delivered)
		__field(u32, registrations)
		__field(u64, serial)
		__field(u64, changes)
	),
	TP_fast_assign(
		__entry->index = qp->ibdev->index;
		__assign_str(device);
		__entry->domain = qp->domain;
		__entry->qpn = qp->qpn;
		__entry->type = type;
		__entry->delivered = delivered;
		__entry->registrations = qp->registrations;
		__entry->serial = qp->serial;
		__entry->changes = qp->changes;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x type=%s delivered=%u registrations=%u serial=%llu changes=%llu",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, rdma_show_ib_event(__entry->type),
		  __entry->delivered, __entry->registrations,
		  __entry->serial, __entry->changes)
);

/* The QP was destroyed, and QP_GONE delivered. */
TRACE_EVENT(ib_xrc_rcv_gone,
	TP_PROTO(const struct ib_xrc_rcv_qp *qp, u32 delivered),
	TP_ARGS(qp, delivered),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, qp->ibdev->name)
		__field(u32, domain)
		__field(u32, qpn)
		__field(u32, delivered)
		__field(u32, registrations)
		__field(u64, serial)
		__field(u64, changes)
	),
	TP_fast_assign(
		__entry->index = qp->ibdev->index;
		__assign_str(device);
		__entry->domain = qp->domain;
		__entry->qpn = qp->qpn;
		__entry->delivered = delivered;
		__entry->registrations = qp->registrations;
		__entry->serial = qp->serial;
		__entry->changes = qp->changes;
	),
	TP_printk("index=%u device=%s domain=%u qpn=0x%x delivered=%u registrations=%u serial=%llu changes=%llu",
		  __entry->index, __get_str(device), __entry->domain,
		  __entry->qpn, __entry->delivered, __entry->registrations,
		  __entry->serial, __entry->changes)
);

/* The last close of a domain with QPs, or the removal of its device. */
TRACE_EVENT(ib_xrc_rcv_close,
	TP_PROTO(struct ib_device *ibdev, u32 domain),
	TP_ARGS(ibdev, domain),
	TP_STRUCT__entry(
		__field(u32, index)
		__string(device, ibdev->name)
		__field(u32, domain)
	),
	TP_fast_assign(
		__entry->index = ibdev->index;
		__assign_str(device);
		__entry->domain = domain;
	),
	TP_printk("index=%u device=%s domain=%u",
		  __entry->index, __get_str(device), __entry->domain)
);

#endif /* _IB_XRC_RCV_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
