# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The Debian 13 root: toolchains, QEMU and the guest's programs in one directory of the cache.
# It is made once, by qemu/root/make from the mirror the host itself uses, and is only read after.

root_key=$(key_of_tree "$tree/qemu/root")
root=$cache/root-$root_key

# The host's own mirror of Debian's main archive. apt names only mirrors that it has lists of.
root_mirror() {
	local mirror try
	for try in 1 2; do
		mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
			'Created-By: Packages' 'Origin: Debian' |
			awk '$3 == "main" && $2 !~ /-/ && $1 !~ /security/ && !seen { print $1; seen = 1 }')
		[ -z "$mirror" ] || break
		[ "$try" = 2 ] || apt-get update >&2
	done
	[ -n "$mirror" ] || die "apt knows no Debian mirror here: add one to /etc/apt/sources.list"
	# A list of mirrors, as in Debian's images for clouds, is a file of the host.
	case $mirror in
	mirror+file:*) awk '/^[a-z]+:/ { print $1; exit }' "$(sed 's,^mirror+file:,,; s,/$,,' <<<"$mirror")" ;;
	*) printf '%s\n' "$mirror" ;;
	esac
}

root_requirements() {
	local missing=()
	[ "$(id -u)" -eq 0 ] || die "the lab mounts and boots things: run it as root"
	command -v apt-get >/dev/null || missing+=(apt)
	command -v unshare >/dev/null || missing+=(util-linux)
	command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
	[ ${#missing[@]} -eq 0 ] && return
	if grep -qs '^ID=debian' /etc/os-release && [ "${missing[0]}" != apt ]; then
		step requirements "installing ${missing[*]}" bash -c \
			"apt-get update && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends ${missing[*]}"
	else
		die "these packages are missing here: ${missing[*]}. The lab installs them itself on Debian 12 and 13 only"
	fi
}

root_make() {
	local mirror
	[ ! -d "$root" ] || return 0
	rm -rf --one-file-system "$cache"/root-*.new
	# The root, the stock kernel with its source, and a build of the tree.
	needs_room 6 "a first build"
	mirror=$(root_mirror) || exit
	step root "making the Debian 13 root (about 1.5 minutes)" \
		unshare --mount --fork --kill-child "$tree/qemu/root/make" "$mirror" "$root.new"
	mv "$root.new" "$root"
}

foreign_make() {
	local directory=$foreign foreign=
	[ ! -e "$directory/.complete" ] || return 0
	rm -rf --one-file-system "$directory"
	needs_room 3 "what is needed for $arch"
	mkdir -p "$directory"
	step "$arch" "unpacking compilers, QEMU and a guest's root for $arch (about 2 minutes)" \
		root_exec "$tree/qemu/$arch/make" "$directory"
	touch "$directory/.complete"
}

root_setup() {
	[ -n "${LAB_INSIDE-}" ] && return
	root_requirements
	[ -d "$root" ] || with_cache_lock root root_make
	[ -z "$foreign" ] || [ -e "$foreign/.complete" ] || with_cache_lock "$arch" foreign_make
}

# root_exec COMMAND… - run COMMAND in the root, with the tree, the cache and the working
# directory where they are outside. All mounts and processes live in namespaces of their own and
# end with the command, however it ends. The command is not their first process: signals that
# interrupt others would not interrupt that one. Of the caller's variables it gets the lab's own,
# and those of terminals and proxies: compilers and make(1) heed others, and what they make is
# shared. For a foreign architecture its compilers lie above /usr, its libraries and headers, whose
# directories have other names, below it.
root_exec() {
	if [ -n "${LAB_INSIDE-}" ]; then
		"$@"
		return
	fi
	local name variables=() repository=
	for name in TERM NO_COLOR {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY VERBOSE KSRC GIDS "${!LAB_@}" "${!VMLX_@}"; do
		[ -z "${!name+set}" ] || variables+=("$name=${!name}")
	done
	[ -z "$foreign" ] || variables+=("${arch_compilers[@]}")
	case ${kernel-} in
	/*) variables+=(${RUSTC+"RUSTC=$RUSTC"} ${BINDGEN+"BINDGEN=$BINDGEN"}) ;;
	esac
	# A worktree's repository is elsewhere.
	[ ! -f "$tree/.git" ] || repository=$(git -c safe.directory='*' -C "$tree" rev-parse --path-format=absolute --git-common-dir) || :
	LAB_INSIDE=1 unshare --mount --pid --fork --kill-child --propagation private \
		bash -c '
		set -e
		root=$1 tree=$2 cache=$3 cwd=$4 repository=$5 foreign=$6
		shift 6
		[ -z "$foreign" ] || mount -t overlay -o "lowerdir=$foreign/tools/usr:$root/usr:$foreign/root/usr" overlay "$root/usr"
		mount -t proc proc "$root/proc"
		mount --rbind /sys "$root/sys"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmp "$root/tmp"
		for dir in ${repository:+"$repository"} "$tree" "$cache" ${LAB_BIND-}; do
			mkdir -p "$root$dir"
			mount --bind "$dir" "$root$dir"
		done
		# The host reaches the registries; the root does it in the same way.
		certificates=/etc/ssl/certs/ca-certificates.crt
		[ ! -e /etc/resolv.conf ] || cat /etc/resolv.conf >"$root/etc/resolv.conf"
		[ ! -e "${SSL_CERT_FILE:-$certificates}" ] || cat "${SSL_CERT_FILE:-$certificates}" >"$root$certificates"
		[ -d "$root$cwd" ] || cwd=$tree
		chroot "$root" /usr/bin/env -i -C "$cwd" "$@" || exit
		' lab "$root" "$tree" "$cache" "$(pwd -P)" "$repository" "$foreign" "${variables[@]}" \
		HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
		LAB_INSIDE=1 LAB_CACHE="$cache" LAB_BUILD_ROOT="$build_root" "$@"
}
