# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# --device rxe                rxe with XRC: namespaces left and right, one device each [default]

# The nodes: left (10.0.0.1) with rxe_left and right (10.0.0.2) with rxe_right, joined by a veth
# pair.

. "${BASH_SOURCE[0]%/*}/lib/hooks.sh"

# No card is plugged in: ACPI's view of PCI is not needed.
device_append=pci=noacpi
device_sleep=off

# Of each entry of a GID table there are three files in sysfs, in each network namespace: to add and
# to remove a device with 1,024 of them takes the debug kernel seconds.
rxe_gids=32

device_build() {
	local key
	build_rdma_core
	key=$(key_of_tree "$tree/upstream/rxe" "$tree/scripts/build-rxe")-$rxe_gids-$(kernel_made)
	GIDS=$rxe_gids KSRC=$ksrc in_kernel_root shared "$(build_dir)/rxe" "$key" "building rxe with XRC for $kver" \
		"$tree/scripts/build-rxe" "$kdir"
}

device_environment() {
	export LAB_LEFT=rxe_left/1 LAB_RIGHT=rxe_right/1 LAB_NETNS=y
	export LAB_DRIVER_ID=14 # RDMA_DRIVER_RXE
	# Debian's has no XRC for rxe.
	export LAB_RDMA_CORE=$LAB_BUILD_ROOT/rdma-core
	export LAB_RXE=$LAB_BUILD/rxe/rdma_rxe.ko
}

device_up() {
	busybox modprobe -a veth udp_tunnel ip6_udp_tunnel
	busybox insmod "$LAB_RXE"
	ip -batch - <<-'EOF'
		netns add left
		netns add right
		link add eth0 netns left mtu 4200 type veth peer name eth0 netns right mtu 4200
	EOF
	rxe_node left 10.0.0.1 fd00::1
	rxe_node right 10.0.0.2 fd00::2
}

rxe_node() {
	local name=$1 ipv4=$2 ipv6=$3
	echo "$ipv4 $name" >>/etc/hosts
	# The address of the first GID is used at once. Until duplicate address detection has ended,
	# up to 2 s, it does not answer neighbours, and the modification of a QP that is connected
	# to it fails after 1 s.
	ip netns exec "$name" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad'
	ip -n "$name" -batch - <<-EOF
		link set lo up
		link set eth0 up
		addr add $ipv4/24 dev eth0
		addr add $ipv6/64 dev eth0 nodad
	EOF
	ip netns exec "$name" rdma link add "rxe_$name" type rxe netdev eth0
}

# Its devices end with the namespaces of their interfaces, or with the interfaces.
device_down() {
	local name
	for name in $(ip netns list | cut -d ' ' -f 1); do ip netns delete "$name" || return; done
	for name in $(ip -o link show type dummy | cut -d ' ' -f 2); do ip link delete "${name%:}" || return; done
	! grep -q ^rdma_rxe /proc/modules || rmmod rdma_rxe || return
	# The mode can change when no namespace is left.
	rdma system set netns shared
}

device_unplug() {
	local node=${2-right}
	case $1 in
	unplug | driver) ip netns exec "$node" rdma link delete "rxe_$node" ;;
	move) ip netns exec "$node" rdma dev set "rxe_$node" netns elsewhere ;;
	*) return 1 ;;
	esac
}

device_replug() {
	local node=${2-right}
	case $1 in
	unplug | driver)
		ip netns exec "$node" rdma link add "rxe_$node" type rxe netdev eth0 || return
		# With exclusive namespaces a new device is in the first one.
		ip netns exec "$node" rdma link show "rxe_$node/1" >/dev/null 2>&1 ||
			rdma dev set "rxe_$node" netns "$node"
		;;
	move) ip netns exec elsewhere rdma dev set "rxe_$node" netns "$node" ;;
	*) return 1 ;;
	esac
}
