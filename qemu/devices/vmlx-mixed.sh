# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device vmlx-mixed         a modelled ConnectX-3 and -6 on one subnet: mlx4_0 and mlx5_0
#
# Node left is port 1 of mlx4_0, whose port 2 is active as well, and node right is mlx5_0. One model
# serves both: mlx4_0 is its adapter 0, and mlx5_0 is adapter 1.

. "${BASH_SOURCE[0]%/*}/vmlx5.sh"
# shellcheck disable=SC2034  # of hca/qemu-args
vmlx_cards=(mlx4 mlx5)

device_environment() {
	export LAB_LEFT=mlx4_0/1 LAB_RIGHT=mlx5_0/1 LAB_NETNS=''
	export LAB_DRIVER_ID=1 # RDMA_DRIVER_MLX5, of node right
	export LAB_RDMA_CORE=''
}

device_up() {
	busybox modprobe -a mlx4_core mlx4_ib mlx5_ib
	wait_for vmlx5_present mlx4_0 && wait_for vmlx5_present mlx5_0 || {
		echo "lab: mlx4_0 and mlx5_0 did not appear" >&2
		return 1
	}
}
device_down() {
	local module
	for module in mlx4_ib mlx5_ib; do
		[ ! -d /sys/module/$module ] || rmmod $module || return
	done
}
device_unplug() {
	echo "device $LAB_DEVICE: there is no way to $1 it" >&2
	return 1
}
device_replug() { device_unplug "$@"; }
