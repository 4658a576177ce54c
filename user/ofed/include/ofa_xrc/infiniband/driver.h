/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * OFED had a header for providers, in which configure scripts look for the XRC
 * calls. Today's libibverbs exports these two of its functions to programs.
 */

#ifndef INFINIBAND_OFA_XRC_DRIVER_H
#define INFINIBAND_OFA_XRC_DRIVER_H

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf,
			size_t size);

#ifdef __cplusplus
}
#endif

#endif
