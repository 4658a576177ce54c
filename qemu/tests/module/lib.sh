# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For the scripts beside this file: processes with receive QPs in right, held by the names of
# their domains, and the kernel's log from a mark on.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu/tests/lib/nodes.sh
. "$here/../lib/nodes.sh"
rcv=$LAB_TESTS/module/rcvctl
device=$right_device

work=$(mktemp -d /tmp/scenario.XXXXXX)
chmod 1777 "$work"
# A holder ends when its input does: so all end with the script.
scenario_end() {
	local pid
	exec 8>&- 9>&-
	for pid in "$work"/*.pid; do
		[ ! -e "$pid" ] || kill -KILL "$(cat "$pid")" 2>/dev/null
	done
	wait
	rm -rf "$work"
}
trap scenario_end EXIT

# begin NAME COMMAND… - a holder: starts it and waits until it is ready. Its words are in
# $work/NAME, it ends with `end NAME`. With $cgroup it is in that control group.
begin() {
	local name=$1
	shift
	# Left by a test that failed: it would keep the device from the tests that follow.
	[ ! -e "$work/$name.pid" ] || end "$name" KILL
	rm -f "$work/$name.in"
	mkfifo "$work/$name.in"
	# Open for writing here as long as the holder is to stay.
	sleep infinity >"$work/$name.in" &
	echo $! >"$work/$name.keeper.pid"
	(
		[ -z "${cgroup-}" ] || echo $BASHPID >"$cgroup/cgroup.procs"
		exec "${in_right[@]}" "$@"
	) <"$work/$name.in" >"$work/$name" 2>&1 &
	echo $! >"$work/$name.pid"
	for _ in $(seq 300); do
		grep -q '^ready$' "$work/$name" && return
		kill -0 "$(cat "$work/$name.pid")" 2>/dev/null || break
		sleep 0.1
	done
	cat "$work/$name"
	return 1
}

# end NAME [SIGNAL] - the holder's input ends, or it is sent a signal.
end() {
	local holder keeper
	holder=$(cat "$work/$1.pid")
	keeper=$(cat "$work/$1.keeper.pid")
	[ -z "${2-}" ] || kill -"$2" "$holder"
	kill "$keeper"
	wait "$holder" "$keeper" 2>/dev/null
	rm -f "$work/$1.pid" "$work/$1.keeper.pid"
}

# qps NAME - the numbers of the QPs that a holder created.
qps() { awk '$1 == "qp" { print $2 }' "$work/$1"; }
pid_of() { cat "$work/$1.pid"; }

# The kernel's log after the last mark.
log_mark() {
	mark=$RANDOM$RANDOM
	echo "scenario $mark" >/dev/kmsg
}
log_since() { dmesg | sed "1,/scenario $mark/d"; }

# expect NAME VALUE - compares, and reports a difference.
expect() {
	[ "$1" = "$2" ] && return
	echo "expected '$1', found '$2'"
	return 1
}
