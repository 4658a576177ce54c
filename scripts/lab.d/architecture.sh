# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034  # the other parts use these
#
# The architectures that guests have. The host's is the first, and the lab's root is of it.

architectures=(amd64 arm64)

# architecture NAME - what is one's own, in variables:
#
#	arch_kernel	what kernels call it; arch_image is the image that they build
#	arch_flavours	the flavours of Debian's kernels, and the ends of their releases
#	arch_qemu	QEMU and its machine; arch_append has words of the kernel's command line
#	arch_emulated	more arguments where it is emulated; arch_emulated_append has more words
#	arch_kernels	the kernels that the lab builds for it itself
#	foreign		what is needed beside the root, if it is not the root's own architecture
#			(qemu/arm64/make); foreign_key is a hash of what that is made from
#	arch_compilers	variables for compilers then; arch_rust is a directory that cargo adds
#	arch_suffix	of names in the cache then
#
# and in build_root this checkout's part of the cache, in host_build_root that of programs that run
# on the host, in kernel_archive where Debian's kernels are taken from, in kernel_list their list,
# and in kernel_releases the releases of Debian that they are of, in the order in which a kernel
# that several have is taken from them. The first is what the root's compilers are for, and is
# always there.
architecture() {
	[[ " ${architectures[*]} " == *" $1 "* ]] || die "there are guests of ${architectures[*]}, and none of '$1'"
	arch=$1 foreign='' foreign_key='' arch_suffix='' arch_compilers=() arch_rust='' arch_kernels=()
	[ "$arch" = "${architectures[0]}" ] || {
		arch_suffix=-$arch
		foreign_key=$(key_of_tree "$tree/qemu/$arch" "$tree/qemu/root")
		foreign=$cache/root-$arch-$foreign_key
	}
	declare -gA arch_flavours=([stock]=$arch [rt]=rt-$arch [cloud]=cloud-$arch)
	kernel_archive=$cache/debian/archive$arch_suffix kernel_list=$cache/debian/kernels$arch_suffix
	kernel_releases=(trixie-backports forky sid experimental)
	host_build_root=$cache/build/$(printf '%s' "$tree" | sha256sum | cut -c1-12)
	build_root=$host_build_root$arch_suffix
	"architecture_$arch"
	export LAB_ARCH=$arch
}

# natively COMMAND… - with what is made for the host, below its own build_root.
natively() { (architecture "${architectures[0]}" && with_build_lock "$@"); }

architecture_amd64() {
	arch_kernel=x86 arch_image=arch/x86/boot/bzImage
	arch_kernels=(debug modversions hooked hooked-debug)
	arch_qemu=(qemu-system-x86_64 -machine q35,memory-backend=mem)
	# Four-level page tables: the kernel forgets for a moment at boot that it has five, and
	# KASAN reports any access of an interrupt then. No fast string instructions: emulated, they
	# copy byte by byte, and without them the kernel copies and clears words, up to six times as
	# fast.
	arch_emulated=(-cpu max,-la57,-erms,-fsrm,-fzrm,-fsrs,-fsrc)
	# The PM timer of q35: a kernel without ACPI does not find it.
	arch_append="console=ttyS0 pmtmr=0x608"
	# Timers are late: values that the kernel would measure with them are given to it, first of
	# all the frequency of its clock (launch fills that in).
	arch_emulated_append="no_timer_check lpj=4000000 tsc=reliable tsc_early_khz=HOST"
}

architecture_arm64() {
	local triple=aarch64-linux-gnu variable
	arch_rust=aarch64-unknown-linux-gnu
	arch_kernel=arm64 arch_image=arch/arm64/boot/Image
	# The roots with compilers of later releases do not compile for it.
	kernel_releases=("${kernel_releases[0]}")
	arch_flavours[16k]=arm64-16k
	arch_qemu=(qemu-system-aarch64 -machine virt,gic-version=3,memory-backend=mem)
	# Signatures of pointers by QEMU's own function, as the architecture's is slow to emulate.
	# No scalable vectors, which nothing here uses.
	arch_emulated=(-cpu max,pauth-impdef=on,sve=off,sme=off)
	arch_append=console=ttyAMA0 arch_emulated_append=
	# For Kbuild, make's rules, cargo, cmake and Go. A program that is run where it was built is
	# emulated.
	variable=CARGO_TARGET_${arch_rust//-/_}
	arch_compilers=(
		"ARCH=$arch_kernel" "CROSS_COMPILE=$triple-" "CC=$triple-gcc" "CXX=$triple-g++" "LD=$triple-ld"
		"AR=$triple-ar" "OBJCOPY=$triple-objcopy" "STRIP=$triple-strip" HOST_CC=gcc HOST_CXX=g++
		"CMAKE_TOOLCHAIN_FILE=$tree/qemu/arm64/toolchain.cmake"
		"PKG_CONFIG_LIBDIR=/usr/lib/$triple/pkgconfig:/usr/share/pkgconfig" PKG_CONFIG_ALLOW_CROSS=1
		GOARCH=arm64 CGO_ENABLED=1 EMULATOR=qemu-aarch64
		"CARGO_BUILD_TARGET=$arch_rust" "${variable^^}_LINKER=$triple-gcc" "${variable^^}_RUNNER=qemu-aarch64"
	)
}

architecture "${LAB_ARCH:-${architectures[0]}}"
