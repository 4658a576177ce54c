# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2154
#
# For recipes, in the guest: nodes whose processes connect by IP addresses, and what XRC they use.

# The nodes are 10.0.0.1 and 10.0.0.2, in network namespaces: on a device with two ports those of IP
# over InfiniBand. Where nodes are guests, they have addresses. Sets the array addresses, receivers
# first.
ip_nodes() {
	local node port
	addresses=(10.0.0.2 10.0.0.1)
	[ -z "$LAB_FABRIC" ] || mapfile -t addresses < <(seq -f '10.9.0.%.0f' "$LAB_NODES")
	[ -z "$LAB_NETNS$LAB_FABRIC" ] || return 0
	busybox modprobe ib_ipoib || return
	trap ip_nodes_end EXIT
	for node in left right; do
		[ $node = left ] && port=1 || port=2
		wait_for ip_device $port || return
		ip netns add $node && ip link set "$ip_device" netns $node || return
		ip -n $node link set lo up
		ip -n $node address add 10.0.0.$port/24 dev "$ip_device"
		ip -n $node link set "$ip_device" up
		wait_for ip_running || return
	done
	in_left=(ip netns exec left) in_right=(ip netns exec right)
}
ip_device() {
	local device
	for device in "/sys/class/infiniband/$left_device/device/net"/*; do
		[ "$(cat "$device/dev_port")" != $(($1 - 1)) ] || ip_device=${device##*/}
	done 2>/dev/null
	[ -n "${ip_device-}" ] && [ -e "/sys/class/net/$ip_device" ]
}
# The broadcast group has been joined.
ip_running() { ip -n "$node" link show dev "$ip_device" | grep -q LOWER_UP; }
ip_nodes_end() {
	ip netns del left
	ip netns del right
	wait_for rmmod ib_ipoib
} 2>/dev/null

# libfabric's provider "verbs" with XRC alone, and one connection for all processes of a node.
libfabric_environment() {
	export PATH=$1/bin:$PATH LD_LIBRARY_PATH=$1/lib:$LD_LIBRARY_PATH
	export FI_VERBS_USE_RC=0 FI_OFI_RXM_USE_SRX=1
	# rxe's CQs are small.
	export FI_UNIVERSE_SIZE=16 FI_OFI_RXM_MSG_TX_SIZE=64 FI_OFI_RXM_MSG_RX_SIZE=64
}
# Sets the variables of a node for COMMAND. The nodes can be two ports of one device, and do not
# share a domain then.
libfabric_node() { # libfabric_node left|right COMMAND…
	local node=$1 device=${1}_device
	shift
	"$node" env FI_VERBS_DEVICE_NAME="${!device}" FI_VERBS_XRCD_FILENAME="/tmp/xrcd_$node" "$@"
}

# The QPs that are used from here on are traced, from before the program starts to its end. Exits if
# they cannot be.
tracing=/sys/kernel/tracing
watch_xrc() { # watch_xrc [mainline]
	xrc_api=${1-}
	[ -n "$LAB_MODULE" ] || xrc_api=mainline
	# Each QP of type RC, 2, XRC_INI, 9, or XRC_TGT, 10, of which the driver has changed the
	# state. A receive QP is an XRC_TGT without uobject.
	# shellcheck disable=SC2016
	echo 'f:clients/modified ib_modify_qp_with_udata%return ret=$retval mask=attr_mask' \
		'dest=attr->dest_qp_num:x32 type=ib_qp->qp_type state=attr->qp_state uobject=ib_qp->uobject' \
		>$tracing/dynamic_events && : >$tracing/trace &&
		echo 'ret == 0 && mask & 1 && (type == 2 || type == 9 || type == 10)' >$tracing/events/clients/modified/filter &&
		echo 1 >$tracing/events/clients/modified/enable || { echo "QPs cannot be traced" && exit 1; }
	[ -z "$xrc_api" ] || return 0
	# For creators.
	xrc-rcv watch >watch.log &
	xrc_watch=$!
	wait_for watch_runs || { echo "xrc-rcv watch does not start" && exit 1; }
}
# The tracepoint of events is the last that it enables.
watch_runs() {
	local instance=$tracing/instances/xrc-rcv-$xrc_watch on enabled
	read -r on <"$instance/tracing_on" && read -r enabled <"$instance/events/ib_xrc_rcv/ib_xrc_rcv_event/enable"
	[ "$on$enabled" = 11 ]
} 2>/dev/null
# Fails unless XRC_INI came to RTS, no RC did, and, to RTR, receive QPs and no XRC_TGT of a process,
# or the contrary; with "shared", unless processes shared receive QPs, too; after kill_creators, if
# receive QPs were created meanwhile.
xrc_was_used() { # xrc_was_used [shared]
	local rc ini tgt rcv alloc reg
	rc=$(grep -c ' type=2 state=3 ' $tracing/trace)
	ini=$(grep -c ' type=9 state=3 ' $tracing/trace)
	tgt=$(grep -c ' type=10 state=2 uobject=0x[^0]' $tracing/trace)
	rcv=$(grep -c ' type=10 state=2 uobject=0x0$' $tracing/trace)
	echo 0 >$tracing/events/clients/modified/enable
	echo -:clients/modified >>$tracing/dynamic_events
	echo "connected: $rc RC, $ini XRC_INI, $tgt XRC_TGT, $rcv receive QPs"
	if [ -z "$xrc_api" ]; then
		kill "$xrc_watch" && wait "$xrc_watch" || { echo "xrc-rcv watch failed" && return 1; }
		alloc=$(grep -c ' alloc ' watch.log) reg=$(grep -c ' reg ' watch.log)
		echo "receive QPs: $alloc, registrations: $reg"
		[ "$ini" -gt 0 ] && [ "$rc$tgt" = 00 ] && [ "$rcv" -gt 0 ] || {
			echo "not over receive QPs alone"
			return 1
		}
		[ -z "${1-}" ] || [ "$reg" -gt "$alloc" ] || { echo "no receive QP was shared" && return 1; }
		[ -z "${created-}" ] || [ "$alloc" = "$created" ] || { echo "the others connected anew" && return 1; }
	else
		[ "$ini" -gt 0 ] && [ "$tgt" -gt 0 ] && [ "$rc$rcv" = 00 ] || {
			echo "not over XRC of mainline's API alone"
			return 1
		}
	fi
}

# The status of a program that ended with STATUS, and whether it used XRC. A program that failed has
# printed why.
verdict() { # verdict STATUS [shared]
	local used=0
	xrc_was_used "${@:2}" >used || used=$?
	if [ "$1" = 0 ]; then
		cat used
		return $used
	fi
	grep -E '^(connected|receive QPs): ' used
	return "$1"
}

# Whether N lines of the job's output end with TEXT.
printed() { # printed N TEXT
	[ "$(cat log rank.* 2>/dev/null | grep -c "$2\$")" -ge "$1" ]
}

# "THREAD DEVICE QPN" of each receive QP that its creator and others are registered with.
creators() {
	awk '
		function field(name) {
			if (!match($0, " " name "=[^ ]*")) return ""
			return substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 2)
		}
		$2 ~ /^(un)?reg$/ {
			qp = field("ifname") " " field("lqpn")
			if ($2 == "reg" && field("registrations") == 1) creator[qp] = field("pid")
			if ($2 == "unreg" && field("pid") == creator[qp]) delete creator[qp]
			registrations[qp] = field("registrations")
		}
		END {
			for (qp in creator) if (registrations[qp] > 1) print creator[qp], qp
		}' watch.log
}

# The process of a thread. Fails if it has ended.
process_of() { # process_of THREAD
	local line lines
	# `read` seeks after each line, and lines move when the state changes.
	mapfile -t lines 2>/dev/null <"/proc/$1/status" || return
	for line in "${lines[@]}"; do
		case $line in
		State:*Z*) return 1 ;;
		Tgid:*) process=${line##*[[:space:]]} && return ;;
		esac
	done
	return 1
}

# "QPN THREAD" of each XRC_INI that came to RTR: the number of its receive QP, and who connected it.
senders() { sed -nE 's/^.*-([0-9]+) +\[.* dest=(0x[0-9a-f]+) type=9 state=2 .*/\2 \1/p' $tracing/trace; }

# The first creator that is alive, and its receive QPs to which another living process sends.
next_creator() {
	local thread device qpn process creators_process
	local -A threads=()
	creator='' creator_qps=() creator_threads=''
	while read -r qpn thread; do
		threads[$qpn]+=" $thread"
	done < <(senders)
	while read -r thread device qpn; do
		process_of "$thread" && [ "${creator:-$process}" = "$process" ] || continue
		creators_process=$process
		# shellcheck disable=SC2086  # words
		another_sends "$creators_process" ${threads[$qpn]-} || continue
		creator=$creators_process
		creator_threads+=${creator_threads:+|}$thread
		creator_qps+=("ifname=$device .*lqpn=$qpn ")
	done < <(creators)
	[ -n "$creator" ]
}
another_sends() { # another_sends PROCESS THREAD…
	local thread not=$1
	shift
	for thread; do
		process_of "$thread" && [ "$process" != "$not" ] && return
	done
	return 1
}
# It is not registered any more.
creator_is_gone() { ! creators | grep -qE "^($creator_threads) "; }

# kill_creators RANKS - kills, one after the other, the creator of each receive QP by which other
# ranks receive, while they do. Fails if one of these receive QPs is destroyed with it, or if others
# are created for them.
#
# A job of RANKS prints "rank N: process N", and "rank N: round N" after each round; one half of the
# ranks is on one node. When there is the next file gone.0, gone.1, …, all ranks end the same round
# by it: the rank that it names prints "rank N: gone" and the others continue without it. They end
# when the file names rank -1. The file passed appears when all have printed "rank N: passed".
kill_creators() {
	local ranks=$1 dead=() gone creator creator_qps creator_threads qp halves=''
	# All have connected in the first round.
	wait_for printed "$ranks" ": round 0" && others_continue 1 || { echo "the job does not start" && return 1; }
	created=$(grep -c ' alloc ' watch.log)
	while next_creator; do
		gone=$(cat log rank.* 2>/dev/null | sed -n "s/^rank \([0-9]*\): process $creator\$/\1/p")
		[ -n "$gone" ] || { echo "process $creator is not a rank" && return 1; }
		name_gone "$gone"
		# A round without it shows that they have all of its messages.
		wait_for printed 1 "rank $gone: gone" && others_continue 1 && kill -KILL "$creator" &&
			wait_for creator_is_gone || { echo "rank $gone was not killed" && return 1; }
		others_continue 3 || { echo "the others stopped without rank $gone" && return 1; }
		[ "$(grep -c ' alloc ' watch.log)" = "$created" ] || {
			echo "the others connected anew without rank $gone"
			return 1
		}
		for qp in "${creator_qps[@]}"; do
			! grep -q " destroy .*$qp" watch.log || { echo "a receive QP of rank $gone was destroyed" && return 1; }
		done
		halves+=$((gone * 2 / ranks))
	done
	echo "killed: ${dead[*]}"
	[[ $halves = *0* && $halves = *1* ]] || { echo "no rank of one of the nodes was killed" && return 1; }
	name_gone -1
	wait_for printed $((ranks - ${#dead[@]} + 1)) ": passed" || { echo "the others did not end" && return 1; }
	: >passed
}
name_gone() {
	printf '%2d' "$1" >gone.new
	mv gone.new gone.${#dead[@]}
	dead+=("$1")
}
# All others have ended N more rounds than any of them has now.
others_continue() {
	local round
	round=$(cat log rank.* 2>/dev/null | sed -n 's/.*: round \([0-9]*\)$/\1/p' | sort -n | tail -n 1)
	wait_for printed $((ranks - ${#dead[@]})) ": round $((round + $1))"
}
