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
 * struct ib_xrc_rcv_registration - a registration with a receive QP
 *
 * Unlike an event channel, a kernel user may have several registrations with the same
 * QP. The pointer is valid until ib_xrc_rcv_unreg_qp(), even if the QP is
 * destroyed, the domain closed or the device removed before.
 */
struct ib_xrc_rcv_registration;

/**
 * typedef ib_xrc_rcv_handler - handler of events of a receive QP
 * @event: the event, with its total; the total is more than 1 greater than before if
 *	it happened again before it was delivered, which only occurs with many
 *	registrations
 * @context: the context that was passed with the handler
 *
 * Called in any context, with locks of the provider and of this module held, and with
 * interrupts disabled unless the kernel has PREEMPT_RT. It must not sleep, nor call a
 * function of this header; a lock that it takes is a spinlock_t which all others take
 * with spin_lock_irqsave(). It is not called after ib_xrc_rcv_unreg_qp() has returned,
 * nor after %XRC_RCV_EVENT_QP_GONE.
 */
typedef void (*ib_xrc_rcv_handler)(const struct xrc_rcv_record *event, void *context);

/**
 * struct ib_xrc_rcv_init_attr - parameters of a new receive QP
 * @flags: &enum xrc_rcv_alloc_flags
 * @attr_mask: mask of the attributes in @attr
 * @attr: attributes for the transition to INIT or RTR, see
 *	%XRC_RCV_ATTR_QP_ALLOC_ATTR; may be NULL. As for all kernel users of
 *	ib_modify_qp(), a RoCE address vector must be resolved. EOPNOTSUPP if the
 *	provider is qedr, which modifies XRC target QPs for processes only, and on
 *	mlx4 if the domain has an inode, see ib_xrc_rcv_modify_qp().
 * @handler: handler of the QP's events; may be NULL
 * @context: passed to @handler
 * @events: mask of the events that @handler is called for: bit n is that of events
 *	of type n; 0 for all events. EINVAL for an unknown bit.
 * @label: label of the QP, see %XRC_RCV_ATTR_QP_ALLOC_LABEL
 */
struct ib_xrc_rcv_init_attr {
	u32 flags;
	int attr_mask;
	const struct ib_qp_attr *attr;
	ib_xrc_rcv_handler handler;
	void *context;
	u64 events;
	u64 label;
};

/*
 * The caller must be a client of ib_core, and must keep @xrcd open during each call.
 * All functions may sleep. Permissions of the domain's file are not asked, and each
 * registration keeps its QP. A QP is charged to the current process: its user and its
 * cgroup. Functions that create, modify, query or register with a QP return EINTR if
 * the current thread is killed while it waits. All but ib_xrc_rcv_unreg_qp() and
 * ib_xrc_rcv_qpn() return EOPNOTSUPP if the module is not attached to the device, or
 * not any more, and ENODEV if the device is being removed.
 *
 * If the device is removed while the client is being unregistered, its QPs may be
 * destroyed, and the module not be attached to the device any more, when the remove()
 * of the client runs. It must end its registrations all the same.
 */

/**
 * ib_xrc_rcv_alloc_qp - create a receive QP and register with it
 * @xrcd: the domain
 * @init_attr: the parameters
 *
 * Return: the registration, or an ERR_PTR(): EOPNOTSUPP if the module is not
 * attached to the device, otherwise as %XRC_RCV_METHOD_QP_ALLOC.
 */
struct ib_xrc_rcv_registration *
ib_xrc_rcv_alloc_qp(struct ib_xrcd *xrcd, const struct ib_xrc_rcv_init_attr *init_attr);

/**
 * ib_xrc_rcv_reg_qp - register with a receive QP
 * @xrcd: the domain of the QP
 * @qpn: the QP number
 * @events: mask of the events that @handler is called for, as in
 *	&struct ib_xrc_rcv_init_attr
 * @handler: handler of the QP's events; may be NULL
 * @context: passed to @handler
 *
 * Return: the registration, or an ERR_PTR() as %XRC_RCV_METHOD_QP_REG.
 */
struct ib_xrc_rcv_registration *
ib_xrc_rcv_reg_qp(struct ib_xrcd *xrcd, u32 qpn, u64 events, ib_xrc_rcv_handler handler,
		  void *context);

/**
 * ib_xrc_rcv_unreg_qp - end a registration
 * @registration: the registration, which the call frees
 */
void ib_xrc_rcv_unreg_qp(struct ib_xrc_rcv_registration *registration);

/**
 * ib_xrc_rcv_qpn - get the QP number of a registration
 * @registration: the registration
 *
 * Return: the QP number.
 */
u32 ib_xrc_rcv_qpn(const struct ib_xrc_rcv_registration *registration);

/**
 * ib_xrc_rcv_modify_qp - modify a receive QP
 * @xrcd: the domain of the QP
 * @qpn: the QP number
 * @attr: the attributes, as for ib_modify_qp()
 * @attr_mask: mask of the attributes in @attr
 *
 * On mlx4, a QP that the kernel modifies from RESET to INIT may use the reserved
 * L_Key, and so may every process that posts to an SRQ of the domain. If @xrcd has an
 * inode, only processes can make this transition.
 *
 * Return: 0, EOPNOTSUPP if the provider is qedr, or mlx4 as above, otherwise as
 * %XRC_RCV_METHOD_QP_MODIFY.
 */
int ib_xrc_rcv_modify_qp(struct ib_xrcd *xrcd, u32 qpn, const struct ib_qp_attr *attr,
			 int attr_mask);

/**
 * ib_xrc_rcv_query_qp - query a receive QP
 * @xrcd: the domain of the QP
 * @qpn: the QP number
 * @attr: buffer for the attributes, of which all are filled
 *
 * Return: 0, or as %XRC_RCV_METHOD_QP_QUERY.
 */
int ib_xrc_rcv_query_qp(struct ib_xrcd *xrcd, u32 qpn, struct ib_qp_attr *attr);

/**
 * ib_xrc_rcv_destroy_qp - destroy a receive QP
 * @xrcd: the domain of the QP
 * @qpn: the QP number
 * @flags: &enum xrc_rcv_destroy_flags. Without %XRC_RCV_DESTROY_FORCE, a QP is
 *	destroyed that has %XRC_RCV_LIFETIME_DOMAIN, and that no registration keeps.
 *
 * Return: 0, or as %XRC_RCV_METHOD_QP_DESTROY.
 */
int ib_xrc_rcv_destroy_qp(struct ib_xrcd *xrcd, u32 qpn, u32 flags);

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
 * For providers that keep their own records of receive QPs.
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
