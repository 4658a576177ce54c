# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For the scripts beside this file: processes with receive QPs in right, held by the names of
# their domains, and the kernel's log from a mark on. What is done again and again, until something
# holds, starts no program: that takes long on the debug kernel, and so keeps what is waited for
# from coming.

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
# $work/NAME, it ends with `end NAME`. With $cgroup it is in that control group, with $label it has
# that label of SELinux.
begin() {
	local name=$1
	shift
	# Left by a test that failed: it would keep the device from the tests that follow.
	[ ! -e "$work/$name.pid" ] || end "$name" KILL
	[ -p "$work/$name.in" ] || mkfifo "$work/$name.in" || return
	: >"$work/$name"
	# Open for writing here as long as the holder is to stay.
	(
		exec >"$work/$name.in" {silence}<> <(:)
		read -ru "$silence"
	) &
	echo $! >"$work/$name.keeper.pid"
	(
		[ -z "${cgroup-}" ] || echo $BASHPID >"$cgroup/cgroup.procs"
		[ -z "${label-}" ] || printf %s "user:role:$label" >/proc/self/attr/exec || exit
		exec "${in_right[@]}" "$@"
	) <"$work/$name.in" >"$work/$name" 2>&1 &
	echo $! >"$work/$name.pid"
	wait_for settled "$name" && said "$name" ready && return
	cat "$work/$name"
	return 1
}
settled() { said "$1" ready || ! kill -0 "$(pid_of "$1")" 2>/dev/null; }

# said NAME LINE - whether it is one of the holder's.
said() {
	local words
	# At once: line by line, thousands of them take longer than what is waited for.
	read -rd '' words <"$work/$1"
	[[ $'\n'$words$'\n' == *$'\n'"$2"$'\n'* ]]
}

# end NAME [SIGNAL] - the holder's input ends, or it is sent a signal.
end() {
	local holder keeper
	read -r holder <"$work/$1.pid"
	read -r keeper <"$work/$1.keeper.pid"
	[ -z "${2-}" ] || kill -"$2" "$holder"
	kill "$keeper"
	wait "$holder" "$keeper" 2>/dev/null
	rm -f "$work/$1.pid" "$work/$1.keeper.pid"
}

# qps NAME - the numbers of the QPs that a holder created.
qps() {
	local word number
	while read -r word number; do
		[ "$word" != qp ] || echo "$number"
	done <"$work/$1"
}
pid_of() {
	local pid
	read -r pid <"$work/$1.pid"
	echo "$pid"
}

# The kernel's log after the last mark.
log_mark() {
	mark=$RANDOM$RANDOM
	echo "scenario $mark" >/dev/kmsg
}
log_since() {
	local log
	log=$(busybox dmesg)
	printf '%s\n' "${log##*"scenario $mark"}"
}
# log_has TEXT - since the last mark
log_has() { [[ $(log_since) == *"$1"* ]]; }

# expect NAME VALUE - compares, and reports a difference.
expect() {
	[ "$1" = "$2" ] && return
	echo "expected '$1', found '$2'"
	return 1
}

# The results of QUERY_CAPS of right's device, and one of them.
caps() { "${in_right[@]}" "$rcv" caps "$device"; }
field() { caps | sed -n "s/^$1=//p"; }

loaded() { grep -q "^$1 " /proc/modules; }
unload() {
	local module
	for module; do
		! loaded "$module" || rmmod "$module" || return
	done
}

# stack MODULE… - ib_core and ib_uverbs without devices, and MODULEs before the latter.
stack() {
	local module
	unload rdma_ucm ib_umad ib_uverbs || return
	for module; do insmod "$module" || return; done
	modprobe ib_uverbs && modprobe -q rdma_ucm && modprobe -q ib_umad
	return 0
}
