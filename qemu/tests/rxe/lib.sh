# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The two nodes of the lab's rxe guest, for the tests beside this file: each is
# a network namespace with one rxe device (left: rxe_left, 10.0.0.1; right:
# rxe_right, 10.0.0.2). By habit the server is right and the client left.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu/tests/lib/pair.sh
. "$here/../lib/pair.sh"
# shellcheck source=qemu/tests/lib/nodes.sh
. "$here/../lib/nodes.sh"
programs=$LAB_BUILD_ROOT/tests/rxe

server=("${in_right[@]}")
client=("${in_left[@]}")

left_gid=$(gid_index left 10.0.0.1)
right_gid=$(gid_index right 10.0.0.2)

# One of perftest's programs between the nodes.
perftest() { # perftest PORT PROGRAM [OPTION…]
	local port=$1 program=$2
	shift 2
	set -- -F -p "$port" "$@"
	pair "$port" "$program" -d rxe_right -x "$right_gid" "$@" \
		-- "$program" -d rxe_left -x "$left_gid" "$@" 10.0.0.2
}

# rdma-core's XRC example. Its clients are processes that share one domain; the server answers
# through the target QP of one client into the SRQ of another.
xsrq_pingpong() { # xsrq_pingpong CLIENTS [OPTION…]
	local clients=$1
	shift
	set -- -p 18515 "$@"
	rm -f /tmp/xrc_domain
	pair -c "$clients" 18515 ibv_xsrq_pingpong -d rxe_right -g "$right_gid" -c "$clients" "$@" \
		-- ibv_xsrq_pingpong -d rxe_left -g "$left_gid" "$@" 10.0.0.2
}
