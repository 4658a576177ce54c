# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the tests of user space share: the node they run on, and what was
# installed for them.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/ktap.sh
. "$here/../ktap.sh"

stage=$LAB_USER/stage/usr
programs=$LAB_USER/tests
export PATH=$stage/bin:$PATH

# The lab's rdma-core is for rxe; for all others there is Debian's, as users have it.
# One node is enough: it can send to itself. A network namespace comes with a
# sysfs of its own, without what is mounted below.
case $LAB_DEVICE in
rxe)
	device=rxe_left
	export LD_LIBRARY_PATH=$stage/lib:$LD_LIBRARY_PATH
	node=(ip netns exec left sh -c 'mount -t debugfs debugfs /sys/kernel/debug
		mount -t tracefs tracefs /sys/kernel/tracing
		exec "$@"' sh)
	;;
*)
	device=mlx4_0
	node=(env)
	export LD_LIBRARY_PATH=$stage/lib
	ldd "$programs/library" | grep -q 'libibverbs.so.1 => /lib/' || {
		echo "Bail out! this is not Debian's libibverbs"
		exit 1
	}
	;;
esac
on_node() { "${node[@]}" "$@"; }

scratch=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
