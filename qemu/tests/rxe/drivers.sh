# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernel's unpatched rxe and the lab's in one guest, for tests that compare them.

mkdir -p /run/modprobe.d
modprobe_rule=/run/modprobe.d/rxe.conf

take_down() {
	ip netns del left 2>/dev/null
	ip netns del right 2>/dev/null
	# A namespace ends some time after its name is removed.
	wait_for rxe_unloads
}
rxe_unloads() { rmmod rdma_rxe 2>/dev/null || [ ! -e /sys/module/rdma_rxe ]; }

# Makes it the driver that `modprobe rdma_rxe` loads, which is how the selftests load it, and
# loads it. Only the lab's was built out of the kernel's tree.
load() { # load unpatched|patched
	rm -f "$modprobe_rule"
	[ "$1" = unpatched ] ||
		echo "install rdma_rxe modprobe -a udp_tunnel ip6_udp_tunnel && insmod $LAB_RXE" >"$modprobe_rule"
	modprobe rdma_rxe || return
	case $1-$(cat /sys/module/rdma_rxe/taint) in
	unpatched-*O* | patched-) echo "this is not the $1 rxe" && return 1 ;;
	esac
}
