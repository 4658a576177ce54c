# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The two nodes of the lab's rxe guest, for the tests beside this file: each is
# a network namespace with one rxe device (left: rxe_left, 10.0.0.1; right:
# rxe_right, 10.0.0.2). By habit the server is right and the client left.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/ktap.sh
. "$here/../ktap.sh"
# shellcheck source=/dev/null
. "$LAB_BUILD_ROOT/rdma-core/env.sh"
programs=$LAB_BUILD_ROOT/tests/rxe

left() { ip netns exec left "$@"; }
right() { ip netns exec right "$@"; }

# The index of a node's RoCE v2 GID for its IPv4 address, which tools want to be told.
gid_index() { # gid_index NODE ADDRESS
	ip netns exec "$1" sh -c '
		cd "/sys/class/infiniband/rxe_$0/ports/1" || exit
		gid=$(printf "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x" $(echo "$1" | tr . " "))
		for file in gids/*; do
			[ "$(cat "$file")" = "$gid" ] && basename "$file" && exit
		done' "$1" "$2"
}
left_gid=$(gid_index left 10.0.0.1)
right_gid=$(gid_index right 10.0.0.2)

# Waits until right listens on a TCP port. Fails when PID, the server, has gone.
listening() { # listening PORT PID
	until [ -n "$(right ss -Htln "sport = :$1")" ]; do
		kill -0 "$2" 2>/dev/null || return
		sleep 0.1
	done
}

# Runs a server in right, its client in left when the server listens, and
# succeeds if both do. Each is given at most three minutes.
pair() { # pair PORT SERVER-COMMAND… -- CLIENT-COMMAND…
	local port=$1 server=() pid log status=0
	shift
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	log=$(mktemp)
	# Not through the function: $! has to be the command, not a shell around it.
	ip netns exec right timeout -k 5 180 "${server[@]}" >"$log" 2>&1 &
	pid=$!
	if listening "$port" "$pid"; then
		left timeout -k 5 180 "$@" || {
			status=$?
			echo "client: exit status $status"
			kill "$pid" 2>/dev/null
		}
	fi
	wait "$pid" || {
		status=$?
		echo "server: exit status $status"
		sed 's/^/server: /' "$log"
	}
	rm -f "$log"
	return $status
}
