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
export LD_LIBRARY_PATH=$stage/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH=$stage/bin:$PATH

# One node is enough: it can send to itself. A network namespace comes with a
# sysfs of its own, without what is mounted below.
case $LAB_DEVICE in
rxe)
	device=rxe_left
	node=(ip netns exec left sh -c 'mount -t debugfs debugfs /sys/kernel/debug
		mount -t tracefs tracefs /sys/kernel/tracing
		exec "$@"' sh)
	;;
*)
	device=mlx4_0
	node=(env)
	;;
esac
on_node() { "${node[@]}" "$@"; }

scratch=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
