# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Modules of the stock kernel's RDMA core from sources that a test has changed, for tests on the
# host:
#
#	core_once "$LAB_BUILD/NAME" FUNCTION FILE…
#
# FUNCTION gets a directory with include/rdma and drivers/infiniband/core of the kernel. It changes
# them and calls core_modules. $tree, $lab and the variables of `scripts/lab env` are the caller's.

core=drivers/infiniband/core

# core_once DIRECTORY FUNCTION FILE… - once for the same files, the same test and the same kernel:
# each time takes as long as the test
core_once() {
	local directory=$1 function=$2 key
	shift 2
	key=$(find "$0" "${BASH_SOURCE[0]}" "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
	[ "$(cat "$directory/.made-from" 2>/dev/null)" != "$key" ] || return 0
	core_source "$directory"
	"$function" "$directory"
	echo "$key" >"$directory/.made-from"
}

core_source() {
	local directory=$1
	rm -rf "$directory"
	mkdir -p "$directory/$core" "$directory/include"
	cp "$KSRC/$core"/*.[ch] "$KSRC/$core/Makefile" "$directory/$core/"
	cp -r "$KSRC/include/rdma" "$directory/include/"
}

# core_modules DIRECTORY [VARIABLE=VALUE…] MODULE… - as the kernel's Makefile composes them
core_modules() {
	local directory=$1 module variables=()
	shift
	while [[ $1 == *=* ]]; do
		variables+=("$1")
		shift
	done
	{
		echo "obj-m := ${*/%/.o}"
		for module; do awk -v of="$module-" 'index($0, of) == 1 { on = 1 } on; !/\\$/ { on = 0 }' "$directory/$core/Makefile"; done
	} >"$directory/$core/Kbuild"
	core_make "$directory" -C "$KDIR" "M=$directory/$core" "${variables[@]}"
}

# core_make DIRECTORY ARGUMENT… - make(1) with the compilers of the kernel and the headers of
# DIRECTORY
core_make() {
	local directory=$1
	shift
	# shellcheck disable=SC2016  # of that shell
	"$lab" exec -- bash -ec 'kdir=$1 tree=$2 headers=$3 && shift 3
		exec make --no-print-directory NOSTDINC_FLAGS="-nostdinc $headers" $("$tree/scripts/kernel-toolchain" "$kdir") "$@" modules' \
		core "$KDIR" "$tree" "-I$directory/include" "$@" >"$directory/log" 2>&1 || {
		cat "$directory/log" >&2
		return 1
	}
}
