# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034  # the other parts use these
#
# The architectures that guests have. The host's is the first, and the lab's root is of it.

architectures=(amd64)

# architecture NAME - what is one's own, in variables:
#
#	arch_kernel	what kernels call it; arch_image is the image that they build
#	arch_flavours	the flavours of Debian's kernels, and the ends of their releases
#	arch_qemu	QEMU and its machine; arch_append has words of the kernel's command line
#	arch_emulated	more arguments where it is emulated; arch_emulated_append has more words
#	arch_suffix	of names in the cache
architecture() {
	[[ " ${architectures[*]} " == *" $1 "* ]] || die "there are guests of ${architectures[*]}, and none of '$1'"
	arch=$1 arch_suffix=
	declare -gA arch_flavours=([stock]=$arch [rt]=rt-$arch [cloud]=cloud-$arch)
	"architecture_$arch"
	# This checkout's own part of the cache.
	build_root=$cache/build/$(printf '%s' "$tree" | sha256sum | cut -c1-12)$arch_suffix
}

architecture_amd64() {
	arch_kernel=x86 arch_image=arch/x86/boot/bzImage
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

architecture amd64
