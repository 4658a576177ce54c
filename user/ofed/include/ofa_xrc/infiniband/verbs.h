/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The header that programs for OFED include, once or more often.
 *
 * Build scripts of that time look for names with grep, in this file alone:
 * IBV_LINK_LAYER_ETHERNET (MVAPICH, for RoCE).
 */

/* With -pedantic, #include_next is for headers of the system. */
#pragma GCC system_header

#ifdef INFINIBAND_OFA_XRC_H
#include_next <infiniband/verbs.h>
#else
#include <infiniband/ofa_xrc.h>
#endif
