# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The ConnectX-3 of the lab's guest, modelled or real, for the tests beside this file: mlx4_0 with
# two active InfiniBand ports. Servers use port 1 and clients port 2, so that messages cross.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=qemu/tests/lib/ktap.sh
. "$here/../lib/ktap.sh"
# shellcheck source=qemu/tests/lib/pair.sh
. "$here/../lib/pair.sh"

hca=mlx4_0
sysfs=/sys/class/infiniband/$hca
scratch=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# Both ends run here.
server=(env)
client=(env)

# The modelled adapter's control; a real card has none.
ctl() { "$LAB_BUILD_ROOT/vmlx4/release/vmlxctl" "$@"; }

# A number that the adapter counts, by its place in `vmlxctl status`.
count() { ctl --get "$1" status; }

# The device's resources: queues, keys, QPs.
objects() { ctl --get /objects status; }

# Skips the whole script where no modelled adapter can be asked.
modelled_only() { # modelled_only NAME
	if [ "$LAB_DEVICE" != vmlx4 ]; then
		echo "KTAP version 1"
		echo "1..0 # SKIP $1 needs the modelled adapter's control"
		exit 4
	fi
}

port_state() { cut -d: -f1 "$sysfs/ports/$1/state"; }
active() { [ "$(port_state 1)" = 4 ] && [ "$(port_state 2)" = 4 ]; }

# One of rdma-core's example programs from port 2 to port 1.
pingpong() { # pingpong TYPE [OPTION…]
	local common=(-d "$hca" -n 50 -p 18515)
	local program=ibv_$1_pingpong
	shift
	common+=("$@")
	pair 18515 "$program" "${common[@]}" -i 1 -- "$program" "${common[@]}" -i 2 localhost
}

# The XRC one: its clients are processes that share a domain.
xsrq_pingpong() { # xsrq_pingpong CLIENTS [OPTION…]
	local clients=$1
	shift
	set -- -d "$hca" -n 50 -p 18516 "$@"
	rm -f /tmp/xrc_domain
	pair -c "$clients" 18516 ibv_xsrq_pingpong -i 1 -c "$clients" "$@" \
		-- ibv_xsrq_pingpong -i 2 "$@" localhost
}

# A pair that runs until it is stopped, or until its device is removed: pids in $stream.
start_stream() {
	ibv_rc_pingpong -d "$hca" -i 1 -n 100000000 -p 18517 >server.log 2>&1 &
	stream=($!)
	listening 18517 $! || return
	ibv_rc_pingpong -d "$hca" -i 2 -n 100000000 -p 18517 localhost >client.log 2>&1 &
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
netdev() { # netdev PORT
	local device
	for device in "$sysfs"/device/net/*; do
		[ "$(cat "$device/dev_port")" != $(($1 - 1)) ] || basename "$device"
	done
} 2>/dev/null
has_netdev() { [ -n "$(netdev "$1")" ]; }

# The kernel's log from here on.
mark_log() { log_mark=$(dmesg | wc -l); }
log_says() { dmesg | tail -n +"$((log_mark + 1))" | grep -q "$1"; }
