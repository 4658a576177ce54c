# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash

# The RDMA stack and the module in the order that lets the module attach: its client before
# ib_uverbs'. To start a program takes long on the debug kernel, so there are few, and busybox's
# modprobe starts faster.
stack() {
	busybox modprobe -a ib_core ib_uverbs_support
	[ -z "$LAB_MODULE" ] || busybox insmod "$LAB_MODULE"
	busybox modprobe ib_uverbs
	busybox modprobe -a ib_umad rdma_ucm 2>/dev/null || :
}
