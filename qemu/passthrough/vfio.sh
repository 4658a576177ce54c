# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A real ConnectX-3 for a guest, by VFIO: is it possible, make it so, undo it. To be sourced; each
# function explains on standard error its findings and the remedy.
#
#	vfio_check BDF      0: possible; 77: there is no card; 1: there is one, but
#	vfio_bind BDF       the card leaves its driver and belongs to vfio-pci
#	vfio_restore BDF    the card is its driver's again; nothing to do is fine
#
# The card is bound with both ports. See Documentation/passthrough.rst.

# The places to look; tests look elsewhere.
vfio_sys=${VFIO_SYS:-/sys}
vfio_dev=${VFIO_DEV:-/dev}
vfio_state=${VFIO_STATE:-/run}

# ConnectX-3 and ConnectX-3 Pro; virtual functions (1004) need their master's help.
vfio_vendor=0x15b3
vfio_devices=(0x1003 0x1007)

vfio_say() { printf 'passthrough: %s\n' "$*" >&2; }

vfio_fail() {
	vfio_say "$@"
	return 1
}

vfio_value() { cat "$1" 2>/dev/null; }

# The addresses of the cards that are here.
vfio_cards() {
	local device id
	for device in "$vfio_sys"/bus/pci/devices/*; do
		[ "$(vfio_value "$device/vendor")" = $vfio_vendor ] || continue
		for id in "${vfio_devices[@]}"; do
			[ "$(vfio_value "$device/device")" != "$id" ] || basename "$device"
		done
	done
}

vfio_driver() { [ ! -e "$1/driver" ] || basename "$(readlink -f "$1/driver")"; }

vfio_group() { basename "$(readlink -f "$1/iommu_group")"; }

vfio_check() {
	local bdf=${1-} device cards other class group
	mapfile -t cards < <(vfio_cards)
	if [ ${#cards[@]} -eq 0 ]; then
		vfio_say "not run: no ConnectX-3 here"
		return 77
	fi
	[[ $bdf =~ ^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$ ]] ||
		vfio_fail "'$bdf' is no PCI address; the cards here are: ${cards[*]}" || return
	device=$vfio_sys/bus/pci/devices/$bdf
	[ -e "$device" ] ||
		vfio_fail "there is no device $bdf; the cards here are: ${cards[*]}" || return
	[[ " ${cards[*]} " == *" $bdf "* ]] ||
		vfio_fail "$bdf is $(vfio_value "$device/vendor"):$(vfio_value "$device/device"), no ConnectX-3; the cards here are: ${cards[*]}" || return
	[ "$(id -u)" -eq 0 ] ||
		vfio_fail "only root may take a device from its driver" || return
	[ -n "$(ls "$vfio_sys/kernel/iommu_groups" 2>/dev/null)" ] ||
		vfio_fail "this host has no IOMMU in use: enable VT-d or AMD-Vi in the firmware's setup, and on Intel boot with intel_iommu=on" || return
	[ -e "$device/iommu_group" ] ||
		vfio_fail "$bdf is in no IOMMU group: its slot is not behind the IOMMU" || return
	group=$(vfio_group "$device")
	for other in "$device"/iommu_group/devices/*; do
		other=$(basename "$other")
		[ "$other" != "$bdf" ] || continue
		class=$(vfio_value "$vfio_sys/bus/pci/devices/$other/class")
		# Bridges may stay with the host.
		[[ $class == 0x0604* ]] || [ "$(vfio_driver "$vfio_sys/bus/pci/devices/$other")" = vfio-pci ] ||
			vfio_fail "IOMMU group $group of $bdf also holds $other; a group is assigned to a guest as a whole: put the card into another slot, or give $other to vfio-pci too" || return
	done
	if [ ! -e "$vfio_sys/bus/pci/drivers/vfio-pci" ]; then
		modprobe vfio-pci 2>/dev/null || :
		[ -e "$vfio_sys/bus/pci/drivers/vfio-pci" ] ||
			vfio_fail "the kernel has no vfio-pci (CONFIG_VFIO_PCI)" || return
	fi
	vfio_unused "$bdf"
}

# The card must not be in use on the host.
vfio_unused() {
	local device=$vfio_sys/bus/pci/devices/$1 interface
	for interface in "$device"/net/*; do
		[ "$(vfio_value "$interface/operstate")" != up ] ||
			vfio_fail "network interface $(basename "$interface") of $1 is up; take it down first" || return
	done
	if [ "$(vfio_value "$device/sriov_numvfs")" -gt 0 ] 2>/dev/null; then
		vfio_fail "$1 has virtual functions in use; echo 0 >$device/sriov_numvfs first"
	fi
}

vfio_write() { # FILE TEXT
	{ echo "$2" >"$1"; } 2>/dev/null || vfio_fail "the kernel refused '$2' in $1; its log (dmesg) says why"
}

vfio_bind() {
	local bdf=$1 device=$vfio_sys/bus/pci/devices/$1 driver
	vfio_check "$bdf" || return
	driver=$(vfio_driver "$device")
	if [ "$driver" != vfio-pci ]; then
		# The driver to give it back to. None is remembered as well.
		{ echo "$driver" >"$vfio_state/vfio-$bdf"; } 2>/dev/null ||
			vfio_fail "$vfio_state cannot be written to, and the driver of $bdf has to be remembered there" || return
		vfio_take "$bdf" || {
			vfio_restore "$bdf"
			return 1
		}
	fi
	vfio_say "$bdf belongs to vfio-pci (IOMMU group $(vfio_group "$device"))"
}

vfio_take() {
	local bdf=$1 device=$vfio_sys/bus/pci/devices/$1 node
	vfio_write "$device/driver_override" vfio-pci || return
	if [ -e "$device/driver" ]; then
		vfio_write "$device/driver/unbind" "$bdf" || return
	fi
	vfio_write "$vfio_sys/bus/pci/drivers_probe" "$bdf" || return
	[ "$(vfio_driver "$device")" = vfio-pci ] ||
		vfio_fail "vfio-pci did not take $bdf; the kernel's log (dmesg) says why" || return
	node=$vfio_dev/vfio/$(vfio_group "$device")
	[ -e "$node" ] || vfio_fail "$node did not appear"
}

vfio_restore() {
	local bdf=$1 device=$vfio_sys/bus/pci/devices/$1 driver
	# Bound by another program, or never: not ours to give back.
	[ -e "$vfio_state/vfio-$bdf" ] || return 0
	driver=$(cat "$vfio_state/vfio-$bdf")
	rm -f "$vfio_state/vfio-$bdf"
	[ -e "$device" ] || vfio_fail "$bdf is not there any more" || return
	# An empty line clears the override.
	vfio_write "$device/driver_override" '' || return
	[ "$(vfio_driver "$device")" != "$driver" ] || return 0
	if [ -e "$device/driver" ]; then
		vfio_write "$device/driver/unbind" "$bdf" || return
	fi
	[ -n "$driver" ] || return 0
	vfio_write "$vfio_sys/bus/pci/drivers_probe" "$bdf" || return
	[ "$(vfio_driver "$device")" = "$driver" ] ||
		vfio_fail "$driver did not take $bdf back; try: echo $bdf >$vfio_sys/bus/pci/drivers/$driver/bind" || return
	vfio_say "$bdf belongs to $driver again"
}
