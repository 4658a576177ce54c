# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The suites of qemu/tests/suites as they are run. Sourced at the top of the tree.

# kernel_here KERNEL - prints the kernel that a suite on KERNEL has on the architecture of guests
# (LAB_ARCH); fails if there is none. Others than amd64 have Debian's, which take the place of the
# debug kernel, and suites of the host are tested without them.
kernel_here() {
	case ${LAB_ARCH:-amd64}:$1 in
	amd64:* | *:stock* | "$LAB_ARCH:$LAB_ARCH":*) echo "$1" ;;
	*:debug) echo stock ;;
	*) return 1 ;;
	esac
}

# selected [SUITE…] - a line for each suite, or for these: WHEN NAME KERNEL DEVICE, and then
# [--OPTION…] TEST… [then TEST…], or a command. The long ones are left out if $long is empty, but
# for those that are named. The tests are in the order that the options of qemu/tests/select in the
# array order, which may be unset, say.
selected() {
	local when name kernel device rest here
	while read -r when name kernel device rest; do
		case $when in
		'' | '#'*) continue ;;
		long) [ -n "$long" ] || [ $# -gt 0 ] || continue ;;
		esac
		[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
		here=$(kernel_here "$kernel") && rest=$(with_tests "$kernel" "$rest") || continue
		echo "$when $name $here $device $rest"
	done <qemu/tests/suites
}

# with_tests KERNEL REST - a suite with its tests in place of the expressions that select them;
# fails if none of them is for a kernel that is in the place of KERNEL.
with_tests() {
	local kernel=$1 rest=$2 after without='' tests
	if [[ $rest == ": "* ]]; then
		echo "${rest#: }"
		return
	fi
	[ "$kernel" != host ] || printf 'qemu/tests/run '
	while [[ $rest == --* ]]; do
		printf '%s ' "${rest%% *}"
		rest=${rest#* }
	done
	after=${rest##* then }
	rest=${rest%% then *}
	# Some tests are for amd64 only. On a stock kernel in place of the debug kernel there are
	# not those that need its configuration, nor once more those that suites of both have.
	[ "${LAB_ARCH:-amd64}" = amd64 ] && [[ $kernel != *:stock* ]] || without+=" !amd64"
	[ "$(kernel_here "$kernel")" = "$kernel" ] || without+=" !failslab !stock"
	tests=$(qemu/tests/select "${order[@]}" "${rest//|/"$without |"}$without" | paste -sd ' ' -)
	[ -n "$tests" ] || [[ $without != *stock* ]] || return
	printf %s "$tests"
	[ "$2" = "${2/ then /}" ] || printf ' then %s' "$(qemu/tests/select "${order[@]}" "$after" | paste -sd ' ' -)"
	echo
}
