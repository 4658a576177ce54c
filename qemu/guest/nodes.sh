# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A node of `scripts/lab run --device vmlx4*N`: number LAB_NODE of LAB_NODES, from 1. All of them
# share the directory LAB_FABRIC. The command runs on node1, and runs others by `on`.

# shellcheck source=qemu/guest/wait.sh
. "$(dirname "${BASH_SOURCE[0]}")/wait.sh"

# await NAME NODE - the file NAME of another node, however long it takes, unless the node has ended.
await() {
	local ended
	until [ -e "$LAB_FABRIC/$1" ]; do
		# Its acts before its end count.
		[ -e "$LAB_FABRIC/ended.$2" ] && ended=y || ended=
		[ ! -e "$LAB_FABRIC/$1" ] || break
		[ -z "$ended" ] || { echo "node$2 ended without $1" && return 1; }
		nap
	done
}

# kill_node NODE - has its QEMU killed.
kill_node() {
	: >"$LAB_FABRIC/kill.$1"
	wait_for test -e "$LAB_FABRIC/ended.$1"
}

# nodes_up - IP over InfiniBand, the names of all nodes, and `on`.
nodes_up() {
	local node
	busybox modprobe ib_ipoib && wait_for nodes_netdev || return
	for ((node = 1; node <= LAB_NODES; node++)); do echo "10.9.0.$node node$node"; done >>/etc/hosts
	ip link set lo up && ip address add "10.9.0.$LAB_NODE/24" dev "$netdev" && ip link set "$netdev" up &&
		wait_for grep -qx up "/sys/class/net/$netdev/operstate" || return
	"$LAB_TREE/qemu/guest/bin/on" --serve &
	wait_for grep -q ':08AE .* 0A ' /proc/net/tcp || return
	: >"$LAB_FABRIC/up.$LAB_NODE"
}
# nodes_meet - returns on node1 when all nodes are up, on others when node1 has ended.
nodes_meet() {
	local node
	if [ "$LAB_NODE" = 1 ]; then
		for ((node = 2; node <= LAB_NODES; node++)); do await "up.$node" $node || return; done
	else
		await ended.1 1
	fi
}
nodes_netdev() {
	for netdev in /sys/class/infiniband/"${LAB_LEFT%/*}"/device/net/*; do
		[ "$(cat "$netdev/dev_port" 2>/dev/null)" != 0 ] || { netdev=${netdev##*/} && return; }
	done
	return 1
}
