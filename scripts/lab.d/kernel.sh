# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The kernels a guest can boot: Debian's own ("stock"), the same source with every checker on
# ("debug"), or a build tree of one's own. Each has a build tree (kdir), a source (ksrc), a boot
# image, modules and an initramfs of its own; all paths are as seen in the root.

kernel=${KDIR:-stock}
kernel_rest=()

# kernel_option ARG… - take --kernel out of the arguments, leave the rest in kernel_rest.
kernel_option() {
	kernel_rest=()
	while [ $# -gt 0 ]; do
		case $1 in
		--kernel)
			kernel=${2-}
			[ -n "$kernel" ] || die "--kernel wants stock, debug or a directory"
			shift 2
			;;
		*)
			kernel_rest+=("$1")
			shift
			;;
		esac
	done
}

kernel_setup() {
	ksrc=${KSRC:-/usr/src/linux}
	case $kernel in
	stock) kernel_stock ;;
	debug) kernel_debug ;;
	/*) kernel_own ;;
	*) die "--kernel wants stock, debug or an absolute directory, not '$kernel'" ;;
	esac
	initramfs=$cache/initramfs/$kernel_key-$(key_of "$tree/qemu/guest/initramfs-init" "$tree/scripts/make-initramfs").cpio.gz
	[ -e "$initramfs" ] || with_cache_lock kernel_initramfs
	mkdir -p "$(build_dir)"
}

kernel_stock() {
	kver=$(cat "$root/etc/lab-kernel")
	kernel_key=stock-$root_key
	kdir=/usr/src/linux-headers-$kver
	kmodules=/
	kimage=/usr/lib/modules/$kver/vmlinuz
	[ -e "$root/etc/lab-metadata" ] || with_cache_lock kernel_stock_prepare
}

kernel_stock_prepare() {
	[ -e "$root/etc/lab-metadata" ] && return
	step stock "preparing Rust metadata for Debian's kernel $kver (about 1.5 minutes)" \
		root_exec "$tree/scripts/prepare-rust-headers" "$kdir" /usr/src/linux
	touch "$root/etc/lab-metadata"
}

kernel_debug() {
	kernel_key=debug-$(cat "$tree/qemu/kernel/debug.config" "$tree/scripts/build-debug-kernel" "$root/etc/lab-toolchain" | sha256sum | cut -c1-12)
	kdir=$cache/kernel/$kernel_key
	[ -e "$kdir/.complete" ] || with_cache_lock kernel_debug_build
	kmodules=$kdir/modules
	# By its PVH entry: bzImage takes an emulated CPU four seconds to decompress.
	kimage=$kdir/vmlinux
	kver=$(cat "$kdir/include/config/kernel.release")
}

kernel_debug_build() {
	[ -e "$kdir/.complete" ] && return
	mkdir -p "$kdir"
	step kernel-debug "building the debug kernel (about 13 minutes on 2 cores)" \
		root_exec "$tree/scripts/build-debug-kernel" /usr/src/linux "$tree/qemu/kernel/debug.config" "$kdir"
	touch "$kdir/.complete"
}

kernel_own() {
	"$tree/scripts/plain-path" "$kernel" "${KSRC-}" "${RUSTC-}" || exit 125
	[ -d "$kernel" ] || die "no such kernel build tree: $kernel"
	# A compiler of one's own comes along with its libraries.
	[ -z "${RUSTC-}" ] || RUSTC=$(cd "$kernel" && "$RUSTC" --print sysroot)/bin/rustc
	export LAB_BIND="$kernel ${KSRC-} ${RUSTC+${RUSTC%/bin/rustc}}"
	root_exec "$tree/scripts/kernel-toolchain" "$kernel" >/dev/null || exit 125
	kver=$(cat "$kernel/include/config/kernel.release")
	kernel_key=own-$(printf '%s' "$kernel" | sha256sum | cut -c1-12)
	kdir=$kernel
	kimage=$kdir/arch/x86/boot/bzImage
	kmodules=$cache/modules/$kernel_key
	local file
	for file in arch/x86/boot/bzImage Module.symvers; do
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
		"$tree/qemu/guest/initramfs-init" "$initramfs"
}
