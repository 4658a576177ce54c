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
