/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XRC receive QPs for kernel users, and notifiers for providers. The semantics are
 * those of the interface to processes, see <uapi/rdma/ib_xrc_rcv.h>; this header
 * documents the differences.
 */

#ifndef _RDMA_IB_XRC_RCV_H
#define _RDMA_IB_XRC_RCV_H

#include <linux/notifier.h>
#include <rdma/ib_verbs.h>
#include <uapi/rdma/ib_xrc_rcv.h>

/**
 * struct ib_xrc_rcv_member - a member of a domain
 *
 * It has registrations with receive QPs of the domain, one with each at most, as an
 * event channel has. The pointer is valid until ib_xrc_rcv_leave(), even if the domain
 * is closed or the device removed before.
 */
struct ib_xrc_rcv_member;

/**
 * typedef ib_xrc_rcv_handler - handler of the events of a member
 * @record: the record, as a process would read it from an event channel: an event of a
 *	QP, or %XRC_RCV_EVENT_OVERRUN
 * @context: the context that was passed with the handler
 *
 * A worker calls it once for each record, in order, and one call after the other. It may
 * sleep, and call the functions of this header, but ib_xrc_rcv_leave(). Handlers have a
 * workqueue of their own, which calls those of 16 members at a time: only those of other
 * kernel users can wait for it. It is not called after ib_xrc_rcv_leave() has returned,
 * nor for a QP after %XRC_RCV_EVENT_QP_GONE. If ib_xrc_rcv_unreg_qp() is called
 * meanwhile, it may already be running with a record of the QP, but is not called for
 * another.
 */
typedef void (*ib_xrc_rcv_handler)(const struct xrc_rcv_record *record, void *context);

/**
 * struct ib_xrc_rcv_init_attr - parameters of a new receive QP
 * @flags: &enum xrc_rcv_alloc_flags
 * @attr_mask: mask of the attributes in @attr
 * @attr: attributes for the transition to INIT or RTR, see
 *	%XRC_RCV_ATTR_QP_ALLOC_ATTR; may be NULL. As for all kernel users of
 *	ib_modify_qp(), a RoCE address vector must be resolved. EOPNOTSUPP if the
 *	provider is qedr, which modifies XRC target QPs for processes only, and on
 *	mlx4 if the domain has an inode, see ib_xrc_rcv_modify_qp().
 * @label: label of the QP, see %XRC_RCV_ATTR_QP_ALLOC_LABEL
 */
struct ib_xrc_rcv_init_attr {
	u32 flags;
	int attr_mask;
	const struct ib_qp_attr *attr;
	u64 label;
};

/*
 * The caller must be a client of ib_core. All functions may sleep. Permissions of the
 * domain's file are not asked, and each registration keeps its QP. A QP is charged to
 * the current process: its user and its cgroup. Functions that create, modify, query or
 * register with a QP return EINTR if the current thread is killed while it waits.
 *
 * When the domain was closed or the device removed, its QPs have ended: functions that
 * take a QP number return EINVAL. If the device is removed while the client is being
 * unregistered, that may be before the remove() of the client runs. It must let its
 * members leave all the same.
 */

/**
 * ib_xrc_rcv_join - become a member of a domain
 * @xrcd: the domain, which must be open
 * @flags: &enum xrc_rcv_event_channel_flags
 * @events: mask of the events that @handler is called for: bit n is that of events
 *	of type n; 0 for all events
 * @handler: handler of the events
 * @context: passed to @handler
 *
 * With %XRC_RCV_EVENT_CHANNEL_ALL, @handler can be called before this returns.
 *
 * Return: the member, or an ERR_PTR(): EOPNOTSUPP if the module is not attached to the
 * device, or not any more, ENODEV if the device is being removed, EINVAL for an unknown
 * bit, a mask that %XRC_RCV_EVENT_CHANNEL_ALL does not take, or without a handler, EDQUOT
 * and EINTR as %XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC, and ENOMEM.
 */
struct ib_xrc_rcv_member *ib_xrc_rcv_join(struct ib_xrcd *xrcd, u32 flags, u64 events,
					  ib_xrc_rcv_handler handler, void *context);

/**
 * ib_xrc_rcv_leave - end a member
 * @member: the member, which the call frees
 *
 * Ends all its registrations, drops its unread records, and waits while its handler
 * runs. No lock may be held that the handler takes. A handler must not call it: two
 * that wait for each other would wait for ever.
 *
 * Return: 0, or EBUSY without effect if the handler of @member calls it.
 */
int ib_xrc_rcv_leave(struct ib_xrc_rcv_member *member);

/**
 * ib_xrc_rcv_alloc_qp - create a receive QP and register with it
 * @member: the member, whose domain must be open
 * @init_attr: the parameters
 * @qpn: the QP number
 * @serial: which QP of the domain it is, see &struct xrc_rcv_record; may be NULL
 *
 * Return: 0, EOPNOTSUPP if the module is not attached to the device any more, otherwise
 * as %XRC_RCV_METHOD_QP_ALLOC.
 */
int ib_xrc_rcv_alloc_qp(struct ib_xrc_rcv_member *member,
			const struct ib_xrc_rcv_init_attr *init_attr, u32 *qpn, u64 *serial);

/**
 * ib_xrc_rcv_reg_qp - register with a receive QP
 * @member: the member
 * @qpn: the QP number
 * @info: the totals of the events before, and the serial number; may be NULL
 *
 * Return: 0, also if the member is registered, or as %XRC_RCV_METHOD_QP_REG.
 */
int ib_xrc_rcv_reg_qp(struct ib_xrc_rcv_member *member, u32 qpn, struct xrc_rcv_reg_info *info);

/**
 * ib_xrc_rcv_unreg_qp - end the registrations with a QP number
 * @member: the member
 * @qpn: the QP number, see %XRC_RCV_METHOD_QP_UNREG
 *
 * Does nothing for a member of all QPs.
 */
void ib_xrc_rcv_unreg_qp(struct ib_xrc_rcv_member *member, u32 qpn);

/**
 * ib_xrc_rcv_modify_qp - modify a receive QP
 * @member: a member of its domain
 * @qpn: the QP number
 * @attr: the attributes, as for ib_modify_qp()
 * @attr_mask: mask of the attributes in @attr
 *
 * On mlx4, a QP that the kernel modifies from RESET to INIT may use the reserved
 * L_Key, and so may every process that posts to an SRQ of the domain. If the domain has
 * an inode, only processes can make this transition.
 *
 * Return: 0, EOPNOTSUPP if the provider is qedr, or mlx4 as above, otherwise as
 * %XRC_RCV_METHOD_QP_MODIFY.
 */
int ib_xrc_rcv_modify_qp(struct ib_xrc_rcv_member *member, u32 qpn,
			 const struct ib_qp_attr *attr, int attr_mask);

/**
 * ib_xrc_rcv_query_qp - query a receive QP
 * @member: a member of its domain
 * @qpn: the QP number
 * @attr: buffer for the attributes, of which all are filled
 *
 * Return: 0, or as %XRC_RCV_METHOD_QP_QUERY.
 */
int ib_xrc_rcv_query_qp(struct ib_xrc_rcv_member *member, u32 qpn, struct ib_qp_attr *attr);

/**
 * ib_xrc_rcv_destroy_qp - destroy a receive QP
 * @member: a member of its domain
 * @qpn: the QP number
 * @flags: &enum xrc_rcv_destroy_flags. Without %XRC_RCV_DESTROY_FORCE, a QP is
 *	destroyed that has %XRC_RCV_LIFETIME_DOMAIN, and that no registration keeps.
 *
 * Return: 0, or as %XRC_RCV_METHOD_QP_DESTROY.
 */
int ib_xrc_rcv_destroy_qp(struct ib_xrc_rcv_member *member, u32 qpn, u32 flags);

/**
 * enum ib_xrc_rcv_action - changes of a receive QP
 *
 * @IB_XRC_RCV_ALLOC: the QP was created
 * @IB_XRC_RCV_REG: a registration was added; after a creation, that of the creator
 * @IB_XRC_RCV_UNREG: a registration was removed
 * @IB_XRC_RCV_DESTROY: the QP is about to be destroyed; only %IB_XRC_RCV_UNREG of
 *	registrations that end before it is destroyed follows
 */
enum ib_xrc_rcv_action {
	IB_XRC_RCV_ALLOC,
	IB_XRC_RCV_REG,
	IB_XRC_RCV_UNREG,
	IB_XRC_RCV_DESTROY,
};

/**
 * struct ib_xrc_rcv_notifier_info - data of a notifier call
 * @device: the device
 * @qpn: the QP number
 * @registrations: the number of registrations after the change; with
 *	%IB_XRC_RCV_ALLOC, that of the creator is included
 */
struct ib_xrc_rcv_notifier_info {
	struct ib_device *device;
	u32 qpn;
	u32 registrations;
};

/**
 * ib_xrc_rcv_register_notifier - register a notifier of changes of receive QPs
 * @nb: called with &enum ib_xrc_rcv_action and &struct ib_xrc_rcv_notifier_info, in
 *	the order of the changes of each QP. It may sleep, but must not call a function
 *	above.
 *
 * For providers that keep their own records of receive QPs. The ends of QPs and of
 * registrations that were there before are reported, too.
 *
 * Return: 0, or -EEXIST.
 */
int ib_xrc_rcv_register_notifier(struct notifier_block *nb);

/**
 * ib_xrc_rcv_unregister_notifier - unregister a notifier
 * @nb: the notifier, which is not called after this returns
 *
 * Return: 0, or -ENOENT.
 */
int ib_xrc_rcv_unregister_notifier(struct notifier_block *nb);

#endif /* _RDMA_IB_XRC_RCV_H */
