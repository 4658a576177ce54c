# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Messages, the cache, and steps that are done once and show their progress.

# The specification of XDG_CACHE_HOME has a relative one ignored.
case ${XDG_CACHE_HOME-} in
/*) cache=$XDG_CACHE_HOME/ib_xrc_rcv ;;
*) cache=${HOME:?is where the cache is, if XDG_CACHE_HOME does not name a directory}/.cache/ib_xrc_rcv ;;
esac
"$tree/scripts/plain-path" "$tree" "$cache" || exit 125
logs=$cache/log
export LAB_CACHE=$cache

say() { printf 'lab: %s\n' "$*" >&2; }

die() {
	say "$*"
	exit 125
}

# The lab's variables, of users and of scripts that call this one. All that begin with LAB_ or
# VMLX_ are passed into the root (root_exec). Another one is refused: it would have no effect, as
# a node whose adapter was not passed, and which then had a fabric of its own.
known_variables=(
	LAB_ACCEL LAB_APPEND LAB_ARCH LAB_BIND LAB_BOOT_TIMEOUT LAB_BUILT LAB_CPUS LAB_LIVE LAB_MEMORY LAB_MODULE LAB_QEMU_ARGS
	LAB_BUILD LAB_BUILD_ROOT LAB_CACHE LAB_INSIDE LAB_LONG LAB_ROOT LAB_STOCK LAB_TESTS LAB_TREE LAB_USER
	LAB_FABRIC LAB_NODE LAB_NODES VMLX_ADAPTER VMLX_CONTROL VMLX_HCA
)

check_variables() {
	local name
	for name in "${!LAB_@}" "${!VMLX_@}"; do
		[[ " ${known_variables[*]} " == *" $name "* ]] ||
			die "the lab has no variable $name (scripts/lab help lists those that it has)"
	done
}

# The key of files: 12 digits that name a cached result by its sources.
key_of() { cat "$@" | sha256sum | cut -c1-12; }

# key_of_tree DIR… - the same for all files below DIRs, names included, but for what cargo and
# Python make there.
key_of_tree() {
	local path
	for path; do
		(cd "$(dirname "$path")" && find "$(basename "$path")" \( -name target -o -name __pycache__ \) -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
	done | sha256sum | cut -c1-12
}

# shellcheck source=scripts/lab.d/architecture.sh
. "$tree/scripts/lab.d/architecture.sh"

# step NAME DESCRIPTION COMMAND… - run COMMAND with its output in a log; show that time
# passes; on failure name the log, and print its first error and its last lines.
step() {
	local name=$1 what=$2 log start pid status=0 last=0 now fault
	shift 2
	log=$logs/$name.log
	mkdir -p "$logs"
	start=$SECONDS
	say "$what …"
	background "$@" >"$log" 2>&1 </dev/null
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		now=$((SECONDS - start))
		if [ -t 2 ]; then
			printf '\r\033[K     %3d s  %.60s' "$now" "$(tail -n 1 "$log" | tr -cd '[:print:]')" >&2
		elif ((now >= last + 30)); then
			last=$now
			say "  … $now s"
		fi
	done
	[ -t 2 ] && printf '\r\033[K' >&2
	wait "$pid" || status=$?
	trap - INT TERM HUP
	if [ "$status" -ne 0 ]; then
		fault=$(first_fault "$log")
		tail -n 15 "$log" | grep -qxF -e "$fault" || printf '     %s\n     …\n' "$fault" >&2
		tail -n 15 "$log" | sed 's/^/     /' >&2
		die "this step failed: $what. Its whole output is in $log; once the cause is mended, the same command continues from here"
	fi
	say "  done in $((SECONDS - start)) s"
}

# background COMMAND… - start it in a process group of its own ($!) that does not outlive us:
# unshare(1) ignores the signals that end us, but not the death of its group, and the namespaces
# it made end with it.
background() {
	set -m
	# mmdebstrap has dash redirect into a descriptor of its own, which can be none of two
	# digits. The caller may have left many, as make does.
	"$@" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &
	set +m
	# shellcheck disable=SC2064
	trap "kill -KILL -- -$! 2>/dev/null || :; wait $! 2>/dev/null || :; exit 130" INT TERM HUP
}

# needs_room GIGABYTES WHAT - refuse to begin what would run out of space after minutes.
needs_room() {
	local free
	free=$(df --output=avail -B 1000000 "$cache" | tail -n 1)
	((free >= $1 * 1000)) ||
		die "$2 needs $1 GB, and $cache has $((free / 1000)).$((free % 1000 / 100)) GB left; XDG_CACHE_HOME names another place"
}

# with_cache_lock NAME COMMAND… - only one lab at a time makes the results shared under that name.
with_cache_lock() {
	local name=$1 fd
	shift
	mkdir -p "$cache/locks" || die "there can be no cache at $cache; XDG_CACHE_HOME names another place"
	exec {fd}>"$cache/locks/$name"
	lock "$fd"
	"$@" {fd}>&-
	exec {fd}>&-
}

# And only one builds from this checkout.

with_build_lock() {
	mkdir -p "$build_root"
	exec 8>"$build_root/lock"
	lock 8
	"$@" 8>&-
	exec 8>&-
}

lock() { flock -w 5 "$1" || { say "waiting for another lab that is building" && flock "$1"; }; }

cache_clean() {
	case "${1-}" in
	'')
		local name
		for name in "${architectures[@]}"; do
			architecture "$name"
			rm -rf --one-file-system "${build_root:?}"
		done
		;;
	all) rm -rf --one-file-system "${cache:?}" ;;
	*) die "clean: 'all' or nothing" ;;
	esac
}

lab_env() {
	cat <<EOF
LAB_ARCH=$arch
LAB_CACHE=$cache
LAB_ROOT=$root
LAB_HOST_BUILD_ROOT=$host_build_root
LAB_BUILD=$(build_dir)
KDIR=$kdir
KSRC=$ksrc
LAB_STOCK="${LAB_STOCK-}"
EOF
}
