/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers whose declarations src/rdma/ and src/kernel_ext/ need and the kernel
 * crate lacks, and the C functions of the module.
 * Read by bindgen only, see src/Kbuild.
 */

#include <linux/blk_types.h>
#include <linux/cgroup_rdma.h>
#include <linux/dim.h>
#include <linux/if_link.h>
#include <linux/irq_poll.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/uverbs_types.h>

#include "../helpers.h"
#include "../module.h"
