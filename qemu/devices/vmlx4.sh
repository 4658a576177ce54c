# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device vmlx4              the modelled ConnectX-3 of hca/: mlx4_0, both ports active

. "${BASH_SOURCE[0]%/*}/lib/hooks.sh"
. "${BASH_SOURCE[0]%/*}/lib/mlx4.sh"
. "${BASH_SOURCE[0]%/*}/lib/vmlx.sh"
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

device_environment() {
	mlx4_environment
	vmlx_node_environment
}

device_up() { mlx4_up && vmlx_node_has_adapter mlx4_0; }

vmlx4_ctl() { "$LAB_BUILD_ROOT/vmlx4/release/vmlxctl" "$@" >/dev/null; }

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
