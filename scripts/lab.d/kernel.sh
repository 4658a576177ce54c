# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernels a guest can boot: Debian's own ("stock" and its successors), the newest source with
# KASAN, lockdep and the like ("debug") or with versions of symbols ("modversions"), Debian's newest
# or "debug" with another ib_core and ib_uverbs ("hooked", "hooked-debug"), or a custom build tree.
# Each has a build tree (kdir), a source (ksrc), a boot image, modules and an initramfs of its own;
# all paths are as seen in the root.

kernel=${KDIR:-stock}
kernel_rest=()
# What is compiled for the kernel is compiled here, if not in the root.
kernel_root=

# Uverbs objects of other modules need 7.2's split of ib_uverbs.
kernel_floor=7.2

# kernel_option ARG… - take --kernel and --arch out of the arguments, leave the rest in kernel_rest.
kernel_option() {
	kernel_rest=()
	while [ $# -gt 0 ]; do
		case $1 in
		--kernel)
			kernel=${2-}
			[ -n "$kernel" ] || kernel_unknown
			kernel_of_architecture
			shift 2
			;;
		--arch)
			architecture "${2-}"
			shift 2
			;;
		*)
			kernel_rest+=("$1")
			shift
			;;
		esac
	done
	case $kernel in
	debug | modversions | hooked | hooked-debug)
		[[ " ${arch_kernels[*]} " == *" $kernel "* ]] || die "the lab builds no kernel '$kernel' for $arch"
		;;
	esac
}

# ARCH:KERNEL is of that architecture.
kernel_of_architecture() {
	local name
	for name in "${architectures[@]}"; do
		[[ $kernel == "$name":* ]] || continue
		architecture "$name"
		kernel=${kernel#*:}
	done
}

kernel_unknown() {
	die "--kernel wants stock, stock:VERSION-FLAVOUR, debug, modversions, hooked, hooked-debug or an absolute directory, not '$kernel'"
}

kernel_setup() {
	case $kernel in
	stock | stock:?*) kernel_stock ;;
	debug | modversions) "kernel_$kernel" ;;
	hooked | hooked-debug) kernel_hooked ;;
	/*) kernel_own ;;
	*) kernel_unknown ;;
	esac
	initramfs=$cache/initramfs/$kernel_key-$(key_of "$tree/qemu/guest/initramfs-init" "$tree/scripts/make-initramfs").cpio.gz
	[ -e "$initramfs" ] || with_cache_lock initramfs kernel_initramfs
	mkdir -p "$(build_dir)"
}

# Debian's kernels
# ---------------------------------------------------------------------------
#
# A stock kernel is one of those in trixie-backports for which the mirror has image, headers and
# source; those of later Debian releases can be asked for as well. They are listed once, newest
# first, and again when `lab update` is called or one is asked for that is not in the list.
# LAB_STOCK, a line of the list, is "stock" for as long as it is set: scripts/test sets it, so that
# all suites of a run have the same kernel.

# kernel_apt COMMAND… - the host's apt, with its mirror and its network, and nothing but those
# releases
kernel_apt() { APT_CONFIG=$kernel_archive/conf "$@"; }

# Writes down where that apt looks: releases that the mirror does not have, or cannot deliver now,
# are passed over.
kernel_apt_make() {
	local directory=$kernel_archive mirror release answer both="\"$arch\";"
	# The programs that compile are the host's.
	[ -z "$foreign" ] || both+=" \"${architectures[0]}\";"
	mirror=$(root_mirror) || exit
	mkdir -p "$directory/lists/partial" "$directory/cache/archives/partial"
	cat >"$directory/conf.new" <<-EOC
		Dir::State::Lists "$directory/lists";
		Dir::State::Status "/dev/null";
		Dir::Cache "$directory/cache";
		Dir::Etc::SourceList "$directory/sources";
		Dir::Etc::SourceParts "/dev/null";
		Dir::Etc::PreferencesParts "/dev/null";
		Acquire::Languages "none";
		APT::Architecture "$arch";
		APT::Architectures { $both };
		APT::Sandbox::User "root";
	EOC
	for release in "${kernel_releases[@]}"; do
		[ "$release" = "${kernel_releases[0]}" ] ||
			answer=$(APT_CONFIG=$directory/conf.new /usr/lib/apt/apt-helper download-file "${mirror%/}/dists/$release/InRelease" "$directory/release" 2>&1) || {
			grep -qE '404 |File not found' <<<"$answer" ||
				say "without the kernels of $release: $(tail -n 2 <<<"$answer" | paste -sd ' ')"
			continue
		}
		echo "deb [target=Packages signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main"
	done >"$directory/sources.new"
	mv "$directory/sources.new" "$directory/sources"
	mv "$directory/conf.new" "$directory/conf"
}

kernel_apt_update() { kernel_apt apt-get -qq -o APT::Update::Error-Mode=any update >&2; }

# Lines of "RELEASE VERSION SOURCE DEBIAN-RELEASE,…", newest first, at one version Debian's main
# flavour first.
kernel_list_make() {
	kernel_apt_make
	kernel_apt_update || {
		say "apt's messages are above; without the kernels of later Debian releases"
		sed -i 1q "$kernel_archive/sources"
		kernel_apt_update || die "the mirror's list of kernels cannot be read (apt's messages are above)"
	}
	kernel_apt apt-get indextargets --format '$(RELEASE) $(FILENAME)' 'Created-By: Packages' "Architecture: $arch" |
		while read -r release file; do
			echo "Debian: $release"
			kernel_apt /usr/lib/apt/apt-helper cat-file "$file"
		done |
		awk -v floor="$kernel_floor" -v releases="${kernel_releases[*]}" '
			function older(a, b,   x, y) {
				split(a, x, "."); split(b, y, ".")
				return x[1] + 0 < y[1] + 0 || (x[1] + 0 == y[1] + 0 && x[2] + 0 < y[2] + 0)
			}
			$1 == "Debian:" { debian = $2 }
			$1 == "Package:" { package = $2 }
			$1 == "Version:" {
				if (sub(/^linux-(binary|modules|headers)-/, "", package)) have[debian, package " " $2]++
				else if (package ~ /^linux-source-[0-9]/) source[debian, $2] = package
			}
			END {
				count = split(releases, order, " ")
				for (i = 1; i <= count; i++)
					for (key in have) {
						split(key, of, SUBSEP)
						split(of[2], part, " ")
						if (of[1] != order[i] || have[key] != 3 || !((of[1], part[2]) in source) ||
						    older(part[1], floor)) continue
						if (!(of[2] in line)) line[of[2]] = of[2] " " source[of[1], part[2]] " " of[1]
						else line[of[2]] = line[of[2]] "," of[1]
					}
				for (kernel in line) print line[kernel]
			}' | sort -k 2,2Vr -k 1,1 >"$kernel_list.new"
	grep -q " ${kernel_releases[0]}$" "$kernel_list.new" ||
		die "this mirror's ${kernel_releases[0]} has no kernel of $kernel_floor or later with headers and source"
	mv "$kernel_list.new" "$kernel_list"
}

# The line of the list that stock:WANTED names: a version or the beginning of one, a flavour (rt,
# cloud), or both joined by a dash, of trixie-backports, or the newest of all if trixie-backports
# has no such version; a Debian release, or that and a flavour; or a kernel's release.
kernel_pick() {
	local wanted=$1 flavour='' debian=${kernel_releases[0]} line release one other=''
	case $wanted in
	rt | cloud | 16k) flavour=$wanted wanted='' ;;
	*-rt | *-cloud | *-16k) flavour=${wanted##*-} wanted=${wanted%-*} ;;
	esac
	for one in "${kernel_releases[@]}"; do
		[ "$wanted" != "$one" ] || debian=$one wanted=''
	done
	while read -r line; do
		release=${line%% *}
		if [ "$release" != "$1" ]; then
			[ "${release#*-}" = "${arch_flavours[${flavour:-stock}]-}" ] || continue
			[[ -z $wanted || $release == "$wanted"[.+-]* ]] || continue
			# A version of Debian's own, with a plus sign, says of which Debian release
			# it is.
			[[ ,${line##* }, = *,"$debian",* || $wanted == *+* ]] || {
				other=${other:-${wanted:+$line}}
				continue
			}
		fi
		echo "$line"
		return
	done <"$kernel_list"
	[ -z "$other" ] || echo "$other"
	[ -n "$other" ]
}

# Sets kernel_line: what is listed of stock, or stock:WANTED. A whole line is its own, whatever the
# list has become.
kernel_find() {
	local wanted=${1#stock}
	wanted=${wanted#:}
	kernel_line=
	[ -n "$wanted" ] || kernel_line=${LAB_STOCK-}
	[[ $wanted != *' '* ]] || kernel_line=$wanted
	[[ ${kernel_line%% *} == *-"$arch"* ]] || kernel_line=
	[ -z "$kernel_line" ] || return 0
	[ -s "$kernel_list" ] || with_cache_lock debian kernel_list_make
	kernel_line=$(kernel_pick "$wanted") || {
		with_cache_lock debian kernel_list_make
		kernel_line=$(kernel_pick "$wanted") ||
			die "the mirror has no kernel '$1'; it has $(cut -d ' ' -f 1 "$kernel_list" | paste -sd ' ')"
	}
	[ -n "$wanted" ] || LAB_STOCK=$kernel_line
}

# Sets kver, and where its headers and source come from.
kernel_choose() {
	kernel_find "$1"
	read -r kver kernel_version kernel_source kernel_debian <<<"$kernel_line"
	# A kernel that several have is built for the first.
	kernel_debian=${kernel_debian%%,*}
	# The common part of the flavours. Several uploads can have the same one.
	kernel_abi=${kver%%-*}
	ksrc=$cache/source/$kernel_version
}

kernel_stock() {
	local directory toolchain=$root/etc/lab-toolchain
	kernel_choose "$kernel"
	# Tests do the same on each of them.
	kernel=stock
	[ "$kernel_debian" = "${kernel_releases[0]}" ] || toolchain=$tree/qemu/toolchain/make
	kernel_key=$kver-$(key_of "$tree"/scripts/{unpack-kernel,prepare-rust-headers,build-9p} "$toolchain" \
		<(echo "$kernel_version"))
	directory=$cache/debian/$kernel_key
	kdir=$directory/usr/src/linux-headers-$kver
	kmodules=$directory
	kimage=$directory/usr/lib/modules/$kver/vmlinuz
	[ -e "$directory/.complete" ] || with_cache_lock "debian-$kver" kernel_stock_make "$directory"
	kernel_root=$(readlink "$directory/toolchain") || kernel_root=$root
}

# The root that a kernel of another Debian release is compiled for in: of that release, with the
# compilers that the configuration in its headers names, or of sid for one of experimental. It is
# shared by all kernels of the release that were built by these.
kernel_toolchain() {
	local headers=$1 config=$1.config debian=${kernel_debian/experimental/sid} gcc rustc mirror
	dpkg-deb --fsys-tarfile "$headers" | tar -xO "./usr/src/linux-headers-$kver/.config" >"$config"
	gcc=$(($(sed -n 's/^CONFIG_GCC_VERSION=//p' "$config") / 10000))
	rustc=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"$/\1/p' "$config")
	kernel_root=$cache/toolchain/$debian-$(key_of "$tree/qemu/toolchain/make" <(echo "$gcc $rustc"))
	[ ! -d "$kernel_root" ] || return 0
	mirror=$(root_mirror) || exit
	rm -rf --one-file-system "$kernel_root.new"
	mkdir -p "$cache/toolchain"
	step toolchain "making a root of $debian with gcc $gcc and ${rustc%% (*} (about 2 minutes)" \
		unshare --mount --fork --kill-child "$tree/qemu/toolchain/make" "$mirror" "$debian" "$gcc" "$rustc" "$kernel_root.new"
	mv "$kernel_root.new" "$kernel_root"
}

# in_kernel_root COMMAND… - a function that calls root_exec: what is compiled for the kernel is
# compiled in the root of its compilers.
in_kernel_root() {
	local root=${kernel_root:-$root}
	"$@"
}

# kernel_download DIRECTORY PACKAGE… - of the version that was chosen. A list that has grown old
# names packages that the mirror does not have any more.
kernel_download() {
	local directory=$1
	shift
	mkdir -p "$directory"
	cd "$directory" || return
	kernel_apt apt-get download "${@/%/=$kernel_version}" || {
		echo "the mirror's list may have changed; scripts/lab update reads it again"
		return 1
	}
}

kernel_stock_make() {
	local directory=$1
	[ -e "$directory/.complete" ] && return
	kernel_source_make
	rm -rf "$directory"
	step fetch "fetching Debian's kernel $kver (130 MB)" kernel_download "$directory/packages" \
		"linux-base-$kver" "linux-binary-$kver" "linux-modules-$kver" "linux-headers-$kver" \
		"linux-headers-$kernel_abi-common" "linux-kbuild-$kernel_abi:${architectures[0]}"
	[ "$kernel_debian" = "${kernel_releases[0]}" ] || {
		with_cache_lock toolchain kernel_toolchain "$(echo "$directory/packages/linux-headers-$kver"_*.deb)"
		ln -s "$kernel_root" "$directory/toolchain"
	}
	in_kernel_root step stock "preparing Rust metadata for it (about 1.5 minutes)" \
		root_exec "$tree/scripts/unpack-kernel" "$kver" "$ksrc" "$directory"
	in_kernel_root step 9p "building 9p, which guests need" \
		root_exec "$tree/scripts/build-9p" "$kver" "$ksrc" "$directory"
	rm -r "$directory/packages"
	touch "$directory/.complete"
}

kernel_source_make() { [ -e "$ksrc/.complete" ] || with_cache_lock "source-${ksrc##*/}" kernel_source_unpack; }

kernel_source_unpack() {
	[ -e "$ksrc/.complete" ] && return
	rm -rf "$ksrc"
	step fetch "fetching its source (170 MB)" kernel_download "$ksrc.package" "$kernel_source"
	step source "unpacking it" root_exec bash -ec '
		dpkg-deb --fsys-tarfile "$1.package"/*.deb | tar -xO "./usr/src/$2.tar.xz" >"$1.tar.xz"
		mkdir "$1"
		# Headers with descriptions are read; sources not for x86, or not compiled here, are
		# left out.
		tar -C "$1" -xf "$1.tar.xz" --strip-components=1 --wildcards \
			--exclude="*/Documentation/*.rst" --exclude="*/arch/*/boot/dts" --exclude="*/sound/*.[ch]" \
			--exclude="*/drivers/gpu/*.[ch]" --exclude="*/drivers/media/*.[ch]" --exclude="*/drivers/staging/*.[ch]"
		rm -r "$1.package" "$1.tar.xz"' source "$ksrc" "$kernel_source"
	touch "$ksrc/.complete"
}

# Kernels of the lab's own configurations
# ---------------------------------------------------------------------------

kernel_debug() { kernel_built debug "$tree/qemu/kernel/debug.config" "about 10 minutes on 2 cores"; }

kernel_modversions() {
	local config=$build_root/modversions.config
	mkdir -p "$build_root"
	sed '/^# The checkers/,/^$/d' "$tree/qemu/kernel/debug.config" | cat - "$tree/qemu/kernel/modversions.config" >"$config"
	kernel_built modversions "$config" "about 5 minutes on 2 cores"
}

# kernel_built NAME CONFIG "how long"
kernel_built() {
	kernel_choose stock
	kernel_source_make
	kernel_key=$1-$kernel_abi-$(key_of "$2" "$tree/scripts/build-debug-kernel" "$root/etc/lab-toolchain" \
		<(echo "$kernel_version"))
	kdir=$cache/kernel/$kernel_key
	[ -e "$kdir/.complete" ] || with_cache_lock "kernel-$1" kernel_build "$@"
	kmodules=$kdir/modules
	# By its PVH entry: bzImage takes an emulated CPU four seconds to decompress.
	kimage=$kdir/vmlinux
	kver=$(cat "$kdir/include/config/kernel.release")
}

kernel_build() {
	[ -e "$kdir/.complete" ] && return
	mkdir -p "$kdir"
	step "kernel-$1" "building the $1 kernel ($3)" \
		root_exec "$tree/scripts/build-debug-kernel" "$ksrc" "$2" "$kdir"
	touch "$kdir/.complete"
}

# Kernels with hooks
# ---------------------------------------------------------------------------

kernel_hooked() {
	local name=$kernel kind=stock directory=$cache/debian plain
	[ "$kernel" = hooked ] || kind=debug directory=$cache/kernel
	kernel=$kind
	"kernel_$kind"
	kernel=$name
	plain=$kmodules
	[ "$kind" = stock ] || plain=$kdir
	kernel_key=hooked-$kernel_key-$(key_of <(sed -s '1,/^---$/d' "$tree"/upstream/core/{,hooks/}*.patch) "$tree/scripts/build-hooked")
	directory+=/$kernel_key
	[ -e "$directory/.complete" ] || with_cache_lock hooked kernel_hooked_make "$kind" "$plain" "$directory"
	kdir=${kdir/#"$plain"/"$directory"} kmodules=${kmodules/#"$plain"/"$directory"} kimage=${kimage/#"$plain"/"$directory"}
}

kernel_hooked_make() {
	local kind=$1 plain=$2 directory=$3
	[ -e "$directory/.complete" ] && return
	kernel_source_make
	rm -rf "$directory"
	mkdir -p "$directory"
	in_kernel_root step hooked "building ib_core and ib_uverbs with hooks (about a minute)" \
		root_exec "$tree/scripts/build-hooked" "$kind" "$ksrc" "$plain" "$directory"
	touch "$directory/.complete"
}

# A custom kernel
# ---------------------------------------------------------------------------

kernel_own() {
	"$tree/scripts/plain-path" "$kernel" "${KSRC-}" "${RUSTC-}" || exit 125
	[ -d "$kernel" ] || die "no such kernel build tree: $kernel"
	# A custom compiler comes along with its libraries.
	[ -z "${RUSTC-}" ] || RUSTC=$(cd "$kernel" && "$RUSTC" --print sysroot)/bin/rustc
	# Where it was built from, unless that was itself.
	ksrc=${KSRC:-$(readlink -f "$kernel/source" || echo "$kernel")}
	export LAB_BIND="$kernel $ksrc ${RUSTC+${RUSTC%/bin/rustc}}"
	root_exec "$tree/scripts/kernel-toolchain" "$kernel" >/dev/null || exit 125
	kver=$(cat "$kernel/include/config/kernel.release")
	kernel_key=own-$(printf '%s' "$kernel" | sha256sum | cut -c1-12)
	kdir=$kernel
	kimage=$kdir/$arch_image
	kmodules=$cache/modules/$kernel_key
	local file
	for file in "$arch_image" Module.symvers; do
		[ -e "$kernel/$file" ] || die "$kernel has no $file: build it first"
	done
	if ! [ "$kmodules/.complete" -nt "$kdir/modules.order" ]; then
		mkdir -p "$kmodules"
		step kernel-own "installing the modules of $kver" \
			root_exec make -C "$kdir" INSTALL_MOD_PATH="$kmodules" modules_install
		touch "$kmodules/.complete"
		rm -f "$cache/initramfs/$kernel_key"-*
	fi
}

kernel_initramfs() {
	[ -e "$initramfs" ] && return
	mkdir -p "$cache/initramfs"
	step initramfs "making the initramfs for $kver" \
		root_exec "$tree/scripts/make-initramfs" "$kmodules" "$kver" \
		"$tree/qemu/guest/initramfs-init" "${foreign:+$foreign/root}/bin/busybox" "$initramfs"
}
