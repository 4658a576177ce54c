/* SPDX-License-Identifier: GPL-2.0 */
/* The method that driver_def.ko adds to every device. */
#ifndef DRIVER_DEF_H
#define DRIVER_DEF_H

#include <rdma/ib_user_ioctl_cmds.h>

enum {
	DRIVER_DEF_OBJECT = 1U << UVERBS_ID_NS_SHIFT,
	DRIVER_DEF_TAKEN_OBJECT = (1U << UVERBS_ID_NS_SHIFT) + 11,
	DRIVER_DEF_METHOD = 1U << UVERBS_ID_NS_SHIFT,
	DRIVER_DEF_ATTR_ANSWER = 1U << UVERBS_ID_NS_SHIFT,	/* u32 */
};

enum { DRIVER_DEF_ANSWER = 4711 };

#endif
