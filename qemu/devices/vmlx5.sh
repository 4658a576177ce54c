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
	borrow_crates "$build_root/vmlx5"
	quiet vmlx5 env CARGO_TARGET_DIR="$build_root/vmlx5" CARGO_HOME="$cache/cargo" MLX5_IFC="$1" \
		cargo build --locked --release --manifest-path "$tree/hca/Cargo.toml"
	link_programs "$build_root/vmlx5"
}

device_qemu_args() {
	local number
	for number in 0 1; do
		# The timeout is that of hca/qemu-args, with its reason.
		qemu+=(
			-device "pcie-root-port,id=vmlx5-port$number,chassis=$((number + 1)),slot=$((number + 1))"
			-device "{\"driver\":\"vfio-user-pci\",\"id\":\"vmlx5-$number\",\"x-msg-timeout\":240000,\"bus\":\"vmlx5-port$number\",\"socket\":{\"type\":\"unix\",\"path\":\"$1/vmlx5-$number.sock\"}}"
		)
	done
	# Where the modelled adapter's control looks, whichever card it is.
	qemu+=(
		-chardev "socket,id=vmlxctl,path=$1/vmlx5ctl.sock"
		-device virtio-serial-pci,id=vmlx-serial
		-device virtserialport,bus=vmlx-serial.0,name=org.ib_xrc_rcv.vmlx,chardev=vmlxctl
	)
}

device_start() {
	local pid
	"$2/vmlx5/release/vmlx" --once --mlx5-socket "$1/vmlx5-0.sock" --mlx5-socket "$1/vmlx5-1.sock" \
		--control "$1/vmlx5ctl.sock" --captures "$LAB_BUILD_ROOT/captures" 2>"$1/vmlx5.log" &
	pid=$!
	# QEMU connects once and gives up; the control socket is there before these.
	while kill -0 $pid 2>/dev/null; do
		[ ! -S "$1/vmlx5-1.sock" ] || return 0
		sleep 0.05
	done
	cat "$1/vmlx5.log" >&2
	return 1
}

device_environment() {
	export LAB_LEFT=mlx5_1/1 LAB_RIGHT=mlx5_0/1 LAB_NETNS=''
	export LAB_DRIVER_ID=1 # RDMA_DRIVER_MLX5
	export LAB_RDMA_CORE=''
}

device_up() {
	busybox modprobe mlx5_ib
	wait_for vmlx5_present mlx5_0 && wait_for vmlx5_present mlx5_1 || {
		echo "lab: mlx5_0 and mlx5_1 did not appear" >&2
		return 1
	}
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

device_unplug() {
	local name=mlx5_0
	[ "${2-right}" = right ] || name=mlx5_1
	case $1 in
	catastrophe) vmlx5_fail $name ;;
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
	driver-right) modprobe mlx5_ib && wait_for vmlx5_present mlx5_0 ;;
	driver-left | unplug-left) echo 1 >/sys/bus/pci/rescan && wait_for vmlx5_present mlx5_1 ;;
	move-right) ip netns exec elsewhere rdma dev set mlx5_0 netns /proc/1/ns/net && wait_for vmlx5_present mlx5_0 ;;
	*) return 1 ;;
	esac
}
