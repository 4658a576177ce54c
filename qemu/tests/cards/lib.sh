# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The cards of the lab's guest, for the tests beside this file and those of one card: left and
# right, each an active InfiniBand port. They are the ports of a ConnectX-3, or the ConnectX-6 of
# each node (qemu/devices). Servers are right and clients left, so that messages cross.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu/tests/lib/pair.sh
. "$here/../lib/pair.sh"

left_device=${LAB_LEFT%/*} left_port=${LAB_LEFT#*/}
right_device=${LAB_RIGHT%/*} right_port=${LAB_RIGHT#*/}
# mlx4 or mlx5.
card=${right_device%_*}
# For the tests of a card that has both ports.
# shellcheck disable=SC2034
hca=$right_device
sysfs=/sys/class/infiniband/$right_device
scratch=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# Both ends run here.
server=(env)
client=(env)

# The modelled adapters' control; a real card has none.
ctl() { "$LAB_BUILD_ROOT/$LAB_DEVICE/release/vmlxctl" "$@"; }

# The numbers that the model gives the adapters of both nodes: those of devices begin anew in each
# guest. Found once, as a test may take the driver away.
adapter_of() { # adapter_of DEVICE PORT
	local number=0 lid
	lid=$(($(cat "/sys/class/infiniband/$1/ports/$2/lid"))) || return
	until [ $(($(ctl --hca $number --get "/ports/$(($2 - 1))/lid" status))) = $lid ]; do
		number=$((number + 1))
		[ $number -lt 16 ] || return
	done
	echo $number
}
case $LAB_DEVICE in
vmlx*)
	left_adapter=$(adapter_of "$left_device" "$left_port")
	right_adapter=$(adapter_of "$right_device" "$right_port")
	;;
esac

# Each adapter once.
adapters() {
	echo "$right_adapter"
	[ "$left_adapter" = "$right_adapter" ] || echo "$left_adapter"
}

# The same to all adapters.
ctl_each() {
	local number
	for number in $(adapters); do ctl --hca "$number" "$@" || return; done
}

# A number that the adapters count, by its place in `vmlxctl status`.
count() {
	local number sum=0
	for number in $(adapters); do sum=$((sum + $(ctl --hca "$number" --get "$1" status))); done
	echo $sum
}

# The right device's resources: queues, keys, QPs.
objects() { ctl --hca "$right_adapter" --get /objects status; }

# Skips the whole script where no modelled adapter can be asked.
modelled_only() { # modelled_only NAME
	case $LAB_DEVICE in
	vmlx*) ;;
	*)
		echo "KTAP version 1"
		echo "1..0 # SKIP $1 needs the modelled adapter's control"
		exit 4
		;;
	esac
}

port_state() { cut -d: -f1 "/sys/class/infiniband/$1/ports/$2/state"; }
left_state() { port_state "$left_device" "$left_port"; }
right_state() { port_state "$right_device" "$right_port"; }
active() { [ "$(left_state)" = 4 ] && [ "$(right_state)" = 4 ]; }

# The arguments that choose a port, for programs of rdma-core and for perftest.
at_left=(-d "$left_device" -i "$left_port")
at_right=(-d "$right_device" -i "$right_port")

# One of rdma-core's example programs from left to right.
pingpong() { # pingpong TYPE [OPTION…]
	local program=ibv_$1_pingpong
	shift
	set -- -n 50 -p 18515 "$@"
	pair 18515 "$program" "$@" "${at_right[@]}" -- "$program" "$@" "${at_left[@]}" localhost
}

# The XRC one: its clients are processes that share a domain.
xsrq_pingpong() { # xsrq_pingpong CLIENTS [OPTION…]
	local clients=$1
	shift
	set -- -n 50 -p 18516 "$@"
	rm -f /tmp/xrc_domain
	pair -c "$clients" 18516 ibv_xsrq_pingpong "${at_right[@]}" -c "$clients" "$@" \
		-- ibv_xsrq_pingpong "${at_left[@]}" "$@" localhost
}

# perftest from left to right. It takes a number of messages once only.
messages=100
perf() { # perf PROGRAM [OPTION…]
	local program=$1
	shift
	set -- -n "$messages" -p 18600 -F "$@"
	pair 18600 "$program" "$@" "${at_right[@]}" -- "$program" "$@" "${at_left[@]}" localhost
}

# A pair that runs until it is stopped, or until its device is removed: pids in $stream.
start_stream() {
	ibv_rc_pingpong "${at_right[@]}" -n 100000000 -p 18517 >server.log 2>&1 &
	stream=($!)
	listening 18517 $! || return
	ibv_rc_pingpong "${at_left[@]}" -n 100000000 -p 18517 localhost >client.log 2>&1 &
	stream+=($!)
	wait_for flowing
}
flowing() {
	local before
	before=$(count /counters/requests/send)
	sleep 0.2
	[ "$(count /counters/requests/send)" -gt "$before" ]
}
stop_stream() {
	kill "${stream[@]}" 2>/dev/null
	wait "${stream[@]}" 2>/dev/null
	:
}

# The network device of IP over InfiniBand at a port.
netdev() { # netdev DEVICE PORT
	local interface
	for interface in "/sys/class/infiniband/$1"/device/net/*; do
		[ "$(cat "$interface/dev_port")" != $(($2 - 1)) ] || basename "$interface"
	done
} 2>/dev/null
has_netdev() { [ -n "$(netdev "$@")" ]; }

# The kernel's log from here on.
mark_log() { log_mark=$(dmesg | wc -l); }
log_says() { dmesg | tail -n +"$((log_mark + 1))" | grep -q "$1"; }
