/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's headers from which the crate xrc-rcv has its declarations: read by
 * bindgen only, see generate.
 */

#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_xrc_rcv.h>

/* Macros that take the size of a struct, and a member of an enum without a name. */
enum uverbs_constants {
	VERBS_IOCTL = RDMA_VERBS_IOCTL,
	CHANNEL_IOCTL_REG = XRC_RCV_IOCTL_REG,
	CHANNEL_IOCTL_UNREG = XRC_RCV_IOCTL_UNREG,
	ATTR_F_MANDATORY = UVERBS_ATTR_F_MANDATORY,
};
