# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A ConnectX-3 in the guest, modelled or real: one device, whose port 1 is node left and port 2 node
# right.

# shellcheck source=qemu/guest/wait.sh
. "${BASH_SOURCE[0]%/*}/../../guest/wait.sh"

device_environment() { mlx4_environment; }
mlx4_environment() {
	export LAB_LEFT=mlx4_0/1 LAB_RIGHT=mlx4_0/2 LAB_NETNS=''
	export LAB_DRIVER_ID=2 # RDMA_DRIVER_MLX4
	export LAB_RDMA_CORE=''
}

mlx4_present() { [ -e /sys/class/infiniband/mlx4_0 ]; }
mlx4_absent() { ! mlx4_present; }
mlx4_pci_remove() { echo 1 >"$(dirname "$(grep -l 0x15b3 /sys/bus/pci/devices/*/vendor)")/remove"; }
mlx4_pci_add() { echo 1 >/sys/bus/pci/rescan; }

device_up() { mlx4_up; }
mlx4_up() {
	busybox modprobe -a mlx4_core mlx4_ib
	wait_for mlx4_present || {
		echo "lab: mlx4_0 did not appear" >&2
		return 1
	}
}

device_down() { [ ! -d /sys/module/mlx4_ib ] || rmmod mlx4_ib; }

device_unplug() { mlx4_unplug "$@"; }
device_replug() { mlx4_replug "$@"; }

mlx4_unplug() {
	case $1 in
	unplug) mlx4_pci_remove && wait_for mlx4_absent ;;
	driver) [ ! -d /sys/module/mlx4_ib ] || rmmod mlx4_ib ;;
	move) rdma dev set mlx4_0 netns elsewhere && wait_for mlx4_absent ;;
	*) return 1 ;;
	esac
}

mlx4_replug() {
	case $1 in
	unplug) mlx4_pci_add && wait_for mlx4_present ;;
	driver) modprobe mlx4_ib && wait_for mlx4_present ;;
	move) ip netns exec elsewhere rdma dev set mlx4_0 netns /proc/1/ns/net && wait_for mlx4_present ;;
	*) return 1 ;;
	esac
}
