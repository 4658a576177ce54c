// SPDX-License-Identifier: GPL-2.0
/*
 * What only C can say about a module: its version, its parameters, and what has
 * to be loaded after it.
 */

#include <linux/capability.h>
#include <linux/module.h>

#include "module.h"

static unsigned int max_qps_per_domain;
module_param(max_qps_per_domain, uint, 0644);
MODULE_PARM_DESC(max_qps_per_domain, "Receive QPs that a domain can hold (0 = no limit)");

static unsigned int max_qps_per_user;
module_param(max_qps_per_user, uint, 0644);
MODULE_PARM_DESC(max_qps_per_user, "Receive QPs that a user can have (0 = no limit)");

unsigned int xrc_rcv_max_qps_per_domain(void)
{
	return READ_ONCE(max_qps_per_domain);
}

unsigned int xrc_rcv_max_qps_per_user(void)
{
	return READ_ONCE(max_qps_per_user);
}

bool xrc_rcv_may_exceed_limits(void)
{
	return capable(CAP_SYS_RESOURCE);
}

MODULE_VERSION(XRC_RCV_MODULE_VERSION);
/* Devices are attached to before ib_uverbs reads what they offer. */
MODULE_SOFTDEP("post: ib_uverbs");
