# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device vmlx4              the modelled ConnectX-3 of hca/: mlx4_0, both ports active

. "${BASH_SOURCE[0]%/*}/lib/hooks.sh"
. "${BASH_SOURCE[0]%/*}/lib/mlx4.sh"
# shellcheck source=hca/qemu-args
. "${BASH_SOURCE[0]%/*}/../../hca/qemu-args"

# The model, for the host, and its control, for the guest.
device_build() {
	vmlx4_build
	[ -z "$foreign" ] || natively vmlx4_build
}

vmlx4_build() {
	made_from vmlx4 "$(key_of_tree "$tree/hca" "$tree"/Cargo.{toml,lock} "$tree/rust-toolchain.toml")-$(programs_key)" vmlx4_make
}

vmlx4_make() {
	borrow_crates "$build_root/vmlx4" "$build_root/vmlx5"
	quiet vmlx4 env CARGO_TARGET_DIR="$build_root/vmlx4" CARGO_HOME="$cache/cargo" \
		cargo build --locked --release --manifest-path "$tree/hca/Cargo.toml"
	link_programs "$build_root/vmlx4"
}

device_qemu_args() {
	vmlx_qemu_args "$1"
	qemu+=("${vmlx_args[@]}")
}

device_start() { vmlx_start "$1" "$2/vmlx4/release/vmlx" --captures "$LAB_BUILD_ROOT/captures"; }

# The adapter of this guest in a vmlx for several.
device_environment() {
	mlx4_environment
	export VMLX_HCA=${LAB_GUEST:-0}
}

device_up() { mlx4_up && vmlx4_connects_guests; }

# vmlx has an adapter for each guest, and this one drives its own.
vmlx4_connects_guests() {
	local last=$((${LAB_GUESTS:-1} - 1)) lid
	vmlx4_ctl --hca $last status && lid=$(vmlx4_get /ports/0/lid) &&
		[ $((lid)) = $(($(cat /sys/class/infiniband/mlx4_0/ports/1/lid))) ] && return
	echo "lab: mlx4_0 is not adapter $VMLX_HCA of a vmlx with $((last + 1))"
	return 1
}

vmlx4_ctl() { "$LAB_BUILD_ROOT/vmlx4/release/vmlxctl" "$@" >/dev/null; }
vmlx4_get() { "$LAB_BUILD_ROOT/vmlx4/release/vmlxctl" --get "$1" status; }

# Makes the device fail, and waits until the driver has tried to restart it.
vmlx4_fail() {
	local mark=unplug-$RANDOM$RANDOM
	echo $mark >/dev/kmsg
	vmlx4_ctl "$@"
	wait_for vmlx4_restarted $mark
}
vmlx4_restarted() { dmesg | sed "1,/$1/d" | grep -q 'mlx4_restart_one was ended'; }

device_unplug() {
	case $1 in
	surprise) vmlx4_fail remove && mlx4_pci_remove && wait_for mlx4_absent ;;
	catastrophe) vmlx4_fail catastrophe ;;
	*) mlx4_unplug "$@" ;;
	esac
}

device_replug() {
	case $1 in
	surprise) vmlx4_ctl restore && mlx4_pci_add && wait_for mlx4_present ;;
	# The driver has reset it.
	catastrophe) wait_for mlx4_present ;;
	*) mlx4_replug "$@" ;;
	esac
}
