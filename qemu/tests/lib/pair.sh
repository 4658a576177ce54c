# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A server and its clients, for scripts that include ktap.sh. Where each runs is for the script to
# say, in the words that such a command begins with:
#
#	server=(ip netns exec right)
#	client=(ip netns exec left)

# Waits until a process in the network namespace of PID, the server, listens on a TCP port. Fails
# when PID has exited.
listening() { # listening PORT PID
	local port sockets6 sockets
	printf -v port ':%04X [0-9A-F]+:0000 0A ' "$1"
	# In bash alone: to start a program takes long on the debug kernel, and this waits for one.
	while kill -0 "$2" 2>/dev/null; do
		mapfile sockets <"/proc/$2/net/tcp"
		mapfile sockets6 <"/proc/$2/net/tcp6"
		[[ ! "${sockets[*]}${sockets6[*]}" =~ $port ]] || return 0
		nap
	done 2>/dev/null
	return 1
}

# Runs a server and, when it listens, its client, or several at once; succeeds if all do. Each
# is given at most three minutes.
pair() { # pair [-c CLIENTS] PORT SERVER-COMMAND… -- CLIENT-COMMAND…
	local clients=1 port command=() server_pid pid pids=() log status=0
	[ "$1" != -c ] || {
		clients=$2
		shift 2
	}
	port=$1
	shift
	while [ "$1" != -- ]; do
		command+=("$1")
		shift
	done
	shift
	log=$ktap_scratch/server
	# Not through a function: $! has to be the command, not a shell around it.
	"${server[@]}" timeout -k 5 "$patience" "${command[@]}" >"$log" 2>&1 &
	server_pid=$!
	if listening "$port" $server_pid; then
		while [ ${#pids[@]} -lt "$clients" ]; do
			"${client[@]:?}" timeout -k 5 "$patience" "$@" &
			pids+=($!)
		done
		for pid in "${pids[@]}"; do
			wait "$pid" || {
				status=$?
				echo "client: exit status $status"
				kill "$server_pid" 2>/dev/null
			}
		done
	fi
	wait "$server_pid" || {
		status=$?
		echo "server: exit status $status"
		sed 's/^/server: /' "$log"
	}
	return $status
}
