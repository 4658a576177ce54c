# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The common part of the tests of user space: the node they run on, and the
# files installed for them.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu/tests/lib/nodes.sh
. "$here/../lib/nodes.sh"

stage=$LAB_USER/stage/usr
programs=$LAB_USER/tests

# Without rdma-core of its own a device is used as users do.
[ -n "$LAB_RDMA_CORE" ] || ldd "$programs/library" | grep -q 'libibverbs.so.1 => /lib/' || {
	echo "Bail out! this is not Debian's libibverbs"
	exit 1
}
scratch=$(mktemp -d)
keeper=
trap 'kill $keeper $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# One node is enough: it can send to itself. A network namespace comes with a sysfs of its own,
# without these mounts. A process keeps them, so that no command has to make them.
device=$left_device node=(env)
if [ -n "$LAB_NETNS" ]; then
	read -r keeper < <(exec "${in_left[@]}" sh -c 'mount -t debugfs debugfs /sys/kernel/debug
		mount -t tracefs tracefs /sys/kernel/tracing
		echo $$
		exec sleep infinity >/dev/null 2>&1')
	node=(nsenter --target "$keeper" --mount --net --wdns="$scratch")
fi
on_node() { "${node[@]}" "$@"; }
