# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device vfio=BDF           the host's ConnectX-3 at this PCI address (passthrough.rst)

. "${BASH_SOURCE[0]%/*}/lib/hooks.sh"
. "${BASH_SOURCE[0]%/*}/lib/mlx4.sh"

device_claim() {
	[ -n "$device_argument" ] || die "--device vfio wants the card's address: vfio=BDF"
	"$tree/qemu/passthrough/bind" "$device_argument"
}
device_qemu_args() { qemu+=(-device "vfio-pci,host=$device_argument,rombar=0"); }
device_release() { "$tree/qemu/passthrough/restore" "$device_argument"; }
