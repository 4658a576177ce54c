# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A modelled adapter of one of several guests, nodes of one vmlx, which has an adapter for each.

vmlx_node_environment() { export VMLX_HCA=$((${LAB_NODE:-1} - 1)); }

# The guest drives its own adapter, of as many.
vmlx_node_has_adapter() { # vmlx_node_has_adapter DEVICE
	local ctl=$LAB_BUILD_ROOT/$LAB_DEVICE/release/vmlxctl count=${LAB_NODES:-1} lid
	"$ctl" --hca $((count - 1)) status >/dev/null && lid=$("$ctl" --get /ports/0/lid status) &&
		[ $((lid)) = $(($(cat "/sys/class/infiniband/$1/ports/1/lid"))) ] && return
	echo "lab: $1 is not adapter $VMLX_HCA of a vmlx with $count"
	return 1
}
