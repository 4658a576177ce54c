# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The packets between the nodes of rxe, captured for scripts that include ktap.sh: in $work/capture,
# in a directory of the script's.

start_capture() {
	ip netns exec left tcpdump --immediate-mode -U -B 32768 -Z root -i eth0 -w "${work:?}/capture" \
		'udp port 4791' >"$work/tcpdump" 2>&1 &
	sniffer=$!
	until grep -q 'listening on' "$work/tcpdump"; do
		kill -0 $sniffer || return
		sleep 0.1
	done
}

# It has written all packets that were sent: asked by a signal, it says how many.
has_all() {
	kill -USR1 "$sniffer"
	nap
	[[ $(tail -n 1 "$work/tcpdump") =~ ([0-9]+)\ packets?\ captured,\ ([0-9]+)\ packets?\ received ]] &&
		[ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ]
}

stop_capture() {
	wait_for has_all
	kill "$sniffer"
	wait "$sniffer"
}
