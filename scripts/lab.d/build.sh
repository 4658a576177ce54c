# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Builds from the tree for a kernel, or for the guest's programs, outside the tree: the module and
# all that changes with the tree for this checkout, patched sources of others once per key.
#
# Per kernel; programs for user space are in $build_root/user and beside it.
build_dir() { printf '%s/%s' "$build_root" "$kernel_key"; }

build_main() {
	kernel_option "$@"
	root_setup
	kernel_setup
	[ ${#kernel_rest[@]} -gt 0 ] ||
		mapfile -t kernel_rest < <(printf '%s\n' module test-modules rdma-core user tests demo && device_names)
	build "${kernel_rest[@]}"
}

# One lab builds at a time: two of one tree would build the same things in the same places.
build() { with_build_lock build_parts "$@"; }

build_parts() {
	local part
	for part; do
		case $part in
		module | test-modules | rdma-core | user | tests | demo) "build_${part//-/_}" ;;
		*)
			[ -e "$tree/qemu/devices/$part.sh" ] || die "no part or device is called '$part'"
			device_source "$part"
			device_build
			;;
		esac
	done
}

# The key of the root that programs of a guest are linked with and run in.
programs_key() { echo "${foreign_key:-$root_key}"; }

# The mark beside a directory that is being made.
unfinished=

# quiet NAME COMMAND… - run in the root; show the output only if it fails, and that time passes if
# it takes more than a few seconds.
quiet() {
	local name=$1 log=$build_root/log/$1.log status=0 ticker
	shift
	mkdir -p "$build_root/log"
	still_building "$name" "$log" &
	ticker=$!
	background root_exec "$@" >"$log" 2>&1 </dev/null
	wait $! || status=$?
	trap - INT TERM HUP
	kill "$ticker" 2>/dev/null || :
	wait "$ticker" 2>/dev/null || :
	[ "$status" -eq 0 ] || {
		# make(1) and cargo continue builds that they gave up themselves.
		[ -z "$unfinished" ] || rm -f "$unfinished"
		cat "$log" >&2
		die "the build failed: $* (its output is in $log); mend the errors and run the same again"
	}
}

# Sleeps without a program, which would stay when this is killed.
still_building() {
	local silence seconds=0
	exec {silence}<> <(:)
	while kill -0 $$ 2>/dev/null; do
		read -rt 5 -u "$silence" || :
		seconds=$((seconds + 5))
		[ $((seconds % 30)) -ne 5 ] || say "building $1, $seconds s: $(tail -n 1 "$2" 2>/dev/null | tr -cd '[:print:]' | cut -c1-80)"
	done
}

# made_from DIRECTORY KEY COMMAND… - run COMMAND, which makes DIRECTORY below $build_root, unless it
# was made from sources of the same KEY: here, or in another checkout, from which it is copied then.
# make(1) and cargo would begin anew there: the paths are others, and the sources younger.
made_from() {
	local directory=$build_root/$1 relative=$1 key=$2 other
	shift 2
	[ "$(cat "$directory/.made-from" 2>/dev/null)" != "$key" ] || return 0
	for other in "$cache/build/"????????????"$arch_suffix"; do
		[ "$(cat "$other/$relative/.made-from" 2>/dev/null)" = "$key" ] || continue
		rm -rf "$directory.new"
		mkdir -p "$(dirname "$directory")"
		copy_from "$other/$relative" "$other/$relative" "$directory.new" &&
			[ "$(cat "$directory.new/.made-from")" = "$key" ] || continue
		rm -rf "${directory:?}" "$directory.unfinished"
		mv "$directory.new" "$directory"
		return
	done
	rm -rf "$directory.new" "$directory/.made-from"
	# make(1) takes a program that was being written for a finished one.
	unfinished=$directory.unfinished
	[ ! -e "$unfinished" ] || rm -rf "${directory:?}"
	mkdir -p "$(dirname "$directory")"
	: >"$unfinished"
	"$@"
	echo "$key" >"$directory/.made-from"
	rm "$unfinished"
	unfinished=
}

# copy_from PART FILE… DIRECTORY - fails if the part of another checkout was begun anew meanwhile.
# That checkout is not locked: others of its parts can take half an hour.
copy_from() {
	local made
	made=$(stat -c '%i %y' "$1/.made-from" 2>/dev/null) && cp -a --reflink=auto "${@:2}" &&
		[ "$(stat -c '%i %y' "$1/.made-from" 2>/dev/null)" = "$made" ]
}

# borrow_crates DIRECTORY [DIRECTORY…] - compiled libraries of others, most of a first build, are
# found by cargo when they are in their place: their names do not depend on the checkout. They are
# those of another checkout, or of another directory that has programs with the same.
borrow_crates() {
	local directory=$1 other part
	[ ! -e "$directory/release" ] || return 0
	for other in "$cache/build/"????????????"$arch_suffix/${directory##*/}" "${@:2}"; do
		[ -e "$other/.made-from" ] || continue
		for part in release ${arch_rust:+"$arch_rust/release"}; do
			mkdir -p "$directory/$part"
			copy_from "$other" "$other/$part"/{deps,build,.fingerprint} "$directory/$part" || {
				rm -r "${directory:?}/$part"
				continue 2
			}
		done
		return
	done
}

# Programs of a foreign architecture are where cargo has those of the host's.
link_programs() { # link_programs DIRECTORY
	local file
	[ -n "$arch_rust" ] || return 0
	mkdir -p "$1/release/examples"
	for file in "$1/$arch_rust"/release/{,examples/}*; do
		[ ! -f "$file" ] || [ ! -x "$file" ] || ln -sfr "$file" "$1/${file#"$1/$arch_rust/"}"
	done
}

build_module() {
	local key
	key=$(key_of_tree "$tree/src" "$tree/Kbuild" "$tree/VERSION" "$tree"/{scripts,packaging/dkms-rust}/kernel-toolchain)-$(kernel_made)
	made_from "$kernel_key/module" "$key" make_module
}

make_module() {
	# W=e: a warning is an error here, and not where a newer compiler has new ones.
	in_kernel_root quiet module make --no-print-directory -C "$tree" W=e KDIR="$kdir" KSRC="$ksrc" MO="$(build_dir)/module" modules
}

build_test_modules() {
	build_module
	mkdir -p "$(build_dir)/test-modules"
	in_kernel_root quiet test-modules bash -ec 'cd "$3"
		toolchain=$(scripts/kernel-toolchain "$1")
		make --no-print-directory -C "$1" M="$PWD/qemu/tests/test-modules" MO="$2/test-modules" \
			KBUILD_EXTRA_SYMBOLS="$2/module/Module.symvers" $toolchain modules' \
		test-modules "$kdir" "$(build_dir)" "$tree"
}

# shared LINK KEY DESCRIPTION COMMAND… - run COMMAND DIRECTORY as a step, once for all checkouts
# that have the same KEY, and let LINK lead to the directory. It is not moved: rdma-core knows its
# paths.
shared() {
	local link=$1 name=${1##*/} key=$2 what=$3
	shift 3
	local directory=$cache/$name/$key
	[ -e "$directory/.complete" ] || with_cache_lock "$name" shared_make "$name" "$what" "$directory" "$@"
	[ "$(readlink "$link")" = "$directory" ] || { rm -rf "${link:?}" && ln -s "$directory" "$link"; }
}

shared_make() {
	local name=$1 what=$2 directory=$3
	shift 3
	[ -e "$directory/.complete" ] && return
	rm -rf "${directory:?}"
	mkdir -p "$directory"
	step "$name" "$what" root_exec "$@" "$directory"
	touch "$directory/.complete"
}

# The kernel's key; a custom tree changes under the same name.
kernel_made() {
	printf %s "$kernel_key"
	case $kernel in /*) printf '-%s' "$(key_of "$kdir/.config" "$kdir/Module.symvers")" ;; esac
}

build_rdma_core() {
	local key
	key=$(key_of_tree "$tree/upstream/rdma-core" "$tree/scripts/build-rdma-core")-$(programs_key)
	shared "$build_root/rdma-core" "$key" "building rdma-core with rxe's XRC" \
		"$tree/scripts/build-rdma-core"
}

# made_with DIRECTORY - empties it if it was made in another root or with another rdma-core: make(1)
# knows of neither.
made_with() {
	local stamp=$1/.made-with with
	with=$(readlink "$build_root/rdma-core")
	[ "$(cat "$stamp" 2>/dev/null)" = "$with" ] || {
		rm -rf "${1:?}"
		mkdir -p "$1"
		echo "$with" >"$stamp"
	}
}

build_user() {
	build_rdma_core
	made_from user "$(user_key)" make_user
}

user_key() {
	printf '%s-%s' "$(key_of_tree "$tree/user" "$tree/spec" "$tree/src/include" "$tree/VERSION" "$tree/rust-toolchain.toml")" \
		"$(basename "$(readlink "$build_root/rdma-core")")"
}

make_user() {
	made_with "$build_root/user"
	borrow_crates "$build_root/user"
	quiet user env CARGO_HOME="$cache/cargo" GO="$tree/scripts/with-go go" \
		make --no-print-directory -C "$tree/user" O="$build_root/user" all tests
	link_programs "$build_root/user"
}

build_tests() {
	build_user
	build_fuzzer
	made_from tests "$(key_of_tree "$tree/qemu/tests" "$tree"/Cargo.{toml,lock})-$(user_key)" make_tests
	quiet qperf "$tree/scripts/build-qperf" "$build_root/qperf" "$build_root/user/stage/usr"
}

make_tests() {
	made_with "$build_root/tests"
	quiet tests env CARGO_HOME="$cache/cargo" make --no-print-directory -C "$tree/qemu/tests" \
		OUT="$build_root/tests" RDMA_CORE="$build_root/rdma-core"
}

build_fuzzer() {
	local sources=("$tree"/proof/fuzz/{src,Cargo.toml} "$tree"/spec/{src,Cargo.toml} "$tree/user/xrc-rcv/src/uapi")

	made_from fuzzer "$(key_of_tree "${sources[@]}" "$tree"/Cargo.{toml,lock})-$(programs_key)" make_fuzzer
}

make_fuzzer() {
	quiet fuzzer env CARGO_TARGET_DIR="$build_root/fuzzer" CARGO_HOME="$cache/cargo" \
		cargo build --locked --release --manifest-path "$tree/proof/fuzz/Cargo.toml"
	link_programs "$build_root/fuzzer"
}

build_demo() {
	build_user
	made_from demo "$(key_of_tree "$tree/demo" "$tree"/Cargo.{toml,lock} "$tree/qemu/tests/lib")-$(user_key)" make_demo
}

make_demo() {
	made_with "$build_root/demo"
	quiet demo env CARGO_HOME="$cache/cargo" make --no-print-directory -C "$tree/demo" \
		OUT="$build_root/demo" STAGE="$build_root/user/stage/usr"
}
