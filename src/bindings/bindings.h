/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input of bindgen (see src/Kbuild): the RDMA headers and others for which the
 * kernel crate has no bindings, and the headers of the module's C functions.
 */

#include <linux/blk_types.h>
#include <linux/cgroup_rdma.h>
#include <linux/dim.h>
#include <linux/fs.h>
#include <linux/if_link.h>
#include <linux/irq_poll.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/uverbs_types.h>

#include "../helpers.h"
#include "../module.h"

/* Of types in kernel::bindings that the RDMA headers do not embed, what Rust code depends on. */
enum xrc_rcv_layout {
	OFFSET_OF_FILE_PRIVATE_DATA = offsetof(struct file, private_data),
	OFFSET_OF_INODE_I_PRIVATE = offsetof(struct inode, i_private),
	SIZE_OF_FILE_OPERATIONS = sizeof(struct file_operations),
};
