/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XRC receive QPs for users in the kernel, and for providers that want to know
 * of them. The semantics are those of the interface for processes, see
 * <uapi/rdma/ib_xrc_rcv.h>; what differs is said here.
 */

#ifndef _RDMA_IB_XRC_RCV_H
#define _RDMA_IB_XRC_RCV_H

#include <linux/notifier.h>
#include <rdma/ib_verbs.h>
#include <uapi/rdma/ib_xrc_rcv.h>

/**
 * struct ib_xrc_rcv_registration - being registered with a receive QP
 *
 * Unlike uverbs files, a kernel user can have any number of registrations with
 * the same QP. It keeps its pointer valid until it gives the registration up,
 * whatever becomes of QP, domain and device.
 */
struct ib_xrc_rcv_registration;

/**
 * typedef ib_xrc_rcv_handler - told of the events of a receive QP
 * @event: what happened; @event->cookie is 0, @event->count is 1
 * @context: as given with the handler
 *
 * Called in any context, with interrupts disabled and locks of the provider and
 * of this module held: it must not sleep, and must not call anything below. Not
 * called any more once ib_xrc_rcv_unreg_qp() has returned, nor after
 * %XRC_RCV_EVENT_QP_GONE.
 */
typedef void (*ib_xrc_rcv_handler)(const struct xrc_rcv_event *event, void *context);

/**
 * struct ib_xrc_rcv_init_attr - what a new receive QP is to be
 * @flags: &enum xrc_rcv_alloc_flags
 * @attr: attributes to take it to INIT or RTR with, see
 *	%XRC_RCV_ATTR_QP_ALLOC_ATTR; may be NULL. As for all kernel users of
 *	ib_modify_qp(), a RoCE address vector has to be resolved. qedr modifies XRC
 *	target QPs for processes only: there any attribute fails with EOPNOTSUPP.
 *	So it does on mlx4 if @xrcd has an inode, see ib_xrc_rcv_modify_qp().
 * @attr_mask: which attributes are given
 * @handler: told of events; may be NULL
 * @context: for @handler
 */
struct ib_xrc_rcv_init_attr {
	u32 flags;
	int attr_mask;
	const struct ib_qp_attr *attr;
	ib_xrc_rcv_handler handler;
	void *context;
};

/*
 * The caller keeps @xrcd open for the length of each call. All may sleep. The QP
 * is charged to the current process: its user, and its cgroup. EINTR if the
 * current thread was killed while it waited for others that modify or query the QP.
 */

/**
 * ib_xrc_rcv_alloc_qp - create a receive QP and register with it
 * @xrcd: its domain
 * @init_attr: what it is to be
 *
 * Return: the registration, or an ERR_PTR(): EOPNOTSUPP if the module is not
 * attached to the device, otherwise as %XRC_RCV_METHOD_QP_ALLOC.
 */
struct ib_xrc_rcv_registration *
ib_xrc_rcv_alloc_qp(struct ib_xrcd *xrcd, const struct ib_xrc_rcv_init_attr *init_attr);

/**
 * ib_xrc_rcv_reg_qp - register with a receive QP
 * @xrcd: its domain
 * @qpn: its number
 * @handler: told of events; may be NULL
 * @context: for @handler
 *
 * Return: the registration, or an ERR_PTR() as %XRC_RCV_METHOD_QP_REG.
 */
struct ib_xrc_rcv_registration *
ib_xrc_rcv_reg_qp(struct ib_xrcd *xrcd, u32 qpn, ib_xrc_rcv_handler handler, void *context);

/**
 * ib_xrc_rcv_unreg_qp - give a registration up
 * @registration: gone afterwards
 */
void ib_xrc_rcv_unreg_qp(struct ib_xrc_rcv_registration *registration);

/**
 * ib_xrc_rcv_qpn - the number of the QP that a registration is with
 * @registration: the registration
 */
u32 ib_xrc_rcv_qpn(const struct ib_xrc_rcv_registration *registration);

/**
 * ib_xrc_rcv_modify_qp - modify a receive QP
 * @xrcd: its domain
 * @qpn: its number
 * @attr: as for ib_modify_qp()
 * @attr_mask: which attributes are given
 *
 * mlx4 lets a QP that the kernel takes from RESET to INIT use the reserved L_Key,
 * and with it whoever posts to the SRQs of the domain. So that is left to processes
 * where @xrcd has an inode.
 *
 * Return: 0, EOPNOTSUPP if the provider is qedr, or mlx4 as above, otherwise as
 * %XRC_RCV_METHOD_QP_MODIFY.
 */
int ib_xrc_rcv_modify_qp(struct ib_xrcd *xrcd, u32 qpn, const struct ib_qp_attr *attr,
		      int attr_mask);

/**
 * ib_xrc_rcv_query_qp - query a receive QP
 * @xrcd: its domain
 * @qpn: its number
 * @attr: filled with all attributes
 *
 * Return: 0, or as %XRC_RCV_METHOD_QP_QUERY.
 */
int ib_xrc_rcv_query_qp(struct ib_xrcd *xrcd, u32 qpn, struct ib_qp_attr *attr);

/**
 * ib_xrc_rcv_destroy_qp - destroy a receive QP of %XRC_RCV_LIFETIME_DOMAIN
 * @xrcd: its domain
 * @qpn: its number
 * @own: a registration that does not count; may be NULL. It stays.
 *
 * Return: 0, or as %XRC_RCV_METHOD_QP_DESTROY.
 */
int ib_xrc_rcv_destroy_qp(struct ib_xrcd *xrcd, u32 qpn,
		       const struct ib_xrc_rcv_registration *own);

/**
 * enum ib_xrc_rcv_action - what happened to a receive QP
 *
 * @IB_XRC_RCV_ALLOC: it was created
 * @IB_XRC_RCV_REG: somebody registered; after a creation, its creator
 * @IB_XRC_RCV_UNREG: somebody is not registered any more
 * @IB_XRC_RCV_DESTROY: it is about to be destroyed; last of all, but for
 *	%IB_XRC_RCV_UNREG of those who were registered still
 */
enum ib_xrc_rcv_action {
	IB_XRC_RCV_ALLOC,
	IB_XRC_RCV_REG,
	IB_XRC_RCV_UNREG,
	IB_XRC_RCV_DESTROY,
};

/**
 * struct ib_xrc_rcv_notifier_info - told with an &enum ib_xrc_rcv_action
 * @device: the device
 * @qpn: QP number
 * @registrations: how many registrations there are now
 */
struct ib_xrc_rcv_notifier_info {
	struct ib_device *device;
	u32 qpn;
	u32 registrations;
};

/**
 * ib_xrc_rcv_register_notifier - be told of what happens to receive QPs
 * @nb: called with &enum ib_xrc_rcv_action and &struct ib_xrc_rcv_notifier_info, in the order
 *	in which things happen to a QP. May sleep; must not call anything above.
 *
 * For providers that keep records of their own.
 *
 * Return: 0, or -EEXIST.
 */
int ib_xrc_rcv_register_notifier(struct notifier_block *nb);

/**
 * ib_xrc_rcv_unregister_notifier - be told no more
 * @nb: as registered; not called any more afterwards
 *
 * Return: 0, or -ENOENT.
 */
int ib_xrc_rcv_unregister_notifier(struct notifier_block *nb);

#endif /* _RDMA_IB_XRC_RCV_H */
