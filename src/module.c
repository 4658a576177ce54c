// SPDX-License-Identifier: GPL-2.0
/*
 * The version and the parameters of the module. Rust's module! macro has no version,
 * and its parameters cannot change while the module is loaded.
 */

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/user_namespace.h>

#include "module.h"

/*
 * Devices have 2^17 QPs or more, and a job needs one for each process that sends
 * to a node: the defaults suffice for most jobs. No user can take all QPs of a
 * device, nor of a domain whose file others can read.
 */
static unsigned int max_qps_per_domain = 16384;
module_param(max_qps_per_domain, uint, 0644);
MODULE_PARM_DESC(max_qps_per_domain, "Receive QPs that a domain can hold (0 = no limit)");

static unsigned int max_qps_per_user = 8192;
module_param(max_qps_per_user, uint, 0644);
MODULE_PARM_DESC(max_qps_per_user, "Receive QPs that a user can have (0 = no limit)");

/* Each event of a QP is delivered to its registrations one after the other. */
static unsigned int max_registrations_per_qp = 4096;
module_param(max_registrations_per_qp, uint, 0644);
MODULE_PARM_DESC(max_registrations_per_qp,
		 "Registrations that a receive QP can have (0 = no limit)");

unsigned int ib_xrc_rcv_max_qps_per_domain(void)
{
	return READ_ONCE(max_qps_per_domain);
}

unsigned int ib_xrc_rcv_max_qps_per_user(void)
{
	return READ_ONCE(max_qps_per_user);
}

unsigned int ib_xrc_rcv_max_registrations_per_qp(void)
{
	return READ_ONCE(max_registrations_per_qp);
}

/*
 * Returns the user whose quota the current process uses: its effective uid, or the
 * owner of the outermost user namespace that it is in. A namespace of root's does
 * not count, because root chose its ids.
 */
unsigned int ib_xrc_rcv_accounting_uid(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_euid();

	for (; ns != &init_user_ns; ns = ns->parent) {
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	}
	return __kuid_val(uid);
}

bool ib_xrc_rcv_may_exceed_limits(void)
{
	return capable(CAP_SYS_RESOURCE);
}

MODULE_VERSION(XRC_RCV_MODULE_VERSION);
