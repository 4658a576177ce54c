# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device vmlx5              two modelled ConnectX-6 of hca/ on one subnet: mlx5_0 and mlx5_1
#
# Node right is mlx5_0: numbers are given anew when mlx5_ib is loaded, and without the left adapter
# the right one has the first again.

. "${BASH_SOURCE[0]%/*}/lib/hooks.sh"
# shellcheck source=qemu/guest/wait.sh
. "${BASH_SOURCE[0]%/*}/../guest/wait.sh"
# shellcheck source=hca/qemu-args
. "${BASH_SOURCE[0]%/*}/../../hca/qemu-args"
. "${BASH_SOURCE[0]%/*}/lib/vmlx.sh"
vmlx_cards=(mlx5 mlx5)
# One of several nodes has one.
[ -z "${LAB_NODE-}" ] || vmlx_cards=(mlx5)

# Layouts of commands come from the source of the kernel that the guest runs.
device_build() {
	local header=$ksrc/include/linux/mlx5/mlx5_ifc.h
	kernel_source_make
	vmlx5_build "$header"
	[ -z "$foreign" ] || natively vmlx5_build "$header"
}

vmlx5_build() { # HEADER
	made_from vmlx5 "$(key_of_tree "$tree/hca" "$tree"/Cargo.{toml,lock} "$tree/rust-toolchain.toml")-$(sha256sum <"$1" | cut -c 1-12)-$(programs_key)" \
		vmlx5_make "$1"
}

vmlx5_make() { # HEADER
	borrow_crates "$build_root/vmlx5" "$build_root/vmlx4"
	quiet vmlx5 env CARGO_TARGET_DIR="$build_root/vmlx5" CARGO_HOME="$cache/cargo" MLX5_IFC="$1" \
		cargo build --locked --release --manifest-path "$tree/hca/Cargo.toml"
	link_programs "$build_root/vmlx5"
}

device_qemu_args() {
	vmlx_qemu_args "$1"
	qemu+=("${vmlx_args[@]}")
}

device_start() { vmlx_start "$1" "$2/vmlx5/release/vmlx" --captures "$LAB_BUILD_ROOT/captures"; }

device_environment() {
	export LAB_LEFT=mlx5_1/1 LAB_RIGHT=mlx5_0/1 LAB_NETNS=''
	[ -z "$LAB_NODE" ] || LAB_LEFT=mlx5_0/1
	vmlx_node_environment
	export LAB_DRIVER_ID=1 # RDMA_DRIVER_MLX5
	export LAB_RDMA_CORE=''
}

device_up() {
	busybox modprobe mlx5_ib
	wait_for vmlx5_present mlx5_0 && wait_for vmlx5_present "${LAB_LEFT%/*}" || {
		echo "lab: mlx5_0 and ${LAB_LEFT%/*} did not appear" >&2
		return 1
	}
	[ -z "$LAB_NODE" ] || vmlx_node_has_adapter mlx5_0
}
device_down() {
	[ ! -d /sys/module/mlx5_ib ] || rmmod mlx5_ib || return
	echo 1 >/sys/bus/pci/rescan
}
vmlx5_present() { [ -e "/sys/class/infiniband/$1" ]; }
vmlx5_absent() { ! vmlx5_present "$1"; }

# Makes the device NAME fail, and waits until the driver has recovered it: also if it has just
# recovered it before, when it would leave it be.
vmlx5_fail() { # NAME
	local mark=unplug-$RANDOM$RANDOM slot
	slot=$(basename "$(realpath "/sys/class/infiniband/$1/device")")
	devlink health set "pci/$slot" reporter fw_fatal grace_period 0 || return
	echo $mark >/dev/kmsg
	"$LAB_BUILD_ROOT/vmlx5/release/vmlxctl" --hca "${1#mlx5_}" catastrophe >/dev/null
	wait_for vmlx5_recovered $mark
}
vmlx5_recovered() { dmesg | sed "1,/$1/d" | grep -q 'health recovery succeeded'; }

# Pulls the device NAME out, and removes it when its driver has found that: the driver would wait a
# minute for it to come back. It may have taken away the RDMA device until then.
vmlx5_pull() { # NAME
	local mark=unplug-$RANDOM$RANDOM slot
	slot=$(realpath "/sys/class/infiniband/$1/device")
	echo $mark >/dev/kmsg
	"$LAB_BUILD_ROOT/vmlx5/release/vmlxctl" --hca "${1#mlx5_}" remove >/dev/null &&
		wait_for vmlx5_noticed $mark && echo 1 >"$slot/remove" && wait_for vmlx5_absent "$1"
}
vmlx5_noticed() { dmesg | sed "1,/$1/d" | grep -q 'mlx5_core .*Fatal error'; }
vmlx5_put_back() { # NAME
	"$LAB_BUILD_ROOT/vmlx5/release/vmlxctl" --hca "${1#mlx5_}" restore >/dev/null &&
		echo 1 >/sys/bus/pci/rescan && wait_for vmlx5_present "$1"
}

device_unplug() {
	local name=mlx5_0
	[ "${2-right}" = right ] || name=mlx5_1
	case $1 in
	catastrophe) vmlx5_fail $name ;;
	surprise) vmlx5_pull $name ;;
	unplug) vmlx5_pci_remove $name ;;
	driver)
		# It drives both adapters. The left one is there no more when it is loaded again.
		case $name in
		mlx5_0) [ ! -d /sys/module/mlx5_ib ] || rmmod mlx5_ib ;;
		mlx5_1) vmlx5_pci_remove mlx5_1 ;;
		esac
		;;
	move) rdma dev set $name netns elsewhere && wait_for vmlx5_absent $name ;;
	*) return 1 ;;
	esac
}
vmlx5_pci_remove() { echo 1 >"/sys/class/infiniband/$1/device/remove" && wait_for vmlx5_absent "$1"; }

device_replug() {
	# The left one comes after the right one, or it has its number.
	case $1-${2-right} in
	unplug-right) echo 1 >/sys/bus/pci/rescan && wait_for vmlx5_present mlx5_0 ;;
	# The driver has brought it back.
	catastrophe-right) wait_for vmlx5_present mlx5_0 ;;
	surprise-right) vmlx5_put_back mlx5_0 ;;
	surprise-left) vmlx5_put_back mlx5_1 ;;
	driver-right) modprobe mlx5_ib && wait_for vmlx5_present mlx5_0 ;;
	driver-left | unplug-left) echo 1 >/sys/bus/pci/rescan && wait_for vmlx5_present mlx5_1 ;;
	move-right) ip netns exec elsewhere rdma dev set mlx5_0 netns /proc/1/ns/net && wait_for vmlx5_present mlx5_0 ;;
	*) return 1 ;;
	esac
}
