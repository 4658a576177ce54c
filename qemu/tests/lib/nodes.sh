# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The two nodes of a guest, left and right, on any device (qemu/devices/lib/hooks.sh): $left_device
# and $right_device, and commands in one or the other. By convention the receivers are right, the
# sender left.

# shellcheck source=/dev/null
. "$LAB_TREE/qemu/devices/$LAB_DEVICE.sh"
left_device=${LAB_LEFT%/*} right_device=${LAB_RIGHT%/*}
in_left=() in_right=()
[ -z "$LAB_NETNS" ] || in_left=(ip netns exec left) in_right=(ip netns exec right)

left() { "${in_left[@]}" "$@"; }
right() { "${in_right[@]}" "$@"; }

# On rxe, the index of a node's RoCE v2 GID for its IPv4 address, which tools need as an argument.
# It is among the first; and to read them starts no program, which takes long on the debug kernel.
gid_index() { # gid_index NODE ADDRESS
	local octets wanted index gid
	IFS=. read -ra octets <<<"$2"
	printf -v wanted '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${octets[@]}"
	for index in {0..15}; do
		read -r gid <"/sys/class/infiniband/rxe_$1/ports/1/gids/$index" || return
		[ "$gid" != "$wanted" ] || { echo "$index" && return; }
	done
	return 1
}
