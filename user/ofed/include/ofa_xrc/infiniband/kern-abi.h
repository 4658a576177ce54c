/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * OFED's libibverbs had a copy of the kernel's interface, which librdmacm of that
 * time includes. The structs that it uses are the kernel's, by the names of then.
 */

#ifndef INFINIBAND_OFA_XRC_KERN_ABI_H
#define INFINIBAND_OFA_XRC_KERN_ABI_H

#include <linux/types.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#define ibv_kern_global_route ib_uverbs_global_route
#define ibv_kern_ah_attr ib_uverbs_ah_attr
#define ibv_kern_qp_attr ib_uverbs_qp_attr
#define ibv_kern_path_rec ib_user_path_rec

#endif
