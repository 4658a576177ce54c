// SPDX-License-Identifier: GPL-2.0
/*
 * LD_PRELOAD=as_connectx5.so: every device says it is a ConnectX-5.
 *
 * perftest calls ibv_wr_*() on the devices of a list in it and ibv_post_send()
 * on all others, whatever their capabilities. The list is one of part numbers.
 *
 * tags: part
 */

#define _GNU_SOURCE
#include <dlfcn.h>

#include <infiniband/verbs.h>

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int (*query)(struct ibv_context *, struct ibv_device_attr *) =
		dlsym(RTLD_NEXT, "ibv_query_device");
	int status = query(context, attr);

	attr->vendor_id = 0x2c9;
	attr->vendor_part_id = 4119;
	return status;
}
